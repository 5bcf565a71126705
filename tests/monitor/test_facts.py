"""Facts and findings of real tables, and the fixes of `doctor`."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import deltalake
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from fixtures.faults import Crash
from fixtures.onelake import DATABASE, WORKSPACE, OneLake
from fixtures.shared_faults import NoRenames
from mirrorfeed.cli import main
from mirrorfeed.config.connections import Alerts
from mirrorfeed.config.loader import load
from mirrorfeed.config.printed_commands import name_config
from mirrorfeed.mirror.fabric.status_and_settings import TableState
from mirrorfeed.monitor import fact_collector
from mirrorfeed.monitor.alerts import check_alerts
from mirrorfeed.monitor.doctor import check_of, diagnose
from mirrorfeed.monitor.fact_collector import Collector, database_facts, longest_text
from mirrorfeed.monitor.findings import DatabaseFacts, TableFacts
from mirrorfeed.monitor.problem_rules import NOTHING, database_findings, table_findings
from mirrorfeed.publish.change_sources.delta_feed import DeltaFeed
from tests.support.commits import write_checksum
from tests.support.delta import DeltaTable, Zone
from tests.support.entries import FOLDER


def names(facts: TableFacts) -> list[str]:
    return [each.name for each in table_findings(facts)]


class CheckedTable:
    def __init__(self, zone: Zone) -> None:
        self.zone, self.table, self.spark, self.folder = zone, zone.table, zone.table.spark, zone.root.parent
        self.file = str(self.folder / "mirrorfeed.yml")
        self.nothing = name_config(NOTHING, self.file)
        self.zone.root.mkdir(exist_ok=True)
        self.configure("id")

    def configure(self, key: str) -> None:
        text = f"landing_zone: ./landing\ntables:\n  - {{source: ./t, target: sales.orders, keys: [{key}]}}\n"
        Path(self.file).write_text(text, encoding="utf-8")
        self.config = load(self.file)

    def facts(self, *states: TableState, now: datetime | None = None) -> TableFacts:
        """Collect facts. Fabric's status is included only if `states` are given."""
        moment = now or datetime.now(UTC)
        collector = Collector(self.config, lambda: self.spark, True, states or None, now=lambda: moment)
        return collector.collect(self.config.tables)[0]

    def codes(self) -> list[str]:
        return names(self.facts())

    def doctor(self, *options: str, code: int = 0) -> str:
        found = CliRunner().invoke(main, ["doctor", *options, "--config", self.file], env={"COLUMNS": "400"})
        assert found.exit_code == code, found.output
        return found.stdout


@pytest.fixture
def checked(spark: SparkSession, tmp_path: Path) -> CheckedTable:
    return CheckedTable(Zone(tmp_path / "landing", DeltaTable(spark, tmp_path / "t")))


