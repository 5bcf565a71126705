"""Parts of a first load. Each part is one publication, so a load that is stopped continues with the next part.

A load is divided once, before its first part, and each of its log records repeats the division. So a later run needs
no other information to continue, and it does not matter whether its settings or executors are others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Self

from pydantic import Field

from mirrorfeed.landing.strict_json import Count


@dataclass(frozen=True, slots=True)
class Slice:
    """Rows of the source that one part publishes: those after the slice before, up to a value of one column."""

    up_to: str | None
    """Greatest value of the column in this slice, as text. None in the last slice."""
    rows: Count
    """Estimated number of rows. The sum over all slices is exact."""
    bytes: Count
    """Estimated size in the source."""


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """Published share of a first load that is not complete."""

    parts_published: int
    parts: int
    bytes_published: int
    """Estimated size of the published rows in the source."""
    bytes: int
    """Estimated size of all rows in the source."""

    @property
    def in_words(self) -> str:
        """Text such as `3 of 10 parts (28 %)`."""
        return f"{self.parts_published} of {self.parts} parts ({100 * self.bytes_published // max(1, self.bytes)} %)"


@dataclass(frozen=True, slots=True)
class LoadPart:
    """One part of a first load."""

    number: Annotated[int, Field(ge=1)]
    """Number of this part. The first part is 1, and also has the rows with NULL in the column."""
    column: str
    """Column of the source whose values divide the rows."""
    slices: tuple[Slice, ...]
    """The slices of all parts, in ascending order of their values."""
    rows_published: Count = 0
    """Number of rows that this part and the parts before it have published. In a part to publish next, without it."""

    @property
    def is_last(self) -> bool:
        return self.number == len(self.slices)

    @property
    def next(self) -> Self:
        return replace(self, number=self.number + 1)

    @property
    def slice(self) -> Slice:
        return self.slices[self.number - 1]

    @property
    def after(self) -> str | None:
        """Greatest value of the column in the parts before this part. None in the first part."""
        return self.slices[self.number - 2].up_to if self.number > 1 else None

    @property
    def progress(self) -> LoadProgress:
        """Published share of the load after this part."""
        sizes = [each.bytes for each in self.slices]
        return LoadProgress(self.number, len(sizes), sum(sizes[: self.number]), sum(sizes))

    def check(self) -> None:
        """Raise `ValueError` if the fields contradict each other."""
        if self.number > len(self.slices):
            raise ValueError("its load has fewer parts than the number of its part")
        if any((each.up_to is None) != (at == len(self.slices)) for at, each in enumerate(self.slices, 1)):
            raise ValueError("exactly the last part of its load must have no greatest value")

    def __str__(self) -> str:
        return f"part {self.number} of {len(self.slices)}"
