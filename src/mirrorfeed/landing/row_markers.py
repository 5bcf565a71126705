"""What goes with a row beside its values: its marker, or the reason why nothing of its range is published."""

from __future__ import annotations

from enum import IntEnum


class Marker(IntEnum):
    """As the service numbers them."""

    INSERT = 0
    UPDATE = 1
    DELETE = 2
    UPSERT = 4


class Problem(IntEnum):
    """As a number it is the value of a column."""

    NULL_KEY = 1
    DUPLICATE_KEY = 2
    CHANGE_WITHOUT_KEY = 3
    NOT_IN_ENCODING = 4
    LIKE_NULL = 5
    NOT_ESCAPABLE = 6
    YEAR = 7
    INVALID_TEXT = 8
    REPLACED_TEXT = 9
    """A text has the character that replaces invalid bytes. Only the source tells whether it replaced any."""

    @property
    def of_text(self) -> bool:
        """Whether another form of the files has room for the value."""
        return Problem.NOT_IN_ENCODING <= self <= Problem.YEAR
