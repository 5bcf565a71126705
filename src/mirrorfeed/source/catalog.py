"""What Unity Catalog says of a table: its key, when its user does not say so, and what it hides from readers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote as percent_encoded

from mirrorfeed.source.errors import KeysNotReadable, KeysUnavailable, RowsProtected
from mirrorfeed.source.identifier import Source

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
        raise RowsProtected(table=str(source), row_filter=row_filter, masked=masked)


def table_of(client: Workspace, source: Source) -> TableInfo:
    """What Unity Catalog says of a table, or `KeysNotReadable`, `KeysUnavailable`."""
    # Takes seconds to import, and most commands never need it.
    from databricks.sdk import errors
    from databricks.sdk.errors.base import DatabricksError

    try:
        # The client puts the name into an address as it stands: a '#' or '?' in it would ask for another table.
        return client.tables.get(".".join(percent_encoded(part, safe="") for part in source.parts))
    except (errors.NotFound, errors.PermissionDenied, errors.Unauthenticated, errors.BadRequest) as error:
        raise KeysNotReadable(table=str(source), reason=str(error)) from error
    except (DatabricksError, OSError) as error:  # without an answer the client raises what is below it
        raise KeysUnavailable(table=str(source), reason=str(error)) from error
