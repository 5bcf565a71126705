"""Statements that change a table whose old files are moved away.

A statement is either refused before it changes anything, or has the same result as on a complete table. It would fail
if it opened a file that is moved away."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from fixtures.tiers import Clock, FolderTiers, make_old
from mirrorfeed.archive import archive_interval
from mirrorfeed.archive.archived_files import ArchivedFilesNeededError
from mirrorfeed.archive.guarded_table import GuardedTable
from mirrorfeed.runtime.spark_session import setting
from mirrorfeed.storage.tier_store import Priority
from tests.archive.archived_table import NOW
from tests.support.delta import FEED, SparkTable

SKIPPING = "spark.databricks.delta.stats.skipping"
UPSERT = "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *"


@dataclass(frozen=True)
class Statement:
    """A statement for the writer, and the same statement as SQL."""

    kind: str
    where: str | None
    clauses: str = ""
    rows: tuple[tuple[int, int, int], ...] = ()
    """Rows of a MERGE: `a`, `b` and the day."""
    keys: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        listed = ", ".join(f"({a}, {b}, 'm{a}', {day})" for a, b, day in self.rows)
        return f"SELECT * FROM VALUES {listed} AS r(a, b, v, day)"

    def guarded(self, writer: GuardedTable, spark: SparkSession) -> None:
        if self.kind == "DELETE":
            writer.delete(str(self.where))
        elif self.kind == "UPDATE":
            writer.update({"v": self.clauses}, self.where)
        else:
            writer.merge(spark.sql(self.source), self.keys, self.clauses, self.where)

    def plain(self, table: str) -> str:
        condition = f" WHERE ({self.where})" if self.where else ""
        if self.kind == "DELETE":
            return f"DELETE FROM {table}{condition}"
        if self.kind == "UPDATE":
            return f"UPDATE {table} SET v = {self.clauses}{condition}"
        on = [f"t.{key} = s.{key}" for key in self.keys] + ([f"({self.where})"] if self.where else [])
        return f"MERGE INTO {table} t USING ({self.source}) s ON {' AND '.join(on)} {self.clauses}"


class Cut:
    """A table of 80 rows whose old files are moved away.

    Each of four days has two files. `a` increases from file to file, `b` is in no order. Files up to the middle of day
    3 are old."""

    def __init__(self, spark: SparkSession, folder: Path, vectors: bool = False) -> None:
        self.spark = spark
        properties = f"{FEED} = true, delta.enableDeletionVectors = {str(vectors).lower()}"
        self.table = SparkTable.at(spark, folder / "cut")
        self.table.sql(f"""
            CREATE TABLE {{}} USING DELTA PARTITIONED BY (day) TBLPROPERTIES ({properties}) AS
            SELECT /*+ REPARTITION_BY_RANGE(8, a) */ cast(id AS int) AS a, cast(id * 37 % 80 AS int) AS b,
            concat('v', id) AS v, cast(id DIV 20 + 1 AS int) AS day FROM range(80)""")
        self._moved: list[str] = []

        def age(add: Mapping[str, Any]) -> datetime | None:
            if json.loads(add["stats"])["minValues"]["a"] >= 50:
                return None
            self._moved.append(f"file:{folder}/cut/{add['path']}")
            return NOW - timedelta(days=100)

        make_old(self.table.path, age)
        archive_interval.set_first(spark, self.table.source, 60, NOW)
        self.whole = SparkTable.copied(self.table, folder / "whole")
        """The table before files are moved away and statements run."""
        self._clock = Clock(NOW)
        self.tiers = FolderTiers(folder / "aside", self._clock)
        self.tiers.archive(self._moved)
        self._writer = GuardedTable(spark, self.table.source, lambda _: self.tiers, lambda: NOW)

    def runs(self, statement: Statement) -> bool:
        """Run the statement and return True. Return False if it is refused, and check that nothing changed."""
        before = self.table.latest
        try:
            statement.guarded(self._writer, self.spark)
        except ArchivedFilesNeededError:
            assert self.table.latest == before
            return False
        return True

    def rows(self) -> list[tuple[Any, ...]]:
        """All rows, after all files are restored."""
        self.tiers.restore(self._moved, Priority.HIGH)
        self._clock.pass_(1)
        self.tiers.read_tiers(self._moved)
        return rows_of(self.table)


def rows_of(table: SparkTable) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.rows()), key=str)


def delete(where: str) -> Statement:
    return Statement("DELETE", where)


def update(where: str | None) -> Statement:
    return Statement("UPDATE", where, "concat(v, '!')")


def merge(*rows: tuple[int, int, int], keys: str = "a", where: str | None = None, clauses: str = UPSERT) -> Statement:
    return Statement("MERGE", where, clauses, rows, tuple(keys.split()))


@pytest.mark.slow
def test_statement_never_reads_an_archived_file(spark: SparkSession, tmp_path: Path) -> None:
    """A query's plan uses predicates derived from its conditions; the commands use only the conditions."""
    cut = Cut(spark, tmp_path, vectors=True)
    expected = {a: (a, a * 37 % 80, f"v{a}", a // 20 + 1) for a in range(80)}
    ran = [
        cut.runs(statement)
        for statement in (
            delete("a = b AND b = 60"),
            update("a = 75 OR day = 4 AND b = 3"),
            update("a = 61 AND b > 0"),
            merge((62, 1, 4), (90, 1, 4)),
            merge((63, 1, 4), keys="b"),
            merge((64, 1, 4), keys="b", where="t.day = 4"),
            merge((65, 65, 4), keys="b", where="t.a = t.b", clauses="WHEN MATCHED THEN DELETE"),
            merge((66, 1, 4), clauses="WHEN NOT MATCHED THEN INSERT *"),
            merge((67, 1, 4), clauses="WHEN NOT MATCHED BY SOURCE THEN DELETE"),
        )
    ]
    assert [i for i, each in enumerate(ran) if each] == [2, 3, 5, 7]
    with setting(spark, SKIPPING, "false"):
        assert not cut.runs(delete("a = 71"))
        assert cut.runs(delete("a = b AND b = 60 AND day = 4"))
    del expected[60]
    expected[61] = (61, 17, "v61!", 4)
    expected[62] = (62, 54, "m62", 4)
    expected[90] = (90, 1, "m64", 4)  # inserted by the first MERGE, and found by its `b` in the second
    assert sorted(cut.rows()) == sorted(expected.values())


@pytest.mark.slow
def test_no_statement_lets_auto_compaction_rewrite_archived_files(spark: SparkSession, tmp_path: Path) -> None:
    table = SparkTable(spark, tmp_path / "t", properties={"delta.autoOptimize.autoCompact": "true"})
    table.insert(1)
    table.insert(2)
    archive_interval.set_first(spark, table.source, 60, NOW)
    archived = table.live_files()
    writer = GuardedTable(spark, table.source, now=lambda: NOW + timedelta(days=100))
    name = "spark.databricks.delta.autoCompact"
    with setting(spark, f"{name}.minNumFiles", "2"):
        writer.merge(spark.sql("SELECT 3 AS id, 'v3' AS v"), ["id"], "WHEN NOT MATCHED THEN INSERT *")
        assert archived < table.live_files()
        with setting(spark, f"{name}.enabled", "true"):
            failing = spark.sql("SELECT 4 AS id, 'v4' AS v")
            with pytest.raises(Exception, match="USER_RAISED_EXCEPTION"):
                writer.merge(failing, ["id"], "WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, raise_error(s.v))")
            assert spark.conf.get(f"{name}.enabled") == "true"
    assert spark.conf.get(f"{name}.enabled", None) is None
    assert archived < table.live_files()


def condition(rng: random.Random, of: str = "", depth: int = 0) -> str:
    """A random condition, mostly on active files."""
    a, b, v, day = (f"{of}{column}" for column in ("a", "b", "v", "day"))
    if depth < 2 and rng.random() < 0.45:
        left, right = condition(rng, of, depth + 1), condition(rng, of, depth + 1)
        return rng.choice([f"({left} AND {right})"] * 4 + [f"({left} OR {right})", f"(NOT {left})"])
    number, other = rng.randrange(45, 85), rng.randrange(80)
    return rng.choice(
        [
            *(f"{column} {sign} {number}" for column in (a, b) for sign in ("=", ">", ">=", "<", "<>", "<=>")),
            *(f"{day} {sign} {rng.choice([3, 4, 4, 5])}" for sign in ("=", ">", ">=", "<", "<>")),
            f"{a} = {b} AND {b} = {number}",
            f"{a} IN ({number}, {other})",
            f"{a} BETWEEN {number} AND {number + 9}",
            f"{a} + 1 = {number}",
            f"{a} > {b} AND {b} > {number}",
            f"{day} = {a} DIV 20 + 1 AND {day} = 4",
            f"{day} + 1 = 5",
            f"{a} = {number} OR {day} = 4",
            f"{v} = 'v{number}'",
            f"{v} LIKE 'v7%'",
            f"{b} IS NULL",
            f"coalesce({a}, 0) >= {number}",
            f"if({day} = 4, {a} > {number}, false)",
            f"cast({a} AS string) = '{number}'",
            "false",
        ]
    )


CLAUSES = (
    UPSERT,
    "WHEN MATCHED THEN UPDATE SET v = s.v",
    "WHEN MATCHED AND t.day = 4 THEN DELETE",
    "WHEN MATCHED AND t.a = t.b AND t.b > 70 THEN UPDATE SET v = 'x' WHEN MATCHED AND t.a > 60 THEN DELETE",
    "WHEN NOT MATCHED THEN INSERT *",
    "WHEN MATCHED AND s.b > 3 THEN DELETE WHEN NOT MATCHED AND s.a > 60 THEN INSERT *",
    "WHEN NOT MATCHED BY SOURCE AND t.day = 4 THEN UPDATE SET v = 'alone'",
)


def draw_statement(rng: random.Random) -> Statement:
    kind = rng.choice(["DELETE", "UPDATE", "MERGE", "MERGE"])
    if kind == "DELETE":
        return delete(f"({condition(rng)}) AND {condition(rng)}")
    if kind == "UPDATE":
        return update(condition(rng) if rng.random() < 0.95 else None)
    first, count = rng.randrange(40, 90), rng.randrange(1, 4)
    rows = [(first + 3 * i, b, rng.choice([3, 4])) for i, b in enumerate(rng.sample(range(80), count))]
    where = condition(rng, "t.") if rng.random() < 0.6 else None
    return merge(*rows, keys=rng.choice(["a", "a", "b", "a b", "a day"]), where=where, clauses=rng.choice(CLAUSES))


@pytest.mark.parametrize(
    ("count", "seed", "vectors"),
    [
        pytest.param(2, 259, True, id="few", marks=pytest.mark.slow),
        pytest.param(150, None, False, id="many", marks=pytest.mark.soak),
        pytest.param(150, None, True, id="many, deletion vectors", marks=pytest.mark.soak),
    ],
)
def test_random_statements_are_refused_or_correct(
    spark: SparkSession, tmp_path: Path, counted: Counter[str], count: int, seed: int | None, vectors: bool
) -> None:
    seed = random.randrange(2**32) if seed is None else seed
    rng = random.Random(seed)
    cut = Cut(spark, tmp_path, vectors)
    for _ in range(count):
        statement, skips = draw_statement(rng), rng.random() < 0.9
        try:
            with setting(spark, SKIPPING, str(skips).lower()):
                runs = cut.runs(statement)
                if runs:
                    spark.sql(statement.plain(cut.whole.source.sql))
                counted["guarded writes that ran" if runs else "guarded writes that were refused"] += 1
        except Exception as error:
            raise AssertionError(f"{statement} with skipping {skips}, seed {seed}") from error
    assert cut.rows() == rows_of(cut.whole), f"seed {seed}"
