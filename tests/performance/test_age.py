"""Commands on tables that are up to date cost the same after a year. `make age` measures more, and a longer time."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mirrorfeed.cli import main
from mirrorfeed.runtime import spark_session
from mirrorfeed.storage.local_folder import FolderStore
from tests.performance.aged import Age, build
from tests.performance.meter import STORE_METHODS

_TABLES = 3
_FRESH = Age(commits=20, records=10, waiting_files=20)
"""With as many records as a log keeps."""
_AGED = Age(commits=150, records=100_000, waiting_files=300, ledger_days=200, rows_per_day=20)
_COMMANDS = ("publish", "publish --dry-run", "status", "log sales.t1", "doctor")


def test_up_to_date_tables_need_the_same_calls_and_no_ledger_after_a_year(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Counter[str]()

    def counted(name: str, method: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            calls[name] += 1
            return method(*arguments, **named)

        return call

    def refuse(*_: object) -> None:
        pytest.fail("Spark was started")

    monkeypatch.setattr(spark_session, "get_session", refuse)
    for name in STORE_METHODS:
        monkeypatch.setattr(FolderStore, name, counted(name, getattr(FolderStore, name)))
    found = dict[str, dict[str, Counter[str]]]()
    for state, age in (("fresh", _FRESH), ("aged", _AGED)):
        (tmp_path / state).mkdir()
        config = str(build(tmp_path / state, _TABLES, age))
        found[state] = {}
        for command in _COMMANDS:
            if command != "doctor":  # it checks that the ledger can be read
                os.rename(tmp_path / state / "ledger", tmp_path / "away")
            calls.clear()
            ran = CliRunner().invoke(main, [*command.split(), "--config", config])
            assert ran.exit_code == 0, ran.output
            found[state][command] = Counter(calls)
            if (tmp_path / "away").exists():
                shutil.move(tmp_path / "away", tmp_path / state / "ledger")
    assert found["aged"] == found["fresh"]
