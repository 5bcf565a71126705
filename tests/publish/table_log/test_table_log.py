from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fixtures.faults import Crash, Fault, FaultyStore, Mode
from fixtures.memory import MemoryStore
from fixtures.onelake import OneLake
from fixtures.onelake.faults import Fault as FaultOfService
from fixtures.onelake.faults import How
from mirrorfeed.config.model import Table as ConfigTable
from mirrorfeed.errors import MirrorfeedError, TerminalError, TransientError
from mirrorfeed.landing.errors import DamagedFileError, RecordTooNewError, keys_changed
from mirrorfeed.landing.log_record import FORMAT, File, PreviousRecord, Record
from mirrorfeed.landing.names import is_start_marker, start_marker_name
from mirrorfeed.landing.output_format import Output
from mirrorfeed.landing.schema import Column
from mirrorfeed.publish import table_log
from mirrorfeed.publish.errors import (
    FileNumberConflictError,
    RecordsMissingError,
    RowsRefusedError,
    concurrent_changes,
    final_name_taken,
    foreign_file,
    log_id_missing,
    staged_file_damaged,
    too_many_files,
)
from mirrorfeed.publish.table_log import TableLog, metadata_files
from mirrorfeed.publish.table_log.rename_and_clean_up import clean_up, finish_publication
from mirrorfeed.publish.table_log.view import View
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.publish.table_result import TableResult
from mirrorfeed.storage import Store
from mirrorfeed.storage.errors import LocationUnusableError, StorageUnavailableError
from mirrorfeed.storage.local_folder import FolderStore
from mirrorfeed.storage.onelake import OneLakeStore
from mirrorfeed.storage.request_retries import RetryLimits
from tests.raised import Expected, raises
from tests.support.entries import changed, entry
from tests.support.tables import Table, TableFeed

T = "shop.schema/orders"
LOG = f"{T}/_mirrorfeed/abc"


def name(number: int) -> str:
    return f"{number:020d}"


def staged(record_number: int, part: int = 1) -> str:
    return f"{name(record_number)}-ba7c4-{part:05d}.parquet"


def a_record(number: int, files: int = 0, first: int = 1, **other: Any) -> Record:
    return Record(
        number=number,
        batch=f"{number:04x}",
        time="2026-11-21T04:00:00.000+00:00",
        source="main.shop.orders",
        source_id="id",
        from_version_exclusive=None,
        to_version_inclusive=number,
        columns=(Column("id", "long"),),
        keys=("id",),
        next_file_number=first + files,
        files=tuple(File(staged(number, n), first + n, {"upsert": 1}, 1, "00") for n in range(files)),
        **other,
    )


def zone(*records: Record) -> MemoryStore:
    """A table folder with the log `abc`, these records, and staged files for the newest record."""
    store = MemoryStore()
    store.create(f"{T}/_mirrorfeed/log.json", b'{"log_id": "abc"}')
    store.create(f"{T}/_metadata.json", b'{"keyColumns": ["id"]}')
    for each in records:
        store.create(f"{LOG}/{name(each.number)}.json", each.to_json())
        if each.follows is None:
            store.create(f"{LOG}/{start_marker_name(each.batch)}", b"")
    return store


FIRST = PreviousRecord(1, "0001", "")


def put(store: MemoryStore, *paths: str) -> None:
    for path in paths:
        store.create(path, path[-1:].encode())


def names(store: MemoryStore, folder: str) -> list[str]:
    return [entry.name for entry in store.list(folder)]


def read_view(store: Store, folder: str) -> View:
    """Read the view of an existing log."""
    view = TableLog(store, folder).read_view()
    assert view is not None
    return view


def finish(store: Store, folder: str) -> View:
    view = finish_publication(TableLog(store, folder))
    assert view is not None
    return view


def check(store: Store) -> None:
    TableLog(store, T).check(read_view(store, T))


# read


def test_log_is_created_once_and_found_by_later_reads() -> None:
    store = MemoryStore()

    first = TableLog(store, T).create_log()

    found = read_view(store, T)
    assert replace(found, entries=()) == replace(first, confirmed=True)
    assert first.newest is None
    assert (first.number, first.next_file_number) == (0, 1)


def test_read_view_creates_nothing() -> None:
    store = MemoryStore()

    assert TableLog(store, T).read_view() is None
    assert store.list("") == []


def test_read_view_returns_newest_record_and_staged_files() -> None:
    store = zone(a_record(8), a_record(9, files=2, first=17))
    put(store, f"{LOG}/{staged(9, 1)}", f"{LOG}/{staged(10)}", f"{T}/{name(17)}.parquet", f"{T}/_scratchPad/x")

    view = read_view(store, T)

    assert view.newest == a_record(9, files=2, first=17)
    assert list(view.records) == [8, 9]
    assert view.data == (f"{name(17)}.parquet",)
    assert [file.number for file in view.unfinished] == [18]
    assert (view.number, view.next_file_number) == (9, 19)


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff", b"{}", b"[]", b"3", b'{"log_id": 3}', b'{"log_id": ""}', b'{"log_id": "../x"}', b'{"log_id": "A"}'],
)
def test_log_file_without_a_valid_log_id_is_refused(content: bytes) -> None:
    store = MemoryStore()
    store.create(f"{T}/_mirrorfeed/log.json", content)

    with pytest.raises(DamagedFileError) as caught:
        read_view(store, T)

    assert caught.value.address == "memory:/shop.schema/orders/_mirrorfeed/log.json"
    assert caught.value.kind == "table"


