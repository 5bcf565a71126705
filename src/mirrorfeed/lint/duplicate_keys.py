"""Find rows that insert a key that the table already has, with bounded memory.

Fabric does not check for duplicate keys. For each row, one of several temporary files stores two values: a hash of the
key, and the row marker. The hash selects the file, so only the keys of one file are in memory at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from hashlib import blake2b
from struct import Struct
from tempfile import SpooledTemporaryFile

from mirrorfeed.display.rows import counted
from mirrorfeed.lint.specification import DELETE, INSERT, MARKER_TEXTS, UPSERT, LintFinding, error

_PARTS = 64
_IN_MEMORY = 256 << 10
"""Maximum bytes of each temporary file in memory. A larger file is written to disk."""
_DIGEST = 16
KEY_ROW = Struct(f"{_DIGEST}sb")
"""Format of a packed row: hash of the key, and row marker."""
_STORED = Struct(f"{_DIGEST}sbIQ")
"""Format of a stored row: hash of the key, row marker, number of the data file in the index, and row number."""
_UNMARKED, _UNKNOWN = -1, -2
_NO_KEY = bytes(_DIGEST)

KEY_AGAIN = error(
    "MF412",
    "{rows} a key that the table already has, first in row {first:,}. The mirror then has the key twice.",
    "Write the row marker 4 for rows that may already exist, or delete the old row first (row marker 2).",
    "Rows without a marker, or with the marker 0, insert a key that the table already has.",
)


def key_rows(keys: Iterable[Sequence[object]], markers: Iterable[object] | None) -> bytes:
    """Return bytes that contain two values for each row: a hash of the key, and then the row marker.

    `keys` and `markers` have one entry for each row. `markers` is None if the rows have no markers.
    """
    rows = ((key, _UNMARKED) for key in keys) if markers is None else zip(keys, map(_marker, markers), strict=True)
    return b"".join(KEY_ROW.pack(_digest(key), marker) for key, marker in rows)


def _digest(key: Sequence[object]) -> bytes:
    return _NO_KEY if None in key else blake2b(repr(tuple(key)).encode(errors="replace"), digest_size=_DIGEST).digest()


def _marker(value: object) -> int:
    return int(str(value)) if str(value) in MARKER_TEXTS else _UNKNOWN


class KeyIndex(ExitStack):
    """Index of the keys in the data files of one table. Context manager that deletes its temporary files on exit.

    Call `add` and `end` for each file, in the order in which Fabric applies the files. A file that is missing or cannot
    be read could contain deletes. So keys before this file are not compared with keys after this file.
    """

    def __init__(self, upserts: bool) -> None:
        """Create an empty index. `upserts` is True if rows without a marker are upserts."""
        super().__init__()
        self._upserts = upserts
        self._parts = [self.enter_context(SpooledTemporaryFile(_IN_MEMORY)) for _ in range(_PARTS)]  # noqa: SIM115 closed at exit
        self._files: dict[int, tuple[str, int]] = {}
        """Path of each file with all rows in the index, and number of skipped files before it, by file number."""
        self._file = self._row = self._period = 0

    def discard(self) -> None:
        """Discard the rows that `add` received after the last call of `end`."""
        self._file, self._row = self._file + 1, 0

    def add(self, rows: bytes) -> None:
        """Add rows of a file to the index. `rows` is a result of `key_rows`. Call `end` after the last rows of a file.

        Leaves out rows with NULL in the key, because they are never duplicates.
        """
        for digest, marker in KEY_ROW.iter_unpack(rows):
            self._row += 1
            if digest != _NO_KEY:
                self._parts[digest[0] % _PARTS].write(_STORED.pack(digest, marker, self._file, self._row))

    def end(self, path: str, rows: int | None) -> None:
        """Assign to the file `path` the rows that `add` received after the last call of `end`.

        Discards these rows unless they are all rows of the file. `rows` is the number of rows in the file, or None if
        the file is missing or was not read completely."""
        if rows is not None and rows == self._row:
            self._files[self._file] = path, self._period
        else:
            self._period += 1
        self.discard()

    def findings(self) -> list[LintFinding]:
        """Return a finding for each file with rows that insert a key that the table already has."""
        counts, first = Counter[str](), dict[str, int]()
        unmarked = UPSERT if self._upserts else INSERT
        for part in self._parts:
            part.seek(0)
            periods: dict[bytes, int] = {}
            while data := part.read(_STORED.size << 12):
                for digest, stored_marker, number, row in _STORED.iter_unpack(data):
                    if number not in self._files:
                        continue
                    path, period = self._files[number]
                    marker = unmarked if stored_marker == _UNMARKED else stored_marker
                    if marker == INSERT and periods.get(digest) == period:
                        counts[path] += 1
                        first[path] = min(row, first.get(path, row))
                    if marker in (DELETE, _UNKNOWN):
                        periods.pop(digest, None)
                    else:
                        periods[digest] = period
        phrases = {path: f"{counted(n, 'row')} insert{'s' if n == 1 else ''}" for path, n in counts.items()}
        return [KEY_AGAIN.finding(path, rows=rows, first=first[path]) for path, rows in phrases.items()]
