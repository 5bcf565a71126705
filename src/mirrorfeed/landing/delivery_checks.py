"""Check the columns of a table that its delivery mode adds."""

from __future__ import annotations

from collections.abc import Sequence

from mirrorfeed.landing.delivery import Delivery
from mirrorfeed.landing.errors import delivery_column_taken
from mirrorfeed.landing.names import fold
from mirrorfeed.landing.schema import Column


def check_column_names(table: str, delivery: Delivery, columns: Sequence[Column]) -> None:
    """Check that no published column of the source has the name of a column that the mode adds.
    Raises `delivery_column_taken` if one has."""
    added = {fold(column.name) for column in delivery.columns}
    if taken := [column.name for column in columns if fold(column.name) in added]:
        raise delivery_column_taken(table=table, columns=taken, mode=delivery.mode)