def test_record_that_is_not_json_is_refused() -> None:
    store = zone(a_record(1))
    store.create(f"{LOG}/{name(2)}.json", b"{")

    with pytest.raises(DamagedFileError) as caught:
        read_view(store, T)

    assert str(caught.value).startswith(
        f"memory:/{LOG}/{name(2)}.json is damaged, or mirrorfeed did not write it: it is not valid JSON ("
    )


def test_record_under_another_number_is_refused() -> None:
    store = zone()
    store.create(f"{LOG}/{name(7)}.json", a_record(3).to_json())

    with pytest.raises(DamagedFileError, match=r"7\.json is damaged, .*: it is record 3\."):
        read_view(store, T)


def test_record_of_a_newer_format_requires_a_newer_version() -> None:
    store = zone(a_record(1, format=5))

    with pytest.raises(RecordTooNewError) as caught:
        read_view(store, T)

    assert caught.value.facts == {"address": f"memory:/{LOG}/{name(1)}.json", "found": 5, "known": FORMAT}


@pytest.mark.parametrize("when", range(1, 6))
def test_read_restarts_if_a_record_is_added_meanwhile(when: int) -> None:
    store = zone(a_record(1))
    calls = []

    def other_publisher(verb: str) -> None:
        calls.append(verb)
        if len(calls) == when:
            put(store, f"{LOG}/{staged(2, 0)}")
            store.create(f"{LOG}/{name(2)}.json", a_record(2, files=1).to_json())
            store.remove(f"{LOG}/{name(1)}.json")

    view = read_view(FaultyStore(store, before=other_publisher), T)

    assert view.newest == a_record(2, files=1)
    assert [file.staged for file in view.unfinished] == [staged(2, 0)]


def test_read_of_a_constantly_changing_log_is_a_transient_error() -> None:
    store = zone()
    made = []

    def other_publisher(verb: str) -> None:
        if verb == "list":
            made.append(verb)
            store.create(f"{LOG}/{name(len(made))}.json", a_record(len(made)).to_json())

    with raises(concurrent_changes) as tired:
        read_view(FaultyStore(store, before=other_publisher), T)

    assert isinstance(tired.value, TransientError)
    assert tired.value.address == "memory:/shop.schema/orders"


def test_error_explains_why_landing_zone_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "shop.schema").write_text("a file where a folder should be")

    with pytest.raises(LocationUnusableError) as unwritable:
        read_view(FolderStore(str(tmp_path)), T)

    text = str(unwritable.value)
    assert text.startswith(f"Cannot read {tmp_path}/shop.schema/orders/_mirrorfeed/log.json: Not a directory.")
    assert text.endswith(
        "names a folder in which this process can write and rename files, then run the same command again."
    )


class ReadOnly(MemoryStore):
    """Accepts no new files except staged files."""

    locked = False
    refusals = 0

    def create(self, path: str, data: bytes) -> None:
        if self.locked:
            self.refusals += 1
            assert self.refusals < 50, "it goes on for ever"
            raise StorageUnavailableError(action="create", address=self.address(path), reason="403 Forbidden")
        super().create(path, data)


def test_failed_log_creation_is_not_retried_forever() -> None:
    store = ReadOnly()
    store.locked = True

    with pytest.raises(StorageUnavailableError, match=r"^Cannot create memory:/.*/log\.json: 403 Forbidden\."):
        TableLog(store, T).create_log()


# finish


def test_settling_renames_remaining_files_of_newest_record_in_order() -> None:
    store = zone(a_record(1, files=3))
    put(store, *(f"{LOG}/{staged(1, part)}" for part in (1, 2)))
    moved = []
    store.watcher = lambda verb, path, new_path: moved.append((verb, path, new_path))

    view = finish(store, T)

    assert view.unfinished == ()
    assert moved == [
        ("rename", f"{LOG}/{staged(1, 1)}", f"{T}/{name(2)}.parquet"),
        ("rename", f"{LOG}/{staged(1, 2)}", f"{T}/{name(3)}.parquet"),
    ]


