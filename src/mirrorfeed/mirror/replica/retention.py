"""Files that were processed: set aside with the last one left in place, and deleted seven days later."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

from mirrorfeed.mirror.replica.landing_zone import DataFile
from mirrorfeed.stores import AlreadyThere, NotThere, Store

PROCESSED = "_ProcessedFiles"
_FOLDERS = (PROCESSED, "_FilesReadyToDelete")
_KEPT_FOR = timedelta(days=7)
_NOTES = Path("_replica", "processed.json")
"""Beside the table's own files: Delta ignores names with `_`, and the notes go when the table goes."""


def set_aside(store: Store, folder: str, done: Sequence[DataFile]) -> list[str]:
    """Moves processed files away, but leaves the last. Returns the names that had been set aside before.

    Such a name was published twice: it stays where it is and is never read.
    """
    repeated = []
    for file in done[:-1]:
        try:
            store.rename(f"{folder}/{file.name}", f"{folder}/{PROCESSED}/{file.name}")
        except NotThere:
            continue  # its publisher removed it
        except AlreadyThere:
            repeated.append(file.name)
    return repeated


def delete_old(store: Store, folder: str, mirror: Path, now: datetime) -> None:
    """Deletes files that have lain aside for seven days. The time begins when the replica first sees them there.

    Storage times do not tell: a rename keeps the time at which the file was written.
    """
    notes = mirror / _NOTES
    before = _load(notes)
    seen: dict[str, str] = {}
    for aside in _FOLDERS:
        for entry in store.list(f"{folder}/{aside}"):
            if entry.is_folder:
                continue
            path = f"{aside}/{entry.name}"
            since = before.get(path, now.isoformat())
            if now - datetime.fromisoformat(since) >= _KEPT_FOR:
                store.remove(f"{folder}/{path}")
            else:
                seen[path] = since
    if seen != before:
        _save(notes, seen)


def _load(notes: Path) -> dict[str, str]:
    with suppress(FileNotFoundError, ValueError):  # without its notes a file stays a week longer, nothing worse
        return dict(json.loads(notes.read_text()))
    return {}


def _save(notes: Path, seen: dict[str, str]) -> None:
    notes.parent.mkdir(exist_ok=True)
    unfinished = notes.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(seen))
    unfinished.replace(notes)
