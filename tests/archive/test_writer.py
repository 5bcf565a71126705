"""Change a table whose old files are moved away: statements that need them fail before they start."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from fixtures.databricks import RecordingDatabricks
from fixtures.tiers import Clock, FolderTiers
from mirrorfeed.archive import archive_interval, guarded_table
from mirrorfeed.archive.archived_files import ArchivedFilesNeededError
from mirrorfeed.archive.errors import (
    InvalidPredicateError,
    column_missing,
    statement_failed,
    subquery_in_statement,
    unknown_files,
)
from mirrorfeed.archive.guarded_table import GuardedTable
from mirrorfeed.errors import TerminalError
from mirrorfeed.runtime.spark_session import setting
from tests.archive.archived_table import NOW, Orders, days
from tests.archive.test_spark_plans import DERIVES
from tests.raised import raises
from tests.support.delta import DeltaTable

UPSERT = "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *"


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Orders:
    orders = Orders(spark, tmp_path_factory.mktemp("archive") / "orders", interval=60)
    tiers = FolderTiers(tmp_path_factory.mktemp("aside"), Clock(NOW))
    tiers.archive(file.uri for file in orders.files("1", "2"))
    return orders


@pytest.fixture
def writer(spark: SparkSession, table: Orders) -> GuardedTable:
    return GuardedTable(spark, table.source, now=lambda: NOW)


def rows(spark: SparkSession, *ids: int) -> DataFrame:
    values = ", ".join(f"({i}, 'merged', {i // 10})" for i in ids)
    return spark.sql(f"SELECT * FROM VALUES {values} AS r(id, v, day)")


@pytest.mark.parametrize(
    ("statement", "needed"),
    [
        (lambda w, s: w.delete("id = 15"), ["1"]),
        pytest.param(lambda w, s: w.delete("day = 2"), ["2"], marks=pytest.mark.slow),
        (lambda w, s: w.update({"v": "'x'"}, "v = 'v35' OR id = 25"), ["2"]),
        pytest.param(lambda w, s: w.update({"v": "'x'"}), ["1", "2"], marks=pytest.mark.slow),
        (lambda w, s: w.merge(rows(s, 25, 35), ["id"], UPSERT), ["2"]),
        (lambda w, s: w.merge(rows(s, 35), ["id"], "WHEN NOT MATCHED BY SOURCE THEN DELETE"), ["1", "2"]),
        (lambda w, s: w.merge(rows(s, 35).selectExpr("'35' id", "v", "day"), ["id"], UPSERT), ["1", "2"]),
    ],
    ids=[
        "DELETE",
        "DELETE of a partition",
        "UPDATE with OR",
        "UPDATE of all",
        "MERGE by its keys",
        "MERGE with NOT MATCHED BY SOURCE",
        "MERGE by a key of another type",
    ],
)
def test_statement_that_touches_archived_files_fails_before_it_starts(
    spark: SparkSession,
    table: Orders,
    writer: GuardedTable,
    statement: Callable[[GuardedTable, SparkSession], None],
    needed: list[str],
) -> None:
    before = {path.name for path in (table.path / "_delta_log").iterdir()}
    with pytest.raises(ArchivedFilesNeededError) as caught:
        statement(writer, spark)
    assert days(caught.value.files) == needed
    assert {path.name for path in (table.path / "_delta_log").iterdir()} == before


class ConcurrentChange:
    """A session that runs an action just before a MERGE."""

    def __init__(self, spark: SparkSession, happens: Callable[[], None]) -> None:
        self._spark, self._happens = spark, happens

    def sql(self, statement: str) -> DataFrame:
        if statement.startswith("MERGE"):
            self._happens()
        return self._spark.sql(statement)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)


@pytest.mark.slow
def test_rows_added_to_the_source_meanwhile_are_not_merged(spark: SparkSession, table: Orders, tmp_path: Path) -> None:
    """The new rows have keys in archived files, which were not checked."""
    staging = DeltaTable(spark, tmp_path / "staging", "id int, v string, day int")
    staging.sql("INSERT INTO {} VALUES (44, 'staged', 4)")
    late = ConcurrentChange(spark, lambda: staging.sql("INSERT INTO {} VALUES (15, 'late', 1)"))
    guarded = GuardedTable(spark, table.source, now=lambda: NOW)
    GuardedTable(late, table.source, now=lambda: NOW).merge(spark.table(staging.source.sql), ["id"], UPSERT)  # type: ignore[arg-type]
    assert guarded.query("v = 'staged'").count() == 1
    assert days(guarded._needed("v = 'late'").files) == []


def test_source_that_cannot_be_read_once_is_refused(spark: SparkSession, table: Orders, writer: GuardedTable) -> None:
    hot = spark.table(table.source.sql).where("day = 3")
    with raises(unknown_files, match="rows of an RDD"):
        writer.merge(spark.createDataFrame(hot.rdd, hot.schema), ["id"], UPSERT)
    with raises(unknown_files, match="a stream"):
        writer.merge(spark.readStream.format("rate").load().selectExpr("value AS id"), ["id"], UPSERT)
    with pytest.raises(ArchivedFilesNeededError):
        writer.merge(spark.table(table.source.sql), ["id"], UPSERT)


@pytest.mark.parametrize(
    "between",
    [" -- by\n", *(pytest.param(each, marks=pytest.mark.slow) for each in (" ", "\n\t", "/**/", " /* a /* b */ */ "))],
)
def test_not_matched_by_source_is_detected_in_any_spelling(
    spark: SparkSession, writer: GuardedTable, between: str
) -> None:
    clause = f"WHEN NOT MATCHED BY{between}source THEN DELETE"
    with pytest.raises(ArchivedFilesNeededError) as caught:
        writer.merge(rows(spark, 35), ["id"], clause, "t.day = 3")
    assert days(caught.value.files) == ["1", "2"]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("UPDATE", "(SELECT max(v) FROM range(3) r, VALUES ('a') AS t(v))"),
        ("UPDATE", "if(EXISTS (SELECT 1), 'a', v)"),
        ("MERGE", "WHEN MATCHED AND EXISTS (SELECT 1) THEN DELETE"),
        ("MERGE", "WHEN MATCHED THEN UPDATE SET v = (SELECT 'x')"),
    ],
    ids=["UPDATE, scalar", "UPDATE, EXISTS", "MERGE, condition", "MERGE, value"],
)
def test_subqueries_in_a_statement_are_refused_before_it_starts(
    spark: SparkSession, table: Orders, writer: GuardedTable, kind: str, text: str
) -> None:
    before = table.latest
    update, merge = partial(writer.update, {"v": text}, "day = 3"), partial(writer.merge, rows(spark, 35), ["id"], text)
    with raises(subquery_in_statement) as caught:
        (update if kind == "UPDATE" else merge)()
    assert f"The {kind} of {table.source} contains a subquery" in str(caught.value)
    assert repr(text) in str(caught.value)
    assert table.latest == before


def test_subquery_is_refused_in_an_update_on_databricks(spark: SparkSession, table: Orders) -> None:
    """LIMIT skips archived files there, so the value of a subquery could come from active files alone."""
    databricks = RecordingDatabricks(spark, {})
    with raises(subquery_in_statement, match="The UPDATE of"):
        GuardedTable(databricks, table.source).update({"v": "(SELECT v FROM VALUES ('a') AS t(v) LIMIT 1)"})  # type: ignore[arg-type]
    assert databricks.statements == []


def test_comment_in_an_assignment_does_not_swallow_the_next_one(spark: SparkSession, tmp_path: Path) -> None:
    plain = DeltaTable(spark, tmp_path / "plain", "Id int, a string, b int, c int")
    plain.sql("INSERT INTO {} VALUES (1, 'x', 1, 1), (2, 'y', 2, 2)")
    writer = GuardedTable(spark, plain.source)
    writer.update({"a": "concat(a, '!') -- five", "B": "id + 6 /* six */", "c": "default"}, "id = 1 -- one")
    assert plain.rows() == [{"Id": 1, "a": "x!", "b": 7, "c": None}, {"Id": 2, "a": "y", "b": 2, "c": 2}]
    continued = "1 -- the next line too \\"  # a backslash continues a comment
    with pytest.raises(InvalidPredicateError, match="cannot be parsed"):
        writer.update({"b": continued, "c": "9"})
    with pytest.raises(InvalidPredicateError, match="cannot be parsed"):
        writer.delete(f"id = {continued}")
    assert len(plain.rows()) == 2


@pytest.mark.parametrize(
    ("assignments", "code", "reason"),
    [
        ({"v": "'a' WHERE id = 33"}, "MF5006", "The expression .* cannot be parsed"),
        ({"v": "'a', day = (SELECT 1)"}, "MF5006", "cannot be parsed"),
        ({"v": "'a' /* open"}, "MF5006", "cannot be parsed"),
        ({"v": "'a')"}, "MF5006", "cannot be parsed"),
        ({"v": "'a' AS v"}, "MF5006", "cannot be parsed"),
        ({"v": "*"}, "MF5006", "an expression on a row"),
        ({"v": ""}, "MF5006", "cannot be parsed"),
        ({"v": "nope"}, "MF5006", "names `nope`, which is not a column"),
        ({"v": "uuid()"}, "MF5006", "contains a nondeterministic function"),
        ({"v": "max(v)"}, "MF5006", "is not an expression on a row"),
        ({"v": "max(v) OVER ()"}, "MF5006", "is not an expression on a row"),
        ({"v": "x -> x"}, "MF5006", "is not an expression on a row"),
        ({"nope": "1"}, "MF5005", "has no column 'nope'"),
        ({"v": "'a'", "V": "'b'"}, "MF5016", "DELTA_CONFLICT_SET_COLUMN"),
        ({}, "MF5016", "The UPDATE of .* failed, and nothing was changed: .*PARSE_SYNTAX_ERROR"),
        ({"id": "array(1)"}, "MF5016", "DATATYPE_MISMATCH"),
        ({"id": "2147483647 + day"}, "MF5016", "ARITHMETIC_OVERFLOW"),
        ({"id": "3000000000"}, "MF5016", "DELTA_CAST_OVERFLOW_IN_TABLE_WRITE"),
    ],
)
def test_invalid_assignment_changes_nothing(
    table: Orders, writer: GuardedTable, assignments: dict[str, str], code: str, reason: str
) -> None:
    before = table.latest
    with pytest.raises(TerminalError, match=reason) as caught:
        writer.update(assignments, "day = 3")
    assert (caught.value.code, table.latest) == (code, before)


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        (lambda w, s: w.delete("day = 3 AND id + 2147483647 > 0"), "The DELETE .*ARITHMETIC_OVERFLOW"),
        (lambda w, s: w.merge(rows(s, 35), ["id"], "WHEN MATCHED"), "The MERGE of .*PARSE_SYNTAX_ERROR"),
        (
            lambda w, s: w.merge(rows(s, 35), ["id"], "WHEN MATCHED THEN UPDATE SET id = s.id + 2147483647"),
            "The MERGE of .*ARITHMETIC_OVERFLOW",
        ),
    ],
    ids=["DELETE", "MERGE, clauses", "MERGE, value"],
)
def test_statement_that_fails_changes_nothing(
    spark: SparkSession,
    table: Orders,
    writer: GuardedTable,
    statement: Callable[[GuardedTable, SparkSession], None],
    reason: str,
) -> None:
    before = table.latest
    with raises(statement_failed, match=reason):
        statement(writer, spark)
    assert table.latest == before


def test_merges_at_the_same_time_use_their_own_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python uses the id of an object again as soon as the object is freed."""
    monkeypatch.setattr(guarded_table, "id", lambda _: 7, raising=False)
    first, second = (DeltaTable(spark, tmp_path / name, "id int, v string") for name in ("first", "second"))

    class Interrupted(GuardedTable):
        def _change(self, operation: str, statement: str) -> None:
            GuardedTable(spark, second.source).merge(spark.sql("SELECT 2 AS id, 'b' AS v"), ["id"], UPSERT)
            super()._change(operation, statement)

    Interrupted(spark, first.source).merge(spark.sql("SELECT 1 AS id, 'a' AS v"), ["id"], UPSERT)
    assert (first.rows(), second.rows()) == ([{"id": 1, "v": "a"}], [{"id": 2, "v": "b"}])


