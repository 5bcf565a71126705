"""Find inserts of keys that a table already has, with bounded memory.

Fabric inserts such rows again without a check. Every row is stored as a digest of its key and its marker, in one of
several temporary files that the digest selects. So only one part of the keys is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from struct import Struct
from tempfile import SpooledTemporaryFile
from typing import NamedTuple

from mirrorfeed.lint.landing_zone import Duplicates
from mirrorfeed.lint.specification import DELETE, INSERT, MARKER_TEXTS, UPSERT

_PARTS = 64
_IN_MEMORY = 256 << 10
"""Bytes of one part to buffer before they are written to the disk."""
_DIGEST = 16
KEY_ROW = Struct(f"{_DIGEST}sb")
"""Format of a row from a reader: the digest of its key, and its marker."""
_STORED = Struct(f"{_DIGEST}sbIQ")
"""Format of a stored row: like `KEY_ROW`, plus file number and row number."""
_UNMARKED, _UNKNOWN = -1, -2
_NO_KEY = bytes(_DIGEST)


def key_rows(keys: Iterable[Sequence[object]], markers: Iterable[object] | None) -> bytes:
    """Return packed rows for keys and markers. `markers` is None if the file has none."""
    rows = ((key, _UNMARKED) for key in keys) if markers is None else zip(keys, map(_marker, markers), strict=True)
    return b"".join(KEY_ROW.pack(_digest(key), marker) for key, marker in rows)


def _digest(key: Sequence[object]) -> bytes:
    return _NO_KEY if None in key else blake2b(repr(tuple(key)).encode(errors="replace"), digest_size=_DIGEST).digest()


def _marker(value: object) -> int:
    return int(str(value)) if str(value) in MARKER_TEXTS else _UNKNOWN


class _File(NamedTuple):
    name: str
    period: int
    """Number of the period. Keys are compared only within a period. A file that cannot be read may delete keys, so it
    ends a period."""


@dataclass
class KeyIndex:
    """Index of the keys in the files of one table, in the order in which Fabric applies the files. Use it in a `with`
    statement."""

    upserts: bool

    def __post_init__(self) -> None:
        self._parts = [SpooledTemporaryFile(_IN_MEMORY) for _ in range(_PARTS)]  # noqa: SIM115 closed at exit
        self._files: dict[int, _File] = {}
        self._at = self._row = self._period = 0

    def __enter__(self) -> KeyIndex:
        return self

    def __exit__(self, *_: object) -> None:
        for part in self._parts:
            part.close()

    def begin(self) -> None:
        """Start a file, or start it again. Its rows count only after `end`."""
        self._at, self._row = self._at + 1, 0

    def add(self, rows: bytes) -> None:
        for digest, marker in KEY_ROW.iter_unpack(rows):
            self._row += 1
            if digest != _NO_KEY:
                self._parts[digest[0] % _PARTS].write(_STORED.pack(digest, marker, self._at, self._row))

    def end(self, name: str, rows: int | None) -> None:
        """End the file with its number of rows, or with None if it was not read."""
        if rows is not None and rows == self._row:
            self._files[self._at] = _File(name, self._period)
        else:
            self._period += 1

    def duplicates(self) -> Mapping[str, Duplicates]:
        """Return, per file, the rows that insert a key that already exists."""
        found: dict[str, Duplicates] = {}
        unmarked = UPSERT if self.upserts else INSERT
        for part in self._parts:
            part.seek(0)
            present: dict[bytes, int] = {}
            while data := part.read(_STORED.size << 12):
                for digest, marker, at, row in _STORED.iter_unpack(data):
                    if file := self._files.get(at):
                        effect = unmarked if marker == _UNMARKED else marker
                        if effect == INSERT and present.get(digest) == file.period:
                            before = found.get(file.name, Duplicates(0, row))
                            found[file.name] = Duplicates(before.rows + 1, min(before.first, row))
                        if effect in (DELETE, _UNKNOWN):
                            present.pop(digest, None)
                        else:
                            present[digest] = file.period
        return found
