"""Volumes: responses of the Files API, and refused publications. `test_contract.py` has the contract of all stores, and
`tests/publish/test_crash_points_volume.py` has killed publications."""

from __future__ import annotations

import os
import pickle
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from deltalake import DeltaTable

from fixtures.files_api import FilesApi, files_api
from fixtures.mirror import canonical
from mirrorfeed.config.model import Config, zone_of
from mirrorfeed.mirror.local_replica import Replica, State
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.runtime.credentials import default_workspace
from mirrorfeed.storage import open_folder
from mirrorfeed.storage.databricks_volume import VolumeStore
from mirrorfeed.storage.errors import PathExistsError, StorageUnavailableError, VolumeUnusableError
from mirrorfeed.storage.local_folder import FolderStore
from tests.publish.scenarios import plan, three_commits, two_orders
from tests.support.tables import Table, TableFeed


@pytest.fixture
def api() -> Iterator[FilesApi]:
    with files_api() as api:
        yield api


@pytest.fixture
def store(api: FilesApi) -> VolumeStore:
    return VolumeStore(api.volume, api.workspace)


def test_path_of_a_volume_opens_the_files_api() -> None:
    assert open_folder("/Volumes/main/sales/landing/") == VolumeStore("/Volumes/main/sales/landing")
    assert open_folder("/tmp/zone") == FolderStore("/tmp/zone")


def test_volume_store_can_be_pickled() -> None:
    store = VolumeStore("/Volumes/main/sales/landing")
    assert pickle.loads(pickle.dumps(store)) == store
    assert store.workspace is default_workspace


@pytest.mark.parametrize("call", ["create", "create_once"])
def test_creation_without_response_is_sent_once(api: FilesApi, store: VolumeStore, call: str) -> None:
    store.create("t/before", b"")  # so that the folder exists
    api.requests.clear()
    api.lose = lambda method, _path: method == "PUT"

    with pytest.raises(StorageUnavailableError):
        getattr(store, call)("t/a", b"content")
    assert api.requests == [("PUT", f"{api.volume}/t/a")]
    assert store.read("t/a") == b"content"  # the call took effect


def test_upload_without_response_is_sent_once(api: FilesApi, store: VolumeStore) -> None:
    store.create("t/before", b"")
    file = store.open_write("t/a")
    file.write(b"x" * 3_000_000)
    api.requests.clear()
    api.refuse = lambda method, _path: (503, "TEMPORARILY_UNAVAILABLE") if method == "PUT" else None

    with pytest.raises(StorageUnavailableError):
        file.close()
    assert api.requests == [("PUT", f"{api.volume}/t/a")]


@pytest.mark.parametrize(("status", "code"), [(401, "UNAUTHENTICATED"), (403, "PERMISSION_DENIED")])
def test_refused_login_names_the_privileges(api: FilesApi, store: VolumeStore, status: int, code: str) -> None:
    api.refuse = lambda _method, _path: (status, code)

    for call in (lambda: store.list(""), lambda: store.create("a", b""), lambda: store.read("a")):
        with pytest.raises(VolumeUnusableError, match="READ VOLUME and WRITE VOLUME"):
            call()


def test_missing_volume_is_named(api: FilesApi) -> None:
    with pytest.raises(VolumeUnusableError, match="/Volumes/main/other/landing: the volume does not exist"):
        VolumeStore("/Volumes/main/other/landing", api.workspace).create("a", b"")


def test_workspace_without_login_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise ValueError("default auth: cannot configure default credentials")

    with pytest.raises(VolumeUnusableError, match="cannot configure default credentials"):
        VolumeStore("/Volumes/main/sales/landing", refuse).list("")


def test_listing_completes_a_rename_killed_after_the_copy(api: FilesApi, store: VolumeStore) -> None:
    store.create("t/_log/staged", b"rows")
    api.refuse = lambda method, _path: (400, "KILLED") if method == "DELETE" else None
    with pytest.raises(VolumeUnusableError):
        store.rename("t/_log/staged", "t/1")
    assert store.list("t/_log") == []  # hidden also from a reader that must not delete
    assert len(store._entries("t/_log")) == 2

    api.refuse = lambda _method, _path: None
    assert store.list("t/_log") == []
    assert store._entries("t/_log") == []
    assert store.read("t/1") == b"rows"


