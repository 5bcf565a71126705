"""Commands on tables that are up to date cost the same after a year. `make age` measures more, and a longer time."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import deltalake
import pytest
import yaml
from click.testing import CliRunner

from fixtures.onelake import DATABASE, OneLake
from mirrorfeed.cli import main
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.runtime import spark_session
from mirrorfeed.storage.local_folder import FolderStore
from tests.performance.aged import Age, build
from tests.performance.meter import STORE_METHODS
from tests.support.entries import entry
from tests.support.tables import Table, TableFeed

_TABLES = 3
_RECORDS = 10
"""Records that a log keeps. `status` reads those of files that Fabric has not consumed."""
_FRESH = Age(commits=20, records=_RECORDS, waiting_files=20)
"""With as many records as a log keeps."""
_AGED = Age(commits=150, records=100_000, waiting_files=300, ledger_days=200, rows_per_day=20)
_COMMANDS = ("publish", "publish --dry-run", "status", "log sales.t1", "doctor")
_IN_ONELAKE = ("publish", "publish --dry-run", "status", "doctor")


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


@pytest.mark.parametrize(
    ("waiting", "page_size"), [(100, 30), pytest.param(50_000, 5_000, marks=pytest.mark.soak, id="50000")]
)
def test_files_that_fabric_has_not_consumed_cost_only_further_pages_of_one_listing(
    tmp_path: Path, onelake: OneLake, waiting: int, page_size: int
) -> None:
    onelake.server.page_size = page_size
    onelake.store().create("any", b"")  # checks once in a process that the landing zone exists
    onelake.fabric.databases[DATABASE].status = "Running"
    few, many = (
        _costs(tmp_path / name, onelake, Age(commits=_RECORDS, records=_RECORDS, waiting_files=files))
        for name, files in (("few", _RECORDS), ("many", waiting))
    )
    further = -(-(waiting + 2) // page_size) - 1  # and the folders of the log and of metadata
    assert {name: cost.calls for name, cost in many.items()} == {name: cost.calls for name, cost in few.items()}
    assert {name: cost.pages for name, cost in few.items()} == dict.fromkeys(few, 0)
    assert {name: cost.pages for name, cost in many.items()} == dict.fromkeys(many, further) | {"publish": 0}


class _Cost(NamedTuple):
    calls: Counter[str]
    """Calls without further pages of listings, by verb."""
    pages: int
    """Further pages of listings."""


def _costs(folder: Path, onelake: OneLake, age: Age) -> dict[str, _Cost]:
    """Return what commands on a table in OneLake cost, and then a publication of one row."""
    folder.mkdir()
    config, zone, target = build(folder, 1, age), folder / "zone", "sales.t0"
    onelake.files.nodes.clear()
    onelake.files.add_item(DATABASE)
    for file in filter(Path.is_file, zone.rglob("*")):
        path = f"{DATABASE}/Files/LandingZone/{file.relative_to(zone)}"
        onelake.files.put_blob(path, file.read_bytes(), if_absent=True)
    table = {"source": "./t0", "target": target, "keys": ["id"]}
    config.write_text(onelake.configuration() + yaml.safe_dump({"tables": [table]}), encoding="utf-8")
    source = Table({"id": "long", "v": "string"}, ("id",), str(deltalake.DeltaTable(folder / "t0").metadata().id))
    for _ in range(age.commits):
        source.optimize()
    source.insert({"id": 1, "v": "new"})

    def run(command: str) -> None:
        ran = CliRunner().invoke(main, [*command.split(), "--config", str(config)])
        assert ran.exit_code == 0, ran.output

    run("publish")  # deletes what earlier publications left
    steps: dict[str, Callable[[], object]] = {command: partial(run, command) for command in _IN_ONELAKE}
    steps["publication"] = partial(publish, TableFeed(source), onelake.store(), entry(str(folder / "t0"), target))
    costs = dict[str, _Cost]()
    for name, step in steps.items():
        before, started = len(onelake.calls), time.perf_counter()
        step()
        calls = [call for call in onelake.calls[before:] if call.verb not in ("token", "discovery")]
        first = [call for call in calls if "continuation" not in call.query]
        costs[name] = _Cost(Counter(call.verb for call in first), len(calls) - len(first))
        print(f"{age.waiting_files:,} files, {name}: {len(first)} calls, {costs[name].pages} further pages,", end=" ")
        print(f"{time.perf_counter() - started:.2f} s")
    return costs
