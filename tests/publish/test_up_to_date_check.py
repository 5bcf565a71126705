"""Check many tables without Spark, and find those that need Spark."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from mirrorfeed.cli import main
from mirrorfeed.config import loader
from mirrorfeed.config.model import Config, zone_of
from mirrorfeed.errors import MirrorfeedError, TerminalError
from mirrorfeed.landing.names import data_name, log_folder, staged_name
from mirrorfeed.monitor.fact_collector import Collector
from mirrorfeed.monitor.findings import LogFacts, SourceFacts, TableFacts
from mirrorfeed.monitor.status import status_of
from mirrorfeed.orchestration.ledger_state import LedgerState, TableState
from mirrorfeed.orchestration.publish_run import publish_tables
from mirrorfeed.orchestration.run_context import Callbacks, RunContext
from mirrorfeed.orchestration.table_task import TableTask
from mirrorfeed.publish.change_sources import NO_SPARK
from mirrorfeed.publish.table_log import TableLog
from mirrorfeed.publish.table_result import TableResult
from mirrorfeed.runtime import spark_session
from mirrorfeed.source.table_info import commit_name
from tests.support.commits import commit
from tests.support.fleets import fleet

NOW = datetime.now(UTC)


class NoSpark(TerminalError):
    code = "MF1201"

    what = "Spark was started."
    fix = ""


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise NoSpark

    monkeypatch.setattr(spark_session, "get_session", refuse)


def all_up_to_date(config: Config) -> list[TableResult] | None:
    """Return the results of the check, or None if it needs Spark."""

    def refuse() -> Any:
        raise NoSpark

    problems: list[MirrorfeedError] = []
    try:
        results = publish_tables(RunContext(refuse, config, Callbacks(on_problem=problems.append)))
    except NoSpark:
        return None
    assert all("Spark was started" in str(problem) for problem in problems)
    return None if problems else results


def of_all(folder: Path, **options: Any) -> Config:
    return loader.load(fleet(folder, 3, more="ledger: ./ledger\n", **options))


def in_ledger(config: Config, *states: TableState) -> Config:
    """Store which publications the ledger has."""
    assert config.ledger is not None
    LedgerState(lambda: zone_of(config), config.ledger).update({each.table: each for each in states})
    return config


LEDGER_STATES = [TableState(f"sales.t{number}", False, NOW, None, 1, NOW) for number in range(3)]
TABLES = [each.table for each in LEDGER_STATES]


def test_up_to_date_tables_are_reported_without_spark_and_without_the_ledger(tmp_path: Path) -> None:
    outcomes = all_up_to_date(in_ledger(of_all(tmp_path), *LEDGER_STATES))
    assert outcomes is not None
    assert [(each.table, each.lag_versions, each.error) for each in outcomes] == [(table, 0, None) for table in TABLES]
    assert not (tmp_path / "ledger").exists()


@pytest.mark.parametrize(
    ("changed", "up_to_date"),
    [
        ({}, True),
        ({"stopped": True}, False),  # it works again
        ({"to_version": 0}, False),  # a run that was killed before it wrote to the ledger
        ({"table": "sales.gone"}, False),  # the first run with this ledger
    ],
)
def test_spark_is_needed_if_the_ledger_may_need_a_row(
    tmp_path: Path, changed: dict[str, Any], *, up_to_date: bool
) -> None:
    config = in_ledger(of_all(tmp_path), *LEDGER_STATES[:2], replace(LEDGER_STATES[2], **changed))
    assert (all_up_to_date(config) is not None) is up_to_date


def test_damaged_state_of_the_ledger_counts_as_missing(tmp_path: Path) -> None:
    config = in_ledger(of_all(tmp_path), *LEDGER_STATES)
    (file,) = (tmp_path / "zone/_mirrorfeed").glob("ledger_*.json")
    file.write_bytes(file.read_bytes()[:-9])
    assert all_up_to_date(config) is None


def test_one_table_with_new_commits_needs_spark(tmp_path: Path) -> None:
    assert all_up_to_date(in_ledger(of_all(tmp_path, behind=1), *LEDGER_STATES)) is None


def test_tables_that_need_spark_are_left_to_spark_without_an_error_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = of_all(tmp_path, behind=1)
    assert all_up_to_date(config) is None
    shutil.rmtree(tmp_path / "zone")  # then each table starts with a snapshot
    assert all_up_to_date(config) is None
    assert [record.getMessage() for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []


def test_publication_that_is_completed_before_a_stop_is_in_the_results(tmp_path: Path) -> None:
    """A run was killed before its rename, and rows have changed since. The next run completes the publication without
    Spark, and is stopped then."""
    config = of_all(tmp_path, behind=1)
    zone, folder = zone_of(config), config.tables[2].target.folder
    view = TableLog(zone, folder).read_view()
    assert view is not None
    assert view.newest is not None
    (file,) = view.newest.files
    renamed = f"{folder}/{data_name(file.number)}"
    zone.rename(renamed, f"{folder}/{log_folder(view.log_id)}/{file.staged}")
    context = RunContext(
        NO_SPARK, config, Callbacks(on_problem=lambda _: None, stop=(tmp_path / "zone" / renamed).exists)
    )
    (result,) = publish_tables(context, ["sales.t2"])
    assert (result.published_version, len(result.records), result.stopped) == (1, 1, True)


def test_refusal_without_spark_leaves_nothing_for_the_attempt_with_spark(tmp_path: Path) -> None:
    config = of_all(tmp_path)
    task = TableTask(RunContext(NO_SPARK, config), config.tables[0].model_copy(update={"keys": ("v",)}))
    assert task.attempt_without_spark() is None
    assert (task.result.latest, task.result.decision, task.result.seconds) == (None, "", 0.0)


def test_facts_of_a_table_that_needs_spark_are_left_to_spark_without_an_error_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = of_all(tmp_path)
    (tmp_path / "t0/_delta_log" / commit_name(0)).write_text("{}\n", encoding="utf-8")
    assert Collector(config, lambda: NO_SPARK)._without_spark(zone_of(config), config.tables[0]) is None
    assert [record.getMessage() for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []


def ran(*arguments: str) -> Any:
    result = CliRunner().invoke(main, [*arguments, "--json"])
    return result.exit_code, json.loads(result.stdout)


def test_check_alerts_for_up_to_date_tables_does_not_start_spark(tmp_path: Path) -> None:
    file = str(fleet(tmp_path, 2))
    code, output = ran("check-alerts", "--config", file)
    assert (code, output["rows"]) == (0, [])
    assert [row["state"] for row in ran("status", "--config", file)[1]["rows"]] == ["up to date"] * 2
    commit(tmp_path / "t1", "INSERT INTO {} VALUES (1000, 'new')")
    assert ran("check-alerts", "--config", file) == (0, {"ok": True, "rows": [], "notes": []})
    code, output = ran("check-alerts", "--deep", "--config", file)
    assert (code, output["error"]["what"]) == (1, "Spark was started.")


def test_too_long_text_is_found_without_spark(tmp_path: Path) -> None:
    file = str(fleet(tmp_path, 1, longest=17 * 2**20))
    code, output = ran("check-alerts", "--deep", "--config", file)
    (problem,) = output["rows"]
    assert (code, problem["name"], problem["table"]) == (1, "TEXT_TOO_LONG", "sales.t0")
    assert "'v' has a value of 17,825,792 bytes" in problem["what"]
    code, output = ran("check-alerts", "--config", file)  # the version was measured
    assert (code, [each["name"] for each in output["rows"]]) == (0, ["TEXT_TOO_LONG"])


def test_staged_files_of_a_killed_run_are_deleted_without_spark(tmp_path: Path) -> None:
    config = in_ledger(of_all(tmp_path), *LEDGER_STATES)
    zone, folder = zone_of(config), config.tables[0].target.folder
    view = TableLog(zone, folder).read_view()
    assert view is not None
    log = f"{folder}/{log_folder(view.log_id)}"
    zone.create(f"{log}/{staged_name(view.number, '0' * 32, '1' * 32)}", b"rows")
    before = len(zone.list(log))
    assert all_up_to_date(config) is not None
    assert len(zone.list(log)) == before - 1


def test_paused_table_is_skipped_and_shown_with_reason_and_end(tmp_path: Path) -> None:
    file = fleet(tmp_path, 2, behind=1)
    written = yaml.safe_load(file.read_text())
    written["tables"][1]["paused"] = {"reason": "its source is loaded anew", "until": "2999-01-31 18:00"}
    file.write_text(yaml.safe_dump(written))
    output = "paused until 2999-01-31 18:00 UTC: its source is loaded anew"
    code, published = ran("publish", "--config", str(file))
    assert (code, [each["table"] for each in published["rows"]]) == (0, ["sales.t0"])
    assert published["notes"] == [f"sales.t1: {output}"]
    for more in ([], ["--dry-run"]):
        result = CliRunner().invoke(main, ["publish", "sales.t1", *more, "--config", str(file)])
        assert (result.exit_code, output in " ".join(result.output.split())) == (0, True)
    code, decided = ran("publish", "--dry-run", "sales.t1", "--config", str(file))
    assert (code, decided["rows"]) == (0, [{"table": "sales.t1", "next": output, "error": None, "delivery": None}])
    published = LogFacts(published=1)
    found = TableFacts("t", "t", paused=output, log_facts=published, source_facts=SourceFacts("on", newest_version=2))
    assert [status_of(each).state for each in (found, replace(found, paused=None))] == ["paused", "behind"]
    (second,) = loader.load(file).select(["sales.t1"])
    assert str(second.pause_at(NOW)) == output


def test_nothing_is_written_to_the_ledger_if_all_tables_are_paused(tmp_path: Path) -> None:
    file = fleet(tmp_path, 2, more="ledger: ./ledger\n")
    written = yaml.safe_load(file.read_text())
    for table in written["tables"]:
        table["paused"] = {"reason": "loaded anew", "until": "2999-01-31"}
    file.write_text(yaml.safe_dump(written))
    code, published = ran("publish", "--config", str(file))
    assert (code, published["rows"]) == (0, [])


def test_log_command_reports_a_file_consumed_by_fabric(tmp_path: Path) -> None:
    file = str(fleet(tmp_path, 1))
    folder = tmp_path / "zone" / "sales.schema" / "t0"
    (data,) = folder.glob("*.parquet")
    result = CliRunner().invoke(main, ["log", "sales.t0", "--config", file])
    assert result.exit_code == 0
    assert [line for line in result.output.splitlines() if line.startswith(str(data))] == [
        f"{data}: the file, {data.stat().st_size:,} bytes, with the checksum of the record"
    ]
    (folder / "_ProcessedFiles").mkdir()
    data.rename(folder / "_ProcessedFiles" / data.name)
    result = CliRunner().invoke(main, ["log", "sales.t0", "--config", file])
    assert result.exit_code == 0
    assert result.output.splitlines()[-1] == f"{data}: consumed and removed by Fabric"
    assert "not there" not in result.output