def test_failed_rename_blocks_the_files_after_it() -> None:
    store = zone(a_record(1, files=2))
    put(store, *(f"{LOG}/{staged(1, part)}" for part in (0, 1)))

    class Stuck(FaultyStore):
        def rename(self, path: str, new_path: str) -> None:
            if path.endswith(staged(1, 0)):
                raise StorageUnavailableError(action="rename", address=self.address(path), reason="500")
            super().rename(path, new_path)

    with pytest.raises(StorageUnavailableError, match=r"^Cannot rename memory:/.*: 500\."):
        finish(Stuck(store), T)
    assert names(store, T) == ["_metadata.json", "_mirrorfeed"]


def test_occupied_final_name_is_reported_and_not_overwritten() -> None:
    store = zone(a_record(1, files=1, first=5))
    put(store, f"{LOG}/{staged(1, 0)}", f"{T}/{name(5)}.parquet")

    with raises(final_name_taken) as taken:
        finish(store, T)

    assert taken.value.address == f"memory:/{T}/{name(5)}.parquet"
    assert taken.value.staged == f"memory:/{LOG}/{staged(1, 0)}"
    assert store.read(f"{T}/{name(5)}.parquet") == b"t"
    store.remove(f"{T}/{name(5)}.parquet")
    assert finish(store, T).unfinished == ()


def test_file_of_another_format_stops_the_table() -> None:
    store = zone(a_record(1))
    put(store, f"{T}/orders.csv")

    with raises(foreign_file) as foreign:
        check(store)

    assert foreign.value.address == f"memory:/{T}/orders.csv"


@pytest.mark.parametrize(
    ("records", "number", "message"),
    [
        ((), 1, "exists, but the table has no log."),
        ((a_record(1, files=0, first=4),), 4, "exists, but the last file number in the log is 3."),
    ],
)
def test_unassigned_file_number_stops_the_table(records: Any, number: int, message: str) -> None:
    store = zone(*records)
    put(store, f"{T}/{name(number)}.parquet")

    with pytest.raises(FileNumberConflictError) as disagree:
        check(store)

    assert disagree.value.problem == f"memory:/{T}/{name(number)}.parquet {message}"


@pytest.mark.parametrize("place", ["_ProcessedFiles", "_FilesReadyToDelete"])
def test_lost_log_is_detected_by_consumed_files(place: str) -> None:
    store = MemoryStore()
    put(store, f"{T}/_metadata.json", f"{T}/{place}/{name(7)}.parquet", f"{T}/{place}/notes.txt")

    with pytest.raises(FileNumberConflictError) as disagree:
        TableLog(store, T).create_log()

    assert (disagree.value.address, disagree.value.expected) == (f"memory:/{T}/{place}/{name(7)}.parquet", 1)


def test_underscore_names_and_consumed_files_are_ignored() -> None:
    store = zone(a_record(1, files=3))
    put(store, f"{T}/_ProcessedFiles/x", f"{T}/_temp", f"{T}/{name(3)}.parquet")

    check(store)
    assert read_view(store, T).data == (f"{name(3)}.parquet",)


# clean up


def test_records_are_returned_newest_first_until_a_pruned_one() -> None:
    store = zone(*(a_record(number) for number in (1, 2, 3, 4)))
    view = read_view(store, T)
    assert [record.number for record in TableLog(store, T).records(view)] == [4, 3, 2, 1]
    store.remove(f"{LOG}/{name(2)}.json")
    assert [record.number for record in TableLog(store, T).records(view)] == [4, 3]
    assert list(TableLog(zone(), T).records(read_view(zone(), T))) == []


@pytest.mark.parametrize(
    ("keep", "remaining"),
    [(1, [2, 3]), (2, [2, 3]), (10, [1, 2, 3])],
)
def test_cleanup_retains_the_newest_records(keep: int, remaining: list[int]) -> None:
    store = zone(*(a_record(number) for number in (1, 2, 3)))

    clean_up(TableLog(store, T), read_view(store, T), keep, others=True)

    assert names(store, LOG) == [f"{name(number)}.json" for number in remaining]


def test_cleanup_removes_only_unpublishable_staged_files() -> None:
    store = zone(a_record(2, files=1))
    put(store, f"{LOG}/{staged(1)}", f"{LOG}/{staged(2, 5)}", f"{LOG}/{staged(3)}", f"{LOG}/{staged(4)}", f"{LOG}/note")

    clean_up(TableLog(store, T), finish(store, T), 10, others=True)

    assert names(store, LOG) == [f"{name(2)}.json", staged(3), staged(4), "note"]


def test_staged_files_are_not_removed_without_a_record() -> None:
    store = zone()
    put(store, f"{LOG}/{staged(1)}")

    clean_up(TableLog(store, T), read_view(store, T), 10, others=True)

    assert names(store, LOG) == [staged(1)]


def test_folders_of_other_logs_are_removed_and_foreign_names_are_not() -> None:
    store = zone()
    put(store, f"{T}/_mirrorfeed/0ld/{name(1)}.json", f"{T}/_mirrorfeed/Notes.of/me", f"{LOG}/{staged(1)}")

    clean_up(TableLog(store, T), read_view(store, T), 10, others=True)

    assert names(store, f"{T}/_mirrorfeed") == ["Notes.of", "abc", "log.json"]


