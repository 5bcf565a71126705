"""The OneLake store: which HTTP calls it makes, and its behavior when calls fail."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle

import mirrorfeed
from fixtures.onelake import DATABASE, LAKEHOUSE, WORKSPACE, OneLake
from fixtures.onelake.faults import Fault, How
from mirrorfeed.config.errors import database_not_named
from mirrorfeed.config.model import Config, zone_of
from mirrorfeed.landing.schema import Column
from mirrorfeed.publish.files.file_sizes import Piece
from mirrorfeed.publish.files.rolling_writer import write_files
from mirrorfeed.publish.files.spark_files import upload_task
from mirrorfeed.publish.files.staging_area import StagingArea
from mirrorfeed.publish.files.staging_job import StagingJob
from mirrorfeed.storage import READ_LIMIT, Store
from mirrorfeed.storage.errors import (
    PathExistsError,
    PathMissingError,
    StorageUnavailableError,
    UnreadableFileError,
    path_outside_root,
)
from mirrorfeed.storage.local_folder import FolderStore
from mirrorfeed.storage.onelake_errors import (
    capacity_paused,
    database_missing,
    file_in_use,
    no_landing_zone_in_item,
    onelake_permission_missing,
    onelake_throttled,
    onelake_token_refused,
    workspace_missing,
)
from mirrorfeed.storage.request_retries import RetryLimits, retry_counter
from tests.raised import Expected, raises

OTHER = "99999999-9999-4999-8999-999999999999"
MANY = 10_000
WHOLE = bytes(range(256)) * 10


def names(store: Store, folder: str) -> list[str]:
    return [entry.name for entry in store.list(folder)]


def write(store: Store, path: str, data: bytes) -> None:
    with store.open_write(path) as sink:
        sink.write(data)


def fail(onelake: OneLake, verb: str, how: How, times: int = 1, **facts: object) -> Fault:
    return onelake.server.faults.add(Fault(verb, how, times, **facts))  # type: ignore[arg-type]


# Calls


def test_create_is_one_conditional_call(onelake: OneLake) -> None:
    onelake.store().create("a/b", b"content")

    assert onelake.verbs() == ["list", "put blob"]
    assert onelake.calls[-1].headers["if-none-match"] == "*"


def test_replace_is_one_unconditional_call(onelake: OneLake) -> None:
    store = onelake.store()
    store.create("a/b", b"old")
    store.replace("a/b", b"new")
    store.replace("a/c", b"made")

    assert onelake.verbs() == ["list", *["put blob"] * 3]
    assert [call.headers.get("if-none-match") for call in onelake.calls[-2:]] == [None, None]
    assert (store.read("a/b"), store.read("a/c")) == (b"new", b"made")


def test_create_is_one_call_at_any_size(onelake: OneLake) -> None:
    data = bytes(70 * 2**20)
    onelake.store().create("a", data)

    assert [(call.verb, call.size) for call in onelake.calls[-1:]] == [("put blob", len(data))]


def test_file_is_uploaded_in_parts_and_flushed_on_close(onelake: OneLake) -> None:
    store = onelake.store(part_bytes=1000)
    sink = store.open_write("t/_x")
    for size in (300, 900, 1800, 0, 1, 999):
        sink.write(memoryview(WHOLE * 2)[:size])
    assert [call.size for call in onelake.calls if call.verb == "append"] == [1000, 1000, 1000, 1000]
    assert store.read("t/_x") == b""
    sink.close()
    sink.close()

    assert onelake.verbs()[:2] == ["list", "create"]
    assert [call.query["position"] for call in onelake.calls if call.verb in ("append", "flush")] == [
        *("0", "1000", "2000", "3000"),
        "4000",
    ]
    assert [call.headers.get("if-none-match") for call in onelake.calls if call.verb == "create"] == ["*"]
    assert len(store.read("t/_x")) == 4000


def test_rename_checks_the_name_and_sends_a_condition(onelake: OneLake) -> None:
    store = onelake.store()
    write(store, "t/_x", WHOLE)
    done = len(onelake.verbs())
    store.rename("t/_x", "t/1")

    assert onelake.verbs()[done:] == ["properties", "rename"]
    assert onelake.calls[-1].headers["if-none-match"] == "*"
    assert onelake.calls[-1].headers["x-ms-rename-source"].endswith(f"{DATABASE}/Files/LandingZone/t/_x")


@pytest.mark.parametrize("name", ["100% #1", "a%20b", "50%41", "großes Jahr", "a+b", "a?sv=2020-01-01", "x&y=z"])
def test_rename_preserves_names_with_special_characters(onelake: OneLake, name: str) -> None:
    store = onelake.store()
    write(store, f"{name}/_x", WHOLE)
    store.rename(f"{name}/_x", f"{name}/{name}")

    assert names(store, name) == [name]
    assert store.read(f"{name}/{name}") == WHOLE


def test_server_that_ignores_the_rename_condition_overwrites_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with OneLake(tmp_path, checks_renames=False) as onelake:
        monkeypatch.setenv(*next(iter(onelake.environment.items())))
        store = onelake.store()
        write(store, "t/_x", WHOLE)
        store.create("t/1", b"foreign")

        with pytest.raises(PathExistsError, match="t/1 already exists"):
            store.rename("t/_x", "t/1")
        assert (store.read("t/1"), store.read("t/_x")) == (b"foreign", WHOLE)


def test_existing_folder_is_never_recreated(onelake: OneLake) -> None:
    store = onelake.store()
    store.create("t/a", b"")
    (before,) = store.list("")
    write(store, "t/_log/x", WHOLE)
    store.rename("t/_log/x", "t/1")
    store.create("u/a", b"")
    store.rename("t/1", "v/1")

    assert next(entry for entry in store.list("") if entry.name == "t").etag == before.etag
    assert [call.headers.get("if-none-match") for call in onelake.calls if call.verb == "create folder"] == ["*"]


def test_listing_reads_all_pages(onelake: OneLake) -> None:
    store, expected = onelake.store(), [f"{n:02}" for n in range(11)]
    for name in reversed(expected):
        store.create(f"t/{name}", b"")
    onelake.server.page_size = 3
    done = len(onelake.verbs())

    assert names(store, "t") == expected
    assert onelake.verbs()[done:] == ["list"] * 4


def test_folder_deletion_continues_over_several_calls(onelake: OneLake) -> None:
    store = onelake.store()
    store.create("t/a/b", b"")
    onelake.server.delete_pages = 2
    store.remove_folder("t")

    assert onelake.verbs()[-3:] == ["delete"] * 3
    assert store.list("") == []


def test_folder_in_use_is_not_deleted(onelake: OneLake) -> None:
    store = onelake.store()
    store.create("t/a", b"")
    onelake.files.being_read.add(f"{DATABASE}/Files/LandingZone/t")

    with raises(file_in_use) as unavailable:
        store.remove_folder("t")
    reason = "409 PathConflict: The path is in use"
    assert unavailable.value.problem == f"Cannot remove {store.address('t')}: {reason}."
    assert names(store, "t") == ["a"]


@pytest.mark.parametrize("verb", ["create", "replace", "open_write", "remove", "remove_folder"])
def test_landing_zone_root_cannot_be_changed(onelake: OneLake, verb: str) -> None:
    store = onelake.store()
    arguments = ("", b"") if verb in ("create", "replace") else ("",)
    with raises(path_outside_root):
        getattr(store, verb)(*arguments)
    assert onelake.verbs() == []


def test_reader_downloads_only_the_ranges_it_needs(onelake: OneLake) -> None:
    store, table = onelake.store(), pa.table({"id": range(1000), "name": ["x" * 50] * 1000})
    with store.open_write("t/_x") as sink:
        pq.write_table(table, sink, row_group_size=100)
    with store.open_read("t/_x") as source:
        assert pq.ParquetFile(source).read_row_group(3, ["id"])["id"].to_pylist() == list(range(300, 400))
    with store.open_read("t/_x") as source:
        assert source.read() == store.read("t/_x")
        assert source.seek(-4, os.SEEK_END) > 0
        assert source.read() == b"PAR1"
        assert source.read() == b""


def test_file_above_the_size_limit_is_not_downloaded(onelake: OneLake) -> None:
    store = onelake.store()
    store.create("large", bytes(READ_LIMIT + 2**20))
    with pytest.raises(UnreadableFileError, match=r"large: it is larger than 32 MiB\."):
        store.read("large")
    assert onelake.verbs()[2:] == ["read"]


def test_reader_does_not_mix_two_files_of_one_name(onelake: OneLake) -> None:
    store = onelake.store()
    store.create("a", bytes(3 * 2**20))
    with store.open_read("a") as source:
        source.read(10)
        store.remove("a")
        store.create("a", bytes(3 * 2**20))
        source.seek(2**21)

        with pytest.raises(StorageUnavailableError, match="412 ConditionNotMet"):
            source.read(10)


# Failing calls


@pytest.mark.parametrize("how", [How.ANSWER, How.DROP_BEFORE])
def test_failed_create_is_retried(onelake: OneLake, how: How) -> None:
    store = onelake.store()
    fail(onelake, "put blob", how)
    store.create("a", WHOLE)

    assert store.read("a") == WHOLE


def test_create_with_lost_response_raises_but_is_complete(onelake: OneLake) -> None:
    store = onelake.store()
    fail(onelake, "put blob", How.DROP_AFTER)
    with pytest.raises(PathExistsError):
        store.create("a", WHOLE)

    assert store.read("a") == WHOLE


def test_create_with_all_responses_lost_raises_unavailable(onelake: OneLake) -> None:
    store = onelake.store(retry_limits=RetryLimits(seconds=0.02, first_pause=0.01))
    store.list("")
    fail(onelake, "put blob", How.DROP_AFTER, MANY)
    with pytest.raises(StorageUnavailableError, match=rf"^Cannot create {store.address('a')}: "):
        store.create("a", WHOLE)

    assert store.read("a") == WHOLE


def test_create_that_never_arrives_leaves_nothing(onelake: OneLake) -> None:
    store = onelake.store(retry_limits=RetryLimits(seconds=0.02, first_pause=0.01))
    store.list("")
    fail(onelake, "put blob", How.DROP_BEFORE, MANY)
    with pytest.raises(StorageUnavailableError):
        store.create("a", WHOLE)

    assert store.list("") == []


def test_late_response_changes_nothing_after_the_retry(onelake: OneLake) -> None:
    retry_limits = RetryLimits(seconds=5, first_pause=0.001, longest_pause=0.001, response_seconds=0.1)
    store = onelake.store(retry_limits=retry_limits)
    slow = fail(onelake, "put blob", How.SLOW)
    store.create("a", WHOLE)
    (before,) = store.list("")
    slow.release.set()

    assert onelake.verbs().count("put blob") == 2
    assert store.list("") == [before]


@pytest.mark.parametrize("how", [How.ANSWER, How.DROP_BEFORE, How.DROP_AFTER])
def test_creation_of_an_empty_file_is_sent_once_despite_faults(onelake: OneLake, how: How) -> None:
    store, before = onelake.store(), retry_counter().value
    store.list("")
    fail(onelake, "create", how, retry_after="7")
    with pytest.raises(StorageUnavailableError, match=r"^Cannot write .*t/_x: ") as failed:
        store.open_write("t/_x")

    assert onelake.verbs().count("create") == 1
    assert retry_counter().value == before
    assert failed.value.retry_after == (7.0 if how is How.ANSWER else 0.0)


@pytest.mark.parametrize("how", [How.ANSWER, How.DROP_BEFORE, How.DROP_AFTER])
def test_create_once_is_sent_once_despite_faults(onelake: OneLake, how: How) -> None:
    store, before = onelake.store(), retry_counter().value
    store.list("")
    fail(onelake, "put blob", how, retry_after="7")
    with pytest.raises(StorageUnavailableError, match=r"^Cannot write .*t/_x: ") as failed:
        store.create_once("t/_x", WHOLE)

    assert onelake.verbs().count("put blob") == 1
    assert retry_counter().value == before
    assert failed.value.retry_after == (7.0 if how is How.ANSWER else 0.0)


@pytest.mark.parametrize("verb", ["create", "put blob"])
def test_redirected_creation_is_not_retried(onelake: OneLake, verb: str) -> None:
    store = onelake.store()
    store.list("")
    fail(onelake, verb, How.ANSWER, status=307, moved=True)
    with pytest.raises(StorageUnavailableError, match=r"^Cannot write .*t/_x: 307"):
        begin(store, verb)
    assert onelake.verbs().count(verb) == 1


@pytest.mark.parametrize("verb", ["create", "put blob"])
def test_unauthorized_creation_is_retried_with_a_new_token(onelake: OneLake, verb: str) -> None:
    store = onelake.store()
    store.list("")
    fail(onelake, verb, How.ANSWER, status=401, code="InvalidAuthenticationInfo")
    begin(store, verb)
    assert onelake.verbs().count(verb) == 2
    assert store.read("t/_x") == WHOLE


def begin(store: Any, verb: str) -> None:
    if verb == "put blob":
        store.create_once("t/_x", WHOLE)
        return
    with store.open_write("t/_x") as sink:
        sink.write(WHOLE)


@pytest.mark.parametrize("verb", ["create", "put blob", "rename"])
def test_conflict_for_a_missing_name_is_reported(onelake: OneLake, verb: str) -> None:
    store = onelake.store()
    store.create("t/a", WHOLE)
    fail(onelake, verb, How.ANSWER, status=412, code="ConditionNotMet", message="The condition is not met.")
    with pytest.raises(StorageUnavailableError) as caught:
        store.rename("t/a", "t/_x") if verb == "rename" else begin(store, verb)
    code = "BlobAlreadyExists" if verb == "put blob" else "ConditionNotMet"  # replaced by the client library
    message = f"412 {code}: The condition is not met. The response says that the name exists, but it does not"
    assert f"{store.address('t/_x')}: {message}." in str(caught.value)
    fail(onelake, "put blob", How.ANSWER, status=412, code="ConditionNotMet", message="The condition is not met.")
    with pytest.raises(StorageUnavailableError, match="says that the name exists, but it does not"):
        store.create("t/b", WHOLE)
    with pytest.raises(PathExistsError, match="t/a already exists"):
        store.rename("t/a", "t/a") if verb == "rename" else store.create("t/a", WHOLE)


def test_create_once_does_not_overwrite_an_existing_file(onelake: OneLake) -> None:
    store = onelake.store()
    store.create("t/_x", b"first")
    with pytest.raises(PathExistsError):
        store.create_once("t/_x", WHOLE)
    assert store.read("t/_x") == b"first"


def test_file_deleted_while_it_is_written_must_be_rewritten(onelake: OneLake) -> None:
    store = onelake.store(part_bytes=1000)
    sink = store.open_write("t/_x")
    store.remove_folder("t")
    with pytest.raises(StorageUnavailableError, match=r"t/_x: it was deleted while it was written\."):
        sink.write(WHOLE)


@pytest.mark.parametrize("part_bytes", [100, 10_000])
def test_late_creation_leaves_nothing_under_the_staged_name(onelake: OneLake, part_bytes: int) -> None:
    retry_limits = RetryLimits(seconds=9, first_pause=0.001, longest_pause=0.001, response_seconds=0.4)
    store = onelake.store(retry_limits=retry_limits, part_bytes=part_bytes)
    job = StagingJob(store, "t/_log", 1, "ab", (Column("id", "long"),), ("id",), False)
    store.create("t/_metadata.json", b"{}")
    slow = fail(onelake, "create", How.SLOW)
    before = retry_counter().of_thread
    (receipt,) = write_files(job, [pa.RecordBatch.from_pydict({"id": [1]})])
    repeated = retry_counter().of_thread - before
    store.rename(f"t/_log/{receipt.staged}", "t/1")
    slow.release.set()
    slow.done.wait(60)

    (late,) = store.list("t/_log")
    assert (late.size, late.name == receipt.staged) == (0, False)
    assert repeated == 1


@pytest.mark.parametrize("how", [How.ANSWER, How.DROP_BEFORE, How.DROP_AFTER])
@pytest.mark.parametrize("verb", ["append", "flush"])
def test_file_is_complete_after_a_failed_upload_call(onelake: OneLake, verb: str, how: How) -> None:
    store = onelake.store(part_bytes=1000)
    fail(onelake, verb, how)
    write(store, "t/_x", WHOLE)

    assert store.read("t/_x") == WHOLE


@pytest.mark.parametrize("verb", ["append", "flush"])
def test_close_after_a_failure_is_silent_and_the_file_is_incomplete(onelake: OneLake, verb: str) -> None:
    store = onelake.store(part_bytes=1000)
    sink = store.open_write("t/_x")
    fail(onelake, verb, How.ANSWER, MANY, status=409, code="NotNow", message="no")
    with pytest.raises(StorageUnavailableError, match=r"^Cannot write .*t/_x: 409 NotNow: no\."):  # noqa: PT012
        sink.write(WHOLE)
        sink.close()
    onelake.server.faults.clear()
    sink.close()

    assert store.read("t/_x") == b""


def test_abandoned_file_is_not_completed(onelake: OneLake) -> None:
    store = onelake.store(part_bytes=1000)

    def write_and_fail() -> None:
        with store.open_write("t/_x") as sink:
            sink.write(WHOLE)
            raise KeyError

    with pytest.raises(KeyError):
        write_and_fail()

    assert store.read("t/_x") == b""


def test_two_writers_of_one_name_do_not_mix_their_files(onelake: OneLake) -> None:
    store = onelake.store()
    write(store, "t/_x", WHOLE)
    with pytest.raises(PathExistsError):
        write(store, "t/_x", WHOLE * 2)

    assert store.read("t/_x") == WHOLE


def test_refused_check_is_not_taken_for_an_existing_name(onelake: OneLake) -> None:
    store = onelake.store()
    write(store, "t/_x", WHOLE)
    fail(onelake, "properties", How.ANSWER, status=409, code="NotNow")
    with pytest.raises(StorageUnavailableError, match=r"^Cannot check .*t/1: 409 NotNow"):
        store.rename("t/_x", "t/1")

    assert names(store, "t") == ["_x"]


def test_rename_with_lost_response_raises_but_is_done(onelake: OneLake) -> None:
    store = onelake.store()
    write(store, "t/_x", WHOLE)
    fail(onelake, "rename", How.DROP_AFTER)
    with pytest.raises((PathMissingError, PathExistsError)):
        store.rename("t/_x", "t/1")

    assert names(store, "t") == ["1"]


@pytest.mark.parametrize("verb", ["delete", "list", "read"])
@pytest.mark.parametrize("how", [How.ANSWER, How.DROP_BEFORE, How.DROP_AFTER])
def test_idempotent_calls_succeed_despite_faults(onelake: OneLake, verb: str, how: How) -> None:
    store = onelake.store()
    store.create("a", WHOLE)
    fail(onelake, verb, how)
    if verb == "delete":
        store.remove("a")

    assert names(store, "") == ([] if verb == "delete" else ["a"])
    assert verb == "delete" or store.read("a") == WHOLE


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5, 0.9])
def test_truncated_response_is_ignored(onelake: OneLake, monkeypatch: pytest.MonkeyPatch, share: float) -> None:
    monkeypatch.setattr("azure.storage.blob._download.time", SimpleNamespace(sleep=lambda _: None))
    store = onelake.store(part_bytes=1000)
    store.create("t/a", WHOLE)

    fail(onelake, "list", How.CUT, share=share)
    assert names(store, "t") == ["a"]
    fail(onelake, "read", How.CUT, share=share)
    assert store.read("t/a") == WHOLE
    fail(onelake, "properties", How.CUT, share=share)
    with suppress(StorageUnavailableError), store.open_read("t/a") as source:
        assert source.read() == WHOLE
    for verb in ("append", "flush"):
        fail(onelake, verb, How.CUT, share=share)
    write(store, "t/_x", WHOLE)
    fail(onelake, "rename", How.CUT, share=share)
    with suppress(PathExistsError, PathMissingError):
        store.rename("t/_x", "t/1")
    assert store.read("t/1") == WHOLE
    fail(onelake, "create", How.CUT, share=share)
    with suppress(StorageUnavailableError):
        store.open_write("t/_y")
    assert onelake.verbs().count("create") == 2


def test_throttled_calls_are_retried_and_counted(onelake: OneLake) -> None:
    store, before = onelake.store(), retry_counter().value
    fail(onelake, "put blob", How.ANSWER, 2, status=429, code="TooManyRequests", retry_after="0")
    store.create("a", WHOLE)

    assert onelake.verbs().count("put blob") == 3
    assert retry_counter().value - before == 2


def test_wait_longer_than_the_retry_limit_is_not_attempted(onelake: OneLake) -> None:
    store = onelake.store()
    fail(onelake, "list", How.ANSWER, MANY, status=429, code="TooManyRequests", message="busy", retry_after="3600")
    with raises(onelake_throttled) as unavailable:
        store.list("t")

    assert onelake.verbs() == ["list"]
    assert unavailable.value.facts == {
        "action": "list",
        "address": store.address("t"),
        "reason": "429 TooManyRequests: busy; it asks to wait 3600 s",
        "retry_after": 3600.0,
    }


def test_unreachable_endpoint_is_reported(onelake: OneLake) -> None:
    store = onelake.store(endpoint="https://localhost:1")
    with pytest.raises(StorageUnavailableError, match=r"^Cannot list https://localhost:1/.*Connection refused"):
        store.list("")


def test_host_that_drops_packets_is_reported_after_a_few_attempts(onelake: OneLake, dropping: str) -> None:
    retry_limits, before = RetryLimits(connect_seconds=0.02, connections=3, first_pause=0.001), retry_counter().value
    store = onelake.store(endpoint=dropping, retry_limits=retry_limits)
    with pytest.raises(StorageUnavailableError, match=rf"^Cannot list {dropping}/[^<]*: Connection to \w+ timed out"):
        store.list("")
    assert retry_counter().value - before == 2


def test_server_with_an_unknown_certificate_is_refused(onelake: OneLake) -> None:
    store = onelake.store(ca_bundle=None)
    with pytest.raises(StorageUnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
        store.list("")
    assert onelake.calls == []


# Wrong address or identity

CALLS: dict[str, Callable[[Store], object]] = {
    "list": lambda store: store.list("t"),
    "read": lambda store: store.read("t/a"),
    "open_read": lambda store: store.open_read("t/a"),
    "create": lambda store: store.create("t/a", b""),
    "replace": lambda store: store.replace("t/a", b""),
    "open_write": lambda store: store.open_write("t/a"),
    "rename": lambda store: store.rename("t/a", "t/b"),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ({"workspace": OTHER}, workspace_missing),
        ({"item": OTHER}, database_missing),
        ({"item": LAKEHOUSE}, no_landing_zone_in_item),
    ],
)
def test_every_verb_reports_a_missing_workspace_database_or_mirror(
    onelake: OneLake, call: str, place: dict[str, str], kind: Expected
) -> None:
    before = dict(onelake.files.nodes)
    with raises(kind):
        CALLS[call](onelake.store(**place))
    assert onelake.files.nodes == before


def test_item_of_another_type_is_reported(onelake: OneLake) -> None:
    store = onelake.store(item=LAKEHOUSE)
    with raises(no_landing_zone_in_item) as caught:
        store.list("t")
    assert caught.value.facts == {"address": store.address("")}


@pytest.mark.parametrize("call", CALLS)
def test_every_verb_reports_a_missing_role(onelake: OneLake, call: str) -> None:
    onelake.server.forbidden = True
    with raises(onelake_permission_missing, match=r"403.*\. Give the identity the role Contributor"):
        CALLS[call](onelake.store())


@pytest.mark.parametrize("call", CALLS)
def test_every_verb_reports_a_token_for_another_audience(onelake: OneLake, call: str) -> None:
    onelake.authority.audience = "https://api.fabric.microsoft.com"
    with raises(onelake_token_refused, match=r"401.*Check that `credential` names an identity of the tenant"):
        CALLS[call](onelake.store())


@pytest.mark.parametrize("call", CALLS)
def test_every_verb_reports_a_paused_capacity_at_once(onelake: OneLake, call: str) -> None:
    message = "This Fabric capacity is currently paused."
    for verb in ("list", "read", "properties"):
        fail(onelake, verb, How.ANSWER, MANY, status=429, code="CapacityNotActive", message=message, retry_after="1")
    with raises(capacity_paused, match=r"is paused \(429 CapacityNotActive.*Resume the capacity in the Azure"):
        CALLS[call](onelake.store())
    assert len(onelake.verbs()) == 1


# Processes


def test_store_is_pickled_without_its_connections(onelake: OneLake) -> None:
    store = onelake.store()
    store.create("a", WHOLE)
    travelled = pickle.loads(pickle.dumps(store))

    assert travelled == store
    assert travelled.read("a") == WHOLE
    assert [call.verb for call in onelake.calls].count("token") == 1


def test_forked_process_opens_its_own_connections(onelake: OneLake) -> None:
    store = onelake.store()
    store.create("a", WHOLE)
    child = os.fork()
    if child == 0:
        os._exit(0 if store.read("a") == WHOLE else 1)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert [call.verb for call in onelake.calls].count("token") == 2


EXECUTOR = """
import sys
sys.modules["mirrorfeed"] = None  # any import of it fails
import pickle
import pyarrow as pa

