"""Tables in a catalog: the primary key, row filters and column masks of one, and all that match a pattern."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote as percent_encoded

from mirrorfeed.errors import first_line
from mirrorfeed.landing.names import fold
from mirrorfeed.source.errors import KeysNotReadable, KeysUnavailable, RowsProtected, SourcesUnavailable, SourcesUnknown
from mirrorfeed.source.identifier import Found, Pattern, Source, like, quote

if TYPE_CHECKING:
    from databricks.sdk.service.catalog import SchemaInfo, TableInfo
    from pyspark.sql import SparkSession

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


_NO_DATA = "information_schema"
_FEEDS = ("DELTA", "ICEBERG", "DELTA_UNIFORM_ICEBERG", "DELTA_UNIFORM_HUDI")
_TABLES = ("MANAGED", "EXTERNAL", "MANAGED_SHALLOW_CLONE", "EXTERNAL_SHALLOW_CLONE")


class _SchemaLister(Protocol):
    def list(self, catalog_name: str) -> Iterable[SchemaInfo]: ...


class _TableLister(Protocol):
    def list(self, catalog_name: str, schema_name: str) -> Iterable[TableInfo]: ...


class Listing(Protocol):
    """As much of databricks-sdk's WorkspaceClient as is needed here."""

    @property
    def schemas(self) -> _SchemaLister: ...

    @property
    def tables(self) -> _TableLister: ...


def found(
    pattern: Pattern, columns: bool, spark: Callable[[], SparkSession], workspace: Callable[[], Listing]
) -> list[Found]:
    """All that the pattern matches, by name, with their columns if wanted; or `SourcesUnknown`, `SourcesUnavailable`.

    Spark is asked about a catalog that is no Unity Catalog of a workspace that is configured here.
    """
    if pattern.path is not None:
        told = _in_folders(pattern, columns, spark)
    elif in_unity_catalog(Source(pattern.parts)) and (client := _client(workspace)):
        told = in_unity(client, pattern)
    else:
        told = _in_spark(spark(), pattern, columns)
    return sorted((each for each in told if pattern.matches(each.source)), key=lambda each: each.source.fold())


def _client(workspace: Callable[[], Listing]) -> Listing | None:
    try:
        return workspace()
    except ValueError:  # none is configured
        return None


def in_unity(client: Listing, pattern: Pattern) -> Iterator[Found]:
    catalog, schema, _ = pattern.parts
    with _refusals(pattern):
        for name in _schemas(schema, lambda: [each.name or "" for each in client.schemas.list(catalog)]):
            for table in client.tables.list(catalog, name):
                columns = tuple(str(column.name) for column in table.columns or ())
                yield Found(Source((catalog, name, str(table.name))), _unfit(table), columns)


def _schemas(pattern: str, ask: Callable[[], Iterable[str]]) -> list[str]:
    if "*" not in pattern:
        return [pattern]
    return [name for name in ask() if fold(name) != _NO_DATA and like(fold(pattern), fold(name))]


def _unfit(table: TableInfo) -> str:
    kind, form = (each.value if each else "" for each in (table.table_type, table.data_source_format))
    if kind and kind not in _TABLES:
        return f"a {kind.lower().replace('_', ' ')}{' table' if kind == 'FOREIGN' else ''}"
    return "" if form in ("", *_FEEDS) else f"a table in the format {form.lower()}"


@contextmanager
def _refusals(pattern: Pattern) -> Iterator[None]:
    from databricks.sdk import errors  # takes seconds to import, and most commands never need it
    from databricks.sdk.errors.base import DatabricksError

    try:
        yield
    except (errors.NotFound, errors.PermissionDenied, errors.Unauthenticated, errors.BadRequest) as error:
        raise SourcesUnknown(pattern=str(pattern), reason=first_line(str(error))) from error
    except (DatabricksError, OSError) as error:  # without an answer the client raises what is below it
        raise SourcesUnavailable(pattern=str(pattern), reason=first_line(str(error))) from error


def _in_spark(spark: SparkSession, pattern: Pattern, columns: bool) -> Iterator[Found]:
    from pyspark.errors import AnalysisException

    *above, schema, _ = pattern.parts
    within = f" IN {quote(above[0])}" if above else ""
    try:
        for name in _schemas(schema, lambda: [row[0] for row in spark.sql(f"SHOW SCHEMAS{within}").collect()]):
            place = ".".join(map(quote, (*above, name)))
            for row in spark.sql(f"SHOW TABLE EXTENDED IN {place} LIKE '*'").collect():
                source = Source((*above, name, row["tableName"]))
                if row["isTemporary"] or not pattern.matches(source):
                    continue
                unfit = _unfit_for_spark(row["information"])
                named: tuple[str, ...] = ()
                with suppress(AnalysisException) if unfit else nullcontext():  # as of a view whose table is gone
                    named = tuple(spark.table(source.sql).columns) if columns else ()
                yield Found(source, unfit, named)
    except AnalysisException as error:
        raise SourcesUnknown(pattern=str(pattern), reason=first_line(str(error))) from error


def _unfit_for_spark(information: str) -> str:
    """By lines such as `Type: VIEW` and `Provider: delta`."""
    lines = (line.partition(": ") for line in information.splitlines())
    told = {name.strip(): value.strip().lower() for name, colon, value in lines if colon}
    if told.get("Type", "") == "view":
        return "a view"
    form = told.get("Provider", "")
    return "" if form in ("", "delta", "iceberg") else f"a table in the format {form}"


def _in_folders(pattern: Pattern, columns: bool, spark: Callable[[], SparkSession]) -> Iterator[Found]:
    """Those that hold a log of Delta; nothing else is a table that was forgotten."""
    above, last = Path(str(pattern.path)).parent, Path(str(pattern.path)).name
    folders = [above]
    try:
        if "*" in above.name:
            folders = [each for each in above.parent.iterdir() if like(above.name, each.name) and each.is_dir()]
        for folder in folders:
            for each in folder.iterdir():
                if like(last, each.name) and (each / "_delta_log").is_dir():
                    yield Found(Source(path=str(each)), columns=_columns_at(str(each), spark) if columns else ())
    except OSError as error:
        raise SourcesUnknown(pattern=str(pattern), reason=f"{error.filename}: {error.strerror}") from error


def _columns_at(path: str, spark: Callable[[], SparkSession]) -> tuple[str, ...]:
    try:
        from deltalake import DeltaTable

        schema: Any = DeltaTable(path).schema()
        return tuple(field.name for field in schema.fields)
    except Exception:  # not installed, or more than it knows
        return tuple(spark().read.format("delta").load(path).columns)