def test_subquery_and_unknown_key_errors_are_readable(spark: SparkSession, writer: GuardedTable, table: Orders) -> None:
    with pytest.raises(InvalidPredicateError, match="contains a subquery"):
        writer.merge(rows(spark, 35), ["id"], UPSERT, "t.day IN (SELECT 3)")
    with raises(column_missing, match="has no column 'nope'"):
        writer.merge(rows(spark, 35), ["nope"], UPSERT)
    with raises(column_missing, match=r"The source of the MERGE has no column 'day'"):
        writer.merge(rows(spark, 35).select("id", "v"), ["id", "day"], UPSERT)


def test_statements_on_active_files_run(spark: SparkSession, table: Orders, writer: GuardedTable) -> None:
    """Reading an archived file would fail, because it is moved away."""
    writer.delete("id = 30 AND day = 3 -- a comment")
    writer.update({"v": "concat(v, '!')"}, "id = 30 + 3")
    text = "WHEN NOT MATCHED BY SOURCE"  # text, not a clause
    clauses = f"WHEN MATCHED AND s.id = 40 THEN DELETE WHEN MATCHED AND s.id = 37 THEN UPDATE SET v = '{text}' {UPSERT}"
    writer.merge(rows(spark, 34, 37, 40, 350), ["id"], clauses, "t.day < 5")
    found = GuardedTable(spark, table.source, now=lambda: NOW).query("day > 2").collect()
    changed = {row["id"]: row["v"] for row in found if row["id"] != 44 and row["v"] != f"v{row['id']}"}
    assert changed == {33: "v33!", 34: "merged", 37: text, 350: "merged"}
    assert len(found) == 20 - 2 + 1
    assert spark.conf.get(DERIVES) == "true"


