"""Every command over sources that are compared: a folder of Parquet files, and a Delta table without a feed."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from mirrorfeed.cli import main
from mirrorfeed.config import load
from mirrorfeed.publish.compared import NeedsFeed
from mirrorfeed.publish.follow import SparkRuns, follow

CONFIG = """
landing_zone: ./landing
ledger: ./ledger
changes: compare
tables:
  - {source: ./files, target: sales.orders, keys: [id]}
  - {source: ./plain, target: sales.customers, keys: [id]}
"""


class Project:
    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark, self.root, self.config = spark, root, root / "mirrorfeed.yml"
        self.config.write_text(CONFIG, encoding="utf-8")

    def write(self, rows: dict[int, str]) -> None:
        """A file instead of all that are there."""
        shutil.rmtree(self.root / "files", ignore_errors=True)
        (self.root / "files").mkdir()
        pq.write_table(_table(rows), self.root / "files" / f"{uuid.uuid4()}.parquet")

    def run(self, *arguments: str, code: int = 0) -> str:
        found = CliRunner().invoke(main, [*arguments, "--config", str(self.config)], catch_exceptions=False)
        assert found.exit_code == code, found.output
        return " ".join(found.output.split())

    def json(self, *arguments: str, code: int = 0) -> Any:
        asked = [*arguments, "--json", "--config", str(self.config)]
        found = CliRunner().invoke(main, asked, catch_exceptions=False)
        assert found.exit_code == code, found.output
        return json.loads(found.stdout)


def _table(rows: dict[int, str]) -> pa.Table:
    return pa.table([list(rows), list(rows.values())], pa.schema({"id": pa.int32(), "v": pa.string()}))


@pytest.fixture
def project(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("COLUMNS", "250")
    made = Project(spark, tmp_path)
    made.write({1: "a", 2: "b", 3: "c"})
    deltalake.write_deltalake(tmp_path / "plain", _table({7: "x"}))
    return made


def test_every_command_knows_a_source_that_is_compared(project: Project) -> None:
    """It takes long, for it runs some twenty commands."""
    assert "sales.orders: snapshot at version 0, by comparison" in project.run("publish", "--dry-run")
    assert not list(project.root.glob("hashes_*"))
    assert "none: all of it is compared each time" in project.run("enable")
    assert {row["outcome"] for row in project.json("publish")} == {"published"}
    mirror = str(project.root / "mirror")

    def replicate() -> None:
        asked = ["replicate", str(project.root / "landing"), mirror]
        assert CliRunner().invoke(main, asked, catch_exceptions=False).exit_code == 0

    replicate()
    assert "sales.orders: equal to the source as it is now, 3 rows" in project.run(
        "verify", "sales.orders", "--mirror", mirror
    )
    project.write({1: "a", 2: "new", 4: "d"})
    told = project.run("verify", "sales.orders", "--mirror", mirror, code=1)
    assert "sales.orders: DIFFERENT from the source as it is now: 3 rows in the source, 3 in the mirror" in told
    assert "sales.orders: version 1, by comparison" in project.run("publish", "--dry-run")
    orders, customers = project.json("publish")
    assert (orders["upserts"], orders["deletes"], orders["to_version_inclusive"]) == (2, 1, 1)
    assert (customers["upserts"], customers["files"], customers["outcome"]) == (0, 0, "well")
    replicate()
    assert project.run("verify", "--mirror", mirror).count("equal to the source as it is now") == 2

    said = project.run("status")
    assert "2 tables: 2 as last compared" in said
    assert "none: all of it is compared each time, 3 rows in" in said
    (row, _) = project.json("status")
    assert (row["published_version"], row["newest_version"], row["lag_versions"], row["error"]) == (1, None, None, None)
    assert "version 1, 3 rows compared" in project.run("log", "sales.orders")
    assert "Nothing is wrong, " in project.run("doctor")
    refused = project.run("repair", "sales.orders", "--mirror", mirror, code=1)
    assert "is published by comparison (`changes: compare`), and to repair its mirror takes a feed" in refused
    rebuilt = project.run("rebuild", "sales.orders", "--yes")
    assert "sales.orders" in rebuilt
    replicate()
    assert "equal to the source as it is now" in project.run("verify", "sales.orders", "--mirror", mirror)
    looked = CliRunner().invoke(main, ["preflight", "--config", str(project.config)]).output
    assert f"rows of {project.root / 'files'}, which are compared" in " ".join(looked.split())


def test_what_needs_a_feed_is_refused_by_name(project: Project) -> None:
    config = load(str(project.config))
    with pytest.raises(NeedsFeed) as refused:
        follow(config.tables, SparkRuns(project.spark, config, lambda: True), stop=lambda: True)
    assert str(refused.value) == (
        f"{project.root / 'files'} is published by comparison (`changes: compare`), and to follow it takes a feed of"
        " changes. `mirrorfeed publish` compares it as often as it runs; `mirrorfeed rebuild` starts it again."
    )