def test_listing_is_possible_while_a_rename_ends(
    api: FilesApi, store: VolumeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create("t/_log/staged", b"rows")
    api.refuse = lambda method, _path: (400, "KILLED") if method == "DELETE" else None
    with pytest.raises(VolumeUnusableError):
        store.rename("t/_log/staged", "t/1")
    api.refuse = lambda _method, _path: None
    before = store._entries("t/_log")
    store.remove("t/_log/staged")
    store.remove("t/_log/.renaming-staged")
    monkeypatch.setattr(VolumeStore, "_entries", lambda *_: before)
    assert store.list("t/_log") == []


def test_rename_killed_before_the_copy_can_be_retried(api: FilesApi, store: VolumeStore) -> None:
    store.create("t/staged", b"rows")
    api.refuse = lambda method, path: (400, "KILLED") if (method, path) == ("PUT", f"{api.volume}/t/1") else None
    with pytest.raises(VolumeUnusableError):
        store.rename("t/staged", "t/1")
    api.refuse = lambda _method, _path: None
    assert [entry.name for entry in store.list("t")] == ["staged"]

    store.rename("t/staged", "t/1")
    assert [entry.name for entry in store._entries("t")] == ["1"]


@pytest.mark.parametrize("other", [b"rows", b"other"])
def test_rename_does_not_replace_an_existing_file(store: VolumeStore, other: bytes) -> None:
    store.create("t/1", other)
    store.create("t/staged", b"rows")

    with pytest.raises(PathExistsError):
        store.rename("t/staged", "t/1")
    assert (store.read("t/1"), store.read("t/staged")) == (other, b"rows")


def test_landing_zone_in_a_volume_is_never_written_to_the_disk(api: FilesApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABRICKS_HOST", api.address)
    monkeypatch.setenv("DATABRICKS_TOKEN", "t")
    publish(TableFeed(two_orders()), zone_of(Config(landing_zone=api.volume, tables=())), plan())
    assert any(path.endswith("/00000000000000000001.parquet") for path in api.files)
    assert not Path("/Volumes/main/sales").exists()


def test_landing_zone_in_a_volume_is_refused_without_a_workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in os.environ if each.startswith("DATABRICKS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("DATABRICKS_CONFIG_FILE", "/nowhere")
    monkeypatch.setenv("PATH", "/nowhere")  # the Azure CLI
    store = zone_of(Config(landing_zone="/Volumes/main/sales/landing", tables=()))
    with pytest.raises(VolumeUnusableError, match="check the login to the workspace"):
        publish(TableFeed(two_orders()), store, plan())
    assert not Path("/Volumes/main/sales").exists()


def _publish(api: FilesApi, table: Table) -> None:
    publish(TableFeed(table, partitions=2), VolumeStore(api.volume, api.workspace), plan())


@pytest.mark.parametrize("step", [pytest.param(5, id="some"), pytest.param(1, id="all", marks=pytest.mark.soak)])
def test_next_run_completes_a_publication_whose_later_changes_were_refused(
    api: FilesApi, tmp_path: Path, step: int, counted: Counter[str]
) -> None:
    table = two_orders()
    _publish(api, table)
    three_commits(table)
    files, folders = dict(api.files), set(api.folders)
    api.requests.clear()
    _publish(api, table.copy())
    changes = [method for method, _ in api.requests if method != "GET"]
    assert len(changes) >= 8

    for first_refused in range(0, len(changes), step):
        api.files, api.folders, remaining = dict(files), set(folders), [first_refused]

        def refuse(method: str, _path: str, remaining: list[int] = remaining) -> tuple[int, str] | None:
            remaining[0] -= method != "GET"
            return (400, "REFUSED") if remaining[0] < 0 else None

        api.refuse = refuse
        with suppress(VolumeUnusableError):  # no error if only cleanup was left
            _publish(api, table.copy())
        api.refuse = lambda _method, _path: None
        _publish(api, table.copy())

        mirror = tmp_path / str(first_refused)
        (report,) = Replica(VolumeStore(api.volume, api.workspace), str(mirror)).run_pass()
        assert report.state is State.REPLICATING, report
        rows = DeltaTable(str(mirror / "sales" / "orders")).to_pyarrow_table().to_pylist()
        assert canonical(rows) == canonical(table.at(table.latest)), (
            f"refused from change {first_refused} of {len(changes)}"
        )
        counted["refused publications to a volume"] += 1
