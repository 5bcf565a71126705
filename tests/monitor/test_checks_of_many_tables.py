"""`doctor` and `check-alerts` over many tables: a first look at all, and a deep check only for a reason."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import mirrorfeed
from mirrorfeed.api.feed import Feed
from mirrorfeed.cli import main
from mirrorfeed.cli.output import Interruption
from mirrorfeed.config.connections import Alerts
from mirrorfeed.monitor import fact_collector
from mirrorfeed.monitor.doctor import check_of
from mirrorfeed.monitor.findings import DatabaseFacts, LogFacts, SourceFacts, TableFacts, is_long_lag
from mirrorfeed.source import change_feed, table_info, versions
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.table_info import FILES, LOG
from tests.support.fleets import fleet

DAY = 86_400.0


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 published tables, of which two have unpublished changes. One of the sources is gone."""
    config = fleet(tmp_path_factory.mktemp("fleet"), 30, rows=3, behind=2)
    (config.parent / "t3/_delta_log").rename(config.parent / "t3/log")
    return config


def feed_of(config: Path) -> Feed:
    return Feed(mirrorfeed.load(config)._config, lambda *_: pytest.fail("Spark was started"))


@pytest.mark.parametrize(
    ("names", "deep", "measured"),
    [((), False, 0), (("sales.t0",), False, 1), (("sales.t0", "sales.t1"), True, 2)],
)
def test_rows_are_read_only_in_a_deep_check(
    published: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], deep: bool, measured: int
) -> None:
    paths, measure = list[str](), fact_collector.longest_local_text

    def recorded(table: Any, path: str) -> Any:
        paths.append(path)
        return measure(table, path)

    monkeypatch.setattr(fact_collector, "longest_local_text", recorded)
    found = feed_of(published).doctor(*names, deep=deep)
    assert len(paths) == measured
    assert [each.name for each in found] == ([] if names else ["NoTableAtPath"])


def test_status_opens_each_table_once(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, open_table = list[str](), table_info.open_local_table

    def recorded(source: Source, version: int | None = None) -> Any:
        opened.append(str(source))
        return open_table(source, version)

    for module in (table_info, versions, fact_collector, change_feed):
        monkeypatch.setattr(module, "open_local_table", recorded)
    feed_of(published).status("sales.t2", "sales.t4", "sales.t5")
    assert len(opened) == len(set(opened)) == 3


@pytest.mark.parametrize(
    ("lag", "retentions", "expected"),
    [
        (None, {FILES: 7 * DAY}, False),
        (0.0, {FILES: 7 * DAY, LOG: 30 * DAY}, False),
        (0.34 * DAY, {FILES: 7 * DAY, LOG: 30 * DAY}, False),
        (0.36 * DAY, {FILES: 7 * DAY, LOG: 30 * DAY}, True),
        (0.36 * DAY, {FILES: None, LOG: 30 * DAY}, False),
        (9.0, {}, False),
    ],
)
def test_lag_that_may_exceed_a_retention_is_a_reason(
    lag: float | None, retentions: dict[str, float | None], expected: bool
) -> None:
    assert is_long_lag(lag, retentions) is expected


def test_problem_that_only_a_deep_check_finds_is_unknown_without_one() -> None:
    facts = TableFacts("t", "t", log_facts=LogFacts(), source_facts=SourceFacts("on"))
    deep = replace(facts, source_facts=SourceFacts("on", is_measured=True), are_keys_checked=True)
    for name in ("TEXT_TOO_LONG", "RowsRefused", "InvalidCondition"):
        assert check_of(DatabaseFacts(), [facts], Alerts()).is_unknown(("t", name))
        assert not check_of(DatabaseFacts(), [deep], Alerts()).is_unknown(("t", name))


def test_findings_are_reported_as_they_are_found_and_a_stop_keeps_them(published: Path) -> None:
    found = list[str]()
    result = feed_of(published).doctor(on_finding=lambda each: found.append(each.name))
    assert found == [each.name for each in result] == ["NoTableAtPath"]
    result = feed_of(published).doctor(stop=lambda: True)
    assert ([each.code for each in result], result.ok) == (["MF8108"], False)


def test_command_prints_each_finding_once(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = CliRunner().invoke(main, ["doctor", "--config", str(published)])
    assert (shown.exit_code, shown.stdout.count("MF2002"), shown.stdout.splitlines()[-1]) == (1, 1, "1 finding")
    as_json = json.loads(CliRunner().invoke(main, ["doctor", "--json", "--config", str(published)]).stdout)
    assert [each["code"] for each in as_json["rows"]] == ["MF2002"]
    monkeypatch.setattr(Interruption, "__call__", lambda _: True)
    for command in ("doctor", "check-alerts"):
        stopped = CliRunner().invoke(main, [command, "--json", "--config", str(published)])
        assert (stopped.exit_code, "MF8108" in stopped.stdout) == (1, True)
