"""Published files removed before Fabric consumed them: every command reports the gap, and none hides it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import deltalake
import pytest
from click.testing import CliRunner, Result

from fixtures.faults import FaultyStore
from fixtures.memory import MemoryStore
from fixtures.mirror import Mirror
from mirrorfeed.cli import main
from mirrorfeed.config import loader
from mirrorfeed.config.model import Table as ConfigTable
from mirrorfeed.landing.names import data_name
from mirrorfeed.landing.output_format import BY_TIME, Output
from mirrorfeed.lint.linter import lint
from mirrorfeed.orchestration.dry_run import known_step
from mirrorfeed.orchestration.run_context import RunContext
from mirrorfeed.orchestration.table_task import TableTask
from mirrorfeed.publish.change_sources import NO_SPARK
from mirrorfeed.publish.errors import LastFileMissingWarning, PublishedFilesLostError
from mirrorfeed.publish.key_repair import repair
from mirrorfeed.publish.table_log import TableLog
from mirrorfeed.publish.table_log.audit import audit_log
from mirrorfeed.publish.table_log.view import View
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.storage import Entry, Store
from mirrorfeed.storage.local_folder import FolderStore
from tests.publish.scenarios import FOLDER, plan, two_orders
from tests.support.commits import commit
from tests.support.entries import entry
from tests.support.fleets import fleet
from tests.support.tables import Table, TableFeed

PLAN = plan(target_file_size=10_000)


def path(number: int) -> str:
    return f"{FOLDER}/{data_name(number)}"


def remove(store: Store, *numbers: int) -> None:
    for number in numbers:
        store.remove(path(number))


def published(store: Store, times: int = 4, table_: ConfigTable = PLAN) -> Table:
    """A table that was published `count` times, with one file each time."""
    table = two_orders()
    publish(TableFeed(table), store, table_)
    for number in range(1, times):
        publish_more(store, table, number, table_)
    return table


def publish_more(store: Store, table: Table, number: int, table_: ConfigTable = PLAN) -> Any:
    table.update(1, status=f"changed {number}")
    return publish(TableFeed(table), store, table_)


def read_view(store: Store) -> View:
    view = TableLog(store, FOLDER).read_view()
    assert view is not None
    return view


def lost(store: Store) -> PublishedFilesLostError | LastFileMissingWarning | None:
    return TableLog(store, FOLDER).find_lost_files(read_view(store))


class TestPublish:
    @pytest.mark.parametrize("lost_numbers", [(3,), (3, 4)])
    def test_nothing_is_published_until_lost_files_are_restored(self, lost_numbers: tuple[int, ...]) -> None:
        store = MemoryStore()
        table = published(store)
        saved = {number: store.read(path(number)) for number in lost_numbers}
        remove(store, *lost_numbers)

        with pytest.raises(PublishedFilesLostError) as caught:
            publish_more(store, table, 9)

        assert (caught.value.address, list(caught.value.numbers)) == (f"memory:/{FOLDER}", list(lost_numbers))
        assert read_view(store).number == 4
        assert not read_view(store).staged

        for number, data in saved.items():
            store.create(path(number), data)
        publish(TableFeed(table), store, PLAN)
        assert read_view(store).numbers == [1, 2, 3, 4, 5]

    def test_repair_is_refused_because_its_file_would_wait_too(self) -> None:
        store = MemoryStore()
        table = published(store)
        remove(store, 3)
        with pytest.raises(PublishedFilesLostError):
            repair(TableFeed(table), store, PLAN, [((1,), False)])

    def test_rebuild_resolves_lost_files(self) -> None:
        store = MemoryStore()
        table = published(store)
        remove(store, 3, 4)
        store.remove_folder(FOLDER)
        publish(TableFeed(table), store, PLAN)
        assert (read_view(store).numbers, lost(store)) == ([1], None)

    def test_unknown_consumption_is_a_warning_if_no_file_is_left(self) -> None:
        store = MemoryStore()
        table = published(store)
        remove(store, 1, 2, 3, 4)

        progress = publish_more(store, table, 9)

        assert isinstance(progress.missing_file_warning, LastFileMissingWarning)
        assert progress.missing_file_warning.last == 4
        assert read_view(store).numbers == [5]
        assert publish_more(store, table, 10).missing_file_warning is None

    def test_consumed_files_are_not_lost(self) -> None:
        store = MemoryStore()
        mirror = Mirror(store, FOLDER)
        table = published(store)
        for number in range(5, 12):
            mirror.take(most=number % 3)
            assert lost(store) is None
            assert publish_more(store, table, number).missing_file_warning is None
        mirror.take()
        assert (read_view(store).numbers, lost(store)) == ([11], None)
        remove(store, 11)  # file 10 was set aside, so file 11 had been consumed
        assert (lost(store), publish_more(store, table, 12).missing_file_warning) == (None, None)


class TestListings:
    """A listing is not a snapshot: files are renamed and consumed while it is read."""

    @pytest.mark.parametrize("most", [1, 2, 3, 4])
    def test_files_consumed_during_a_read_are_not_lost(self, most: int) -> None:
        def found_while_consuming(at: int) -> PublishedFilesLostError | LastFileMissingWarning | None:
            """From this call on, Fabric consumes `most` files before each call."""
            zone = MemoryStore()
            published(zone)
            mirror = Mirror(zone, FOLDER)
            store = FaultyStore(
                zone, [], before=lambda _: mirror.take(most if len(store.verbs) > at else 0) and None, page=1
            )
            return lost(store)

        assert [found_while_consuming(at) for at in range(20)] == [None] * 20

    def test_publication_between_two_listing_pages_is_not_a_loss(self) -> None:
        """The listing passes the name of file 3 before another publisher renames it, and sees file 4."""
        store = MemoryStore()
        table = published(store, times=2)
        view = read_view(store)
        publish_more(store, table, 3)
        publish_more(store, table, 4)

        class Late(MemoryStore):
            listings = 0

            def list(self, folder: str) -> list[Entry]:
                entries = store.list(folder)
                Late.listings += folder == FOLDER
                early = folder == FOLDER and Late.listings == 1
                return [entry for entry in entries if not (early and entry.name == data_name(3))]

            def read(self, path: str) -> bytes:
                return store.read(path)

        assert read_view(Late()).numbers == [1, 2, 4]
        Late.listings = 0
        assert lost(Late()) is None
        assert TableLog(store, FOLDER).find_lost_files(view) is None

    def test_complete_folder_needs_no_extra_request(self) -> None:
        store = FaultyStore(MemoryStore(), [])
        published(store)
        log = TableLog(store, FOLDER)
        view = log.read_view()
        assert view is not None
        before = len(store.verbs)
        assert (log.find_lost_files(view), len(store.verbs) - before) == (None, 0)


def test_lost_files_ordered_by_time_need_a_missing_later_publication() -> None:
    store, table_ = MemoryStore(), plan(target_file_size=1, output=Output(by_time=True))
    table = two_orders()
    publish(TableFeed(table, rows_per_batch=1), store, table_)
    assert json.loads(store.read(f"{FOLDER}/_metadata.json"))["fileDetectionStrategy"] == BY_TIME
    assert read_view(store).numbers == [1, 2]
    remove(store, 2)
    assert lost(store) is None  # Fabric may have consumed it before file 1
    store.clock = lambda: datetime(2027, 1, 1, tzinfo=UTC)
    table.update(1, status="paid")
    publish(TableFeed(table), store, table_)
    remove(store, 3)
    found = lost(store)
    assert isinstance(found, PublishedFilesLostError)
    assert found.numbers == (3,)


class TestLog:
    def test_lost_file_is_not_reported_as_consumed(self) -> None:
        store = MemoryStore()
        published(store)
        remove(store, 3, 4)
        found = audit_log(store, entry().target)
        assert found is not None
        newest = found[0][0]
        assert isinstance(newest.error, PublishedFilesLostError)
        assert newest.error.numbers == (3, 4)
        assert not any(place.consumed for place in newest.places)


class TestLint:
    @pytest.mark.parametrize(
        ("lost_numbers", "found"),
        [
            ((3,), ["MF313 The file was removed before Fabric consumed it."]),
            ((4,), ["MF313 The file was removed before Fabric consumed it."]),
            ((3, 4), ["MF313 The file was removed before Fabric consumed it, together with 1 later file."]),
            ((1,), []),
            ((1, 2, 3), []),
            (
                (1, 2, 3, 4),
                [
                    "MF310 The folder of the table has no data file. After some time, Fabric reports such a table as"
                    " failed."
                ],
            ),
        ],
    )
    def test_lint_finds_lost_file_by_the_log(self, lost_numbers: tuple[int, ...], found: list[str]) -> None:
        store = MemoryStore()
        published(store)
        remove(store, *lost_numbers)
        of_table = [each for each in lint(store)[0] if each.file.startswith(FOLDER) and not each.ok]
        assert [f"{each.code} {each.what}" for each in of_table] == found
        assert {each.file for each in of_table} <= {path(lost_numbers[0]), FOLDER}

    def test_file_moved_to_processed_files_is_not_lost(self) -> None:
        store = MemoryStore()
        published(store)
        store.rename(path(3), f"{FOLDER}/_ProcessedFiles/{data_name(3)}")
        assert "MF313" not in [each.code for each in lint(store)[0]]


def test_many_lost_files_are_summarized() -> None:
    assert "1, 2, 3 and 97 more" in PublishedFilesLostError(address="zone", numbers=range(1, 101)).problem


class TestCommands:
    """Without Spark, because the source has no changes."""

    @pytest.fixture
    def file(self, tmp_path: Path) -> str:
        """The configuration of a table that is published up to its newest version, in three files."""
        file, source = fleet(tmp_path, 1), tmp_path / "t0"
        same = Table({"id": "long", "v": "string"}, ("id",), str(deltalake.DeltaTable(source).metadata().id))
        same.insert({"id": 0, "v": "v0"})
        store, table_ = FolderStore(str(tmp_path / "zone")), entry(str(source), "sales.t0")
        for number in (1, 2):
            commit(source, f"UPDATE {{}} SET v = 'new {number}' WHERE id = 0")
            same.update(0, v=f"new {number}")
            publish(TableFeed(same), store, table_)
        return str(file)

    def gone(self, tmp_path: Path, *numbers: int) -> list[Path]:
        files = [tmp_path / "zone/sales.schema/t0" / data_name(number) for number in numbers]
        for each in files:
            each.unlink()
        return files

    @pytest.fixture(autouse=True)
    def without_spark(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("mirrorfeed.runtime.spark_session.get_session", lambda: pytest.fail("Spark is not needed"))

    def result(self, *arguments: str, code: int) -> Result:
        result = CliRunner().invoke(main, list(arguments), env={"COLUMNS": "400"})
        assert result.exit_code == code, result.output
        return result

    def ran(self, *arguments: str, code: int) -> str:
        return self.result(*arguments, code=code).output

    def test_nothing_is_reported_for_a_complete_folder(self, file: str, tmp_path: Path) -> None:
        assert "1 up to date" in self.ran("status", "--config", file, code=0)
        assert "MF3216" not in self.ran("log", "sales.t0", "--config", file, code=0)

    def test_table_with_lost_files_is_not_up_to_date(self, file: str, tmp_path: Path) -> None:
        self.gone(tmp_path, 3)
        output = self.ran("status", "--config", file, code=1)
        assert "1 failing" in output
        assert "sales.t0: MF3216: Published files of" in output

    def test_table_without_its_last_file_is_not_up_to_date(self, file: str, tmp_path: Path) -> None:
        self.gone(tmp_path, 1, 2, 3)
        assert "sales.t0: MF3217: " in self.ran("status", "--config", file, code=1)

    def test_lost_files_count_as_waiting_for_fabric(self, file: str, tmp_path: Path) -> None:
        self.gone(tmp_path, 1, 3)
        (row,) = json.loads(self.result("status", "--json", "--config", file, code=1).stdout)["rows"]
        assert row["freshness"]["waiting_since"]["consumed"] is not None

    def test_log_command_does_not_report_a_lost_file_as_consumed(self, file: str, tmp_path: Path) -> None:
        self.gone(tmp_path, 3)
        output = self.ran("log", "sales.t0", "--config", file, code=1)
        assert "consumed and removed" not in output
        assert "sales.t0: MF3216: Published files of" in output
        newest = json.loads(self.result("log", "sales.t0", "--json", "--config", file, code=1).stdout)["rows"][0]
        assert newest["error"]["code"] == "MF3216"
        assert [place["consumed"] for place in newest["places"]] == [False, False]

    def test_lint_command_finds_a_lost_file(self, file: str, tmp_path: Path) -> None:
        self.gone(tmp_path, 2)
        output = self.ran("lint", str(tmp_path / "zone"), "--config", file, code=1)
        assert "MF313" in output
        assert "MF302" not in output

    def test_lost_files_are_known_without_spark(self, file: str, tmp_path: Path) -> None:
        config = loader.load(file)
        task = TableTask(RunContext(NO_SPARK, config), config.tables[0])
        calm = known_step(task.context, task.table)
        assert calm is not None
        assert calm.error is None
        self.gone(tmp_path, 3)
        stopped = known_step(task.context, task.table)
        assert stopped is not None
        assert isinstance(stopped.error, PublishedFilesLostError)