@pytest.fixture(scope="module")
def published_once(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Zone:
    folder = tmp_path_factory.mktemp("begun")
    zone = Zone(folder / "landing", DeltaTable(spark, folder / "t"))
    zone.publish()
    return zone


@pytest.fixture
def published(published_once: Zone, tmp_path: Path) -> CheckedTable:
    """An empty table, published at version 0."""
    return CheckedTable(Zone.copied(published_once, tmp_path))


def test_new_table_goes_from_not_published_to_no_findings(checked: CheckedTable) -> None:
    checked.table.insert(1)
    assert checked.codes() == ["NOT_PUBLISHED"]
    checked.zone.store.create(f"{FOLDER}/_metadata.json", b'{"keyColumns": ["id"]}')
    assert checked.codes() == ["NOT_PUBLISHED", "EMPTY_TABLE"]
    checked.zone.publish()
    assert checked.nothing in checked.doctor()


@pytest.mark.slow
def test_table_that_delta_rs_cannot_read_is_checked_with_spark(
    published: CheckedTable, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise ValueError("nested")

    monkeypatch.setattr(fact_collector, "longest_local_text", fails)
    assert published.facts().errors == ()
    assert caplog.records == []


def test_doctor_fix_completes_a_killed_run_and_removes_leftovers(published: CheckedTable) -> None:
    checked = published
    checked.table.insert(1)
    checked.zone.store = NoRenames(str(checked.zone.root))
    with pytest.raises(Crash):
        checked.zone.publish()
    (log,) = checked.zone.folder.glob("_mirrorfeed/*/")
    (log / f"{1:020d}-ab-00000-00000.parquet").write_bytes(b"left")
    found = json.loads(checked.doctor("--json", code=1))
    fix = f"mirrorfeed doctor sales.orders --fix --config {checked.file}"
    assert [(each["name"], each["fix"]) for each in found["rows"]] == [("UNFINISHED", fix), ("ORPHANS", fix)]
    output = checked.doctor("--fix")
    assert "sales.orders: fixed." in output
    assert checked.nothing in output
    assert checked.zone.mirrors_the_table()


def test_longest_text_of_a_small_table_is_measured(checked: CheckedTable) -> None:
    checked.table.sql("INSERT INTO {} VALUES (1, repeat('ä', 4500)), (2, NULL)")
    checked.zone.publish()
    facts = checked.facts()
    assert facts.source_facts.longest_text == ("v", 9000)
    assert names(facts) == []


def test_checks_read_the_rows_of_a_source_once_for_each_version(
    published: CheckedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Counter[str]()

    def counted(owner: Any, name: str) -> None:
        original = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *given: [read.update([name]), original(*given)][1])

    counted(fact_collector, "longest_local_text")
    counted(fact_collector, "longest_text")
    counted(DeltaFeed, "bad_keys")

    def check(*, needs_spark: bool = False) -> None:
        session = lambda: published.spark if needs_spark else pytest.fail("Spark")  # noqa: E731
        check_alerts(session, published.config, None, deep=True)

    check()
    check()
    diagnose(lambda: pytest.fail("Spark"), published.config)
    assert read == {"longest_local_text": 1}
    published.table.insert(1)
    check(needs_spark=True)  # for the keys of the unpublished version
    assert read == {"longest_local_text": 2, "bad_keys": 1}
    check()
    assert read == {"longest_local_text": 2, "bad_keys": 1}
    (published.zone.root / "_mirrorfeed/measured.json").write_text("damaged")
    check(needs_spark=True)
    assert read == {"longest_local_text": 3, "bad_keys": 2}


@pytest.mark.slow
def test_nested_values_are_measured_as_json(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "t", "`a.b` int, n struct<x: string>, m map<string, int>")
    assert longest_text(spark, table.source) is None
    table.sql("INSERT INTO {} VALUES (1, named_struct('x', 'yy'), map('k', 7))")
    assert longest_text(spark, table.source) == ("n", len('{"x":"yy"}'))
    assert longest_text(spark, DeltaTable(spark, tmp_path / "numbers", "id int").source) is None


def _keys(checked: CheckedTable) -> None:
    checked.configure("v")


def _gap(checked: CheckedTable) -> None:
    checked.table.set_feed(False)
    checked.table.set_feed(True)


def _recreated(checked: CheckedTable) -> None:
    shutil.rmtree(checked.table.path)
    checked.spark.catalog.clearCache()
    DeltaTable(checked.spark, checked.table.path)


def _another_file(checked: CheckedTable) -> None:
    (checked.zone.folder / f"{9:020d}.parquet").write_bytes(b"PAR1")


def _lost(checked: CheckedTable) -> None:
    checked.table.insert(1)
    checked.zone.publish()
    (checked.zone.folder / f"{2:020d}.parquet").unlink()


def _delete_all_files(checked: CheckedTable) -> None:
    (checked.zone.folder / f"{1:020d}.parquet").unlink()


def _no_bytes(checked: CheckedTable) -> None:
    (checked.zone.folder / f"{1:020d}.parquet").write_bytes(b"")


def _unreadable(checked: CheckedTable) -> None:
    (record,) = checked.zone.folder.glob("_mirrorfeed/*/*.json")
    record.write_text("{", encoding="utf-8")


def _renamed(checked: CheckedTable) -> None:
    checked.table.sql("ALTER TABLE {} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    checked.zone.publish()
    checked.table.sql("ALTER TABLE {} RENAME COLUMN v TO w")


def _delete_table(checked: CheckedTable) -> None:
    shutil.rmtree(checked.table.path)


@pytest.mark.parametrize(
    ("happen", "codes"),
    [
        pytest.param(_keys, ["KeysChanged"], marks=pytest.mark.slow),
        (_gap, ["FeedGap"]),
        (_recreated, ["SourceRecreated"]),
        pytest.param(_another_file, ["FileNumberConflict"], marks=pytest.mark.slow),
        pytest.param(_lost, ["PublishedFilesLost"], marks=pytest.mark.slow),
        (_delete_all_files, ["LastFileMissing"]),
        (_no_bytes, ["EMPTY_FILE"]),
        pytest.param(_unreadable, ["DamagedFile"], marks=pytest.mark.slow),
        pytest.param(_renamed, ["IncompatibleSchema"], marks=pytest.mark.slow),
        (_delete_table, ["NoTableAtPath"]),
    ],
)
def test_changes_to_a_table_are_found(
    published: CheckedTable, happen: Callable[[CheckedTable], None], codes: list[str]
) -> None:
    happen(published)
    assert published.codes() == codes


def test_problems_of_a_replaced_source_are_not_resolved(published: CheckedTable) -> None:
    _recreated(published)
    found = check_of(DatabaseFacts(), [published.facts()], Alerts())
    assert [each.name for each in found.problems.values()] == ["SourceRecreated"]
    assert found.is_unknown(("sales.orders", "RETENTION_SHORT"))


def test_disabled_feed_and_clone_are_found(checked: CheckedTable, tmp_path: Path) -> None:
    checked.table.insert(1)
    clone = DeltaTable.cloned(checked.table, tmp_path / "clone", version=1)
    checked.table.set_feed(False)
    assert checked.codes() == ["FeedOff"]
    text = "landing_zone: ./landing\ntables:\n  - {source: ./clone, target: sales.orders, keys: [id]}\n"
    (tmp_path / "mirrorfeed.yml").write_text(text, encoding="utf-8")
    found = json.loads(checked.doctor("--json", "--deep"))
    assert [each["name"] for each in found["rows"]] == ["NOT_PUBLISHED", "CLONED"]
    assert (
        f"The source is a clone of delta.`file:{checked.table.path}`" in found["rows"][1]["what"]
        or str(checked.table.path) in found["rows"][1]["what"]
    )
    assert clone.latest == 0


@pytest.mark.slow
def test_too_short_retention_is_found(published: CheckedTable) -> None:
    def judged_at(facts: TableFacts, *lags: float) -> list[list[str]]:
        """Findings for each lag, in days."""
        behind = [replace(facts.source_facts, lag_seconds=days * 86_400) for days in lags]
        return [names(replace(facts, source_facts=each)) for each in behind]

    published.table.insert(1)
    facts = published.facts(now=datetime.now(UTC) + timedelta(days=5))
    assert facts.source_facts.lag_seconds == pytest.approx(5 * 86_400, abs=60)
    assert judged_at(facts, 0.01, 5, 8) == [[], ["FALLS_BEHIND"], ["RETENTION_SHORT"]]
    long = {"delta.deletedFileRetentionDuration": "interval 30 days"}
    deltalake.DeltaTable(published.table.path).alter.set_table_properties(long)
    write_checksum(published.table.commit_file(published.table.latest))
    assert judged_at(published.facts(), 5, 40) == [[], ["RETENTION_SHORT", "LOG_RETENTION_SHORT"]]


def test_fabric_problems_of_a_table_are_found(published: CheckedTable) -> None:
    later = datetime.now(UTC) + timedelta(hours=2)
    facts = published.facts(TableState("sales.orders", "Snapshotting"), now=later)
    assert names(facts) == ["STUCK_SNAPSHOTTING"]
    assert names(replace(facts, service=None)) == ["NEVER_SYNCS"]
    throttled = TableState("sales.orders", "Failed", None, "Throttled: the capacity's limit is exceeded")
    assert names(replace(facts, service=throttled)) == ["THROTTLED"]


def test_fabric_problems_of_the_database_are_found(tmp_path: Path, onelake: OneLake) -> None:
    text = onelake.configuration(f"onelake://{WORKSPACE}/{DATABASE}")
    tables = "tables:\n  - {source: ./t, target: sales.orders, keys: [id]}\n"
    (tmp_path / "mirrorfeed.yml").write_text(text + tables, encoding="utf-8")
    config = load(str(tmp_path / "mirrorfeed.yml"))
    facts = database_facts(config)
    assert (facts.error, facts.states) == (None, [])
    assert [each.name for each in database_findings(facts)] == ["MIRRORING_OFF"]

    other = load(str(tmp_path / "mirrorfeed.yml"), landing_zone=f"onelake://{WORKSPACE}/{WORKSPACE}")
    facts = database_facts(other)
    assert facts.error is not None
    assert (facts.status, facts.states) == (None, None)