def test_folder_of_another_log_with_foreign_files_is_not_removed() -> None:
    for foreign in ("notes.txt", "notes/of/others", f"{name(1)}.json/below"):
        store = zone(a_record(1))
        put(store, f"{T}/_mirrorfeed/0ld/{name(2)}.json", f"{T}/_mirrorfeed/0ld/{foreign}")

        clean_up(TableLog(store, T), read_view(store, T), 10, others=True)

        assert names(store, f"{T}/_mirrorfeed") == ["0ld", "abc", "log.json"]


def test_record_too_large_to_read_again_is_not_created(monkeypatch: pytest.MonkeyPatch) -> None:
    store = zone(a_record(1))
    put(store, f"{LOG}/{name(2)}-0002-1.parquet")
    monkeypatch.setattr(table_log, "READ_LIMIT", 2**20)

    with raises(too_many_files) as caught:
        TableLog(store, T).add_record(read_view(store, T), a_record(2, files=8000, follows=FIRST))
    assert str(caught.value) == (
        "The publication to memory:/shop.schema/orders has 8,000 files. Their list in the log would exceed the limit of"
        " 1 MiB. Set a larger `target_file_size` and publish again. Nothing was published."
    )
    assert names(store, LOG) == [f"{name(1)}.json", start_marker_name("0001")]


def test_log_created_after_the_read_is_not_removed() -> None:
    store = zone(a_record(1))
    view = read_view(store, T)
    store.remove_folder(T)
    store.create(f"{T}/_mirrorfeed/log.json", b'{"log_id": "def"}')
    put(store, f"{T}/_mirrorfeed/def/{name(1)}.json")

    clean_up(TableLog(store, T), view, 10, others=True)

    assert names(store, f"{T}/_mirrorfeed/def") == [f"{name(1)}.json"]


def test_leftovers_of_other_logs_are_removed_with_records_1_2_4_and_8() -> None:
    store, table, existing = MemoryStore(), orders(), []
    for number in range(1, 9):
        put(store, f"{T}/_mirrorfeed/0ld/{staged(1)}")
        publish(TableFeed(table), store, PLAN)
        existing.append("0ld" in names(store, f"{T}/_mirrorfeed"))
        store.remove_folder(f"{T}/_mirrorfeed/0ld")
        table.insert({"id": number + 1})

    assert existing == [False, False, True, False, True, True, True, False]


# metadata


def test_metadata_is_written_once() -> None:
    store = MemoryStore()
    made = []
    store.watcher = lambda verb, path, _: made.append((verb, path))

    for _ in range(2):
        metadata_files.ensure(store, T, Output().metadata(("a", "b"), ()))

    assert json.loads(store.read(f"{T}/_metadata.json")) == {"keyColumns": ["a", "b"]}
    assert made == [("create", f"{T}/_metadata.json")]


def test_first_metadata_is_created_without_a_read() -> None:
    counting = FaultyStore(MemoryStore())
    metadata_files.ensure(counting, T, Output().metadata(("id",), ()))
    assert counting.verbs == ["create"]


@pytest.mark.parametrize("mode", [Mode.LOST, Mode.REFUSED, Mode.REPEATED])
def test_metadata_exists_after_any_result_of_its_creation(mode: Mode) -> None:
    store = MemoryStore()
    with suppress(StorageUnavailableError):
        metadata_files.ensure(FaultyStore(store, [Fault(0, mode)]), T, Output().metadata(("id",), ()))
    metadata_files.ensure(store, T, Output().metadata(("id",), ()))
    assert json.loads(store.read(f"{T}/_metadata.json")) == {"keyColumns": ["id"]}


def test_existing_metadata_is_compared_on_first_publication() -> None:
    store = MemoryStore()
    store.create(f"{T}/_metadata.json", b'{"keyColumns": ["day"]}')
    with raises(keys_changed):
        metadata_files.ensure(store, T, Output().metadata(("id",), ()))


def test_keys_are_added_to_a_table_without_keys() -> None:
    store = MemoryStore()
    metadata_files.ensure(store, T, Output().metadata((), ()))

    metadata_files.ensure(store, T, Output().metadata(("id",), ()))

    assert json.loads(store.read(f"{T}/_metadata.json")) == {"keyColumns": ["id"]}


@pytest.mark.parametrize(("wanted", "spelled"), [(("id", "day"), "the keys 'id', 'day'"), ((), "no keys")])
def test_existing_keys_cannot_change(wanted: tuple[str, ...], spelled: str) -> None:
    store = MemoryStore()
    metadata_files.ensure(store, T, Output().metadata(("id",), ()))

    with raises(keys_changed) as caught:
        metadata_files.ensure(store, T, Output().metadata(wanted, ()))

    assert caught.value.problem == (
        f"The table has {spelled}, but was published with the keys 'id' (memory:/{T}/_metadata.json)."
    )
    assert json.loads(store.read(f"{T}/_metadata.json")) == {"keyColumns": ["id"]}


