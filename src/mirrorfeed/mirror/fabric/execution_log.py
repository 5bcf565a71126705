"""Fabric's log of table executions: rows, bytes, latency and errors of the last replicated batches.

The log is the table `MirroredDatabaseTableExecution` of workspace monitoring, in a KQL database of the workspace. It
exists only if workspace monitoring is turned on.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from pydantic import AliasPath, Field

from mirrorfeed.config.connections import DEFAULT_SCHEMA
from mirrorfeed.config.model import Config
from mirrorfeed.display.grid import utc_minute
from mirrorfeed.display.rows import Row, duration, row, shown, size
from mirrorfeed.mirror import errors
from mirrorfeed.mirror.fabric import client_of
from mirrorfeed.mirror.fabric.client import FabricClient, Page, Response, error_text, parse_time
from mirrorfeed.runtime.credentials import is_trusted, parse_address

TABLE = "MirroredDatabaseTableExecution"
_ACTION = "read the log of workspace monitoring"
_DATABASE = "Monitoring KQL database"
_COLUMNS = (
    *("SourceSchemaName", "SourceTableName", "Timestamp", "OperationName", "ProcessedRows", "ProcessedBytes"),
    *("ReplicatorBatchLatency", "ErrorType", "ErrorMessage"),
)


@row
class TableExecution(Row):
    """Last batch of a table that Fabric replicated, and its last error, as workspace monitoring records them."""

    table: str = shown("table")
    """Name with schema, such as `sales.orders`."""
    operation: str = shown("operation")
    """Operation as Fabric names it, such as Replicating or Snapshotting."""
    time: datetime | None = shown("time (UTC)", utc_minute)
    rows: int | None = shown("rows")
    bytes: int | None = shown("size", size, right=True)
    latency_seconds: float | None = shown("latency", duration, right=True)
    """Seconds that Fabric reports for the replication of the batch."""
    error: str | None = None

    @property
    def ok(self) -> bool:
        return self.error is None

    def remarks(self) -> tuple[str, ...]:
        return (f"{self.table}: {self.error}",) if self.error else ()


class _KqlDatabase(Response):
    displayName: str = ""
    id: str = ""
    query_address: str | None = Field(None, validation_alias=AliasPath("properties", "queryServiceUri"))


class _Column(Response):
    name: str = Field(validation_alias="ColumnName")


class _Table(Response):
    columns: tuple[_Column, ...] = Field(validation_alias="Columns")
    rows: tuple[tuple[Any, ...], ...] = Field(validation_alias="Rows")


class _Execution(Response):
    SourceSchemaName: str | None = None
    SourceTableName: str | None = None
    Timestamp: str | None = None
    OperationName: str | None = None
    ProcessedRows: int | None = None
    ProcessedBytes: int | None = None
    ReplicatorBatchLatency: float | None = None
    ErrorType: str | None = None
    ErrorMessage: str | None = None


class _Answer(Response):
    tables: tuple[_Table, ...] = Field(validation_alias="Tables")


def read_executions(config: Config, hours: float) -> list[TableExecution]:
    """Return the newest entry of each table of the configured mirrored database in the last `hours`, sorted by table.

    Raises `workspace_monitoring_off` if the workspace has no monitoring database, and `untrusted_monitoring_host` if
    its address is not one of Microsoft's hosts or `trusted_hosts`.
    """
    client = client_of(config)
    pages = client.pages("list the KQL databases", "kqlDatabases", Page[_KqlDatabase], "GET")
    found = next((each for each in pages if each.displayName == _DATABASE and each.query_address), None)
    if found is None or found.query_address is None:
        raise errors.workspace_monitoring_off(workspace=client.item.workspace)
    # The token is sent to this address, so it must not be any address that a response contains.
    parts = urlsplit(found.query_address)
    address, host = parse_address(f"{parts.scheme}://{parts.netloc}")
    if not is_trusted(host, config.trusted_hosts):
        raise errors.untrusted_monitoring_host(host=host)
    client, body = replace(client, endpoint=address, audience=address), {"db": found.id, "csl": _query(client, hours)}
    answer = client.query(_ACTION, "/v1/rest/query", _Answer, body)
    try:
        executions = _parse(answer)
    except ValueError as error:
        raise errors.fabric_response_invalid(action=_ACTION, item=str(client.item), reason=str(error)) from error
    return sorted(map(_execution, executions), key=lambda each: each.table)


def _query(client: FabricClient, hours: float) -> str:
    return (
        f"{TABLE} | where Timestamp > ago({max(1, round(hours * 60))}m) and ItemId == '{client.item.database}'"
        " | where isnotnull(ProcessedRows) or isnotempty(ErrorMessage)"
        f" | summarize arg_max(Timestamp, *) by SourceSchemaName, SourceTableName | project {', '.join(_COLUMNS)}"
    )


def _parse(content: _Answer) -> list[_Execution]:
    """Return the records of the first table. Raises `ValueError` if a value has another type than documented."""
    table = content.tables[0] if content.tables else None
    if table is None:
        return []
    names = [each.name for each in table.columns]
    return [_Execution.of(dict(zip(names, row, strict=True))) for row in table.rows]


def _execution(found: _Execution) -> TableExecution:
    error = {"errorCode": found.ErrorType, "message": found.ErrorMessage} if found.ErrorMessage else None
    return TableExecution(
        table=f"{found.SourceSchemaName or DEFAULT_SCHEMA}.{found.SourceTableName or ''}",
        operation=found.OperationName or "",
        time=parse_time(found.Timestamp),
        rows=found.ProcessedRows,
        bytes=found.ProcessedBytes,
        latency_seconds=found.ReplicatorBatchLatency,
        error=error_text(error),
    )
