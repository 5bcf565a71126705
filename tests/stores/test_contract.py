"""What every store promises. The text of each verb in the port is the contract."""

from __future__ import annotations

import errno
import io
import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from fixtures.memory import MemoryStore
from fixtures.onelake import OneLake
from mirrorfeed.stores import (
    AlreadyThere,
    FolderStore,
    NotThere,
    PathOutside,
    PlaceUnusable,
    Store,
    StoreUnavailable,
)

STORES: dict[str, Callable[[Path], Store]] = {
    "folder": lambda path: FolderStore(str(path / "zone")),
    "memory": lambda _: MemoryStore(),
}


@pytest.fixture(params=[*STORES, "onelake"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "onelake":
        simulator: OneLake = request.getfixturevalue("onelake")
        return simulator.store()
    return STORES[request.param](tmp_path)


def names(store: Store, folder: str) -> list[str]:
    return [entry.name for entry in store.list(folder)]


def write(store: Store, path: str, *parts: bytes) -> None:
    with store.open_write(path) as sink:
        for part in parts:
            sink.write(part)


def test_a_folder_that_is_not_there_has_no_children(store: Store) -> None:
    assert store.list("") == []
    assert store.list("a/b") == []


def test_a_listing_has_the_direct_children_sorted_by_name(store: Store) -> None:
    for path in ("a/z", "a/b/c", "a/B", "a/10", "a/9", "x"):
        store.create(path, b"123")

    assert names(store, "") == ["a", "x"]
    assert [(entry.name, entry.is_folder, entry.size) for entry in store.list("a")] == [
        ("10", False, 3),
        ("9", False, 3),
        ("B", False, 3),
        ("b", True, 0),
        ("z", False, 3),
    ]


def test_times_in_a_listing_have_their_zone(store: Store) -> None:
    store.create("a/b", b"")

    assert all(entry.modified.tzinfo is not None for entry in (*store.list(""), *store.list("a")))


@pytest.mark.parametrize("content", [b"", b"\x00\xff" * 1000])
def test_what_is_created_can_be_read(store: Store, content: bytes) -> None:
    store.create("a/b", content)

    assert store.read("a/b") == content
    with store.open_read("a/b") as source:
        source.seek(2)
        assert source.read() == content[2:]


def test_nothing_is_created_over_what_is_there(store: Store) -> None:
    store.create("a/b", b"first")

    with pytest.raises(AlreadyThere, match=r"a/b is there already and is not overwritten\. Find out who wrote it\.$"):
        store.create("a/b", b"second")
    assert store.read("a/b") == b"first"
    assert names(store, "a") == ["b"]


def test_what_is_replaced_has_the_new_content(store: Store) -> None:
    store.replace("a/b", b"first")
    store.replace("a/b", b"second")
    assert store.read("a/b") == b"second"
    assert [entry.name for entry in store.list("a")] == ["b"]


def test_nothing_is_created_where_a_folder_is(store: Store) -> None:
    store.create("a/b", b"")

    with pytest.raises(AlreadyThere):
        store.create("a", b"")


def test_what_is_written_is_whole_once_it_is_closed(store: Store) -> None:
    write(store, "a/b", b"one ", b"", b"two")

    assert store.read("a/b") == b"one two"


@pytest.mark.parametrize("store", ["folder", "onelake"], indirect=True)
def test_a_file_is_begun_under_a_new_name_alone(store: Store) -> None:
    write(store, "a/b", b"one")

    with pytest.raises(AlreadyThere):
        store.open_write("a/b")
    assert store.read("a/b") == b"one"


@pytest.mark.parametrize("path", ["nothing", "a/nothing", "no/such/folder"])
def test_what_is_not_there_cannot_be_read(store: Store, path: str) -> None:
    store.create("a/b", b"")

    with pytest.raises(NotThere, match=rf"{path} is not there\. Check the address"):
        store.read(path)
    with pytest.raises(NotThere):
        store.open_read(path)


def test_a_renamed_file_is_at_its_new_name_alone(store: Store) -> None:
    write(store, "t/_log/x", b"content")

    store.rename("t/_log/x", "t/new/y")

    assert store.read("t/new/y") == b"content"
    assert names(store, "t/_log") == []


def test_a_rename_needs_a_source(store: Store) -> None:
    store.create("a", b"")

    with pytest.raises(NotThere):
        store.rename("b", "c")
    with pytest.raises((NotThere, AlreadyThere)):  # both are true
        store.rename("b", "a")
    assert names(store, "") == ["a"]


def test_a_rename_never_takes_a_name_that_is_taken(store: Store) -> None:
    store.create("a", b"a")
    store.create("b", b"b")

    with pytest.raises(AlreadyThere):
        store.rename("a", "b")
    assert (store.read("a"), store.read("b")) == (b"a", b"b")


def test_removing_twice_is_as_good_as_once(store: Store) -> None:
    store.create("a/b", b"")
    store.create("a/c", b"")

    for _ in range(2):
        store.remove("a/b")

    assert names(store, "a") == ["c"]


def test_a_folder_goes_with_all_that_is_in_it(store: Store) -> None:
    for path in ("a/b/c/d", "a/b/e", "a/bc"):
        store.create(path, b"")

    for _ in range(2):
        store.remove_folder("a/b")

    assert names(store, "a") == ["bc"]
    assert store.list("a/b/c") == []


def test_the_etag_tells_a_file_from_another_that_took_its_name(store: Store) -> None:
    store.create("a/b", b"same")
    (before,) = store.list("a")
    assert store.list("a") == [before]
    store.remove("a/b")
    store.create("a/b", b"same")

    assert store.list("a")[0].etag != before.etag


def test_the_etag_tells_a_folder_from_another_that_took_its_name(store: Store) -> None:
    store.create("a/b/c", b"")
    (before,) = store.list("a")
    store.create("a/b/d", b"")
    assert store.list("a")[0].etag == before.etag
    store.remove_folder("a/b")
    store.create("a/b/c", b"")

    assert store.list("a")[0].etag != before.etag


@pytest.mark.parametrize("path", ["/a", "a/", "a//b", "..", "a/../../b", "./a", "a\\b", "a\x00b"])
def test_paths_that_lead_elsewhere_are_refused(store: Store, path: str) -> None:
    calls = [
        lambda: store.list(path),
        lambda: store.read(path),
        lambda: store.open_read(path),
        lambda: store.create(path, b""),
        lambda: store.open_write(path),
        lambda: store.rename(path, "b"),
        lambda: store.remove(path),
        lambda: store.remove_folder(path),
    ]
    for call in calls:
        with pytest.raises(PathOutside, match="does not name anything below"):
            call()


def test_an_address_names_the_file_for_people(store: Store) -> None:
    assert store.address("a/b").endswith("/a/b")


def test_names_of_any_language_and_with_spaces_are_names(store: Store) -> None:
    store.create("große Tabelle.schema/注文/100% #1", b"x")

    assert names(store, "große Tabelle.schema/注文") == ["100% #1"]


# What only a folder can show.


def test_a_folder_store_travels_to_other_processes(tmp_path: Path) -> None:
    store = FolderStore(str(tmp_path))
    store.create("a", b"content")

    assert pickle.loads(pickle.dumps(store)).read("a") == b"content"


def test_what_a_killed_creation_left_is_in_no_listing(tmp_path: Path) -> None:
    (tmp_path / ".unfinished-0123").write_bytes(b"half")

    assert FolderStore(str(tmp_path)).list("") == []


def test_a_killed_deletion_leaves_no_part_of_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FolderStore(str(tmp_path))
    for name in ("a/b", "a/c/d"):
        store.create(name, b"")

    def killed(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("shutil.rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        store.remove_folder("a")
    assert (store.list(""), store.list("a"), store.list("a/c")) == ([], [], [])


def test_a_creation_leaves_nothing_but_its_file(tmp_path: Path) -> None:
    store = FolderStore(str(tmp_path))
    store.create("a", b"")
    with pytest.raises(AlreadyThere):
        store.create("a", b"")

    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_file_where_a_folder_should_be_makes_the_place_unusable(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    store = FolderStore(str(tmp_path))

    with pytest.raises(PlaceUnusable) as unusable:
        store.list("a")
    assert str(unusable.value) == (
        f"Cannot list {tmp_path}/a: Not a directory. Check that `landing_zone` in the configuration names a folder that"
        " this process may write to, then run the same command again."
    )
    with pytest.raises(PlaceUnusable, match=rf"^Cannot read {tmp_path}/a/b: Not a directory\."):
        store.read("a/b")


@pytest.mark.parametrize("error", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_a_place_without_the_right_to_write_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(Path, "open", refuse)  # a test that runs as root may write anywhere
    store = FolderStore(str(tmp_path))
    for call in (lambda: store.create("a", b""), lambda: store.open_write("a")):
        with pytest.raises(PlaceUnusable, match=re.escape(os.strerror(error))):
            call()


@pytest.mark.parametrize("size", [1, 2**20], ids=["when it is closed", "while it is written"])
def test_a_full_disk_is_a_fault_of_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(Path, "open", lambda *_: io.BufferedWriter(io.FileIO("/dev/full", "wb")))
    with (
        pytest.raises(StoreUnavailable, match=rf"^Cannot write {tmp_path}/a: No space left on device\."),
        FolderStore(str(tmp_path)).open_write("a") as sink,
    ):
        sink.write(bytes(size))


def test_a_folder_that_is_removed_while_a_file_is_opened_in_it_is_a_fault_that_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "mkdir", lambda *_, **__: None)  # as if it was removed right after
    with pytest.raises(StoreUnavailable, match="its folder was removed meanwhile"):
        FolderStore(str(tmp_path)).open_write("t/a")