def test_unreadable_metadata_is_refused() -> None:
    store = MemoryStore()
    store.create(f"{T}/_metadata.json", b"keys: id")

    with pytest.raises(DamagedFileError, match=r"^memory:/.*/_metadata\.json is damaged, .*: it is not valid JSON"):
        metadata_files.ensure(store, T, Output().metadata(("id",), ()))


def test_failed_metadata_write_is_not_retried_forever() -> None:
    store = ReadOnly()
    store.locked = True

    with pytest.raises(StorageUnavailableError, match="403 Forbidden"):
        metadata_files.ensure(store, T, Output().metadata(("id",), ()))


# record


def test_added_record_wins_if_it_is_the_newest() -> None:
    store = zone(a_record(1))

    after = TableLog(store, T).add_record(read_view(store, T), a_record(2, follows=FIRST))
    assert after is not None
    assert after.newest == read_view(store, T).newest == a_record(2, follows=FIRST)


def test_record_never_replaces_one_of_another_publisher() -> None:
    store = zone(a_record(1))
    view = read_view(store, T)
    other_publisher = replace(a_record(2, follows=FIRST), batch="07e5")
    store.create(f"{LOG}/{name(2)}.json", other_publisher.to_json())

    after = TableLog(store, T).add_record(view, a_record(2, follows=FIRST))
    assert after is not None
    assert after.newest == read_view(store, T).newest == other_publisher


def test_record_under_a_pruned_number_does_not_win() -> None:
    store = zone(a_record(1))
    view = read_view(store, T)
    store.create(f"{LOG}/{name(5)}.json", a_record(5).to_json())
    store.create(f"{LOG}/{start_marker_name(a_record(5).batch)}", b"")

    after = TableLog(store, T).add_record(view, a_record(2))
    assert after is not None
    assert after.newest == read_view(store, T).newest == a_record(5)


def test_record_in_a_deleted_folder_does_not_win() -> None:
    store = zone(a_record(1))
    view = read_view(store, T)
    store.remove_folder(T)

    assert TableLog(store, T).add_record(view, a_record(2)) is None


def test_record_created_before_a_refused_retry_wins() -> None:
    store = zone(a_record(1))
    view = read_view(store, T)

    class Repeating(FaultyStore):
        def create(self, path: str, data: bytes) -> None:
            super().create(path, data)
            super().create(path, data)

    after = TableLog(Repeating(store), T).add_record(view, a_record(2, follows=FIRST))
    assert after is not None
    assert after.newest == a_record(2, follows=FIRST)


# publish


def orders() -> Table:
    table = Table({"id": "long"}, ("id",))
    table.insert({"id": 1})
    return table


PLAN = entry("main.shop.orders", "shop.orders")


def test_permanently_refused_record_ends_the_run() -> None:
    store, table = ReadOnly(), orders()
    publish(TableFeed(table), store, PLAN)
    table.insert({"id": 2})
    store.locked = True

    with pytest.raises(StorageUnavailableError, match=r"^Cannot create memory:/.*2\.json: 403 Forbidden\."):
        publish(TableFeed(table), store, PLAN)


@pytest.mark.parametrize(
    ("change", "plan", "message"),
    [
        (
            lambda table: table.insert({"id": None}),
            PLAN,
            "Rows of main.shop.orders cannot be published: in version 2 a key is NULL (id = NULL).",
        ),
        (
            lambda table: table.insert({"id": 7}, {"id": 7}),
            PLAN,
            "Rows of main.shop.orders cannot be published: in version 2 a key is not unique (id = 7).",
        ),
        (
            lambda table: table.delete(1),
            changed(PLAN, keys=()),
            "Rows of main.shop.orders cannot be published: in version 2 a row was updated or deleted, but a table"
            " without keys accepts only inserts.",
        ),
    ],
)
def test_invalid_rows_are_refused_and_their_range_is_not_published(
    change: Any, plan: ConfigTable, message: str
) -> None:
    store, table = MemoryStore(), orders()
    publish(TableFeed(table), store, plan)
    before = read_view(store, T)
    change(table)

    with pytest.raises(RowsRefusedError) as caught:
        publish(TableFeed(table), store, plan)

    assert caught.value.problem == message
    assert (read_view(store, T).newest, read_view(store, T).data) == (before.newest, before.data)


def test_refused_first_load_creates_nothing_that_fabric_reads() -> None:
    store, table = MemoryStore(), orders()
    table.insert({"id": 1})

    with pytest.raises(RowsRefusedError):
        publish(TableFeed(table), store, PLAN)

    assert names(store, T) == ["_mirrorfeed"]
    table.delete(1)
    publish(TableFeed(table), store, PLAN)
    assert names(store, T) == [f"{name(1)}.parquet", "_metadata.json", "_mirrorfeed"]


