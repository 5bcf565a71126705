"""Read catalogs: primary key, row filters and column masks of a table, and all tables that match a pattern."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote as percent_encoded

from mirrorfeed.errors import first_line
from mirrorfeed.landing.names import fold, split_name
from mirrorfeed.source.errors import CatalogRefusedError, CatalogUnavailableError, policies_not_excluded, rows_protected
from mirrorfeed.source.identifier import FoundTable, Pattern, Source, matches, quote
from mirrorfeed.source.table_info import find_log_damage, open_local_table

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient
    from databricks.sdk.service.catalog import TableInfo
    from pyspark.sql import Row, SparkSession

_SYSTEM_SCHEMA = "information_schema"
_CATALOG_COMMITS = ("catalogManaged", "catalogOwned")
_FORMATS_WITH_FEED = ("DELTA", "ICEBERG", "DELTA_UNIFORM_ICEBERG", "DELTA_UNIFORM_HUDI")
_TABLE_TYPES = ("MANAGED", "EXTERNAL", "MANAGED_SHALLOW_CLONE", "EXTERNAL_SHALLOW_CLONE")


def read_catalog_table(client: WorkspaceClient, source: Source) -> TableInfo:
    """Return a table's entry in Unity Catalog. Raises `CatalogRefusedError` or `CatalogUnavailableError` if it is
    unreadable.
    """
    with _catalog_errors(f"The primary key of {source}"):
        # The client inserts the name into a URL without escaping: '#' or '?' would request another table.
        return client.tables.get(_percent_encoded(source))


def _percent_encoded(source: Source) -> str:
    return ".".join(percent_encoded(part, safe="") for part in source.parts)


def primary_key(table: TableInfo) -> tuple[str, ...]:
    """Return the columns of the primary key constraint, or an empty tuple if the table has no primary key."""
    for constraint in table.table_constraints or ():
        if key := constraint.primary_key_constraint:
            return tuple(key.child_columns)
    return ()


def check_policies(source: Source, table: TableInfo) -> None:
    """Raise `rows_protected` if the table has a row filter or a column mask."""
    row_filter = table.row_filter.function_name if table.row_filter else None
    masked = tuple(str(column.name) for column in table.columns or () if column.mask)
    if row_filter or masked:
        raise rows_protected(table=str(source), row_filter=row_filter, masked=masked)


def check_access_policies(client: WorkspaceClient, source: Source, table: TableInfo) -> None:
    """Raise `policies_not_excluded` if rows may be filtered or masked by a policy of attribute-based access control.

    Reads of old versions apply such policies only for managed tables with catalog commits and column mapping, and for
    managed Iceberg tables. Otherwise the engine refuses these reads, so this function sends no request. Raises
    `CatalogUnavailableError` if Unity Catalog fails.
    """
    if not _applies_policies_to_old_versions(table):
        return
    path = f"/api/2.1/unity-catalog/policies/TABLE/{_percent_encoded(source)}"
    query, policies = {"include_inherited": "true"}, list[dict[str, Any]]()
    try:
        with _catalog_errors(f"The access policies of {source}"):
            while True:
                page: Any = client.api_client.do("GET", path, query=query, headers={"Accept": "application/json"}) or {}
                policies += page.get("policies") or ()
                if not (token := page.get("next_page_token")):
                    break
                query = {**query, "page_token": token}
            kinds = ("POLICY_TYPE_ROW_FILTER", "POLICY_TYPE_COLUMN_MASK")
            policies = [each for each in policies if each.get("policy_type") in kinds]
            me = client.current_user.me() if policies else None
    except CatalogRefusedError as error:
        reason = f"this identity cannot see its policies ({first_line(str(error.__cause__))})"
        raise policies_not_excluded(table=str(source), reason=reason) from error
    names = {me.user_name, *(group.display for group in me.groups or ())} if me else set()
    applied = [str(each.get("name")) for each in policies if not names & set(each.get("except_principals") or ())]
    if applied:
        # The conditions of a policy, such as tags of columns, are not evaluated here.
        reason = f"EXCEPT of {', '.join(applied)} does not name this identity"
        raise policies_not_excluded(table=str(source), reason=reason)


def _applies_policies_to_old_versions(table: TableInfo) -> bool:
    kind, format_ = (each.value if each else "" for each in (table.table_type, table.data_source_format))
    if kind != "MANAGED":
        return False
    if format_ == "ICEBERG" or not table.properties:  # unknown properties do not exclude policies
        return True
    features = {name.removeprefix("delta.feature.").removesuffix("-preview") for name in table.properties}
    mapping = table.properties.get("delta.columnMapping.mode", "none")
    return mapping != "none" and not features.isdisjoint(_CATALOG_COMMITS)


def list_tables(
    pattern: Pattern,
    needs_columns: Callable[[FoundTable], bool],
    spark: Callable[[], SparkSession],
    workspace: Callable[[], WorkspaceClient],
    tags: Iterable[str] | None = None,
) -> list[FoundTable]:
    """Return all tables and views that match the pattern, sorted by name. With `tags`, also read the values of the tags
    with these names.

    Also reads the column names of a table if `needs_columns` returns True for it. If they cannot be read, the table is
    returned without them, so that it does not hide the others. If the pattern is a path, searches local folders. If the
    pattern is a name in Unity Catalog and a workspace is configured, searches Unity Catalog. In all other cases, Spark
    searches its catalogs. Raises `CatalogRefusedError` if a catalog or folder cannot be read, and
    `CatalogUnavailableError` if Unity Catalog fails.
    """
    if pattern.path is not None:
        tables = _list_folders(pattern)
    elif Source(pattern.parts).is_in_unity_catalog and (client := open_workspace(workspace)):
        tables, needs_columns = _list_unity_catalog(client, pattern), lambda _: False  # the list has the columns
    else:
        tables = _list_spark_catalog(spark(), pattern)
    found = sorted((each for each in tables if pattern.matches(each.source)), key=lambda each: each.source.fold())
    if tags:
        values = read_tags(spark(), pattern.parts[0], tags)
        found = [replace(each, tags=frozenset(values.get(each.source.fold(), ()))) for each in found]
    return [replace(each, columns=_columns_of(each.source, spark)) if needs_columns(each) else each for each in found]


def read_tags(spark: SparkSession, catalog: str, names: Iterable[str]) -> dict[tuple[str, ...], set[tuple[str, str]]]:
    """Return the tags with these names that are set on tables of a catalog in Unity Catalog, with their values.

    The keys of the result are the values of `Source.fold` for the tables. Sends one query. Raises
    `CatalogRefusedError` if the tags cannot be read.
    """
    tags: dict[tuple[str, ...], set[tuple[str, str]]] = {}
    for schema, table, *tag in _read_tags(spark, catalog, "table_tags", names, "schema_name", "table_name"):
        tags.setdefault(Source((catalog, schema, table)).fold(), set()).add((tag[0], tag[1]))
    return tags


def read_column_tags(spark: SparkSession, source: Source, names: Iterable[str]) -> dict[str, set[tuple[str, str]]]:
    """Return the tags with these names that are set on columns of a table in Unity Catalog, with their values.

    The keys of the result are the values of `fold` for the columns. Sends one query. Raises `CatalogRefusedError` if
    the tags cannot be read.
    """
    catalog, *rest = source.parts
    tags: dict[str, set[tuple[str, str]]] = {}
    of_table = dict(zip(("schema_name", "table_name"), rest, strict=True))
    for column, *tag in _read_tags(spark, catalog, "column_tags", names, "column_name", **of_table):
        tags.setdefault(fold(column), set()).add((tag[0], tag[1]))
    return tags


def _read_tags(
    spark: SparkSession, catalog: str, view: str, names: Iterable[str], *columns: str, **wanted: str
) -> list[Row]:
    """Return the values of `columns`, the name and the value of each tag with one of `names`, from a view of the
    information schema. Only rows whose columns have the values in `wanted`, in upper or lower case."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    try:
        rows = spark.table(f"{quote(catalog)}.{_SYSTEM_SCHEMA}.{view}").where(F.col("tag_name").isin(list(names)))
        for column, value in wanted.items():
            rows = rows.where(F.lower(column) == F.lower(F.lit(value)))
        return rows.select(*columns, "tag_name", "tag_value").collect()
    except AnalysisException as error:
        raise CatalogRefusedError(name=f"The tags in {catalog}", reason=first_line(str(error))) from error


