"""A look that is refused is trouble too: told once, from a state in a place of its own, and ending no other trouble."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fixtures.onelake import DATABASE, WORKSPACE, OneLake
from mirrorfeed.config import load
from mirrorfeed.monitor.alert_rules import Look, Trouble
from mirrorfeed.monitor.alert_state import Message, notify
from mirrorfeed.monitor.watch import alert_state_of, look_at_all

NOW = datetime(2026, 3, 14, 9, 30, tzinfo=UTC)
NO_SPARK: Any = lambda: None  # noqa: E731
"""None is needed where the landing zone is not even shown."""


def test_a_place_that_nobody_may_look_at_is_told_once_and_hides_what_was_told_before(
    onelake: OneLake, tmp_path: Path
) -> None:
    (tmp_path / "mirrorfeed.yml").write_text(
        onelake.configuration(f"onelake://{WORKSPACE}/{DATABASE}")
        + "alerts: {state: ./state, sql_endpoint: refresh}\n"
        + "tables: [{source: ./orders, target: sales.orders, keys: [id]}]\n"
    )
    config = load(tmp_path / "mirrorfeed.yml")
    store, file = alert_state_of(config)
    sent: list[Message] = []

    def told(look: Look) -> list[tuple[str, str]]:
        sent.clear()
        notify(store, file, look, {"output": sent.append}, lambda: NOW)
        return [each.alert.key for each in sent]

    assert told(Look((Trouble("sales.orders", "GAP", "What.", "mirrorfeed x"),))) == [("sales.orders", "GAP")]

    onelake.server.forbidden = True
    seen = look_at_all(NO_SPARK, config, lambda: NOW)
    assert sorted(told(seen.look)) == [("", "PERMISSION"), ("sales.orders", "PERMISSION")]
    assert told(seen.look) == []
    assert seen.rows(NOW) == []
    assert [each.fresh for each in seen.statuses] == [None]


def test_who_was_told_what_is_remembered_beside_the_tables_unless_the_file_says_otherwise(tmp_path: Path) -> None:
    (tmp_path / "mirrorfeed.yml").write_text("landing_zone: ./zone\ntables: [{source: ./a, target: b}]\n")
    store, file = alert_state_of(load(tmp_path / "mirrorfeed.yml"))
    assert store.address(file) == f"{tmp_path}/zone/_mirrorfeed/alerts.json"