def test_keys_are_not_written_if_they_cause_rows_to_be_refused() -> None:
    """Keys can never change once they are written."""
    store, table = MemoryStore(), orders()
    table.insert({"id": None})
    publish(TableFeed(table), store, changed(PLAN, keys=()))
    table.insert({"id": None})

    with pytest.raises(RowsRefusedError):
        publish(TableFeed(table), store, PLAN)

    assert json.loads(store.read(f"{T}/_metadata.json")) == {}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (concurrent_changes(address="x"), TransientError),
        (DamagedFileError(address="x", reason="y"), TerminalError),
        (final_name_taken(address="x", staged="y"), TerminalError),
        (foreign_file(address="x"), TerminalError),
        (FileNumberConflictError(address="x", expected=1), TerminalError),
    ],
)
def test_errors_are_either_transient_or_terminal(error: MirrorfeedError, kind: type) -> None:
    assert isinstance(error, kind)


# own and foreign files


def foreign(*names: str) -> MemoryStore:
    store = MemoryStore()
    put(store, f"{T}/_metadata.json", *(f"{T}/{each}" for each in names))
    store.replace(f"{T}/_metadata.json", b'{"keyColumns": ["id"]}')
    return store


@pytest.mark.parametrize(
    ("existing", "kind"),
    [
        (f"{name(1)}.parquet", FileNumberConflictError),
        (f"_ProcessedFiles/{name(7)}.parquet", FileNumberConflictError),
        ("part-00000.parquet", foreign_file),
    ],
)
def test_nothing_is_created_in_a_folder_of_another_publisher(existing: str, kind: Expected) -> None:
    store = foreign(existing)
    before = store.copy()
    changes: list[str] = []
    store.watcher = lambda verb, path, _: changes.append(f"{verb} {path}")

    with raises(kind):
        publish(TableFeed(orders()), store, PLAN)

    assert changes == []
    assert names(store, T) == names(before, T)


def test_error_about_missing_log_id_explains_how_to_restore_it() -> None:
    store, table = MemoryStore(), orders()
    publish(TableFeed(table), store, PLAN)
    log_file = store.read(f"{T}/_mirrorfeed/log.json")
    log_id = json.loads(log_file)["log_id"]
    store.remove(f"{T}/_mirrorfeed/log.json")
    table.insert({"id": 2})

    with raises(log_id_missing) as lost:
        publish(TableFeed(table), store, PLAN)

    time = json.loads(store.read(f"{T}/_mirrorfeed/{log_id}/{name(1)}.json"))["time"]
    assert (lost.value.log_id, lost.value.number, lost.value.time) == (log_id, 1, time)
    assert names(store, f"{T}/_mirrorfeed") == [log_id]
    store.create(f"{T}/_mirrorfeed/log.json", log_file)
    assert publish(TableFeed(table), store, PLAN).published_version == 2


def test_log_created_by_another_publisher_during_the_check_is_accepted() -> None:
    store, table, calls = MemoryStore(), orders(), []

    def other_publisher(verb: str) -> None:
        calls.append(verb)
        if calls == ["read", "read", "list"]:  # after reading the log, before listing the data files
            publish(TableFeed(table), store, PLAN)

    assert publish(TableFeed(table), FaultyStore(store, before=other_publisher), PLAN).published_version == 1


# a log without its first records


def test_records_contain_number_and_etag_of_their_predecessor() -> None:
    store, table = MemoryStore(), orders()
    for id_ in (2, 3):
        publish(TableFeed(table), store, PLAN)
        table.insert({"id": id_})
    view = read_view(store, T)
    first, newest = (each.follows for each in reversed(list(TableLog(store, T).records(view))))
    assert first is None
    assert newest is not None
    assert (newest.number, newest.etag) == (1, view.records[1])


def test_log_with_missing_first_records_publishes_nothing() -> None:
    """The log id reappears after its folder was deleted, and a publisher that was still staging adds a record."""
    store, table = MemoryStore(), orders()
    publish(TableFeed(table), store, PLAN)
    log_file = store.read(f"{T}/_mirrorfeed/log.json")
    table.insert({"id": 2})

    class Deleting(TableFeed):
        def stage(self, *arguments: Any) -> Any:
            staged = super().stage(*arguments)
            store.remove_folder(T)
            store.create(f"{T}/_mirrorfeed/log.json", log_file)
            return staged

    with pytest.raises(RecordsMissingError) as missing:
        publish(Deleting(table), store, PLAN)

    assert missing.value.number == 2
    assert missing.value.address == f"memory:/{T}/_mirrorfeed/{json.loads(log_file)['log_id']}"
    for _ in range(2):  # also for a run without new changes
        with pytest.raises(RecordsMissingError):
            publish(TableFeed(table), store, PLAN)


def test_record_with_wrong_predecessor_batch_is_refused() -> None:
    store = zone(a_record(1), a_record(2, follows=PreviousRecord(1, "0bad", "another")))

    assert not read_view(store, T).is_linked
    with pytest.raises(RecordsMissingError):
        check(store)


