"""The report without a ledger, from the logs in a landing zone."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from mirrorfeed.config.model import Config
from mirrorfeed.monitor.log_report import NO_LEDGER, read_log_report
from mirrorfeed.publish import table_publisher
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.source.identifier import Source
from mirrorfeed.storage.local_folder import FolderStore
from tests.support.entries import entry
from tests.support.tables import Table, TableFeed


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Two published tables, one with a new commit, one that was never published, and an adopted one."""
    tables, now = [], datetime.now(UTC)
    for name, ages in {"orders": (31.0, 3.0, 0.5), "lines": (2.0,), "new": (), "taken": (0.5,)}.items():
        source = tmp_path / name
        deltalake.write_deltalake(source, pa.table({"id": [1]}), configuration={"delta.enableChangeDataFeed": "true"})
        id_ = str(deltalake.DeltaTable(source).metadata().id)
        for _ in ages:
            deltalake.write_deltalake(source, pa.table({"id": [2]}), mode="append")
        rows = Table({"id": "long"}, ("id",), id_)
        table = entry(Source(path=str(source)), f"sales.{name}", validate_keys="none")
        for number, age in enumerate(ages):
            rows.insert({"id": number})
            at = now - timedelta(days=age)
            monkeypatch.setattr(table_publisher, "utc_now", lambda at=at: at)
            publish(TableFeed(rows), FolderStore(str(tmp_path / "zone")), table)
        tables.append(table)
    (record,) = (tmp_path / "zone/sales.schema/taken/_mirrorfeed").glob("*/*.json")
    record.write_text(json.dumps(json.loads(record.read_text(encoding="utf-8")) | {"files": []}), encoding="utf-8")
    deltalake.write_deltalake(tmp_path / "lines", pa.table({"id": [3]}), mode="append")
    return Config(landing_zone=str(tmp_path / "zone"), tables=tuple(tables))


def no_spark(*_: Any) -> Any:
    raise AssertionError("tables in local folders need no Spark")


def test_report_without_a_ledger_has_states_and_the_publications_of_the_logs(config: Config) -> None:
    report = read_log_report(no_spark, config)
    found = report.to_dict()
    assert [(row["table"], row["state"], row["published_version"], row["lag_versions"]) for row in found["tables"]] == [
        ("sales.orders", "published", 3, 0),
        ("sales.lines", "published", 1, 1),
        ("sales.new", None, None, None),
        ("sales.taken", "adopted", 1, 0),
    ]
    assert found["tables"][3]["last_published"] is None
    assert [(row["publications"], row["inserts"], row["upserts"]) for row in found["days"]] == [
        (1, 0, 1),
        (1, 1, 0),
        (1, 0, 1),
    ]
    (totals,) = found["totals"]
    assert (totals["tables"], totals["stopped"], totals["publications"], totals["rows"]) == (4, 0, 1, 1)
    assert (totals["different"], totals["retries"]) == (None, None)
    assert [row["table"] for row in found["freshness"]] == [
        "sales.orders",
        "sales.lines",
        "sales.new",
        "sales.taken",
    ]
    assert found["note"] == NO_LEDGER
    assert (found["archive"], found["failures"], found["on_time"]) == ([], [], [])


def test_page_and_text_without_a_ledger_say_what_is_missing(config: Config) -> None:
    report = read_log_report(no_spark, config)
    page = report.page()
    assert NO_LEDGER in page
    assert "Rows per day by operation" in page
    assert "Lag from commit to publication" not in page
    assert "Seconds per day by phase" not in page
    assert NO_LEDGER in repr(report)
    assert NO_LEDGER not in repr(replace(report, note=""))
