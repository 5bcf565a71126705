"""Tables that are added, moved, cloned over or removed, or lose their folder or log, through the commands."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from fixtures.mirror import canonical
from mirrorfeed.cli import main
from tests.support.delta import DeltaTable


class Project:
    def __init__(self, folder: Path) -> None:
        self.config, self.landing, self.mirror = folder / "mirrorfeed.yml", folder / "landing", folder / "mirror"

    def configure(self, *targets: str, keys: str = "id") -> None:
        """Configure tables with these targets. The last part of a target is the name of the source folder."""
        tables = "".join(
            f"  - {{source: ./{target.split('.')[-1]}, target: {target}, keys: [{keys}]}}\n" for target in targets
        )
        self.config.write_text(f"landing_zone: landing\ntables:\n{tables}")

    def run(self, *arguments: str, code: int = 0) -> str:
        """Return the output of a command in one line."""
        result = CliRunner().invoke(main, [*arguments, "--config", str(self.config)], env={"COLUMNS": "400"})
        assert result.exit_code == code, result.output
        return " ".join(result.output.split())

    def verified(self, *targets: str) -> str:
        self.run("replicate", str(self.landing), str(self.mirror))
        return self.run("verify", *targets, "--mirror", str(self.mirror))

    def mirrors(self, table: DeltaTable, target: str) -> bool:
        """Compare the mirror with the current table, without Spark."""
        self.run("replicate", str(self.landing), str(self.mirror))
        mirror = DeltaTable.at(table.spark, self.mirror / target)
        return canonical(mirror.rows()) == canonical(table.rows())

    def content(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in self.landing.rglob("*") if path.is_file()}


@pytest.fixture
def project(spark: SparkSession, tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.fixture
def orders(spark: SparkSession, tmp_path: Path) -> DeltaTable:
    created = DeltaTable(spark, tmp_path / "orders")
    created.insert(1, 2)
    return created


def test_table_is_added_moved_to_another_schema_and_dropped(project: Project, orders: DeltaTable) -> None:
    project.configure("sales.orders")
    project.run("publish")
    lines = DeltaTable(orders.spark, orders.path.parent / "lines")
    lines.insert(1)
    project.configure("sales.orders", "sales.lines")
    added = project.run("publish")
    assert "snapshot to 1" in added
    assert "deleted" not in added
    assert "nothing new at 1" in added

    project.configure("shop.orders", "sales.lines")
    project.run("publish")
    assert "no longer selects: sales.orders" in project.run("status")
    assert project.mirrors(orders, "shop/orders")
    assert (project.mirror / "sales/orders").is_dir()
    project.run("drop", "sales.orders", "--yes")
    assert project.mirrors(lines, "sales/lines")
    assert not (project.mirror / "sales/orders/_delta_log").exists()


def test_deleted_folder_is_reloaded_and_deleted_log_stops_the_table(project: Project, orders: DeltaTable) -> None:
    project.configure("sales.orders")
    options = ("--ledger", str(project.landing.parent / "ledger"), "publish")
    assert "deleted" not in project.run(*options)
    assert project.mirrors(orders, "sales/orders")
    shutil.rmtree(project.landing / "sales.schema/orders")
    orders.sql("DELETE FROM {} WHERE id = 1")
    loaded = project.run(*options)
    assert "snapshot to 2" in loaded
    assert (
        "sales.orders: loaded from a snapshot: the ledger has earlier publications, but this landing zone has none."
        in loaded
    )
    assert project.mirrors(orders, "sales/orders")

    shutil.rmtree(project.landing / "sales.schema/orders/_mirrorfeed")
    before = project.content()
    for arguments in (["publish", "--dry-run"], ["publish"]):
        stopped = project.run(*arguments, code=1)
        assert "exists, but the table has no log. Another publisher writes to this folder," in stopped
    kept = {path: data for path, data in project.content().items() if path.name != "log.json"}
    assert {path: data for path, data in kept.items() if path.parent.name != "failures"} == before
    project.run("rebuild", "sales.orders", "--yes")
    assert project.mirrors(orders, "sales/orders")


@pytest.mark.slow
def test_missing_or_replaced_source_stops_the_table_until_rebuild(project: Project, orders: DeltaTable) -> None:
    project.configure("sales.orders")
    project.run("publish")
    other = DeltaTable(orders.spark, orders.path.parent / "other")
    other.insert(7)
    shutil.rmtree(orders.path)
    assert f"There is no Delta table at {orders.path}" in project.run("publish", code=1)
    orders.sql(f"CREATE TABLE {{}} SHALLOW CLONE {other.source.sql}")
    replaced = project.run("publish", code=1)
    assert "was dropped and created again, or its folder was restored from a copy, after version 1" in replaced
    assert "equal at version 0, 1 row" not in project.run("status", code=1)
    project.run("rebuild", "sales.orders", "--yes")
    orders.insert(8)
    project.run("publish")
    assert "equal at version 1, 2 rows" in project.verified()


@pytest.mark.soak  # as in `publish/test_delta_cases`
def test_emptied_source_that_is_cloned_over_keeps_publishing(project: Project, orders: DeltaTable) -> None:
    project.configure("sales.orders")
    project.run("publish")
    other = DeltaTable(orders.spark, orders.path.parent / "other")
    other.insert(2, 7)
    orders.sql("DELETE FROM {}")
    orders.sql(f"CREATE OR REPLACE TABLE {{}} SHALLOW CLONE {other.source.sql}")
    orders.insert(8)
    project.run("publish")
    assert "equal at version 4, 3 rows" in project.verified()


@pytest.mark.soak  # `publish/table_log/test_table_log` covers it without Spark
def test_keys_can_be_added_later_but_not_changed(project: Project, orders: DeltaTable) -> None:
    project.configure("sales.orders", keys="")
    project.run("publish")
    assert project.mirrors(orders, "sales/orders")
    orders.sql("UPDATE {} SET v = 'new' WHERE id = 1")
    assert "a table without keys accepts only inserts" in project.run("publish", code=1)
    project.configure("sales.orders")
    assert "1 upsert" in project.run("publish")
    assert "equal at version 2, 2 rows" in project.verified()
    orders.insert(3)
    project.configure("sales.orders", keys="v")
    changed = "The table has the keys 'v', but was published with the keys 'id'"
    assert changed in project.run("publish", code=1)
