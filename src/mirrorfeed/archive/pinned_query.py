"""Pin the tables of a SQL query: give each its full name and a version, so that a later run returns the same rows."""

from __future__ import annotations

from datetime import datetime

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from mirrorfeed.archive import spark_plans
from mirrorfeed.archive.data_files import NeededFiles
from mirrorfeed.archive.engines import engine_of
from mirrorfeed.archive.errors import InvalidQueryError, query_not_repeatable
from mirrorfeed.archive.fixed_time import fix_relative_times, moment
from mirrorfeed.archive.restore_plan import PinnedQuery
from mirrorfeed.errors import first_line
from mirrorfeed.source.identifier import Source


def pin_query(spark: SparkSession, statement: str, now: datetime) -> PinnedQuery:
    """Return a query with the newest version of each table, unless the query selects another version itself.

    Relative times are replaced by their values at `now`. Does not run the query. Raises `InvalidQueryError` if the
    query is invalid, `not_a_query` for a command, and `one_table_per_plan` on Databricks. Raises `query_not_repeatable`
    if the query reads a view, or a source that has no versions, and `relative_time_in_plan` for a relative time that
    cannot be replaced.
    """
    engine, at = engine_of(spark), moment(spark, now)
    text = fix_relative_times(statement, at)
    engine.query(text)
    if "${" in text:  # Spark replaces variables before it parses
        raise query_not_repeatable(reason="it contains a variable in the form ${name}")
    pinned = _add_versions(spark, text)
    try:
        scans = spark_plans.scans_of_versions(engine.query(pinned))
    except InvalidQueryError as error:
        raise query_not_repeatable(reason=first_line(str(error.__cause__))) from error
    tables = {(each.location, each.version): each for each in scans}
    return PinnedQuery(
        pinned,
        at.zone,
        tuple(
            NeededFiles(each.name, each.metadata.table_id, each.location, each.version, ()) for each in tables.values()
        ),
    )


def _add_versions(spark: SparkSession, text: str) -> str:
    parts, done, versions = [], 0, dict[str, int]()
    for reference in spark_plans.table_references(spark, text):
        name = text[reference.start : reference.end]
        try:
            scan = spark_plans.scan_all(spark.table(reference.name))
        except AnalysisException as error:
            raise query_not_repeatable(reason=f"{name} cannot be found: {first_line(str(error))}") from error
        if scan is None:
            raise query_not_repeatable(reason=f"{name} is a view, or not a Delta table")
        version = versions.setdefault(scan.location, scan.version)
        pinned = Source.parse(scan.name).sql + ("" if reference.has_version else f" VERSION AS OF {version}")
        parts += [text[done : reference.start], pinned]
        done = reference.end
    return "".join([*parts, text[done:]])