@pytest.mark.slow
def test_condition_may_be_a_single_word(spark: SparkSession, tmp_path: Path) -> None:
    plain = DeltaTable(spark, tmp_path / "plain", "Id int, paid boolean")
    plain.sql("INSERT INTO {} VALUES (1, true), (2, false)")
    writer = GuardedTable(spark, plain.source)
    writer.delete("paid")
    assert plain.rows() == [{"Id": 2, "paid": False}]
    writer.delete("true")
    assert plain.rows() == []


def test_archived_files_of_given_rows_are_detected_before_writing(
    spark: SparkSession, table: Orders, tmp_path: Path
) -> None:
    other = DeltaTable(spark, tmp_path / "other", "id int, v string, day int")
    writer = GuardedTable(spark, other.source, now=lambda: NOW)
    before = sorted(other.path.rglob("*"))
    with pytest.raises(ArchivedFilesNeededError) as caught:
        writer.overwrite(spark.table(table.source.sql))
    assert days(caught.value.files) == ["1", "2"]
    frame = spark.table(table.source.sql)
    with raises(unknown_files, match="rows of an RDD"):
        writer.overwrite(spark.createDataFrame(frame.rdd, frame.schema))
    assert sorted(other.path.rglob("*")) == before
    writer.overwrite(spark.table(table.source.sql).where("day = 4"))
    assert {row["day"] for row in other.rows()} == {4}


