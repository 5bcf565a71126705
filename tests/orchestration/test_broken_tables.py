"""A broken folder under a pattern is in trouble alone and by name, in every command and without Spark."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import deltalake
import pytest
import yaml
from pyspark.sql import SparkSession

import mirrorfeed
from mirrorfeed.api.feed import Feed
from mirrorfeed.api.results import Result
from mirrorfeed.source.table_info import commit_name
from tests.support.delta import DeltaTable

NEWEST = 3


def _empty_log(log: Path) -> None:
    for file in log.iterdir():
        file.unlink()


def _cut(log: Path) -> None:
    newest = log / commit_name(NEWEST)
    newest.write_bytes(newest.read_bytes()[:-20])


def _without(version: int) -> Callable[[Path], None]:
    return lambda log: (log / commit_name(version)).unlink()


class Case(NamedTuple):
    happen: Callable[[Path], None]
    code: str
    words: str


CASES: Mapping[str, Case] = {
    "not_ready": Case(_empty_log, "MF2009", "is not ready: its transaction log has no commit yet"),
    "cut": Case(_cut, "MF2005", f"{commit_name(NEWEST)} is damaged"),
    "hole": Case(_without(2), "MF2005", f"{commit_name(2)} is missing"),
}


def _no_spark(*_: object) -> Any:
    pytest.fail("Spark was started")


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound table and a broken one of each kind, once selected by a pattern, once excluded."""
    folder = tmp_path_factory.mktemp("broken")
    for prefix in ("", "tmp_"):
        for name in ("sound", *CASES):
            table = DeltaTable(spark, folder / "tables" / f"{prefix}{name}")
            for id_ in range(NEWEST):
                table.insert(id_)
            if case := CASES.get(name):
                case.happen(folder / "tables" / f"{prefix}{name}" / "_delta_log")
    entry = {"sources": "./tables/*", "exclude": ["tmp_*"], "target": "shop.{table}", "keys": ["id"]}
    text = yaml.safe_dump({"landing_zone": "./zone", "tables": [entry]})
    (folder / "mirrorfeed.yml").write_text(text, encoding="utf-8")
    first = mirrorfeed.load(folder / "mirrorfeed.yml", spark).publish()
    assert [row.table for row in first if row.ok] == ["shop.sound"]
    return folder


@pytest.mark.parametrize("command", ["sources", "publish", "dry_run", "status", "doctor", "check_alerts"])
def test_each_command_names_broken_tables_and_continues_without_spark(lake: Path, command: str) -> None:
    feed = Feed(mirrorfeed.load(lake / "mirrorfeed.yml")._config, _no_spark)
    result: Result[Any] = getattr(feed, command)()
    rows = [row for row in result.rows if row.to_dict().get("selected", True)]
    errors = {row.table: row.error for row in rows if getattr(row, "error", None)}
    if command in ("doctor", "check_alerts"):
        found = {row.table: (row.what, row.fix) for row in rows}
        assert {name: (case.words in found[f"shop.{name}"][0]) for name, case in CASES.items()} == dict.fromkeys(
            CASES, True
        )
        assert all(fix for _, fix in found.values())
    else:
        assert {name: errors[f"shop.{name}"].code for name in CASES} == {
            name: case.code for name, case in CASES.items()
        }
        assert all(case.words in str(errors[f"shop.{name}"]) for name, case in CASES.items())
        assert {row.table for row in rows} == {"shop.sound", *(f"shop.{name}" for name in CASES)}
    assert "shop.sound" not in errors
    assert "tmp_" not in str(rows)


def test_table_that_stops_as_in_the_last_run_needs_spark_only_once(spark: SparkSession, tmp_path: Path) -> None:
    tables = {name: DeltaTable(spark, tmp_path / "tables" / name) for name in ("key", "new", "replaced")}
    for table in tables.values():
        table.insert(1)
    tables_text = "tables: [{sources: ./tables/*, target: '{table}', keys: [id]}]\n"
    text = f"landing_zone: ./zone\nledger: ./ledger\non_replace: stop\n{tables_text}"
    file = tmp_path / "mirrorfeed.yml"
    file.write_text(text, encoding="utf-8")
    assert mirrorfeed.load(file, spark).publish().ok
    shutil.rmtree(tmp_path / "tables/replaced")
    spark.catalog.clearCache()
    DeltaTable(spark, tmp_path / "tables/replaced").insert(2)
    tables["key"].insert(2)
    entry = "{source: ./tables/key, target: key, keys: [v]}"
    file.write_text(text.replace("[{sources", f"[{entry}, {{sources"), encoding="utf-8")
    without_spark = Feed(mirrorfeed.load(file)._config, _no_spark)
    with pytest.raises(pytest.fail.Exception):
        without_spark.publish("key")  # the first time, Spark must decide
    failed = mirrorfeed.load(file, spark).publish()
    again = without_spark.publish()
    facts = ("table", "what", "published_version", "lag_versions", "tries", "ok")
    assert [[getattr(row, name) for name in facts] for row in again] == [
        [getattr(row, name) for name in facts] for row in failed
    ]
    codes = {row.table: row.error and row.error.code for row in again}
    assert codes == {"key": "MF3006", "new": None, "replaced": "MF2103"}
    stopped = [row for row in deltalake.DeltaTable(tmp_path / "ledger").to_pyarrow_table().to_pylist() if row["error"]]
    assert sorted(row["table"] for row in stopped) == ["key", "replaced"]
    file.write_text(text, encoding="utf-8")
    assert mirrorfeed.load(file, spark).publish("key").ok  # the error is gone, and its file as well
    assert [row.what for row in Feed(mirrorfeed.load(file)._config, _no_spark).publish("key")] == ["nothing new at 2"]


def test_keys_of_a_pattern_apply_to_a_table_whose_columns_are_unknown(lake: Path) -> None:
    """Otherwise a table that is repaired before it is published would take only inserts."""
    feed = mirrorfeed.load(lake / "mirrorfeed.yml")
    assert {table.keys for table in feed._current_config.tables} == {("id",)}