import json

data = sys.stdin.buffer.read()
for _ in range(3):  # as a worker gets one task after another
    for told in pickle.loads(data)(iter([pa.RecordBatch.from_pydict({"id": [0]})])):
        staged = json.loads(told.column(0)[0].as_py())
        print(staged["files"][0]["rows"], staged["retries"])
"""


@pytest.mark.process
def test_tasks_upload_without_the_package_with_one_login_per_process(onelake: OneLake, tmp_path: Path) -> None:
    cloudpickle.register_pickle_by_value(mirrorfeed)  # type: ignore[no-untyped-call]
    pq.write_table(pa.table({"id": pa.array([1, 2], pa.int64())}), tmp_path / "made.parquet")
    onelake.store().list("")
    logins = len(onelake.authority.tokens)
    store = onelake.store_elsewhere(part_bytes=100)
    job = StagingJob(store, "zone/_mirrorfeed/a", 1, "ab", (Column("id", "long"),), ("id",), False)
    plan = [[Piece(f"{tmp_path}/made.parquet")]]
    task = cloudpickle.dumps(upload_task(job, StagingArea(str(tmp_path)), plan))  # type: ignore[no-untyped-call]
    fail(onelake, "append", How.ANSWER, 2, status=429, code="TooManyRequests", retry_after="0")
    ended = subprocess.run([sys.executable, "-c", EXECUTOR], input=task, capture_output=True, check=False)

    assert ended.stderr.decode() == ""
    assert ended.stdout.decode().splitlines() == ["{'insert': 2} 2", "{'insert': 2} 0", "{'insert': 2} 0"]
    assert len(names(onelake.store(), "zone/_mirrorfeed/a")) == 3
    assert len(onelake.authority.tokens) - logins == 1


UPLOAD = """
import pickle, sys, tracemalloc

