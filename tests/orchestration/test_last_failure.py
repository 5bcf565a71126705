"""The files with the last failures of tables."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mirrorfeed.errors import MirrorfeedError, UnexpectedError, catalogue, error_name
from mirrorfeed.landing.names import Target
from mirrorfeed.monitor.findings import Severity, TableFacts, error_finding
from mirrorfeed.monitor.status import status_of
from mirrorfeed.orchestration.last_failure import FOLDER, LastFailures, LastRunError
from mirrorfeed.publish.errors import nothing_published
from mirrorfeed.publish.next_publication import unpublished_since
from mirrorfeed.publish.table_result import TableResult
from mirrorfeed.source.identifier import Source
from mirrorfeed.storage import Entry
from mirrorfeed.storage.errors import StorageUnavailableError
from mirrorfeed.storage.local_folder import FolderStore
from tests.support.entries import entry

ORDERS, LINES = Target("sales", "orders"), Target("sales", "lines")
ERROR = nothing_published(table="sales.orders")


@dataclass(frozen=True)
class CountingStore(FolderStore):
    """A folder that counts calls."""

    calls: list[str] = field(default_factory=list)

    def list(self, folder: str) -> list[Entry]:
        self.calls.append("list")
        return FolderStore.list(self, folder)

    def read(self, path: str) -> bytes:
        self.calls.append("read")
        return FolderStore.read(self, path)

    def replace(self, path: str, data: bytes, etag: str | None = None) -> None:
        self.calls.append("replace")
        FolderStore.replace(self, path, data, etag)

    def remove(self, path: str) -> None:
        self.calls.append("remove")
        FolderStore.remove(self, path)


def failed(error: MirrorfeedError | None, published: int | None = 5) -> TableResult:
    return TableResult("sales.orders", error=error, published_version=published, decision="versions 6 to 7")


def last(store: FolderStore, published: int | None = 5, target: Target = ORDERS) -> LastRunError | None:
    return LastFailures(store).read(target, published)


def file_of(folder: Path) -> Path:
    (file,) = folder.joinpath(FOLDER).iterdir()
    return file


def test_failure_lasts_until_the_table_succeeds_or_another_version_is_published(tmp_path: Path) -> None:
    store = FolderStore(str(tmp_path))
    LastFailures(store).update(ORDERS, failed(ERROR))
    found = last(store)
    assert found is not None
    assert (found.code, error_name(found), found.is_temporary) == (ERROR.code, "NothingPublished", False)
    assert found.problem.startswith("The last run failed, since ")
    assert found.problem.endswith(f" UTC: {ERROR.problem}")
    assert found.solution == ERROR.solution
    assert (found.failure.published, found.failure.step) == (5, "versions 6 to 7")
    assert (last(store, 6), last(store, target=LINES)) == (None, None)
    LastFailures(store).update(ORDERS, TableResult("sales.orders", stopped=True))
    assert last(store) is not None
    LastFailures(store).update(ORDERS, failed(None))
    assert (last(store), list(tmp_path.joinpath(FOLDER).iterdir())) == (None, [])


def test_successful_tables_of_a_run_cost_one_listing(tmp_path: Path) -> None:
    store = CountingStore(str(tmp_path))
    failures = LastFailures(store)
    for target in (ORDERS, LINES):
        failures.update(target, failed(None))
    assert store.calls == ["list"]
    failures.update(ORDERS, failed(ERROR))
    assert store.calls == ["list", "replace"]


def test_repeated_failure_keeps_its_start_and_is_not_written_again(tmp_path: Path) -> None:
    store = CountingStore(str(tmp_path))
    LastFailures(store).update(ORDERS, failed(ERROR))
    text = file_of(tmp_path).read_text().replace('"since": "2', '"since": "1')
    file_of(tmp_path).write_text(text)
    LastFailures(store).update(ORDERS, failed(ERROR))
    assert store.calls.count("replace") == 1
    LastFailures(store).update(ORDERS, failed(ERROR, published=6))
    assert store.calls.count("replace") == 2
    assert json.loads(file_of(tmp_path).read_text())["since"].startswith("2")


def test_secrets_are_not_stored(tmp_path: Path) -> None:
    error = UnexpectedError(doing="Publishing", kind="ValueError", reason="https://x/?sig=abcdefabcdefabcdef", helps="")
    LastFailures(FolderStore(str(tmp_path))).update(ORDERS, failed(error))
    assert "abcdefabcdefabcdef" not in file_of(tmp_path).read_text()


@pytest.mark.parametrize("content", ["{", '{"format": 2}', '{"table": "sales.orders", "code": "rm -rf", "format": 1}'])
def test_damaged_file_is_ignored_and_replaced(tmp_path: Path, content: str) -> None:
    store = FolderStore(str(tmp_path))
    LastFailures(store).update(ORDERS, failed(ERROR))
    file_of(tmp_path).write_text(content)
    assert last(store) is None
    LastFailures(store).update(ORDERS, failed(ERROR))
    assert last(store) is not None


def _is_a_file(folder: Path) -> None:
    (folder / "_mirrorfeed").write_text("")


@pytest.mark.parametrize("harm", [_is_a_file, lambda folder: folder.rmdir()])
def test_folder_that_cannot_be_used_raises_no_error(tmp_path: Path, harm: Callable[[Path], object]) -> None:
    (tmp_path / "zone").mkdir()
    harm(tmp_path / "zone")
    failures = LastFailures(FolderStore(str(tmp_path / "zone")))
    failures.update(ORDERS, failed(None))
    failures.update(ORDERS, failed(ERROR))
    failures.remove(LINES)


def test_unavailable_storage_is_not_asked_again(tmp_path: Path) -> None:
    store = CountingStore(str(tmp_path))
    LastFailures(store).update(ORDERS, failed(StorageUnavailableError(action="read", address="a", reason="no answer")))
    assert store.calls == []


def test_last_failure_is_an_error_of_status_and_a_finding(tmp_path: Path) -> None:
    store = FolderStore(str(tmp_path))
    LastFailures(store).update(ORDERS, failed(ERROR))
    failure = last(store)
    assert failure is not None
    facts = TableFacts("sales.orders", "s", last_failure=failure)
    assert (status_of(facts).state, status_of(facts).error) == ("failing", failure)
    finding = error_finding("sales.orders", failure)
    assert (finding.severity, finding.code, finding.name) == (Severity.WRONG, ERROR.code, "NothingPublished")
    assert (finding.command, finding.since) == ("mirrorfeed publish sales.orders", failure.failure.since)
    assert str(pickle.loads(pickle.dumps(failure))) == str(failure)


def test_text_of_an_alert_comes_from_the_catalogue(tmp_path: Path) -> None:
    store = FolderStore(str(tmp_path))
    LastFailures(store).update(ORDERS, failed(ERROR))
    failure = last(store)
    assert failure is not None
    shown = str(failure.with_catalogued_text())
    assert ERROR.problem not in shown
    assert catalogue()[ERROR.code].means in shown


@dataclass(frozen=True)
class BrokenStore(FolderStore):
    """A folder whose calls fail in a way that nobody expects."""

    def list(self, folder: str) -> list[Entry]:
        raise RuntimeError(folder)


def test_unexpected_error_of_one_table_ends_no_run(tmp_path: Path) -> None:
    store = BrokenStore(str(tmp_path))
    failures = LastFailures(store)
    assert failures.read(ORDERS, 1) is None
    failures.update(ORDERS, failed(ERROR))
    failures.remove(ORDERS)
    assert unpublished_since(store, entry(Source(path=str(tmp_path / "orders")), "sales.orders")) is None
