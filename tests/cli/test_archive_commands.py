"""Each command for archived tables calls one method of the feed or of its table, with typed options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mirrorfeed.api.archive import Archive
from mirrorfeed.api.archive_table import ArchiveAwareTable
from mirrorfeed.api.results import Result
from mirrorfeed.cli import main

RATES = {"per_gib": 0.0, "per_10k_files": 0.0}
CONFIGURATION = f"""
landing_zone: ./zone
ledger: ./ledger
archive: {{prices: {{currency: EUR, standard: {RATES}, high: {RATES}}}}}
tables: [{{source: ./orders, target: sales.orders, keys: [id]}}]
"""
PLANNED = {"priority": "standard", "prices": None, "save_as": "p"}
CASES: dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]] = {
    "files sales.orders --where a --tiers": ("files", ("a",), {"tiers": True}),
    "query sales.orders --columns a,b --rows 3": ("first", (3, None, ["a", "b"]), {}),
    "plan sales.orders --where a --to p": ("plan", ("a",), {"feed_from": None, "feed_to": None, **PLANNED}),
    "plan sales.orders --feed-from 1 --feed-to 2 --to p": ("plan", (None,), {"feed_from": 1, "feed_to": 2, **PLANNED}),
    "plan --sql a --priority high --to p": ("archive.plan", ("a",), {**PLANNED, "priority": "high"}),
    "restore p --once --tier cool --keep 3 --into t": (
        "archive.restore",
        ("p",),
        {
            "wait": False,
            "poll_seconds": 300.0,
            "tier": "cool",
            "keep_days": 3,
            "into": "t",
            "rows": 20,
            "prices": None,
        },
    ),
    "maintain sales.orders --no-optimize --zorder a,b --vacuum": (
        "maintain",
        (),
        {"optimize": False, "zorder": ["a", "b"], "purge": False, "analyze": False, "vacuum": True},
    ),
    "check sales.orders": ("check", (), {}),
    "set sales.orders '60 days'": ("set_interval", ("60 days",), {}),
    "show sales.orders": ("interval", (), {}),
    "unset sales.orders --nothing-archived": ("unset_interval", (), {"nothing_archived": True}),
    "change-interval sales.orders --to '9 days' --exact": (
        "change_interval",
        ("9 days",),
        {"exact": True, "rule_changed": False},
    ),
    "step sales.orders": ("step", (), {}),
    "rule sales.orders --paused --json": (
        "lifecycle",
        (None,),
        {"state": "paused", "take_over": False, "interval": None},
    ),
    "lifecycle-check mirrorfeed.yml --table sales.orders": ("check_lifecycle", ("mirrorfeed.yml",), {}),
    "simulate sales.orders '60 days' --where a --where b": (
        "simulate",
        ("60 days",),
        {"where": ("a", "b"), "predicates": None, "prices": None},
    ),
    "report sales.orders": ("archive.report", ("sales.orders",), {"prices": None}),
    "report": ("archive.report", (), {"prices": None}),
}


@pytest.mark.parametrize("command", CASES)
def test_command_calls_one_method_with_its_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    (tmp_path / "mirrorfeed.yml").write_text(CONFIGURATION)
    monkeypatch.chdir(tmp_path)
    name, arguments, options = CASES[command]
    called = []

    def method(owner: Archive | ArchiveAwareTable, *given: Any, on_step: object = None, **keywords: Any) -> Result[Any]:
        called.append((owner, given, keywords))
        return Result(())

    owner = Archive if name.startswith("archive.") else ArchiveAwareTable
    monkeypatch.setattr(owner, name.removeprefix("archive."), method)
    ended = CliRunner().invoke(main, f"archive {command}")
    assert ended.exit_code == 0, ended.output
    ((called_on, given, keywords),) = called
    assert (given, keywords) == (arguments, options)
    if isinstance(called_on, ArchiveAwareTable):
        assert called_on.name == str(tmp_path / "orders")
        assert called_on._prices is not None
        assert str(called_on._ledger) == str(tmp_path / "ledger")


def test_table_without_a_configuration_is_a_name_or_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tables: list[ArchiveAwareTable] = []
    monkeypatch.setattr(ArchiveAwareTable, "interval", lambda table: tables.append(table) or Result(()))
    for options in ([], ["--ledger", "main.a.ledger"]):
        assert CliRunner().invoke(main, [*options, "archive", "show", "./orders"]).exit_code == 0
    assert [each.name for each in tables] == [str(tmp_path / "orders")] * 2
    assert [str(each._ledger) for each in tables] == ["None", "main.a.ledger"]