store = pickle.load(sys.stdin.buffer)
store.list("")  # what is loaded once is not what is measured
chunk = bytes(2**20)
tracemalloc.start()
with store.open_write("t/_x") as sink:
    for _ in range(64):
        sink.write(chunk)
print(tracemalloc.get_traced_memory()[1])
"""


@pytest.mark.process
def test_file_of_any_size_is_uploaded_in_bounded_memory(onelake: OneLake) -> None:
    store = onelake.store_elsewhere()
    ended = subprocess.run([sys.executable, "-c", UPLOAD], input=pickle.dumps(store), capture_output=True, check=True)

    assert [call.size for call in onelake.calls if call.verb == "append"] == [8 * 2**20] * 8
    assert int(ended.stdout) < 4 * store.part_bytes
    assert store.list("t")[0].size == 64 * 2**20


@pytest.mark.parametrize(
    "module",
    [
        "mirrorfeed.storage",
        "mirrorfeed.runtime.credentials",
        "mirrorfeed.storage.errors",
        "mirrorfeed.mirror.fabric",
    ],
)
def test_azure_is_imported_only_when_needed(module: str) -> None:
    program = f"import sys, {module}; print([name for name in sys.modules if name.startswith('azure')])"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert ended.stdout.decode().strip() == "[]"


def test_configuration_selects_the_store(onelake: OneLake, tmp_path: Path) -> None:
    folder = Config(landing_zone=str(tmp_path), tables=())
    place = Config(
        landing_zone=f"onelake://{WORKSPACE}/{DATABASE}",
        tables=(),
        endpoint=onelake.store().endpoint,
        ca_bundle=onelake.store().ca_bundle,
        credential=onelake.principal(),
    )

    assert zone_of(folder) == FolderStore(str(tmp_path))
    assert zone_of(place) == onelake.store(retry_limits=RetryLimits())
    assert zone_of(place).list("") == []
    assert zone_of(Config(landing_zone=place.landing_zone, tables=())).address("t") == (
        f"https://onelake.dfs.fabric.microsoft.com/{WORKSPACE}/{DATABASE}/Files/LandingZone/t"
    )


def test_onelake_address_without_a_database_is_refused() -> None:
    with raises(database_not_named) as caught:
        zone_of(Config(landing_zone=f"onelake://{WORKSPACE}", tables=()))
    assert caught.value.landing_zone == f"onelake://{WORKSPACE}"
