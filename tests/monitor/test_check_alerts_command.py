"""The `check-alerts` command: one message when a problem starts, one when it ends, and lag rows in the ledger."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from mirrorfeed.cli import main
from mirrorfeed.config import loader
from mirrorfeed.monitor.freshness import Step
from mirrorfeed.monitor.status import read_status
from mirrorfeed.orchestration import ledger
from tests.monitor.conftest import Hook
from tests.support.delta import DeltaTable
from tests.support.ledgers import read_ledger


class Project:
    def __init__(self, folder: Path) -> None:
        self.file, self.mirror = folder / "mirrorfeed.yml", str(folder / "mirror")
        self.file.write_text(
            "landing_zone: ./zone\nledger: ./ledger\n"
            "alerts: {webhooks: [{name: team, kind: slack, url: {env: HOOK}}]}\n"
            "tables: [{source: ./orders, target: sales.orders, keys: [id]}]\n"
        )

    def run(self, *arguments: str, code: int = 0) -> str:
        found = CliRunner().invoke(main, [*arguments, "--config", str(self.file)])
        assert found.exit_code == code, found.output
        return found.stdout

    def watch(self, *options: str, code: int = 0) -> str:
        return self.run("check-alerts", "--mirror", self.mirror, *options, code=code)


def test_status_shows_each_step_and_check_alerts_sends_a_problem_once(
    spark: SparkSession, tmp_path: Path, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK", hook.url)
    project, table = Project(tmp_path), DeltaTable(spark, tmp_path / "orders")
    table.insert(1)
    loaded = loader.load(project.file)

    def waits() -> set[Step]:
        (found,), _, _ = read_status(lambda: spark, loaded, mirror=project.mirror)
        assert found.freshness
        return set(found.freshness.since)

    assert waits() == set()
    project.run("publish")
    assert waits() == {Step.MIRRORED}
    output = json.loads(project.run("status", "--mirror", project.mirror, "--json"))["rows"][0]["freshness"]
    assert output["waiting_since"]["mirrored"] == output["published"]
    assert output["waiting_since"]["published"] is None
    project.run("replicate", str(tmp_path / "zone"), project.mirror)
    assert waits() == set()

    foreign = tmp_path / "zone/sales.schema/orders" / f"{2:020d}.parquet"
    foreign.write_bytes(b"")
    assert "sales.orders: EMPTY_FILE" in project.watch(code=1)
    first = [body["blocks"][0]["text"]["text"] for _, body in hook.requests]
    assert sorted(first) == ["sales.orders: EMPTY_FILE", "sales.orders: FileNumberConflict"]

    foreign.unlink()
    hook.answers = [(200, {}, b"ok"), (404, {}, b"no_service")]
    output = json.loads(project.watch("--json", code=1))  # because one message was not sent
    first, second, failed = output["rows"]
    assert sorted(each["sent_to"] for each in (first, second)) == [["output"], ["output", "team"]]
    assert all(each["resolved_at"] for each in (first, second))
    assert (failed["name"], failed["error"]["code"]) == ("team", "MF8104")

    assert loaded.ledger
    rows = [row for row in read_ledger(spark, loaded.ledger) if row.outcome == ledger.WATCHED]
    assert [row.table for row in rows] == ["sales.orders"] * 2
    assert all(row.committed_at and row.published_at and row.mirrored_at for row in rows)
    assert {(row.published_lag_seconds, row.mirrored_lag_seconds, row.queryable_lag_seconds) for row in rows} == {
        (0.0, 0.0, None)
    }
    table.insert(2)
    assert waits() == {Step.PUBLISHED}
