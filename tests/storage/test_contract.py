"""The contract of all stores. The docstring of each method of `Store` defines it."""

from __future__ import annotations

import ctypes
import errno
import io
import logging
import os
import pickle
import re
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from fixtures.files_api import files_api
from fixtures.memory import MemoryStore
from fixtures.onelake import OneLake
from fixtures.volume_mount import Refusals, mounted, needs_fuse
from mirrorfeed.storage import READ_LIMIT, Store
from mirrorfeed.storage.databricks_volume import VolumeStore
from mirrorfeed.storage.errors import (
    LocationUnusableError,
    PathExistsError,
    PathMissingError,
    StorageUnavailableError,
    SymbolicLinkError,
    UnreadableFileError,
    path_outside_root,
)
from mirrorfeed.storage.local_folder import FolderStore
from mirrorfeed.storage.request_retries import try_write
from tests.raised import raises

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has renames that never replace a file")

STORES: dict[str, Callable[[Path], Store]] = {
    "folder": lambda path: FolderStore(str(path / "zone")),
    "memory": lambda _: MemoryStore(),
}


@pytest.fixture(scope="module")
def mount(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A mount on which a folder works as a store, with everything refused that it can do without."""
    place, refusals = tmp_path_factory.mktemp("mount"), Refusals(fsync=True, link=True, random_writes=True)
    with mounted(place / "folder", place / "mount", refusals) as at:
        yield at


@pytest.fixture(params=[*STORES, "onelake", "volume", pytest.param("mount", marks=needs_fuse)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "mount":
        yield FolderStore(str(request.getfixturevalue("mount") / uuid.uuid4().hex))
        return
    if request.param == "volume":
        with files_api() as api:
            yield VolumeStore(api.volume, workspace=api.workspace)
        return
    if request.param == "onelake":
        simulator: OneLake = request.getfixturevalue("onelake")
        yield simulator.store()
        return
    yield STORES[request.param](tmp_path)


def names(store: Store, folder: str) -> list[str]:
    return [entry.name for entry in store.list(folder)]


def write(store: Store, path: str, *parts: bytes) -> None:
    with store.open_write(path) as sink:
        for part in parts:
            sink.write(part)


def test_calls_are_logged_at_debug_level_without_secrets(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    if isinstance(store, MemoryStore):
        return
    with caplog.at_level(logging.DEBUG, logger="mirrorfeed.storage"):
        store.create("a/b", b"123")
        store.read("a/b")
        store.list("a")
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("mirrorfeed.storage.")]
    assert any("a/b" in line for line in lines)
    assert len(lines) >= 3
    assert not [line for line in lines if "Bearer" in line or "?" in line]


def test_each_call_of_a_folder_is_one_line_at_debug_level(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = FolderStore(str(tmp_path))
    with caplog.at_level(logging.DEBUG, logger="mirrorfeed.storage"):
        store.create("a", b"123")
        store.rename("a", "b/c")
        store.remove("b/c")
    assert [record.getMessage() for record in caplog.records] == [
        f"create {tmp_path}/a",
        f"rename {tmp_path}/a",
        f"remove {tmp_path}/b/c",
    ]


def test_missing_folder_has_no_children(store: Store) -> None:
    assert store.list("") == []
    assert store.list("a/b") == []


def test_listing_returns_direct_children_sorted_by_name(store: Store) -> None:
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


def test_create_returns_the_etag_shown_in_listings(store: Store) -> None:
    etag = store.create("a/b", b"123")
    if isinstance(store, VolumeStore):  # its API returns no etag
        assert etag is None
        return

    assert [entry.etag for entry in store.list("a")] == [etag]
    store.remove("a/b")
    assert store.create("a/b", b"123") != etag


def test_times_in_a_listing_have_a_time_zone(store: Store) -> None:
    store.create("a/b", b"")

    assert all(entry.modified.tzinfo is not None for entry in (*store.list(""), *store.list("a")))


@pytest.mark.parametrize("content", [b"", b"\x00\xff" * 1000])
def test_created_file_can_be_read(store: Store, content: bytes) -> None:
    store.create("a/b", content)

    assert store.read("a/b") == content
    with store.open_read("a/b") as source:
        source.seek(2)
        assert source.read() == content[2:]


def test_create_does_not_overwrite_an_existing_file(store: Store) -> None:
    store.create("a/b", b"first")

    with pytest.raises(PathExistsError, match=r"a/b already exists"):
        store.create("a/b", b"second")
    assert store.read("a/b") == b"first"
    assert names(store, "a") == ["b"]


def test_replaced_file_has_the_new_content(store: Store) -> None:
    store.replace("a/b", b"first")
    store.replace("a/b", b"second")
    assert store.read("a/b") == b"second"
    assert [entry.name for entry in store.list("a")] == ["b"]


def test_replace_with_an_etag_replaces_only_that_file(store: Store) -> None:
    store.create("a/b", b"first")
    (before,) = store.list("a")
    store.replace("a/b", b"second", before.etag)
    with pytest.raises(PathExistsError):
        store.replace("a/b", b"third", before.etag)
    assert store.read("a/b") == b"second"
    (after,) = store.list("a")
    store.remove("a/b")
    with pytest.raises((PathMissingError, StorageUnavailableError)):
        store.replace("a/b", b"third", after.etag)
    assert store.list("a") == []


def test_create_is_refused_where_a_folder_exists(store: Store) -> None:
    store.create("a/b", b"")

    with pytest.raises(PathExistsError):
        store.create("a", b"")


def test_written_file_is_complete_after_close(store: Store) -> None:
    write(store, "a/b", b"one ", b"", b"two")

    assert store.read("a/b") == b"one two"


def test_closed_file_refuses_writes(store: Store) -> None:
    with store.open_write("a/b") as sink:
        sink.write(b"content")
    with pytest.raises(ValueError, match="closed"):
        sink.write(b" and more")
    assert store.read("a/b") == b"content"


def test_open_write_is_refused_for_an_existing_name(store: Store) -> None:
    write(store, "a/b", b"one")

    with pytest.raises(PathExistsError):
        store.open_write("a/b")
    assert store.read("a/b") == b"one"


@pytest.mark.parametrize("path", ["nothing", "a/nothing", "no/such/folder"])
def test_missing_file_cannot_be_read(store: Store, path: str) -> None:
    store.create("a/b", b"")

    with pytest.raises(PathMissingError, match=rf"{path} does not exist\."):
        store.read(path)
    with pytest.raises(PathMissingError):
        store.open_read(path)


def test_create_once_writes_the_whole_file_and_never_overwrites(store: Store) -> None:
    store.create_once("t/x", b"content")

    with pytest.raises(PathExistsError):
        store.create_once("t/x", b"other")
    assert store.read("t/x") == b"content"


def test_renamed_file_exists_only_at_its_new_name(store: Store) -> None:
    write(store, "t/_log/x", b"content")

    store.rename("t/_log/x", "t/new/y")

    assert store.read("t/new/y") == b"content"
    assert names(store, "t/_log") == []


def test_rename_requires_an_existing_source(store: Store) -> None:
    store.create("a", b"")

    with pytest.raises(PathMissingError):
        store.rename("b", "c")
    with pytest.raises((PathMissingError, PathExistsError)):  # both errors are correct
        store.rename("b", "a")
    with pytest.raises(PathMissingError):
        store.rename("b", "new/folder/c")
    assert names(store, "") == ["a"]


def test_rename_does_not_overwrite_an_existing_file(store: Store) -> None:
    store.create("a", b"a")
    store.create("b", b"b")

    with pytest.raises(PathExistsError):
        store.rename("a", "b")
    assert (store.read("a"), store.read("b")) == (b"a", b"b")


def test_remove_is_idempotent(store: Store) -> None:
    store.create("a/b", b"")
    store.create("a/c", b"")

    for _ in range(2):
        store.remove("a/b")

    assert names(store, "a") == ["c"]


def test_remove_folder_removes_all_contents(store: Store) -> None:
    for path in ("a/b/c/d", "a/b/e", "a/bc"):
        store.create(path, b"")

    for _ in range(2):
        store.remove_folder("a/b")

    assert names(store, "a") == ["bc"]
    assert store.list("a/b/c") == []


def test_etag_changes_when_a_file_is_recreated(store: Store) -> None:
    store.create("a/b", b"same")
    (before,) = store.list("a")
    assert store.list("a") == [before]
    store.remove("a/b")
    store.create("a/b", b"same")

    assert store.list("a")[0].etag != before.etag


def test_etag_changes_when_a_folder_is_recreated(store: Store, request: pytest.FixtureRequest) -> None:
    store.create("a/b/c", b"")
    (before,) = store.list("a")
    store.create("a/b/d", b"")
    assert store.list("a")[0].etag == before.etag
    # The API of volumes reports no changes of folders, and mounts report no creation times. Log ids show the change.
    if isinstance(store, VolumeStore) or "mount" in request.node.callspec.id:
        return
    store.remove_folder("a/b")
    store.create("a/b/c", b"")

    assert store.list("a")[0].etag != before.etag


@pytest.mark.parametrize("path", ["/a", "a/", "a//b", "..", "a/../../b", "./a", "a\\b", "a\x00b"])
def test_paths_outside_the_root_are_refused(store: Store, path: str) -> None:
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
        with raises(path_outside_root, match="is not below"):
            call()


def test_address_ends_with_the_file_path(store: Store) -> None:
    assert store.address("a/b").endswith("/a/b")


def test_names_with_spaces_and_any_script_are_supported(store: Store) -> None:
    store.create("große Tabelle.schema/注文/100% #1", b"x")

    assert names(store, "große Tabelle.schema/注文") == ["100% #1"]


# Folders only.


def test_folder_store_can_be_pickled(tmp_path: Path) -> None:
    store = FolderStore(str(tmp_path))
    store.create("a", b"content")

    assert pickle.loads(pickle.dumps(store)).read("a") == b"content"


def test_file_of_a_killed_creation_is_not_listed(tmp_path: Path) -> None:
    (tmp_path / ".unfinished-0123").write_bytes(b"half")

    assert FolderStore(str(tmp_path)).list("") == []


def test_killed_folder_deletion_leaves_no_partial_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FolderStore(str(tmp_path))
    for name in ("a/b", "a/c/d"):
        store.create(name, b"")

    def killed(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("shutil.rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        store.remove_folder("a")
    assert (store.list(""), store.list("a"), store.list("a/c")) == ([], [], [])


def test_create_leaves_no_temporary_file(tmp_path: Path) -> None:
    store = FolderStore(str(tmp_path))
    store.create("a", b"")
    with pytest.raises(PathExistsError):
        store.create("a", b"")

    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_file_in_place_of_a_folder_is_reported_as_unusable(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    store = FolderStore(str(tmp_path))

    with pytest.raises(LocationUnusableError) as unusable:
        store.list("a")
    assert unusable.value.problem == f"Cannot list {tmp_path}/a: Not a directory."
    with pytest.raises(LocationUnusableError, match=rf"^Cannot read {tmp_path}/a/b: Not a directory\."):
        store.read("a/b")


@pytest.mark.parametrize("error", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_missing_write_permission_is_not_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(Path, "open", refuse)  # a test that runs as root may write anywhere
    store = FolderStore(str(tmp_path))
    for call in (lambda: store.create("a", b""), lambda: store.open_write("a")):
        with pytest.raises(LocationUnusableError, match=re.escape(os.strerror(error))):
            call()


@pytest.mark.parametrize("size", [1, 2**20], ids=["when it is closed", "while it is written"])
def test_full_disk_is_a_store_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(Path, "open", lambda *_: io.BufferedWriter(io.FileIO("/dev/full", "wb")))
    with (
        pytest.raises(StorageUnavailableError, match=rf"^Cannot write {tmp_path}/a: No space left on device\."),
        FolderStore(str(tmp_path)).open_write("a") as sink,
    ):
        sink.write(bytes(size))


@pytest.mark.parametrize("created", ["t", "t/log"])
def test_folder_removed_while_a_file_is_opened_is_a_transient_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, created: str
) -> None:
    def mkdir(folder: Path, **_: object) -> None:
        os.mkdir(folder)
        if folder == tmp_path / created:
            os.rmdir(folder)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    with pytest.raises(StorageUnavailableError, match="its folder was deleted in the meantime"):
        FolderStore(str(tmp_path)).open_write("t/log/a")


@pytest.mark.parametrize("change", ["create", "replace", "remove_folder"])
def test_old_leftovers_of_killed_runs_are_removed_by_the_next_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    unfinished, folder = (f".unfinished-{uuid.uuid4().hex}" for _ in range(2))
    (tmp_path / unfinished).write_bytes(b"half")
    (tmp_path / folder / "below").mkdir(parents=True)
    (tmp_path / ".unfinished-thoughts").write_bytes(b"another's")
    (tmp_path / f".unfinished-{uuid.UUID(int=0).hex}").symlink_to(tmp_path / folder)
    store, now, day = FolderStore(str(tmp_path)), time.time(), 24 * 3600

    for days, remaining in ((6.9, 5), (7.1, 3)):
        monkeypatch.setattr("time.time", lambda days=days: now + days * day)
        (tmp_path / "t").mkdir()
        if change == "remove_folder":
            store.remove_folder("t")
            (tmp_path / "t").mkdir()
        else:
            getattr(store, change)("a", b"")
            (tmp_path / "a").unlink()
        assert len(list(tmp_path.iterdir())) == remaining
        (tmp_path / "t").rmdir()


def test_unremovable_leftovers_do_not_block_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / f".unfinished-{uuid.uuid4().hex}" / "below").mkdir(parents=True)
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now + 1e7)

    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("shutil.rmtree", refuse)
    FolderStore(str(tmp_path)).create("a", b"")
    assert names(FolderStore(str(tmp_path)), "") == ["a"]


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the synced files and folders, in order."""
    found, sync = list[str](), os.fsync

    def fsync(handle: int) -> None:
        found.append(os.path.basename(os.readlink(f"/proc/self/fd/{handle}")))
        sync(handle)

    monkeypatch.setattr("os.fsync", fsync)
    return found


def test_written_and_renamed_files_are_synced_to_disk(tmp_path: Path, synced: list[str]) -> None:
    store = FolderStore(str(tmp_path / "zone"))
    write(store, "t/log/x", b"content")
    assert synced == [tmp_path.name, "zone", "t", "x"]  # the folders that got a new folder, and the file content
    synced.clear()

    store.rename("t/log/x", "t/1")
    assert sorted(synced) == ["log", "t"]
    synced.clear()

    store.create("t/log/1.json", b"")
    # Syncing the folder also makes the names of the other files durable.
    assert [name.startswith(".unfinished-") or name for name in synced] == [True, "log"]


@pytest.mark.parametrize(("error", "reported"), [(errno.EINVAL, False), (errno.ENOTSUP, False), (errno.EIO, True)])
def test_folder_sync_error_is_raised_only_if_it_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int, reported: bool
) -> None:
    store, sync = FolderStore(str(tmp_path)), os.fsync
    store.create("a", b"")

    def fsync(handle: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{handle}"):
            raise OSError(error, os.strerror(error))
        sync(handle)

    monkeypatch.setattr("os.fsync", fsync)
    if reported:
        with pytest.raises(StorageUnavailableError, match="Input/output error"):
            store.rename("a", "b")
    else:
        store.rename("a", "b")
    assert names(store, "") == ["b"]


@pytest.mark.parametrize("error", [errno.EPERM, errno.ENOSYS])
def test_file_system_without_fsync_is_supported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    """Databricks volumes are reported to behave like this."""

    def fsync(_handle: int) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr("os.fsync", fsync)
    store = FolderStore(str(tmp_path / "zone"))
    store.create("t/log.json", b"{}")
    store.replace("t/log.json", b"{} ")
    write(store, "t/log/x", b"content")
    store.rename("t/log/x", "t/1")
    assert (store.read("t/log.json"), store.read("t/1")) == (b"{} ", b"content")


def _refuse_links(monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr("os.link", link)


@pytest.mark.parametrize("links", [True, pytest.param(False, marks=needs_linux)], ids=["hard links", "no hard links"])
def test_one_of_many_creators_succeeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool) -> None:
    if not links:
        _refuse_links(monkeypatch)
    store, rounds, creators = FolderStore(str(tmp_path)), range(40), [str(each).encode() for each in range(6)]
    start = threading.Barrier(len(creators))

    def create(content: bytes) -> list[bool]:
        succeeded = []
        for number in rounds:
            start.wait()
            succeeded.append(try_write(store.create, f"t/{number}", content) is None)
        return succeeded

    with ThreadPoolExecutor(len(creators)) as threads:
        by_creator = dict(zip(creators, threads.map(create, creators), strict=True))
    for number in rounds:
        winners = [content for content, succeeded in by_creator.items() if succeeded[number]]
        assert winners == [store.read(f"t/{number}")]


@pytest.mark.parametrize(
    "libc", [SimpleNamespace(), SimpleNamespace(renameat2=lambda *_: ctypes.set_errno(errno.EINVAL) or -1)]
)
def test_file_system_that_cannot_create_in_one_step_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, libc: SimpleNamespace
) -> None:
    store = FolderStore(str(tmp_path))
    store.create("t/there", b"")
    _refuse_links(monkeypatch)
    monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: libc)
    with pytest.raises(LocationUnusableError, match="has neither hard links nor renames that never replace a file"):
        store.create("t/new", b"content")
    assert os.listdir(tmp_path / "t") == ["there"]


