"""Find inserts of keys that a table already has, in memory that does not grow with the number of rows.

Fabric inserts such rows again without a check. Every row is a digest of its key and its marker, in one of several
temporary files that its digest selects, so that one part of the keys is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from struct import Struct
from tempfile import SpooledTemporaryFile
from typing import NamedTuple

from mirrorfeed.lint.facts import Duplicates
from mirrorfeed.lint.specification import DELETE, INSERT, MARKERS, UPSERT

_PARTS = 64
_IN_MEMORY = 256 << 10
"""Bytes of one part, before they are written to the disk."""
_DIGEST = 16
KEY_ROW = Struct(f"{_DIGEST}sb")
"""A row as a reader reports it: the digest of its key, and its marker."""
_STORED = Struct(f"{_DIGEST}sbIQ")
"""With the number of the file and the row."""
_UNMARKED, _UNKNOWN = -1, -2
_NO_KEY = bytes(_DIGEST)


def key_rows(keys: Iterable[Sequence[object]], markers: Iterable[object] | None) -> bytes:
    """Rows by the values of their keys and their markers; `markers` is None if the file has none."""
    rows = ((key, _UNMARKED) for key in keys) if markers is None else zip(keys, map(_marker, markers), strict=True)
    return b"".join(KEY_ROW.pack(_digest(key), marker) for key, marker in rows)


def _digest(key: Sequence[object]) -> bytes:
    return _NO_KEY if None in key else blake2b(repr(tuple(key)).encode(errors="replace"), digest_size=_DIGEST).digest()


def _marker(value: object) -> int:
    return int(str(value)) if str(value) in map(str, MARKERS) else _UNKNOWN


class _File(NamedTuple):
    name: str
    period: int
    """Keys are compared with files of the same period. A file that cannot be read may delete keys, so it ends one."""


@dataclass
class KeyIndex:
    """The keys of the files of one table, in the order in which Fabric applies them. Use it in a `with` statement."""

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
        """Begin a file, or begin it again. Its rows count only after `end`."""
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
        """The rows of each file that insert a key again."""
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