def test_copied_predecessor_with_another_etag_is_accepted() -> None:
    store = zone(a_record(1), a_record(2, follows=PreviousRecord(1, a_record(1).batch, "as it was elsewhere")))

    assert read_view(store, T).is_linked


# files that do not match their record


@pytest.mark.parametrize("in_place", [1, 2])
def test_empty_staged_file_with_used_number_is_removed(in_place: int) -> None:
    store = zone(a_record(1, files=2))
    store.create(f"{LOG}/{staged(1, 0)}", b"")
    put(store, f"{T}/{name(in_place)}.parquet")

    view = finish(store, T)
    clean_up(TableLog(store, T), view, 10, others=True)

    assert (view.unfinished, view.last_renamed) == ((), 2)
    assert names(store, LOG) == [f"{name(1)}.json", start_marker_name("0001")]
    assert names(store, T) == [f"{name(in_place)}.parquet", "_metadata.json", "_mirrorfeed"]


def test_staged_file_of_wrong_size_is_not_published() -> None:
    store = zone(a_record(1, files=1))
    store.create(f"{LOG}/{staged(1, 0)}", b"")

    with raises(staged_file_damaged) as damaged:
        finish(store, T)

    assert (damaged.value.found, damaged.value.expected) == (0, 1)
    assert damaged.value.address == f"memory:/{LOG}/{staged(1, 0)}"
    assert names(store, T) == ["_metadata.json", "_mirrorfeed"]


# reported results


class LosesReads(MemoryStore):
    """The read after the first creation of a record fails."""

    failing = False

    def create(self, path: str, data: bytes) -> None:
        super().create(path, data)
        self.failing = path.endswith("2.json")

    def list(self, folder: str) -> Any:
        if self.failing:
            self.failing = False
            raise StorageUnavailableError(action="list", address=self.address(folder), reason="503")
        return super().list(folder)


@pytest.mark.parametrize("other_publisher", [False, True], ids=["alone", "another publisher's record came first"])
def test_next_attempt_reports_publication_whose_read_back_failed(other_publisher: bool) -> None:
    store, table, progress = LosesReads(), orders(), TableResult("sales.orders")
    publish(TableFeed(table), store, PLAN)
    table.insert({"id": 2}, {"id": 3})

    with pytest.raises(StorageUnavailableError):
        publish(TableFeed(table), store, PLAN, progress)
    assert progress.rows == {}
    if other_publisher:
        table.insert({"id": 4})
        publish(TableFeed(table), store, PLAN)
    publish(TableFeed(table), store, PLAN, progress)

    assert (progress.rows, len(progress.records), progress.sent) == ({"upsert": 2}, 1, {})
    assert progress.records[0].number == 2


def test_next_run_reports_publication_of_a_killed_run() -> None:
    store, table = MemoryStore(), orders()
    dying = FaultyStore(store)
    dying.rename = lambda *_: (_ for _ in ()).throw(Crash())  # type: ignore[method-assign]
    with pytest.raises(Crash):
        publish(TableFeed(table), dying, PLAN)

    progress = publish(TableFeed(table), store, PLAN)

    assert (progress.rows, len(progress.records)) == ({"insert": 1}, 1)
    assert list(progress.measured[progress.records[0].batch]) == ["rename_seconds"]
    assert len(publish(TableFeed(table), store, PLAN).records) == 0


def test_late_first_record_in_a_deleted_folder_is_not_reported() -> None:
    """Everything that a run reads of its log exists, but the log is not the current one."""
    store, table = MemoryStore(), orders()
    publish(TableFeed(table), store, PLAN)
    log_id = read_view(store, T).log_id
    record = f"{T}/_mirrorfeed/{log_id}/{name(1)}.json"
    content = store.read(record)

    def other_publisher(verb: str) -> None:
        if verb == "list" and log_id in store.read(f"{T}/_mirrorfeed/log.json").decode():
            store.remove_folder(T)
            TableLog(store, T).create_log()
            metadata_files.ensure(store, T, Output().metadata(("id",), ()))
            store.create(record, content)

    progress = publish(TableFeed(table), FaultyStore(store, before=other_publisher), PLAN)

    assert (progress.rows, read_view(store, T).data) == ({"insert": 1}, (f"{name(1)}.parquet",))


def test_publication_of_another_publisher_is_not_reported() -> None:
    store, table = MemoryStore(), orders()

    def other_publisher(verb: str) -> None:
        if verb == "create" and not names(store, T)[1:]:
            publish(TableFeed(table), store, PLAN)

    progress = publish(TableFeed(table), FaultyStore(store, before=other_publisher), PLAN)

    assert (progress.rows, progress.published_version) == ({}, 1)


class Overtaken(MemoryStore):
    """Other publishers publish record 2 and more before the first publisher creates record 2."""

    overtake: Callable[[], None] | None = None

    def create(self, path: str, data: bytes) -> str | None:
        if path.endswith(f"{name(2)}.json") and (overtake := self.overtake):
            self.overtake = None
            overtake()
        return super().create(path, data)