WRITES: dict[str, Callable[[Store, str], object]] = {
    "create": lambda store, path: store.create(path, b""),
    "replace": lambda store, path: store.replace(path, b""),
    "open_write": lambda store, path: store.open_write(path),
    "rename": lambda store, path: store.rename("file", path),
    "rename from": lambda store, path: store.rename(path, "new"),
    "remove_folder": lambda store, path: store.remove_folder(path),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("path", ["link", "link/below"])
def test_nothing_is_written_through_a_symlink(tmp_path: Path, write: str, path: str) -> None:
    elsewhere, zone = tmp_path / "elsewhere", tmp_path / "zone"
    (elsewhere / "below").mkdir(parents=True)
    zone.mkdir()
    (zone / "file").write_bytes(b"")
    (zone / "link").symlink_to(elsewhere)

    with pytest.raises(SymbolicLinkError) as caught:
        WRITES[write](FolderStore(str(zone)), path)
    assert caught.value.facts["address"] == f"{zone}/{path}"
    assert caught.value.reason == f"{zone}/link is a symbolic link, and links are not followed"
    assert [each.name for each in elsewhere.iterdir()] == ["below"]
    assert list((elsewhere / "below").iterdir()) == []


def test_target_of_a_symlink_is_not_removed(tmp_path: Path) -> None:
    elsewhere, zone = tmp_path / "elsewhere", tmp_path / "zone"
    elsewhere.mkdir()
    zone.mkdir()
    (elsewhere / "file").write_bytes(b"another's")
    (zone / "link").symlink_to(elsewhere)
    (zone / "to a file").symlink_to(elsewhere / "file")
    store = FolderStore(str(zone))

    for path in ("link/file", "to a file"):
        with pytest.raises(SymbolicLinkError):
            store.remove(path)
    assert (elsewhere / "file").read_bytes() == b"another's"
    assert names(store, "") == ["link", "to a file"]


def test_landing_zone_may_be_reached_through_a_symlink(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "zone").symlink_to(tmp_path / "real")
    store = FolderStore(str(tmp_path / "zone"))
    store.create("a/b", b"")

    assert names(store, "a") == ["b"]


def test_symlinks_are_listed_without_being_followed(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "to a folder").symlink_to("folder")
    (tmp_path / "to itself").symlink_to("to itself")
    (tmp_path / "to nothing").symlink_to("nothing")

    assert [(entry.name, entry.is_folder) for entry in FolderStore(str(tmp_path)).list("")] == [
        ("folder", True),
        ("to a folder", False),
        ("to itself", False),
        ("to nothing", False),
    ]


def test_symlink_loop_and_too_long_name_have_readable_errors(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    store = FolderStore(str(tmp_path))

    for path in ("loop", "loop/a"):
        with pytest.raises(
            SymbolicLinkError, match=rf"^Cannot read {tmp_path}/{path}: {tmp_path}/loop is a symbolic link"
        ):
            store.read(path)
    with pytest.raises(LocationUnusableError, match="File name too long"):
        store.create("x" * 300, b"")


def test_creation_times_are_read_only_for_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[str] = []
    monkeypatch.setattr("mirrorfeed.storage.local_folder._creation_time", lambda path: requests.append(path) or 0)
    store = FolderStore(str(tmp_path))
    for path in ("a/b", "c", "d"):
        store.create(path, b"")

    store.list("")
    assert requests == [str(tmp_path / "a")]


# Foreign files in a folder.


def special_files(folder: Path) -> dict[str, Path]:
    """By name: a FIFO that nobody writes to, a link to an endless device, and a socket."""
    os.mkfifo(folder / "fifo")
    (folder / "link").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "socket"))
    return {name: folder / name for name in ("fifo", "link", "socket")}


