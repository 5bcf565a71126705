"""What Unity Catalog says of a table: its key, when its user does not say so, and what it hides from readers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote as percent_encoded

from mirrorfeed.errors import Terminal, Transient
from mirrorfeed.feed.source import Source

if TYPE_CHECKING:
    from databricks.sdk.service.catalog import TableInfo

_OTHER_CATALOGS = frozenset({"hive_metastore", "spark_catalog"})


class _Tables(Protocol):
    def get(self, full_name: str) -> TableInfo: ...


class Workspace(Protocol):
    """As much of databricks-sdk's WorkspaceClient as is needed here."""

    @property
    def tables(self) -> _Tables: ...


def in_unity_catalog(source: Source) -> bool:
    """Whether a source can have a primary key there: only names in full lead to one."""
    return len(source.parts) == 3 and source.parts[0].casefold() not in _OTHER_CATALOGS


def key_of(table: TableInfo) -> tuple[str, ...]:
    """The columns of the primary key constraint; none without one, then the table is keyless."""
    for constraint in table.table_constraints or ():
        if key := constraint.primary_key_constraint:
            return tuple(key.child_columns)
    return ()


def check_policies(source: Source, table: TableInfo) -> None:
    """Raises `RowsProtected` for a table with a row filter or a column mask."""
    row_filter = table.row_filter.function_name if table.row_filter else None
    masked = tuple(str(column.name) for column in table.columns or () if column.mask)
    if row_filter or masked:
        raise RowsProtected(str(source), row_filter, masked)


def table_of(client: Workspace, source: Source) -> TableInfo:
    """What Unity Catalog says of a table, or `KeysNotReadable`, `KeysUnavailable`."""
    # Takes seconds to import, and most commands never need it.
    from databricks.sdk import errors
    from databricks.sdk.errors.base import DatabricksError

    try:
        # The client puts the name into an address as it stands: a '#' or '?' in it would ask for another table.
        return client.tables.get(".".join(percent_encoded(part, safe="") for part in source.parts))
    except (errors.NotFound, errors.PermissionDenied, errors.Unauthenticated, errors.BadRequest) as error:
        raise KeysNotReadable(str(source), str(error)) from error
    except (DatabricksError, OSError) as error:  # without an answer the client raises what is below it
        raise KeysUnavailable(str(source), str(error)) from error


class RowsProtected(Terminal):
    """The table has a row filter or column masks: who reads it sees a part, and earlier versions cannot be read. A
    mirror of a part would be wrong."""

    code = "MF2201"

    def __init__(self, table: str, row_filter: str | None, masked: tuple[str, ...]) -> None:
        self.table, self.row_filter, self.masked = table, row_filter, masked

    def what(self) -> str:
        found = [f"the row filter {self.row_filter}"] if self.row_filter else []
        found += [f"masks on {', '.join(self.masked)}"] if self.masked else []
        return (
            f"{self.table} has {' and '.join(found)}: time travel does not work on it, and what is read depends on who"
            " reads."
        )

    def next(self) -> str:
        return (
            "Take them from the table and put them into a view over it for those who query it, or publish a table"
            " without them that is kept from this one. Nothing was published."
        )


class KeysNotReadable(Terminal):
    """The keys are to come from Unity Catalog, which does not show the table's primary key to whoever publishes."""

    code = "MF2202"

    def __init__(self, table: str, reason: str) -> None:
        self.table, self.reason = table, reason

    def what(self) -> str:
        return f"Cannot read the primary key of {self.table} from Unity Catalog: {self.reason.rstrip('.')}."

    def next(self) -> str:
        return "Check the name and the right to SELECT from it, or write the table's `keys:` in the configuration."


class KeysUnavailable(Transient):
    """Unity Catalog did not answer, or answered with a fault of its own."""

    code = "MF2203"

    def __init__(self, table: str, reason: str) -> None:
        self.table, self.reason = table, reason

    def what(self) -> str:
        return f"Unity Catalog did not give the primary key of {self.table}: {self.reason.rstrip('.')}."

    def next(self) -> str:
        return "Run the same command again, or write the table's `keys:` in the configuration."