def open_workspace(workspace: Callable[[], WorkspaceClient]) -> WorkspaceClient | None:
    """Return the workspace client that `workspace` creates, or None if no workspace is configured."""
    try:
        return workspace()
    except ValueError:
        return None


def _list_unity_catalog(client: WorkspaceClient, pattern: Pattern) -> Iterator[FoundTable]:
    catalog, schema, _ = pattern.parts
    with _catalog_errors(f"The list of tables {pattern}"):
        for name in _matching_schemas(schema, lambda: [each.name or "" for each in client.schemas.list(catalog)]):
            for table in client.tables.list(catalog, name):
                columns = tuple(str(column.name) for column in table.columns or ())
                kind, format_ = (each.value if each else "" for each in (table.table_type, table.data_source_format))
                yield FoundTable(Source((catalog, name, str(table.name))), _unsupported(kind, format_), columns)


def _matching_schemas(pattern: str, list_all: Callable[[], Iterable[str]]) -> list[str]:
    if "*" not in pattern:
        return [pattern]
    return [name for name in list_all() if fold(name) != _SYSTEM_SCHEMA and matches(fold(pattern), fold(name))]


def _unsupported(kind: str, format_: str) -> str:
    """Return the kind of an object that has no change data feed, such as "a view". Empty for a supported table."""
    if kind and kind not in _TABLE_TYPES:
        return f"a {kind.lower().replace('_', ' ')}{' table' if kind == 'FOREIGN' else ''}"
    return "" if format_ in ("", *_FORMATS_WITH_FEED) else f"a table in the format {format_.lower()}"


