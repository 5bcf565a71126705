"""A check that fails is a problem as well: it is reported once, has its own state, and resolves no other problem."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa

from fixtures.onelake import DATABASE, WORKSPACE, OneLake
from mirrorfeed.config.loader import load
from mirrorfeed.monitor.alert_channels import Alert
from mirrorfeed.monitor.alerts import ledger_rows, notify
from mirrorfeed.monitor.doctor import Check, check_all
from mirrorfeed.monitor.findings import Finding, Severity
from mirrorfeed.monitor.problem_rules import RULES
from mirrorfeed.monitor.state_folder import open_state

NOW = datetime(2026, 3, 14, 9, 30, tzinfo=UTC)
NO_SPARK: Any = object
"""Returns an object that is no Spark session, so facts about sources are unknown."""


def test_landing_zone_without_permission_is_one_problem_and_hides_others(onelake: OneLake, tmp_path: Path) -> None:
    (tmp_path / "mirrorfeed.yml").write_text(
        onelake.configuration(f"onelake://{WORKSPACE}/{DATABASE}")
        + "alerts: {state_path: ./state, sql_endpoint: refresh}\n"
        + "tables: [{source: ./orders, target: sales.orders, keys: [id]}]\n"
    )
    deltalake.write_deltalake(tmp_path / "orders", pa.table({"id": [1]}))
    config = load(tmp_path / "mirrorfeed.yml")
    store, file = open_state(config, "alerts.json")
    sent: list[Alert] = []
    gap = Finding(Severity.WRONG, "MF2102", "GAP", "sales.orders", "What.", "mirrorfeed x")

    def messages(check: Check) -> list[tuple[str, str]]:
        sent.clear()
        notify(store, file, check, {"output": sent.append}, NOW)
        return [(each.table, each.name) for each in sent]

    assert messages(Check({gap.key: gap})) == [("sales.orders", "GAP")]

    onelake.server.forbidden = True
    check, facts = check_all(NO_SPARK, config)
    assert sorted(messages(check)) == [("", "FabricPermissionMissing"), ("sales.orders", "OnelakePermissionMissing")]
    assert messages(check) == []
    assert ledger_rows(config, facts) == []
    assert [(each.log_facts.is_read, each.freshness) for each in facts] == [(False, None)]
    assert not {each.name for each in check.problems.values()} & {rule.name for rule in RULES}


def test_sent_alerts_are_recorded_in_the_landing_zone_by_default(tmp_path: Path) -> None:
    (tmp_path / "mirrorfeed.yml").write_text("landing_zone: ./zone\ntables: [{source: ./a, target: b}]\n")
    store, file = open_state(load(tmp_path / "mirrorfeed.yml"), "alerts.json")
    assert store.address(file) == f"{tmp_path}/zone/_mirrorfeed/alerts.json"


def test_configurations_with_the_same_state_folder_have_their_own_alerts(tmp_path: Path) -> None:
    files = set()
    for zone in ("zone", "another"):
        (tmp_path / "mirrorfeed.yml").write_text(
            f"landing_zone: ./{zone}\nalerts: {{state_path: ./state}}\ntables: [{{source: ./a, target: b}}]\n"
        )
        store, file = open_state(load(tmp_path / "mirrorfeed.yml"), "alerts.json")
        assert store.address(file).startswith(f"{tmp_path}/state/alerts_")
        files.add(file)
    assert len(files) == 2


def test_lasting_problem_is_reported_again_after_the_configured_hours(tmp_path: Path) -> None:
    (tmp_path / "mirrorfeed.yml").write_text(
        "landing_zone: ./zone\nalerts: {remind_after_hours: 2, max_lag_minutes: {published: never}}\n"
        "tables: [{source: ./missing, target: b}]\n"
    )
    config, now = load(tmp_path / "mirrorfeed.yml"), NOW
    sent = []
    for _ in range(9):
        check, _ = check_all(NO_SPARK, config)
        rows = notify(*open_state(config, "alerts.json"), check, {"output": lambda _: None}, now)
        sent.append([each.table for each in rows if each.sent_to])
        now += timedelta(minutes=30)
    assert sent[0]
    assert sent == [sent[0], [], [], [], sent[0], [], [], [], sent[0]]
