"""Find rows that insert a key that the table already has, with bounded memory.

Fabric inserts such rows without a check. Each row is stored as a digest of its key and its marker. The digest selects
one of several temporary files, so that only one part of the keys is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from struct import Struct
from tempfile import SpooledTemporaryFile

from mirrorfeed.lint.landing_zone import Duplicates
from mirrorfeed.lint.specification import DELETE, INSERT, MARKER_TEXTS, UPSERT

_PARTS = 64
_IN_MEMORY = 256 << 10
"""Bytes of one temporary file to buffer before they are written to the disk."""
_DIGEST = 16
KEY_ROW = Struct(f"{_DIGEST}sb")
"""Format of a packed row: digest of the key, and marker."""
_STORED = Struct(f"{_DIGEST}sbIQ")
"""Format of a stored row: digest of the key, marker, file number and row number."""
_UNMARKED, _UNKNOWN = -1, -2
_NO_KEY = bytes(_DIGEST)


def key_rows(keys: Iterable[Sequence[object]], markers: Iterable[object] | None) -> bytes:
    """Pack the keys and markers of rows. `markers` is None if the file has no markers."""
    rows = ((key, _UNMARKED) for key in keys) if markers is None else zip(keys, map(_marker, markers), strict=True)
    return b"".join(KEY_ROW.pack(_digest(key), marker) for key, marker in rows)


def _digest(key: Sequence[object]) -> bytes:
    return _NO_KEY if None in key else blake2b(repr(tuple(key)).encode(errors="replace"), digest_size=_DIGEST).digest()


def _marker(value: object) -> int:
    return int(str(value)) if str(value) in MARKER_TEXTS else _UNKNOWN


@dataclass
class KeyIndex:
    """Keys in the files of one table. Use it in a `with` statement.

    Add files in the order in which Fabric applies them. A file that cannot be read may delete keys, so it ends a
    period, and keys are compared only within a period.
    """

    upserts: bool
    """True if rows without a marker are upserts."""

    def __post_init__(self) -> None:
        self._parts = [SpooledTemporaryFile(_IN_MEMORY) for _ in range(_PARTS)]  # noqa: SIM115 closed at exit
        self._files: dict[int, tuple[str, int]] = {}
        """Name and period of each complete file, by file number."""
        self._file = self._row = self._period = 0

    def __enter__(self) -> KeyIndex:
        return self

    def __exit__(self, *_: object) -> None:
        for part in self._parts:
            part.close()

    def begin(self) -> None:
        """Start a file, or start the same file again. Its rows count only after `end`."""
        self._file, self._row = self._file + 1, 0

    def add(self, rows: bytes) -> None:
        """Add packed rows to the started file."""
        for digest, marker in KEY_ROW.iter_unpack(rows):
            self._row += 1
            if digest != _NO_KEY:
                self._parts[digest[0] % _PARTS].write(_STORED.pack(digest, marker, self._file, self._row))

    def end(self, name: str, rows: int | None) -> None:
        """End a file. `rows` is the number of rows in the file, or None if the file is missing or was not read."""
        if rows is not None and rows == self._row:
            self._files[self._file] = name, self._period
        else:
            self._period += 1

    def duplicates(self) -> Mapping[str, Duplicates]:
        """Return the rows that insert a key that the table already has, by file name."""
        duplicates: dict[str, Duplicates] = {}
        unmarked = UPSERT if self.upserts else INSERT
        for part in self._parts:
            part.seek(0)
            periods: dict[bytes, int] = {}
            while data := part.read(_STORED.size << 12):
                for digest, stored_marker, number, row in _STORED.iter_unpack(data):
                    if number not in self._files:
                        continue
                    name, period = self._files[number]
                    marker = unmarked if stored_marker == _UNMARKED else stored_marker
                    if marker == INSERT and periods.get(digest) == period:
                        before = duplicates.get(name, Duplicates(0, row))
                        duplicates[name] = Duplicates(before.rows + 1, min(before.first, row))
                    if marker in (DELETE, _UNKNOWN):
                        periods.pop(digest, None)
                    else:
                        periods[digest] = period
        return duplicates
