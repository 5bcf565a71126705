"""Large files and long listings: stores join the parts and pages again."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from fixtures.onelake import DATABASE, OneLake
from mirrorfeed.storage import Store
from mirrorfeed.storage.local_folder import FolderStore

MANY = 20_000


@pytest.fixture(params=["folder", "onelake"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "onelake":
        simulator: OneLake = request.getfixturevalue("onelake")
        return simulator.store()
    return FolderStore(str(tmp_path / "zone"))


@pytest.mark.soak
@pytest.mark.parametrize("size", [100 * 2**20 + 1, 300 * 2**20, 2**30], ids=["100 MiB", "300 MiB", "1 GiB"])
def test_large_file_is_read_back_unchanged(store: Store, size: int) -> None:
    written, read = hashlib.sha256(), hashlib.sha256()
    with store.open_write("t/_x") as sink:
        for number in range(-(-size // 2**20)):
            part = number.to_bytes(8, "big") * 2**17
            part = part[: size - number * 2**20]
            sink.write(part)
            written.update(part)
    store.rename("t/_x", "t/1")

    assert [entry.size for entry in store.list("t")] == [size]
    with store.open_read("t/1") as source:
        while part := source.read(16 * 2**20):
            read.update(part)
    assert read.hexdigest() == written.hexdigest()


@pytest.mark.soak
def test_large_listing_in_onelake_is_complete_without_duplicates(onelake: OneLake) -> None:
    expected = [f"{number:020d}.parquet" for number in range(MANY)]
    for name in reversed(expected):
        onelake.files.put_blob(f"{DATABASE}/Files/LandingZone/t/{name}", b"x", if_absent=True)

    assert [entry.name for entry in onelake.store().list("t")] == expected
    assert onelake.verbs().count("list") == MANY // onelake.server.page_size


@pytest.mark.soak
def test_large_listing_in_a_folder_is_complete_without_duplicates(tmp_path: Path) -> None:
    expected = [f"{number:020d}.parquet" for number in range(MANY)]
    for name in reversed(expected):
        (tmp_path / name).write_bytes(b"x")

    assert [entry.name for entry in FolderStore(str(tmp_path)).list("")] == expected
