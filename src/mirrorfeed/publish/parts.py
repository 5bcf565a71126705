"""Files as parts: where executors have no way to the landing zone, their files leave them cut up, as rows."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, cast

PART_BYTES = 2**10
"""Of all parts of a file but its last. Spark gives a client up to 10,000 rows at a time, or 90 MiB of large ones, and
the client holds several copies of them: so the rows are small."""


@dataclass
class Parts:
    """A sink from which what is written is taken away."""

    _full: deque[tuple[str, int, bytes]] = field(default_factory=deque)

    def open_write(self, path: str) -> BinaryIO:
        return cast(BinaryIO, _Cutter(path.rpartition("/")[2], self._full))

    def address(self, path: str) -> str:
        return f"the parts of {path}"

    def take(self) -> Iterator[tuple[str, int, bytes]]:
        """What is full, in the order of writing: the name of the file, the number of the part in it, the bytes."""
        while self._full:
            yield self._full.popleft()


class _Cutter(io.RawIOBase):
    def __init__(self, staged: str, full: deque[tuple[str, int, bytes]]) -> None:
        self._staged, self._full, self._part, self._count = staged, full, bytearray(), 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        left = view = memoryview(data).cast("B")
        while left:
            room = PART_BYTES - len(self._part)
            self._part += left[:room]
            left = left[room:]
            if len(self._part) == PART_BYTES:
                self._cut()
        return len(view)

    def close(self) -> None:
        if not self.closed:
            super().close()
            if self._part:
                self._cut()

    def _cut(self) -> None:
        self._full.append((self._staged, self._count, bytes(self._part)))
        self._count += 1
        self._part.clear()
