"""Invalid UTF-8 in a STRING column, which Delta allows, is refused with key and column in all file formats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mirrorfeed.landing.output_format import Delimited, Output
from mirrorfeed.publish.change_sources.full_compare import FullCompare, RowHashTable
from mirrorfeed.publish.errors import RowsRefusedError
from mirrorfeed.publish.files import row_staging
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.source.identifier import Source
from tests.support.delta import SparkTable, Zone

COLUMNS = "id int, k string, v string, nested struct<list: array<string>, by_name: map<string, string>, raw: binary>"
BAD = "CAST(X'61FF62' AS STRING)"
TEXT = Output(delimited=Delimited())
SMALL, SPARK = row_staging.SMALL_BATCH_ROWS, 0
"""Row limit of small batches. With 0, Spark writes all files."""
LONG = pytest.mark.soak


def row(id_: int, k: str = "'k'", v: str = "'v'", item: str = "'i'", name: str = "'n'", named: str = "'x'") -> str:
    """Binary values are not text, and the replacement character is an ordinary character."""
    return (
        f"({id_}, {k}, {v}, named_struct('list', array('a\ufffd😀', NULL, {item}), 'by_name', map({name}, {named}),"
        " 'raw', X'FF'))"
    )


@pytest.fixture(scope="module")
def two_rows(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkTable:
    table = SparkTable(spark, tmp_path_factory.mktemp("two") / "t", COLUMNS)
    table.sql(f"INSERT INTO {{}} VALUES {row(1)}, {row(2, v='NULL')}")
    return table


@pytest.fixture
def table(two_rows: SparkTable, tmp_path: Path) -> SparkTable:
    return SparkTable.copied(two_rows, tmp_path / "t")


@pytest.mark.parametrize(
    ("most", "values", "named"),
    [
        pytest.param(SMALL, {"v": BAD}, r"id = 3, k = 'k', column 'v': 'a\xffb'", id="small batch, value"),
        pytest.param(SPARK, {"k": BAD}, r"id = 3, k = 'a\xffb', column 'k': 'a\xffb'", marks=LONG, id="Spark, key"),
        pytest.param(SPARK, {"name": BAD}, "id = 3, k = 'k', column 'nested'", marks=LONG, id="Spark, key of a map"),
        pytest.param(SPARK, {"v": BAD}, r"id = 3, k = 'k', column 'v': 'a\xffb'", id="Spark, value"),
        pytest.param(
            SMALL, {"k": BAD}, r"id = 3, k = 'a\xffb', column 'k': 'a\xffb'", marks=LONG, id="small batch, key"
        ),
        pytest.param(
            SMALL, {"name": BAD}, "id = 3, k = 'k', column 'nested'", marks=LONG, id="small batch, key of a map"
        ),
        pytest.param(SMALL, {"item": BAD}, "id = 3, k = 'k', column 'nested'", marks=LONG, id="small batch, item"),
        pytest.param(SPARK, {"named": BAD}, "id = 3, k = 'k', column 'nested'", marks=LONG, id="Spark, value of a map"),
    ],
)
def test_invalid_text_is_refused_with_key_and_column(
    table: SparkTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, values: dict[str, str], named: str
) -> None:
    monkeypatch.setattr(row_staging, "SMALL_BATCH_ROWS", most)
    zone = Zone(tmp_path / "zone", table, ("id", "k"))
    zone.publish()
    assert json.loads(zone.last[0]["nested"]) == {
        "list": ["a\ufffd😀", None, "i"],
        "by_name": {"n": "x"},
        "raw": "/w==",
    }
    table.sql(f"INSERT INTO {{}} VALUES {row(4)}")
    assert zone.publish().rows == {"upsert": 1}  # the source contains the replacement character itself
    table.sql(f"INSERT INTO {{}} VALUES {row(3, **values)}, {row(5)}")
    late = Zone(tmp_path / "late", table, ("id", "k"))
    for each, files in ((zone, 2), (late, 0)):  # a range, and a snapshot
        with pytest.raises(RowsRefusedError) as caught:
            each.publish()
        assert f"a text is not valid UTF-8 ({named}" in str(caught.value)
        assert len(each.files) == files


@pytest.mark.parametrize(
    ("most", "options"),
    [
        pytest.param(SPARK, {"output": TEXT}, id="Spark, delimited text", marks=pytest.mark.slow),
        pytest.param(SMALL, {"changes": "full"}, id="small batch, all changes", marks=LONG),
        pytest.param(SMALL, {"keys": ()}, id="small batch, no keys", marks=LONG),
        pytest.param(SMALL, {"output": TEXT}, id="small batch, delimited text", marks=LONG),
        pytest.param(SPARK, {"changes": "full"}, id="Spark, all changes", marks=LONG),
        pytest.param(SPARK, {"keys": ()}, id="Spark, no keys", marks=LONG),
    ],
)
def test_invalid_text_is_refused_in_every_file_format(
    table: SparkTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, options: dict[str, Any]
) -> None:
    monkeypatch.setattr(row_staging, "SMALL_BATCH_ROWS", most)
    zone, late = (Zone(tmp_path / name, table, **options) for name in ("zone", "late"))
    zone.publish()
    table.sql(f"INSERT INTO {{}} VALUES {row(3, v=BAD)}")
    for each in (zone, late):  # a range, and a snapshot
        with pytest.raises(RowsRefusedError, match=r"a text is not valid UTF-8 \(.*column 'v': 'a\\xffb'\)"):
            each.publish()


@LONG
@pytest.mark.parametrize("most", [SMALL, SPARK])
def test_invalid_text_is_refused_in_compared_sources(
    spark: SparkSession, table: SparkTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(row_staging, "SMALL_BATCH_ROWS", most)
    zone = Zone(tmp_path / "zone", table, changes="compare")
    hashes = RowHashTable(spark, Source(path=str(tmp_path / "hashes")), str(table.source))

    def compare() -> None:
        publish(FullCompare(spark, table.source, hashes), zone.store, zone.plan)

    compare()
    table.sql(f"INSERT INTO {{}} VALUES {row(3, v=BAD)}, {row(4, item=BAD)}")
    with pytest.raises(RowsRefusedError) as caught:
        compare()
    assert r"column 'v': 'a\xffb'" in str(caught.value)
    assert "id = 4, column 'nested'" in str(caught.value)
    table.sql("UPDATE {} SET v = make_valid_utf8(v) WHERE id = 3")
    table.sql("DELETE FROM {} WHERE id = 4")
    compare()
    assert [(each["id"], each["v"]) for each in zone.last] == [(3, "a\ufffdb")]
