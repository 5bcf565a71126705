"""Calls to the Blob endpoint, answered by Azurite instead of the simulator of this project.

Azurite does not support the DFS endpoint: listing of landing zones, parts of files, renames and folders.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from azure.storage.blob import ContainerClient, StandardBlobTier

from fixtures.azurite import KEY, PROGRAM, azurite
from fixtures.onelake import DATABASE, WORKSPACE
from mirrorfeed.storage import http
from mirrorfeed.storage.azure_and_s3_tiers import AzureTiers
from mirrorfeed.storage.errors import PathExistsError, PathMissingError
from mirrorfeed.storage.onelake import OneLakeStore
from mirrorfeed.storage.tier_store import Priority, Tier

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(PROGRAM is None, reason="Azurite is not on PATH: npm install --global azurite"),
]
ROOT = f"abfss://{WORKSPACE}@lake.dfs.core.windows.net/"


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with azurite(tmp_path_factory.mktemp("azurite")) as address:
        yield address


@pytest.fixture
def container(account: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ContainerClient]:
    monkeypatch.setattr(http, "token_credential", lambda *_: KEY)
    client = ContainerClient(account, WORKSPACE, credential=KEY, api_version=http.API_VERSION)
    client.create_container()
    yield client
    client.delete_container()


@pytest.fixture
def store(account: str, container: ContainerClient) -> OneLakeStore:
    store = OneLakeStore(WORKSPACE, DATABASE, endpoint=account)
    store._clients.landing_zone_exists = True  # the check lists folders
    return store


def test_file_is_created_only_if_it_is_absent(store: OneLakeStore) -> None:
    assert store.create("t/1", b"first")
    for create in (store.create, store.create_once):
        with pytest.raises(PathExistsError):
            create("t/1", b"second")
    store.create_once("t/2", b"")
    assert [store.read("t/1"), store.read("t/2")] == [b"first", b""]


def test_one_of_many_creators_succeeds(store: OneLakeStore) -> None:
    def create(number: int) -> bool:
        try:
            store.create("t/1", str(number).encode() * 100_000)
        except PathExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        created = list(pool.map(create, range(8)))
    assert created.count(True) == 1
    assert store.read("t/1") == str(created.index(True)).encode() * 100_000


def test_file_is_replaced_only_if_it_has_the_etag(store: OneLakeStore) -> None:
    etag = store.create("t/1", b"first")
    store.replace("t/1", b"second", etag)
    with pytest.raises(PathExistsError):
        store.replace("t/1", b"third", etag)
    assert store.read("t/1") == b"second"
    store.replace("t/1", b"fourth")
    assert store.read("t/1") == b"fourth"


def test_file_is_read_in_parts_and_a_missing_file_is_missing(store: OneLakeStore) -> None:
    content = bytes(range(256)) * 10_000
    store.create("t/a b/é%20#.parquet", content)
    with store.open_read("t/a b/é%20#.parquet") as file:
        assert file.read(10) == content[:10]
        file.seek(-10, 2)
        assert file.read() == content[-10:]
    for read in (store.read, store.open_read):
        with pytest.raises(PathMissingError):
            read("t/gone")


def test_tiers_are_read_and_archived_files_restored(account: str, container: ContainerClient) -> None:
    names = ["t/day=1/part-0", "t/day=a b/part-é%20#?&.parquet", *(f"t/day=2/part-{i:02}" for i in range(20))]
    for name in names:
        container.upload_blob(
            name, b"x", standard_blob_tier=StandardBlobTier.COOL if name == names[-1] else StandardBlobTier.ARCHIVE
        )
    tiers = AzureTiers(account, WORKSPACE, ROOT)
    uris = [ROOT + name for name in [*names, "t/gone"]]
    found = list(tiers.read_tiers(uris).values())
    assert set(found[:-2]) == {Tier.ARCHIVE}
    assert found[-2:] == [Tier.COOL, Tier.MISSING]
    assert tiers.restore(uris, Priority.HIGH) == {uris[-1]: "404 BlobNotFound"}
    restored = tiers.read_tiers(uris[:-1])
    assert all(tier in (Tier.HOT, Tier.PENDING) for tier in restored.values()), restored