@pytest.mark.parametrize("log_retention_records", [1, 2, 3])
def test_record_with_reused_and_pruned_number_is_not_reported(log_retention_records: int) -> None:
    store, table, remaining = Overtaken(), orders(), changed(PLAN, log_retention_records=log_retention_records)
    publish(TableFeed(table), store, remaining)
    table.insert({"id": 2})

    def other_publisher() -> None:
        for id_ in range(3, 8):
            publish(TableFeed(table), store, remaining)
            table.insert({"id": id_})

    store.overtake = other_publisher
    progress = publish(TableFeed(table), store, remaining)

    assert (progress.records, progress.rows) == ([], {})
    assert [each.number for each in publish(TableFeed(table), store, remaining).records] == [7]


# orphaned files


def test_refused_run_leaves_no_staged_files() -> None:
    store, table = MemoryStore(), orders()
    publish(TableFeed(table), store, PLAN)
    table.insert({"id": 2})
    table.insert({"id": None})

    for _ in range(3):
        with pytest.raises(RowsRefusedError):
            publish(TableFeed(table, partitions=3, rows_per_batch=1), store, changed(PLAN, target_file_size=1))

    (folder,) = (entry.name for entry in store.list(f"{T}/_mirrorfeed") if entry.is_folder)
    remaining_names = names(store, f"{T}/_mirrorfeed/{folder}")
    assert [each for each in remaining_names if not is_start_marker(each)] == [f"{name(1)}.json"]
    assert len(remaining_names) == 2


class Keeps(MemoryStore):
    """Files cannot be removed."""

    def remove(self, path: str) -> None:
        raise StorageUnavailableError(action="remove", address=self.address(path), reason="409 LeaseIdPresent")


def test_unremovable_leftovers_are_reported_and_do_not_block_publishing() -> None:
    store, table, progress = Keeps(), orders(), TableResult("sales.orders")
    for id_ in (2, 3, 4):
        publish(TableFeed(table), store, changed(PLAN, log_retention_records=2), progress)
        table.insert({"id": id_})

    assert publish(TableFeed(table), store, changed(PLAN, log_retention_records=2), progress).published_version == 4
    assert progress.cleanup_error is not None
    assert progress.cleanup_error.problem.endswith(".begun: 409 LeaseIdPresent.")


def test_changed_keys_are_refused_without_new_changes() -> None:
    store, table = MemoryStore(), orders()
    publish(TableFeed(table), store, PLAN)

    with raises(keys_changed, match="The table has the keys 'id', 'day', but was published with the keys 'id'"):
        publish(TableFeed(table), store, changed(PLAN, keys=("id", "day")))


def before_last(what: str, store: Store) -> Table:
    """Publish everything before the publication whose calls are counted."""
    table, ranges = orders(), {"a first publication": -1, "nothing new": 1, "a range": 1}.get(what, 0)
    for number in range(ranges + 1):
        publish(TableFeed(table), store, PLAN)
        if number < ranges or "range" in what:
            table.insert({"id": 2 + number})
    return table


@pytest.mark.parametrize(
    ("what", "calls"),
    [
        ("a first publication", 16),
        ("the range after it", 16),
        ("a range", 14),
        ("nothing new after it", 3),
        ("nothing new", 3),
    ],
)
def test_store_calls_per_publication_are_limited(what: str, calls: int) -> None:
    """Calls that write the file are not counted, because their number depends on the Parquet writer."""
    store = MemoryStore()
    counting = FaultyStore(store)
    publish(TableFeed(before_last(what, store)), counting, PLAN)

    assert len([verb for verb in counting.verbs if verb not in ("open_write", "write", "close")]) == calls


@pytest.mark.parametrize(("what", "calls"), [("a first publication", 22), ("a range", 18), ("nothing new", 3)])
def test_http_calls_per_publication_are_limited(onelake: OneLake, what: str, calls: int) -> None:
    """Includes the one check per process that the landing zone exists, and the three calls that write the file."""
    table = before_last(what, onelake.store())
    before = len(onelake.verbs())
    publish(TableFeed(table), onelake.store(), PLAN)

    assert len(onelake.verbs()) - before == calls


@pytest.mark.parametrize("how", [How.ANSWER, How.DROP_BEFORE])
def test_failed_log_creation_is_retried_with_another_id(
    onelake: OneLake, how: How, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, bodies = OneLakeStore.create_once, list[bytes]()

    def spy(store: OneLakeStore, path: str, data: bytes) -> None:
        bodies.append(data)
        create(store, path, data)

    monkeypatch.setattr(OneLakeStore, "create_once", spy)
    onelake.server.faults.add(FaultOfService("put blob", how))

    TableLog(onelake.store(retry_limits=RetryLimits(5, first_pause=0.001)), T).create_log()

    assert onelake.verbs().count("put blob") == len(bodies) == len(set(bodies)) == 2