def test_special_files_are_refused_without_waiting(tmp_path: Path) -> None:
    for name in special_files(tmp_path):
        for read in (FolderStore(str(tmp_path)).read, FolderStore(str(tmp_path)).open_read):
            with pytest.raises((UnreadableFileError, LocationUnusableError)):
                read(name)


def test_fifo_is_reported_with_a_fix(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log.json")
    with pytest.raises(UnreadableFileError) as caught:
        FolderStore(str(tmp_path)).read("log.json")
    assert caught.value.facts == {"address": f"{tmp_path}/log.json", "reason": "it is not a regular file"}
    assert "Find out who wrote the file, and delete it." in caught.value.solution


def test_file_above_the_size_limit_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "log.json").open("wb") as file:
        file.truncate(READ_LIMIT)
    assert len(FolderStore(str(tmp_path)).read("log.json")) == READ_LIMIT
    with (tmp_path / "log.json").open("ab") as file:
        file.truncate(READ_LIMIT + 1)
    with pytest.raises(UnreadableFileError, match=r"log\.json: it is larger than 32 MiB\."):
        FolderStore(str(tmp_path)).read("log.json")


@pytest.mark.parametrize("read", ["list", "read", "open_read"])
def test_nothing_is_read_through_a_symlink(tmp_path: Path, read: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/file").write_bytes(b"another's")
    (tmp_path / "zone").mkdir()
    (tmp_path / "zone/link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SymbolicLinkError):
        getattr(FolderStore(str(tmp_path / "zone")), read)("link" if read == "list" else "link/file")


def test_listing_removes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / f".unfinished-{uuid.uuid4().hex}").write_bytes(b"half")
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now + 1e7)
    FolderStore(str(tmp_path)).list("")
    assert len(list(tmp_path.iterdir())) == 1


def test_root_folder_cannot_be_removed(tmp_path: Path) -> None:
    with raises(path_outside_root):
        FolderStore(str(tmp_path)).remove_folder("")
    assert tmp_path.exists()


def test_remove_folder_does_not_remove_a_file(tmp_path: Path) -> None:
    (tmp_path / "orders").write_bytes(b"another's")
    with pytest.raises(LocationUnusableError, match="Not a directory"):
        FolderStore(str(tmp_path)).remove_folder("orders")
    assert (tmp_path / "orders").read_bytes() == b"another's"
