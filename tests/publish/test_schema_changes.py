"""The mirror of a table when the columns of its source change."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import ClassVar, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from mirrorfeed.landing.errors import IncompatibleSchemaError
from mirrorfeed.landing.names import Target
from mirrorfeed.mirror.verify import compare, mirror_of
from mirrorfeed.orchestration.table_reload import clear
from mirrorfeed.publish.change_sources.delta_feed import DeltaFeed
from mirrorfeed.source.errors import FeedUnreadableError, PartitionsChangedError
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.snapshot_or_range import Facts
from tests.publish.conftest import everything
from tests.raised import Expected, raises
from tests.support.commits import commit
from tests.support.delta import SPARK_4_0
from tests.support.entries import changed
from tests.support.journeys import Journey, newest_version, rows_of

INT, STRING = pa.int32(), pa.string()
PLAIN = "id int, v string, w int NOT NULL"
PLAIN_ROWS = "(1, 'a', 1), (2, 'b', 2)"
NESTED = "id int, s struct<a: int, b: string>"
NESTED_ROWS = "(1, struct(1, 'x')), (2, NULL)"


@contextmanager
def merges_evolve(spark: SparkSession) -> Iterator[None]:
    """Emulate MERGE WITH SCHEMA EVOLUTION, which Delta before 4.3 ignores."""
    setting = "spark.databricks.delta.schema.autoMerge.enabled"
    spark.conf.set(setting, "true")
    try:
        yield
    finally:
        spark.conf.unset(setting)


class Changing(Journey):
    """A table that is published with two rows and then changed."""

    _prepared: ClassVar[dict[tuple[str, ...], dict[Path, bytes]]] = {}

    def begin(self, columns: str, rows: str, *, mapping: str = "name", more: str = "") -> None:
        """Create and publish the first table of each kind. The others are copies of it and of its publication."""
        kind = (columns, rows, mapping, more)
        if kind not in self._prepared:
            self._begin(columns, rows, mapping, more)
            files = everything(self.place).items()
            self._prepared[kind] = {Path(each).relative_to(self.place): data for each, data in sorted(files)}
            return
        for name, data in self._prepared[kind].items():
            (self.place / name).parent.mkdir(parents=True, exist_ok=True)
            (self.place / name).write_bytes(data)

    def _begin(self, columns: str, rows: str, mapping: str, more: str) -> None:
        properties = "delta.enableChangeDataFeed = true"
        if mapping != "none":  # because other writers cannot write the table otherwise
            properties += f", delta.enableTypeWidening = true, delta.columnMapping.mode = '{mapping}'"
        self.spark.sql(f"CREATE TABLE {self.sql} ({columns}) USING delta {more} TBLPROPERTIES ({properties})")
        self.run(f"INSERT INTO {{}} VALUES {rows}")
        self.publish()

    def run(self, *statements: str) -> None:
        """Use Spark for commits that no other writer supports."""
        for statement in statements:
            if not commit(self.source, statement):
                self.run_by_spark(statement)

    def run_by_spark(self, *statements: str) -> None:
        for statement in statements:
            with merges_evolve(self.spark):
                self.spark.sql(statement.replace("{}", self.sql))

    def overwrite(self, **columns: pa.DataType) -> None:
        """Overwrite the table with these columns of these types."""
        rows, schema = DeltaTable(str(self.source)).to_pyarrow_table(), pa.schema(columns)
        write_deltalake(self.source, rows.select(schema.names).cast(schema), mode="overwrite", schema_mode="overwrite")

    def repartition(self, *columns: str) -> None:
        """Overwrite the table with other partition columns, which only Spark can do."""
        rows = self.spark.read.table(self.sql).write.format("delta").mode("overwrite")
        rows.option("overwriteSchema", "true").partitionBy(*columns).save(str(self.source))

    def rebuild(self) -> None:
        clear(DeltaFeed(self.spark, Source(path=str(self.source))), self.zone, changed(self.plan, keys=self.keys))
        self.publish()

    def is_mirrored(self) -> bool:
        """Whether the mirror is equal. Reads the table without Spark if possible."""
        self.replicate()
        source, mirrored = (DeltaTable(str(path)) for path in (self.source, self.place / "mirror/s/t"))
        return rows_of(source.to_pyarrow_table()) == rows_of(mirrored.to_pyarrow_table())

    def verified(self) -> str:
        self.replicate()
        mirror = mirror_of(str(self.place / "mirror"), Target.parse("s.t"))
        source = Source(path=str(self.source))
        return str(compare(self.spark, source, newest_version(self.source), mirror, self.keys))


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Changing:
    return Changing(spark, tmp_path / "source", tmp_path, ("id",))


DROP = "ALTER TABLE {} DROP COLUMN v"
AGAIN = pytest.mark.soak
"""Cases that add a new way to get columns. `tests/landing/test_schema` covers the meaning of columns."""


NEW_YEAR = date(2026, 1, 1)
FLOWING = {
    "a column and a field are added": (
        [
            "ALTER TABLE {} ADD COLUMNS (x date, s.c date)",
            "INSERT INTO {} VALUES (3, 'c', 3, 3, struct(3, date'2026-01-01'), date'2026-01-01')",
        ],
        ("id", "v", "w", "n", "s", "x"),
        [
            (1, "a", 1, 1, '{"a":1}', None),
            (2, "b", 2, 2, '{"a":null}' if SPARK_4_0 else None, None),  # Delta 4.0 inserts a struct of NULL
            (3, "c", 3, 3, '{"a":3,"c":"2026-01-01"}', NEW_YEAR),
        ],
    ),
    "columns change places": (
        [
            "UPDATE {} SET id = id + 100 WHERE id = 2",
            "ALTER TABLE {} ALTER COLUMN w FIRST",
            "INSERT INTO {} VALUES (40, 4, 'd', 4, NULL, NULL)",
        ],
        ("id", "v", "w", "n", "x"),
        [(1, "a", 1, 1, None), (102, "b", 2, 2, None), (3, "c", 3, 3, NEW_YEAR), (4, "d", 40, 4, None)],
    ),
    "a column may be NULL from now on": (
        ["ALTER TABLE {} ALTER COLUMN w DROP NOT NULL", "UPDATE {} SET w = NULL WHERE id = 1"],
        ("id", "v", "w", "n", "x"),
        [(1, "a", None, 1, None), (102, "b", 2, 2, None), (3, "c", 3, 3, NEW_YEAR), (4, "d", 40, 4, None)],
    ),
    "column mapping is switched on": (
        [
            "INSERT INTO {} VALUES (5, 5, 'e', 5, NULL, NULL)",
            "ALTER TABLE {} SET TBLPROPERTIES (delta.columnMapping.mode = 'name')",
            "UPDATE {} SET v = 'mapped' WHERE id = 3",
        ],
        ("id", "v", "w", "x"),
        [
            (1, "a", None, None),
            (102, "b", 2, None),
            (3, "mapped", 3, NEW_YEAR),
            (4, "d", 40, None),
            (5, "e", 5, None),
        ],
    ),
    "a column is added and one is dropped": (
        [
            "ALTER TABLE {} ADD COLUMN y int FIRST",
            "INSERT INTO {} (id, v, w, n, y) VALUES (6, 'f', 6, 6, 6)",
            DROP,
            "ALTER TABLE {} SET TBLPROPERTIES (delta.enableDeletionVectors = true)",
            "INSERT INTO {} (id, w, n) VALUES (7, 7, 7)",
            "DELETE FROM {} WHERE id IN (1, 5)",
        ],
        ("id", "w", "n", "x", "y"),
        [
            (102, 2, 2, None, None),
            (3, 3, 3, NEW_YEAR, None),
            (4, 40, 4, None, None),
            (6, 6, 6, None, 6),
            (7, 7, 7, None, None),
        ],
    ),
    "a column that is never NULL is dropped": (
        ["ALTER TABLE {} DROP COLUMN n", "INSERT INTO {} (id, w) VALUES (8, 8)"],
        ("id", "w", "x"),
        [(102, 2, None), (3, 3, NEW_YEAR), (4, 40, None), (6, 6, None), (7, 7, None), (8, 8, None)],
    ),
    "none after the last of them": (
        ["UPDATE {} SET id = id + 100 WHERE id IN (3, 102)"],
        ("id", "w", "x"),
        [(202, 2, None), (103, 3, NEW_YEAR), (4, 40, None), (6, 6, None), (7, 7, None), (8, 8, None)],
    ),
}
"""Changes, with the columns and rows of the table after each."""


@pytest.mark.parametrize(
    ("count", "version"),
    [pytest.param(2, 6, id="first two"), pytest.param(len(FLOWING), 20, id="all", marks=pytest.mark.slow)],
)
def test_compatible_schema_changes_are_published_one_after_another(table: Changing, count: int, version: int) -> None:
    """Each change is published separately, and only Delta can write such commits."""
    columns = "id int, v string, w int NOT NULL, n int NOT NULL, s struct<a: int>"
    table.begin(columns, "(1, 'a', 1, 1, struct(1)), (2, 'b', 2, 2, NULL)", mapping="none")
    for change, (statements, columns_then, rows) in list(FLOWING.items())[:count]:
        table.run(*statements)
        table.publish()
        assert table.published() == newest_version(table.source), change
        table.replicate()
        mirror = DeltaTable(str(table.place / "mirror/s/t")).to_pyarrow_table().select(columns_then)
        assert {tuple(row.values()) for row in mirror.to_pylist()} == set(rows), change
        assert mirror.num_rows == len(rows), change
    assert table.published() == version


@pytest.mark.parametrize(
    "statements",
    [
        pytest.param(["ALTER TABLE {} ADD COLUMN s.c date",
                      "INSERT INTO {} VALUES (3, struct(3, 'z', date'2026-01-01'))"], id="a field is added"),
        pytest.param(["ALTER TABLE {} DROP COLUMN s", "INSERT INTO {} VALUES (3)"], id="a nested column is dropped"),
    ],
)  # fmt: skip
@AGAIN
def test_compatible_nested_changes_under_column_mapping_are_published(table: Changing, statements: list[str]) -> None:
    table.begin(NESTED, NESTED_ROWS)
    table.run(*statements)
    table.publish()
    table.run("UPDATE {} SET id = id + 100 WHERE id = 2")
    table.publish()
    assert table.verified().startswith("equal")


@pytest.mark.parametrize(
    ("columns", "rows", "statements", "words"),
    [
        pytest.param(PLAIN, PLAIN_ROWS, ["ALTER TABLE {} ALTER COLUMN w TYPE bigint"], "'w' was integer and is long",
                     id="a type is widened"),
        pytest.param(PLAIN, PLAIN_ROWS, ["ALTER TABLE {} ALTER COLUMN w TYPE bigint",
                     "INSERT INTO {} VALUES (3, 'c', 5000000000)", "RESTORE TABLE {} TO VERSION AS OF 1"],
                     "'w' was integer and is long", id="a type is widened and restored", marks=AGAIN),
        pytest.param(PLAIN, PLAIN_ROWS, ["""MERGE INTO {} t USING (SELECT 3 AS id, 'c' AS v,
                     5000000000 AS w) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *"""],
                     "'w' was integer and is long", id="a type is widened by a merge", marks=AGAIN),
        pytest.param(NESTED, NESTED_ROWS, ["ALTER TABLE {} ALTER COLUMN s.a TYPE bigint"],
                     "'s' has different nested fields", id="the type of a field is widened", marks=pytest.mark.slow),
        pytest.param(PLAIN, PLAIN_ROWS, [DROP, "ALTER TABLE {} ADD COLUMN v string"],
                     "'v' was dropped and added again as 'v'", id="a dropped column is added again", marks=AGAIN),
        pytest.param(PLAIN, PLAIN_ROWS, ["ALTER TABLE {} DROP COLUMN id"], "'id' is missing", id="a key is dropped"),
        pytest.param(NESTED, NESTED_ROWS, ["ALTER TABLE {} RENAME COLUMN s.a TO c"], "'s' has different nested fields",
                     id="a field is renamed", marks=AGAIN),
        pytest.param(NESTED, NESTED_ROWS, ["ALTER TABLE {} DROP COLUMN s.a"], "'s' has different nested fields",
                     id="a field is dropped", marks=AGAIN),
    ],
)  # fmt: skip
def test_incompatible_schema_changes_stop_the_table(
    table: Changing, columns: str, rows: str, statements: list[str], words: str
) -> None:
    table.begin(columns, rows)
    table.run(*statements)
    with pytest.raises(IncompatibleSchemaError, match=words):
        table.publish()
    published = table.published()
    with pytest.raises(IncompatibleSchemaError, match=words):
        table.publish()
    assert table.published() == published


@pytest.mark.parametrize(
    "more",
    [
        pytest.param((), id="the newest", marks=AGAIN),
        pytest.param(("INSERT INTO {} VALUES (4, 'd', 4)",), id="before the newest", marks=AGAIN),
    ],
)
def test_disabling_column_mapping_publishes_the_row_differences(table: Changing, more: tuple[str, ...]) -> None:
    table.begin(PLAIN, PLAIN_ROWS)
    off = "ALTER TABLE {} SET TBLPROPERTIES (delta.columnMapping.mode = 'none')"
    table.run("INSERT INTO {} VALUES (3, 'c', 3)", "DELETE FROM {} WHERE id = 1", off, *more)
    table.publish()
    assert table.published() == newest_version(table.source)
    assert table.verified().startswith("equal at version")


EVOLVE = """MERGE INTO {} t USING (SELECT 2 AS id, 'x' AS v, 2 AS w, 7 AS extra) s ON t.id = s.id
            WHEN MATCHED THEN UPDATE SET *"""
RESTORE = "RESTORE TABLE {} TO VERSION AS OF 1"


def by_merge_and_restore(table: Changing) -> None:
    table.run_by_spark(EVOLVE, RESTORE)


def by_merge_and_overwrite(table: Changing) -> None:
    table.run(EVOLVE)
    table.overwrite(id=INT, v=STRING, w=INT)


def by_another_writer(table: Changing) -> None:
    rows = pa.table({"id": pa.array([2, 3], pa.int32()), "v": ["b", "c"], "extra": [7, 8]})
    merge = DeltaTable(str(table.source)).merge(
        rows, "t.id = s.id", source_alias="s", target_alias="t", merge_schema=True
    )
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    DeltaTable(str(table.source)).restore(1)


def by_fields_of_a_struct(table: Changing) -> None:
    table.run("ALTER TABLE {} ADD COLUMN s struct<m: map<int, int>>", "INSERT INTO {} VALUES (3, NULL, 3, NULL)")
    table.publish()
    table.run("ALTER TABLE {} ADD COLUMN s.extra int", "RESTORE TABLE {} TO VERSION AS OF 3")


@pytest.mark.parametrize(
    ("come_and_go", "words"),
    [
        pytest.param(
            by_merge_and_restore,
            "in version 2 with the newest columns. Since version 2: 'extra' is missing",
            marks=AGAIN,
        ),
        pytest.param(
            by_merge_and_overwrite,
            "in version 2 with the newest columns. Since version 2: 'extra' is missing",
            marks=AGAIN,
        ),
        (by_another_writer, "in version 2 with the newest columns. Since version 2: 'extra' is missing"),
        pytest.param(
            by_fields_of_a_struct,
            "in version 4 with the newest columns. Since version 4: 's' has different nested fields",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_column_added_and_dropped_before_publication_stops_the_table(
    table: Changing, come_and_go: Callable[[Changing], None], words: str
) -> None:
    table.begin("id int, v string, w int", PLAIN_ROWS, mapping="none")
    come_and_go(table)
    published = table.published()
    for _ in range(2):
        with pytest.raises(FeedUnreadableError, match=words):
            table.publish()
        assert table.published() == published
    table.rebuild()
    table.run("INSERT INTO {} (id, v, w) VALUES (9, 'i', 9)")
    table.publish()
    assert table.published() == newest_version(table.source)
    assert table.is_mirrored()


@pytest.mark.soak  # without column mapping above
def test_restored_columns_stop_a_table_with_column_mapping(
    table: Changing,
) -> None:
    table.begin(PLAIN, PLAIN_ROWS)
    table.run(EVOLVE, DROP, RESTORE)
    words = r"at version 4 .*: 'v' was dropped and added again as 'v'; 'extra' is missing"
    for _ in range(2):
        with pytest.raises(IncompatibleSchemaError, match=words):
            table.publish()
        assert table.published() == 3


@pytest.mark.slow
def test_clustering_may_change(table: Changing) -> None:
    table.begin(PLAIN, PLAIN_ROWS, more="CLUSTER BY (id)")
    table.run("ALTER TABLE {} CLUSTER BY (v)", "INSERT INTO {} VALUES (3, 'c', 3)", "OPTIMIZE {}")
    table.publish()
    assert table.verified() == "equal at version 4, 3 rows"


@pytest.mark.soak  # `source/test_snapshot_or_range` covers the decision
def test_versions_before_a_partition_column_is_renamed_are_published(table: Changing) -> None:
    table.begin(PLAIN, PLAIN_ROWS, more="PARTITIONED BY (w)")
    first = table.published()
    table.run("INSERT INTO {} VALUES (4, 'd', 4)", "ALTER TABLE {} RENAME COLUMN w TO x")
    with pytest.raises(IncompatibleSchemaError, match="'w' was renamed to 'x'"):
        table.publish()
    assert table.published() == first + 1


@pytest.mark.slow
def test_changed_partition_columns_stop_the_table_until_rebuild(table: Changing) -> None:
    table.begin(PLAIN, PLAIN_ROWS, mapping="none", more="PARTITIONED BY (w)")
    table.run("INSERT INTO {} VALUES (4, 'd', 4)")
    table.repartition("id", "v")
    with pytest.raises(PartitionsChangedError, match="changed from 'w' to 'id', 'v' after version 1"):
        table.publish()
    assert table.published() == 1
    table.rebuild()
    table.run("DELETE FROM {} WHERE id = 2", "UPDATE {} SET id = 5 WHERE id = 1")
    table.publish()
    assert (table.published(), table.is_mirrored()) == (5, True)


def test_repartitioning_during_a_read_is_detected(tmp_path: Path) -> None:
    """`test_table` covers the result. Earlier changes would have NULL in the new columns."""
    rows, source = pa.table({"id": [1], "v": ["a"], "w": [1]}), Source(path=str(tmp_path / "t"))
    write_deltalake(tmp_path / "t", rows, partition_by=["w"])
    facts = Facts(str(DeltaTable(tmp_path / "t").metadata().id), 0, (), partitions=("w",))
    feed = DeltaFeed(cast(SparkSession, None), source)  # a path-based table is read without it
    assert feed.is_unchanged(facts)
    # deltalake 1.5 cannot change the partitions of a table, so another table takes its id.
    shutil.rmtree(tmp_path / "t")
    write_deltalake(tmp_path / "t", rows, partition_by=["v"])
    log = tmp_path / f"t/_delta_log/{0:020}.json"
    log.write_text(log.read_text().replace(str(DeltaTable(tmp_path / "t").metadata().id), facts.table_id))
    assert not feed.is_unchanged(facts)


def test_overwrite_with_changed_type_or_missing_column_stops_the_table(table: Changing) -> None:
    table.begin(PLAIN, PLAIN_ROWS, mapping="none")
    table.overwrite(id=INT, v=STRING, w=STRING)
    with pytest.raises(IncompatibleSchemaError, match=r"at version 2 .*: 'w' was integer and is string"):
        table.publish()
    table.overwrite(id=INT, v=STRING, w=INT)
    table.overwrite(id=INT, v=STRING)
    with pytest.raises(IncompatibleSchemaError, match="'w' was integer and is string"):  # of the first one found
        table.publish()


def by_rename(table: Changing) -> None:
    table.run("ALTER TABLE {} RENAME COLUMN v TO x")


def by_widening(table: Changing) -> None:
    table.run("ALTER TABLE {} SET TBLPROPERTIES (delta.enableTypeWidening = true)")
    table.run("ALTER TABLE {} ALTER COLUMN w TYPE bigint")


def by_another_type(table: Changing) -> None:
    table.overwrite(id=INT, v=STRING, w=STRING)


@pytest.mark.parametrize(
    ("mapping", "change", "finding", "words", "published"),
    [
        ("name", by_rename, IncompatibleSchemaError, "at version 3 .*: 'v' was renamed to 'x'", 2),
        (
            "none",
            by_widening,
            FeedUnreadableError,
            "in versions 2 to 3 with the newest columns. Since .* 'w' was integer and is long",
            1,
        ),
        (
            "none",
            by_another_type,
            FeedUnreadableError,
            "in version 2 with the newest columns. Since .* 'w' was integer and is string",
            1,
        ),
    ],
)
def test_changes_before_an_incompatible_one_are_published_if_readable(
    table: Changing,
    mapping: str,
    change: Callable[[Changing], None],
    finding: Expected,
    words: str,
    published: int,
) -> None:
    table.begin(PLAIN, PLAIN_ROWS, mapping=mapping)
    table.run("INSERT INTO {} VALUES (3, 'c', 3)")
    change(table)
    for _ in range(2):
        with raises(finding, match=words):
            table.publish()
        assert table.published() == published
