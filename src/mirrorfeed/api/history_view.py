"""T-SQL of a view that shows when each row of a table with `delivery: append` was valid."""

from __future__ import annotations

from mirrorfeed.config.model import Config
from mirrorfeed.display.rows import Row, row
from mirrorfeed.landing.log_record import Record
from mirrorfeed.landing.names import Target, fold
from mirrorfeed.mirror.errors import history_view_column_taken, history_view_impossible
from mirrorfeed.publish.errors import nothing_published
from mirrorfeed.publish.table_log import TableLog
from mirrorfeed.storage import Store

VALID_FROM, VALID_TO, IS_CURRENT = "valid_from", "valid_to", "is_current"
_DEFAULT_SCHEMA = "dbo"


@row
class HistoryView(Row):
    """Statement that creates a view over the mirror of a table with `delivery: append`."""

    table: str
    view: str
    """Name of the view, with its schema."""
    sql: str
    """T-SQL statement for the SQL endpoint of the mirrored database."""


def view_of(store: Store, config: Config, table: str, name: str | None = None) -> HistoryView:
    """Return the statement for a configured table. `name` is the name of the view, by default `<table>_history`.

    Raises `nothing_published` if the table is not published, and `history_view_impossible` or
    `history_view_column_taken` if its mirror cannot have such a view.
    """
    (target,) = (each.target for each in config.select([table]))
    log = TableLog(store, target.folder).read_view()
    if log is None or log.newest is None:
        raise nothing_published(table=str(target))
    view = Target(target.schema, name or f"{target.table}_history")
    return HistoryView(str(target), str(view), view_sql(log.newest, target, view))


def view_sql(record: Record, target: Target, view: Target) -> str:
    """Return T-SQL that creates `view` over the mirrored table `target`. `record` is the newest record of its log.

    The view has a row for each version of each row, and a key has at most one row at any time. A row is valid until the
    next change of its key. A version that deletes the row of a key and adds another one deletes it first.
    """
    if not record.delivery.appends:
        raise history_view_impossible(table=str(target), reason=f"it has `delivery: {record.delivery.mode}`")
    if not record.keys:
        raise history_view_impossible(table=str(target), reason="it has no keys")
    added = {VALID_FROM, VALID_TO, IS_CURRENT}
    if taken := [column.name for column in record.columns if fold(column.name) in added]:
        raise history_view_column_taken(table=str(target), columns=taken)
    columns = ", ".join(_quoted(column.name) for column in record.columns)
    keys = ", ".join(map(_quoted, record.keys))
    return f"""CREATE OR ALTER VIEW {_address(view)} AS
SELECT {columns},
    {VALID_FROM}, {VALID_TO}, CAST(CASE WHEN {VALID_TO} IS NULL THEN 1 ELSE 0 END AS bit) AS {IS_CURRENT}
FROM (
    SELECT {columns}, [_change_type],
        [_commit_timestamp] AS {VALID_FROM},
        LEAD([_commit_timestamp]) OVER (
            PARTITION BY {keys}
            ORDER BY [_commit_version], CASE WHEN [_change_type] = 'delete' THEN 0 ELSE 1 END
        ) AS {VALID_TO}
    FROM {_address(target)}
    WHERE [_change_type] <> 'update_preimage'
) AS changes
WHERE [_change_type] <> 'delete'"""


def _address(name: Target) -> str:
    return f"{_quoted(name.schema or _DEFAULT_SCHEMA)}.{_quoted(name.table)}"


def _quoted(name: str) -> str:
    return f"[{name.replace(']', ']]')}]"