@contextmanager
def _catalog_errors(object_name: str) -> Iterator[None]:
    from databricks.sdk import errors  # imported late: takes seconds, and few commands need it
    from databricks.sdk.errors.base import DatabricksError

    try:
        yield
    except (errors.NotFound, errors.PermissionDenied, errors.Unauthenticated, errors.BadRequest) as error:
        raise CatalogRefusedError(name=object_name, reason=str(error)) from error
    except (DatabricksError, OSError) as error:  # without a response, the client raises errors of lower layers
        raise CatalogUnavailableError(name=object_name, reason=str(error)) from error


def _list_spark_catalog(spark: SparkSession, pattern: Pattern) -> Iterator[FoundTable]:
    from pyspark.errors import AnalysisException

    *catalog, schema, _ = pattern.parts
    within = f" IN {quote(catalog[0])}" if catalog else ""
    try:
        for name in _matching_schemas(schema, lambda: _list_schemas(spark, within)):
            full_name = ".".join(map(quote, (*catalog, name)))
            for row in spark.sql(f"SHOW TABLE EXTENDED IN {full_name} LIKE '*'").collect():
                source = Source((*catalog, name, row["tableName"]))
                if row["isTemporary"] or not pattern.matches(source):
                    continue
                # Only the first value of a field counts: lines of a comment can look like fields.
                lines = (line.partition(": ") for line in reversed(row["information"].splitlines()))
                values = {field.strip(): value.strip().upper() for field, _, value in lines}
                yield FoundTable(source, _unsupported(values.get("Type", ""), values.get("Provider", "")))
    except AnalysisException as error:
        raise CatalogRefusedError(name=f"The list of tables {pattern}", reason=first_line(str(error))) from error


def _list_schemas(spark: SparkSession, within: str) -> list[str]:
    """Return the names of the schemas of a catalog, without the backticks that Spark adds to names such as `a-b`."""
    names = [row[0] for row in spark.sql(f"SHOW SCHEMAS{within}").collect()]
    return [split_name(name)[-1] if name.startswith("`") else name for name in names]


def _list_folders(pattern: Pattern) -> Iterator[FoundTable]:
    parent, last = Path(str(pattern.path)).parent, Path(str(pattern.path)).name
    folders = [parent]
    try:
        if "*" in parent.name:
            folders = [each for each in parent.parent.iterdir() if matches(parent.name, each.name) and each.is_dir()]
        for folder in folders:
            for each in folder.iterdir():
                if matches(last, each.name) and _may_be_table(each):
                    yield FoundTable(Source(path=str(each)))
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}"
        raise CatalogRefusedError(name=f"The list of tables {pattern}", reason=reason) from error


def _may_be_table(folder: Path) -> bool:
    """Return whether a folder contains a Delta log. True if this cannot be found out, so that no table is left out."""
    try:
        return (folder / "_delta_log").is_dir()
    except OSError:
        return True


def _columns_of(source: Source, spark: Callable[[], SparkSession]) -> tuple[str, ...] | None:
    """Return the column names of a table or view, or None if they cannot be read."""
    if table := open_local_table(source):
        return tuple(field.name for field in table.schema().fields)
    try:
        return None if find_log_damage(source) else tuple(spark().table(source.sql).columns)
    except Exception:  # a damaged table, or a view whose table is gone: each table reports its own error
        return None