def test_overwrite_reads_no_file_and_replaces_all_rows_in_any_partition_overwrite_mode(
    spark: SparkSession, tmp_path: Path
) -> None:
    """All files are archived. A statement that only removes files reads none."""
    table = Orders(spark, tmp_path / "t", interval=60)
    FolderTiers(tmp_path / "aside", Clock(NOW)).archive(file.uri for file in table.files())
    spark.sql(f"CREATE TABLE overwritten USING DELTA LOCATION '{table.path}'")
    try:
        with setting(spark, "spark.sql.sources.partitionOverwriteMode", "dynamic"):
            for id_, name in ((77, str(table.path)), (78, "overwritten")):
                writer = GuardedTable(spark, name, now=lambda: NOW)
                writer.overwrite(rows(spark, id_))
                assert [row["id"] for row in table.rows()] == [id_]
                assert archive_interval.required(spark, table.source).days == 60
        guarded = GuardedTable(spark, table.source, now=lambda: NOW)
        assert [row["id"] for row in guarded.query().collect()] == [78]
    finally:
        spark.sql("DROP TABLE overwritten")


@pytest.mark.slow
def test_merge_reads_only_files_that_can_contain_its_keys(
    spark: SparkSession, table: Orders, writer: GuardedTable
) -> None:
    """Integer types of different widths are equal."""
    nowhere = "WHEN MATCHED THEN UPDATE SET v = s.v"
    writer.merge(rows(spark, 47).selectExpr("bigint(id) AS id", "v", "tinyint(day) AS day"), ["id", "day"], nowhere)
    with pytest.raises(ArchivedFilesNeededError) as caught:
        writer.merge(rows(spark, 25).selectExpr("smallint(id) AS id", "v", "day"), ["id"], nowhere)
    assert days(caught.value.files) == ["2"]
    guarded = GuardedTable(spark, table.source, now=lambda: NOW)
    assert guarded.query("day = 4 AND id = 47").collect()[0]["v"] == "merged"


@pytest.mark.parametrize(
    "given", ["nullif(id, 35) AS id", pytest.param("explode(slice(array(id), 1, 0)) AS id", marks=pytest.mark.slow)]
)
def test_merge_of_only_null_keys_or_of_no_rows_reads_no_file(spark: SparkSession, tmp_path: Path, given: str) -> None:
    """All files are moved away, also the active ones."""
    table = Orders(spark, tmp_path / "t", interval=60)
    FolderTiers(tmp_path / "aside", Clock(NOW)).archive(file.uri for file in table.files())
    source = rows(spark, 35).selectExpr(given, "v", "day")
    writer = GuardedTable(spark, table.source, now=lambda: NOW)
    writer.merge(source, ["id"], "WHEN MATCHED THEN UPDATE SET v = s.v")
    assert not list(table.path.glob("day=*/*.parquet"))


@pytest.mark.slow
def test_key_column_in_another_case_is_matched_and_text_that_looks_like_a_variable_is_not_replaced(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark replaces text that looks like a variable with the value of a setting."""
    table = DeltaTable(spark, tmp_path / "t", "Key string, v string")
    table.sql("INSERT INTO {} VALUES ('${spark.app.name}', 'old'), ('other', 'old')")
    given = "kEY string, v string"
    changed = spark.createDataFrame([("${spark.app.name}", "new"), ("${spark.master}", "new")], given)
    GuardedTable(spark, table.source).merge(changed, ["KEY"], UPSERT)
    assert {row["Key"]: row["v"] for row in table.rows()} == {
        "${spark.app.name}": "new",
        "other": "old",
        "${spark.master}": "new",
    }
    assert len(table.rows()) == 3
