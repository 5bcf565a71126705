"""Compare a source version with its mirror: equal, or the first differences by key and column."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ByteType, ShortType, StructField

from mirrorfeed.config.model import Config
from mirrorfeed.errors import TerminalError
from mirrorfeed.landing.log_record import Record
from mirrorfeed.landing.names import Target
from mirrorfeed.mirror.errors import (
    MirrorColumnsError,
    mirror_missing,
    mirror_not_reached,
    mirror_unreadable,
    mirrored_version_gone,
)
from mirrorfeed.mirror.verify import (
    compare,
    first_equal,
    mirror_of,
    mirrors_folder,
    verify_at,
    version_gone_errors,
)
from mirrorfeed.mirror.verify.expected_rows import key_columns
from mirrorfeed.mirror.verify.row_comparison import RowComparison, compare_rows
from mirrorfeed.source.identifier import Source
from tests.raised import Expected, raises
from tests.support.commits import commit
from tests.support.delta import DeltaTable

SOURCE = """
    SELECT * FROM VALUES
      (1, 'Oslo', 1.5D, map('b', 2, 'a', 1), named_struct('x', 1, 'ys', array('p', NULL))),
      (2, NULL, double('NaN'), NULL, NULL),
      (3, 'Kyoto', -0.0D, map(), named_struct('x', NULL, 'ys', NULL)),
      (4, NULL, double('NaN'), NULL, NULL),
      (5, 'Oslo', 1.5D, NULL, named_struct('x', 1, 'ys', array('p', NULL))),
      (6, 'Kyoto', 0.0D, NULL, NULL)
    AS t(id, city, score, counts, nested)"""
MIRROR = """
    SELECT * FROM VALUES
      (1, 'Oslo', 1.5D, '{"a":1,"b":2}', '{"x":1,"ys":["p",null]}'),
      (2, NULL, double('NaN'), NULL, NULL),
      (3, 'Kyoto', -0.0D, '{}', '{"x":null,"ys":null}'),
      (4, NULL, double('NaN'), NULL, NULL),
      (5, 'Oslo', 1.5D, NULL, '{"x":1,"ys":["p",null]}'),
      (6, 'Kyoto', 0.0D, NULL, NULL)
    AS t(id, city, score, counts, nested)"""


@pytest.fixture(scope="module")
def source(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Source:
    created = Source(path=str(tmp_path_factory.mktemp("verify") / "source"))
    spark.sql(f"CREATE TABLE {created.sql} USING DELTA AS {SOURCE}")
    assert commit(Path(str(created.path)), "DELETE FROM {}")  # a later version that must not be read
    return created


@pytest.fixture(scope="module")
def right(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    created = tmp_path_factory.mktemp("verify") / "mirror"
    spark.sql(f"CREATE TABLE {Source(path=str(created)).sql} USING DELTA AS {MIRROR}")
    return created


@pytest.fixture
def mirror(right: Path, tmp_path: Path) -> Source:
    """A copy that tests change."""
    return Source(path=str(shutil.copytree(right, tmp_path / "mirror")))


def compared(spark: SparkSession, source: Source, mirror: Source, keys: tuple[str, ...] = ("id",)) -> RowComparison:
    return compare(spark, source, 0, mirror, keys)


def test_mirror_with_the_same_values_is_equal(spark: SparkSession, source: Source, mirror: Source) -> None:
    found = compared(spark, source, mirror)
    assert found.equal
    assert (found.source_rows, found.mirror_rows, found.first) == (6, 6, ())


@pytest.mark.slow
def test_whole_rows_are_compared_without_keys(spark: SparkSession, source: Source, mirror: Source) -> None:
    assert compared(spark, source, mirror, keys=()).equal


CHANGES = [
    ("UPDATE {} SET city = 'Lima' WHERE id = 1", "id = 1: city is 'Oslo' in the source, 'Lima' in the mirror"),
    ("UPDATE {} SET city = '' WHERE id = 2", "id = 2: city is NULL in the source, '' in the mirror"),
    ("DELETE FROM {} WHERE id = 3", "id = 3: once in the source, missing in the mirror"),
    ("UPDATE {} SET score = 0 WHERE id = 4", "id = 4: score is 'NaN' in the source, '0.0' in the mirror"),
    (
        """UPDATE {} SET nested = '{"x":1,"ys":["p"]}' WHERE id = 5""",
        """id = 5: nested is '{"x":1,"ys":["p",null]}' in the source, '{"x":1,"ys":["p"]}' in the mirror""",
    ),
    (
        "INSERT INTO {} VALUES (6, 'Lima', 0, NULL, NULL)",
        "id = 6: once in the source, 2 times in the mirror",
    ),
    ("INSERT INTO {} VALUES (7, NULL, NULL, NULL, NULL)", "id = 7: missing in the source, once in the mirror"),
]


def test_differences_are_shown_by_key_and_column(spark: SparkSession, source: Source, mirror: Source) -> None:
    for change, _ in CHANGES:
        assert commit(Path(str(mirror.path)), change)
    found = compare(spark, source, 0, mirror, ("id",), shown=len(CHANGES))
    assert not found.equal
    assert (found.source_rows, found.mirror_rows, found.differing) == (6, 7, len(CHANGES))
    assert [str(difference) for difference in found.first] == [shown for _, shown in CHANGES]


ACCENT, COMBINED = "'\u00e9'", "'e\u0301'"
LOOKALIKES = [
    ("X'61FF62'", "'a\ufffdb'", "'a\ufffdb (bytes 61FF62)' in the source, 'a\ufffdb (bytes 61EFBFBD62)' in the mirror"),
    (ACCENT, COMBINED, "'\u00e9 (bytes C3A9)' in the source, 'e\u0301 (bytes 65CC81)' in the mirror"),
    ("X'6162FF'", "'b'", "'ab\ufffd' in the source, 'b' in the mirror"),
    ("'a'", "'b'", "'a' in the source, 'b' in the mirror"),
    (
        f"concat(repeat('x', 500), {ACCENT})",
        f"concat(repeat('x', 500), {COMBINED})",
        f"'{'x' * 500}\u00e9 (bytes …7878787878787878C3A9)' in the source,"
        f" '{'x' * 500}e\u0301 (bytes …787878787878787865CC81)' in the mirror",
    ),
]


@pytest.mark.slow
def test_similar_looking_texts_are_shown_with_their_bytes(spark: SparkSession, tmp_path: Path) -> None:
    source, mirror = (Source(path=str(tmp_path / name)) for name in ("source", "mirror"))
    for side, table in enumerate((source, mirror)):
        rows = ", ".join(f"({at}, CAST({pair[side]} AS STRING))" for at, pair in enumerate(LOOKALIKES))
        nested = "array(v)" if table is source else "to_json(array(v))"
        spark.sql(f"CREATE TABLE {table.sql} USING DELTA AS SELECT *, {nested} AS n FROM VALUES {rows} AS t(id, v)")
    found = compare(spark, source, 0, mirror, ("id",), shown=len(LOOKALIKES))
    shown = [str(difference) for difference in found.first if difference.column == "v"]
    assert shown == [f"id = {at}: v is {value}" for at, (_, _, value) in enumerate(LOOKALIKES)]
    of_lists = [str(difference) for difference in found.first if difference.column == "n"]
    assert of_lists[0] == (
        """id = 0: n is '["a\ufffdb"] (bytes 5B61FF625D)' in the source,"""
        """ '["a\ufffdb"] (bytes 5B61EFBFBD625D)' in the mirror"""
    )
    by_text = compare(spark, source, 0, mirror, ("v",), shown=2 * len(LOOKALIKES))
    assert "v = a\ufffdb (bytes 61FF62): once in the source, missing in the mirror" in map(str, by_text.first)
    assert "v = a\ufffdb: missing in the source, once in the mirror" in map(str, by_text.first)


STRUCT, LIST, MAP, KEYED = "struct<x: int, y: string>", "array<int>", "map<string, int>", "map<int, int>"
ONE = "named_struct('x', 1, 'y', 'a')"
EQUAL_TEXTS = [
    # type, value, text in the mirror
    (STRUCT, ONE, '{"x":1,"y":"a"}'),
    (STRUCT, ONE, ' { "y" : "a" ,\n "x" : 1 } '),
    (STRUCT, "named_struct('x', NULL, 'y', NULL)", "{}"),
    (STRUCT, "named_struct('x', NULL, 'y', NULL)", '{"x":null}'),
    (STRUCT, "NULL", None),
    (LIST, "array(1, NULL)", "[1,null]"),
    (LIST, "array()", "[]"),
    (MAP, "map('b', 2, 'a', NULL)", '{"a":null,"b":2}'),
    ("map<string, string>", "map()", "{}"),
    ("array<string>", "array('1', '[1]', '{}', 'null', '')", '["1","[1]","{}","null",""]'),
    ("array<bigint>", "array(9223372036854775807L)", "[9223372036854775807]"),
    ("array<double>", "array(double('NaN'), double('-Infinity'))", '["NaN","-Infinity"]'),
    ("array<double>", "array(1.0D, 1E300D, 4.9E-324D)", "[1,1.0E300,4.9E-324]"),
    ("array<decimal(38,18)>", "array(0BD, 0.000000000000000001BD, 1.5BD)", "[0E-18,1E-18,1.500000000000000000]"),
    ("array<decimal(38,0)>", f"array({'9' * 38}BD)", f"[{'9' * 38}]"),
    ("array<array<struct<v: map<string, boolean>>>>", "array(array(named_struct('v', map('k', true))), NULL, array())",
     '[[{"v":{"k":true}}],null,[]]'),
    ("map<struct<a: int>, int>", "map(named_struct('a', 1), 1)", '{"{\\"a\\":1}":1}'),
    ("array<variant>", "array(parse_json('[1,{}]'), NULL)", "[[1,{}],null]"),
    ("variant", "parse_json('[1,{}]')", "[1, {}]"),
    ("variant", "parse_json('null')", "null"),
    ("array<string>", "array(repeat('x', 5000000))", f'["{"x" * 5_000_000}"]'),
]  # fmt: skip
WRONG_TEXTS = [
    *((type_, "NULL", text) for type_ in (STRUCT, LIST, MAP) for text in ("oops", "", " ", "null", "[1,2", '{"x":')),
    *((type_, "NULL", text) for type_, text in ((LIST, '{"a":1}'), (STRUCT, "[1]"), (MAP, "[]"), (LIST, "1"))),
    (LIST, "array(1)", None),
    (LIST, "array(1)", "1"),
    (STRUCT, "named_struct('x', NULL, 'y', NULL)", "oops"),
    (MAP, "map('k', NULL)", '{"k":1}'),
    (KEYED, "map(1, 1)", '{"abc":1}'),
    ("array<decimal(38,18)>", "array(1.000000000000000001BD)", "[1.000000000000000002]"),
    ("variant", "parse_json('1')", "oops"),
    ("variant", "NULL", "null"),
]  # fmt: skip


def frames(spark: SparkSession, cases: list[tuple[str, str, str | None]]) -> tuple[DataFrame, DataFrame]:
    """A source and its mirror with a column of each type. Each case has its own row, with NULL in other columns."""
    types = list(dict.fromkeys(type_ for type_, _, _ in cases))
    rows = [
        f"SELECT {at} AS id, "
        + ", ".join(f"CAST({value if type_ == each else 'NULL'} AS {each}) AS c{n}" for n, each in enumerate(types))
        for at, (type_, value, _) in enumerate(cases)
    ]
    texts = [(at, *(text if type_ == each else None for each in types)) for at, (type_, _, text) in enumerate(cases)]
    schema = ", ".join(["id int", *(f"c{n} string" for n in range(len(types)))])
    return spark.sql(" UNION ALL ".join(rows)), spark.createDataFrame(texts, schema)


@pytest.mark.slow
def test_json_text_of_the_same_value_is_equal(spark: SparkSession) -> None:
    found = compare_rows(0, *frames(spark, EQUAL_TEXTS), ("id",), shown=len(EQUAL_TEXTS))
    assert found.first == ()


@pytest.mark.slow
def test_text_that_is_not_json_of_the_type_is_a_difference(spark: SparkSession) -> None:
    expected, actual = frames(spark, WRONG_TEXTS)
    found = compare_rows(0, expected, actual, ("id",), shown=len(WRONG_TEXTS))
    numbers = {int(difference.key.removeprefix("id = ")) for difference in found.first}
    assert [case for at, case in enumerate(WRONG_TEXTS) if at not in numbers] == []
    shown = {difference.key: difference.mirror for difference in found.first}
    assert shown["id = 0"] == "oops"
    without_keys = compare_rows(0, expected, actual, (), shown=2 * len(WRONG_TEXTS))
    assert without_keys.differing == 2 * len(WRONG_TEXTS)
    assert any("c0 = oops" in str(difference) for difference in without_keys.first)


def test_key_that_does_not_fit_the_type_of_the_source_is_null(spark: SparkSession) -> None:
    _, key = key_columns(StructField("k", ByteType()), ShortType())
    assert spark.sql("SELECT 300S AS k").select(key).first() == (None,)


@pytest.mark.slow
def test_duplicate_row_without_keys_is_a_difference(spark: SparkSession, source: Source, mirror: Source) -> None:
    rows = deltalake.DeltaTable(str(mirror.path)).to_pyarrow_table(filters=[("id", "=", 2)])
    deltalake.write_deltalake(str(mirror.path), rows, mode="append")
    found = compared(spark, source, mirror, keys=())
    assert (found.equal, found.differing, found.mirror_rows) == (False, 1, 7)
    assert "once in the source, 2 times in the mirror" in str(found.first[0])


def test_missing_mirror_is_an_error(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    missing = Source(path=str(tmp_path / "nowhere"))
    with raises(mirror_missing, match=r"There is no Delta table at .*nowhere, "):
        compared(spark, source, missing)


def test_different_columns_are_an_error(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    other = Source(path=str(tmp_path / "other"))
    deltalake.write_deltalake(str(other.path), pa.table({"id": [1], "city": ["x"], "score": [1.0], "counts": [""]}))
    with pytest.raises(MirrorColumnsError, match=r"'id' is bigint where int is expected; 'nested' is missing"):
        compared(spark, source, other)


# Compared version


def record(version: int) -> Record:
    return Record(1, "b", "2026-11-21", "t", "id", None, version, (), ("id",), 2)


@pytest.mark.parametrize(
    ("differing", "requested", "version"),
    [
        ({9: 0, 8: 0}, [9], 9),
        ({9: 2, 8: 0}, [9, 8], 8),
        ({9: 2, 8: 5}, [9, 8], 9),
        ({9: 5, 8: 2}, [9, 8], 8),
        ({9: None, 8: 0}, [9, 8], 8),
        ({9: None, 8: 3}, [9, 8], 8),
        ({9: 1}, [9], 9),
    ],
)
def test_comparison_determines_the_mirror_position(
    differing: dict[int, int | None], requested: list[int], version: int
) -> None:
    seen: list[int] = []

    def compare_at(record: Record) -> RowComparison:
        seen.append(record.to_version_inclusive)
        count = differing[record.to_version_inclusive]
        if count is None:
            raise MirrorColumnsError(table="t", path="p", faults=["'new' is missing"])
        return RowComparison(record.to_version_inclusive, 10, 10, count)

    assert first_equal(compare_at, [record(each) for each in differing]).version == version
    assert seen == requested


def test_mirror_with_other_columns_at_every_version_is_reported() -> None:
    def compare_at(record: Record) -> RowComparison:
        raise MirrorColumnsError(table="t", path="p", faults=[f"of {record.to_version_inclusive}"])

    with pytest.raises(MirrorColumnsError, match="of 9"):
        first_equal(compare_at, [record(9), record(8)])


def test_mirror_before_the_oldest_recorded_publication_is_reported() -> None:
    with raises(mirror_not_reached) as error:
        verify_at(None, Source(path="/orders"), Source(path="/mirror"), ())  # type: ignore[arg-type]
    assert error.value.table == "/orders"


def test_tables_of_a_mirrored_database_are_next_to_its_files() -> None:
    workspace, database = "0f8fad5b-d9cb-469f-a165-70867728950e", "7c9e6679-7425-40de-944b-e07fc1f90ae7"
    tables = mirrors_folder(Config(landing_zone=f"onelake://{workspace}/{database}", tables=()), None)
    assert str(mirror_of(tables, Target("sales", "orders"))) == (
        f"abfss://{workspace}@onelake.dfs.fabric.microsoft.com/{database}/Tables/sales/orders"
    )
    assert str(mirror_of(tables, Target(None, "orders"))).endswith("/Tables/dbo/orders")


def test_tables_behind_a_private_link_have_the_host_of_the_workspace() -> None:
    workspace, database = "0f8fad5b-d9cb-469f-a165-70867728950e", "7c9e6679-7425-40de-944b-e07fc1f90ae7"
    config = Config(landing_zone=f"onelake://{workspace}/{database}", tables=(), private_link=True)
    host = f"{workspace.replace('-', '')}.z0f.dfs.fabric.microsoft.com"
    assert mirrors_folder(config, None) == f"abfss://{workspace}@{host}/{database}/Tables"


def test_location_that_spark_cannot_reach_is_an_error(spark: SparkSession, source: Source) -> None:
    with raises(mirror_unreadable) as caught:
        compared(spark, source, Source(path="abfss://w@localhost/d/Tables/dbo/orders"))
    assert "abfss://w@localhost/d/Tables/dbo/orders: " in str(caught.value)
    assert "ClassNotFoundException" in str(caught.value)


def test_missing_version_and_a_missing_source_are_reported(spark: SparkSession, right: Path, tmp_path: Path) -> None:
    table, mirror = DeltaTable(spark, tmp_path / "source"), Source(path=str(right))
    table.insert(1)
    table.sql("DELETE FROM {}")
    table.insert(2)

    def refused() -> TerminalError:
        with pytest.raises(TerminalError) as error:
            compare(spark, table.source, 1, mirror, ("id",))
        return error.value

    table.checkpoint()
    table.commit_file(0).unlink()
    error = refused()
    assert mirrored_version_gone.matches(error)
    assert (error.table, error.version) == (str(table.source), 1)
    shutil.rmtree(table.path)
    assert str(refused()).startswith(f"There is no Delta table at {table.path}.")


@pytest.mark.parametrize("of", ["source", "mirror"])
def test_only_a_missing_source_file_counts_as_a_missing_version(of: str) -> None:
    missing = (
        "[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file file:/data%20of%20shop/{}/a.parquet"
    )
    source, mirror = Source(path="/data of shop/source"), Source(path="/data of shop/mirror")
    expected: Expected = mirrored_version_gone if of == "source" else RuntimeError
    requested: Any = SessionWithAllTables()
    with raises(expected), version_gone_errors(requested, source, 1, mirror):
        raise RuntimeError(missing.format(of))


class SessionWithAllTables:
    """A session in which every table exists."""

    def sql(self, _: str) -> SessionWithAllTables:
        return self

    def first(self) -> SessionWithAllTables:
        return self

    def asDict(self) -> dict[str, str]:
        return {"format": "delta", "id": "x"}
