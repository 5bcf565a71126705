"""What `init --from` reports about the tables of a schema, a catalog or a folder, and what it needs for that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from databricks.sdk.errors import PermissionDenied
from databricks.sdk.service.catalog import (
    ColumnInfo,
    DataSourceFormat,
    PrimaryKeyConstraint,
    SchemaInfo,
    TableConstraint,
    TableInfo,
    TableRowFilter,
    TableType,
)
from pyspark.sql import SparkSession

from mirrorfeed.config.errors import nothing_matches
from mirrorfeed.orchestration.table_survey import NO_KEYS, SurveyedTable, no_tables_found, parse_place, survey_tables
from mirrorfeed.source.identifier import Pattern
from tests.raised import raises
from tests.support.delta import FEED

KEY = TableConstraint(primary_key_constraint=PrimaryKeyConstraint(name="pk", child_columns=["id"]))
COLUMNS = [ColumnInfo(name="id", type_text="bigint"), ColumnInfo(name="price", type_text="double")]


def delta(name: str, **facts: Any) -> TableInfo:
    facts = {"table_type": TableType.MANAGED, "data_source_format": DataSourceFormat.DELTA, **facts}
    return TableInfo(name=name, columns=COLUMNS, **facts)


class Workspace:
    """Fake workspace with one schema, main.sales. A table can be replaced by the error of its entry."""

    def __init__(self, *tables: TableInfo, **errors: Exception) -> None:
        self._tables, self._errors = tables, errors

    @property
    def schemas(self) -> Workspace:
        return self

    tables = api_client = schemas

    def do(self, *_: Any, **__: Any) -> dict[str, Any]:
        return {}  # no policies

    def list(self, catalog_name: str, schema_name: str | None = None) -> Iterator[Any]:
        return iter(self._tables if schema_name else [SchemaInfo(name="sales")])

    def get(self, full_name: str) -> TableInfo:
        name = full_name.rpartition(".")[2]
        if name in self._errors:
            raise self._errors[name]
        return next(each for each in self._tables if each.name == name)


def no_spark() -> SparkSession:
    raise AssertionError("Spark was started")


def survey(place: str, *tables: TableInfo, keys: tuple[str, ...] | None = None, **errors: Exception) -> Any:
    rows = survey_tables(parse_place(place), keys, no_spark, lambda: Workspace(*tables, **errors))  # type: ignore[arg-type]
    return {row.source.rpartition(".")[2]: row for row in rows}


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("main.sales", "main.sales.*"),
        ("main", "main.*.*"),
        ("main.`my.schema`", "main.`my.schema`.*"),
        ("main.fact_*.*", "main.fact_*.*"),
        ("sales.*", "sales.*"),
        ("/lake/sales", "/lake/sales/*"),
        ("/lake/sales/", "/lake/sales/*"),
        ("/lake/*/*", "/lake/*/*"),
    ],
)
def test_place_is_a_schema_a_catalog_a_folder_or_a_pattern(text: str, pattern: str) -> None:
    assert str(parse_place(text)) == pattern


def test_folder_may_be_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tables").mkdir()
    assert {str(parse_place(text)) for text in ("tables", "./tables", "tables/")} == {f"{tmp_path}/tables/*"}
    assert str(parse_place(".")) == f"{tmp_path}/*"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("main.sales.orders", "'main.sales.orders' is a single table"),
        ("s3://lake/sales", "is a URI"),
    ],
)
def test_other_places_are_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_place(text)


def test_tables_of_unity_catalog_have_the_decisions_of_a_publication() -> None:
    found = survey(
        "main.sales",
        delta("orders", table_constraints=[KEY], properties={FEED: "true"}),
        delta("lines", properties={"delta.minReaderVersion": "1"}),
        delta("cards", table_constraints=[KEY], row_filter=TableRowFilter(function_name="f", input_column_names=[])),
        delta("prices", table_constraints=[KEY]),
        delta("seen", table_type=TableType.VIEW),
        delta("hidden"),
        hidden=PermissionDenied("not yours"),
    )
    names = ("id", "price")
    assert found["orders"] == SurveyedTable("main.sales.orders", "sales.orders", "on", None, ("id",), "", names)
    assert found["lines"] == SurveyedTable("main.sales.lines", "sales.lines", "off", None, None, NO_KEYS, names)
    assert found["lines"].lacks_only_keys
    assert found["cards"].decision.startswith("main.sales.cards has the row filter f.")
    assert not found["cards"].lacks_only_keys
    assert (found["prices"].feed, found["prices"].decision) == (None, "")
    assert found["seen"] == SurveyedTable("main.sales.seen", decision="is a view, which has no change data feed")
    assert "not yours" in found["hidden"].decision


@pytest.mark.parametrize(
    ("keys", "chosen", "decision"),
    [(("ID",), ("id",), ""), (("nr",), None, NO_KEYS), (("price",), None, "price")],
)
def test_given_keys_apply_to_tables_with_these_columns(
    keys: tuple[str, ...], chosen: tuple[str, ...] | None, decision: str
) -> None:
    row = survey("main.sales", delta("lines"), keys=keys)["lines"]
    assert (row.keys, decision in row.decision) == (chosen, True)


def test_tables_of_a_folder_are_listed_without_spark(tmp_path: Path) -> None:
    rows = pa.table({"id": [1], "v": ["a"]})
    deltalake.write_deltalake(tmp_path / "lake/orders", rows, configuration={FEED: "true"})
    deltalake.write_deltalake(tmp_path / "lake/lines", rows)
    lines, orders = survey_tables(parse_place(f"{tmp_path}/lake"), ("id",), no_spark)
    assert (lines.target, lines.feed, lines.keys, lines.decision) == ("lines", "off", ("id",), "")
    assert (orders.target, orders.feed, orders.columns) == ("orders", "on", ("id", "v"))
    assert (orders.bytes or 0) > 0
    (row, _) = survey_tables(Pattern.parse(f"{tmp_path}/*/*"), None, no_spark)
    assert (row.target, row.keys, row.decision) == ("lake.lines", None, NO_KEYS)


def test_place_without_tables_is_an_error(tmp_path: Path) -> None:
    with raises(no_tables_found) as caught:
        survey_tables(parse_place(f"{tmp_path}/."), None, no_spark)
    assert caught.value.place == f"{tmp_path}/*"
    with raises(nothing_matches, match="is a view"):
        survey("main.sales", delta("seen", table_type=TableType.VIEW))
