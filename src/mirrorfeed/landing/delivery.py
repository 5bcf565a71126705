"""How changes of a source arrive in the mirror.

With `soft_delete`, deleted rows stay and are marked. With `append`, every change is a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Strict

from mirrorfeed.landing.schema import FEED_COLUMNS, MARKER, Column, Marker


@dataclass(frozen=True, slots=True)
class Delivery:
    """Delivery mode of a table, and the names of the columns that the mode adds to the columns of the source."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    mode: Literal["upsert", "soft_delete", "append"] = "upsert"
    deleted_column: Annotated[str, Strict()] = "_deleted"
    """Boolean column: true for a deleted row."""
    deleted_at_column: Annotated[str, Strict()] = "_deleted_at"
    """Column with the time of the commit that deleted the row. NULL for a row that is not deleted."""

    preimages: Annotated[bool, Strict()] = False
    """True if also the rows before an update are appended."""

    @property
    def marks_deletes(self) -> bool:
        return self.mode == "soft_delete"

    @property
    def appends(self) -> bool:
        return self.mode == "append"

    def keys(self, keys: Sequence[str]) -> tuple[str, ...]:
        """Return the key columns in Fabric. `keys` identify a row of the source."""
        return (*keys, *FEED_COLUMNS[1::-1]) if keys and self.appends else tuple(keys)

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns that the mode adds."""
        if self.appends:
            return tuple(map(Column, FEED_COLUMNS, ("string", "long", "timestamp")))
        if not self.marks_deletes:
            return ()
        return Column(self.deleted_column, "boolean"), Column(self.deleted_at_column, "timestamp")

    @property
    def of_delete(self) -> tuple[str, int | bool]:
        """Column of the data files, and its value in the rows that delete a key."""
        return (self.deleted_column, True) if self.marks_deletes else (MARKER, Marker.DELETE.value)

    @property
    def other_mode(self) -> str | None:
        """The mode in words, for display. None if the mirror equals the source (`upsert`)."""
        # Not UPSERT: a class that refers to an object of its own cannot be pickled for executors.
        return None if self == Delivery() else str(self)

    def __str__(self) -> str:
        names = [column.name for column in self.columns] if self.marks_deletes else []
        names += ["with pre-images"] if self.preimages else []
        return f"{self.mode} ({', '.join(names)})" if names else self.mode


UPSERT = Delivery()
