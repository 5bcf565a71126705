"""`doctor` finds each problem that a test can cause, and the suggested command solves it."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from mirrorfeed.archive.archived_files import ArchivedFilesNeededError
from mirrorfeed.cli import main
from mirrorfeed.landing.names import data_name
from mirrorfeed.monitor.findings import error_finding
from mirrorfeed.monitor.problem_rules import RULES
from mirrorfeed.source.errors import FeedGapError, FilesArchivedError, GapReason
from mirrorfeed.source.snapshot_or_range import Snapshot
from mirrorfeed.source.table_info import FILES
from tests.support.delta import DeltaTable

Break = Callable[["Project", str], None]


class Project:
    """A configuration with a table for each problem."""

    def __init__(self, spark: SparkSession, folder: Path, names: list[str]) -> None:
        self.spark, self.folder, self.tables = spark, folder, dict[str, DeltaTable]()
        self.entries: dict[str, dict[str, Any]] = {}
        for name in names:
            self.tables[name] = DeltaTable(spark, folder / "lake" / name)
            self.tables[name].insert(1, 2)
            self.entries[name] = {"source": f"./lake/{name}", "target": f"s.{name}", "keys": ["id"]}
        self.configure()

    def configure(self) -> None:
        written = {"landing_zone": "./zone", "ledger": "./ledger", "tables": [*self.entries.values()]}
        (self.folder / "mirrorfeed.yml").write_text(json.dumps(written), encoding="utf-8")

    def zone(self, name: str) -> Path:
        return self.folder / "zone/s.schema" / name

    def run(self, *arguments: str) -> str:
        found = CliRunner().invoke(main, [*arguments], input="y\n")
        assert found.exception is None or isinstance(found.exception, SystemExit), found.output
        return found.stdout

    def findings(self) -> dict[tuple[str, str], dict[str, Any]]:
        rows = json.loads(self.run("doctor", "--json"))["rows"]
        return {(row["table"].removeprefix("s."), row["name"]): row for row in rows}

    def shell(self, command: str) -> None:
        """Let a shell parse the command, and run the result."""
        commands_file, tool = self.folder / "asked", self.folder / "bin/mirrorfeed"
        tool.parent.mkdir(exist_ok=True)
        tool.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" "" >> {commands_file}\n', encoding="utf-8")
        tool.chmod(0o755)
        commands_file.write_text("", encoding="utf-8")
        path = {"PATH": f"{tool.parent}:/usr/bin:/bin"}
        subprocess.run(["sh", "-c", command], check=True, env=path, cwd=self.folder)
        for arguments in commands_file.read_text(encoding="utf-8").removesuffix("\n\n").split("\n\n"):
            self.run(*arguments.split("\n"))


def _feed_off(project: Project, name: str) -> None:
    project.tables[name].set_feed(False)


def _gap(project: Project, name: str) -> None:
    project.tables[name].set_feed(False)
    project.tables[name].set_feed(True)


def _recreated(project: Project, name: str) -> None:
    shutil.rmtree(project.tables[name].path)
    project.spark.catalog.clearCache()
    DeltaTable(project.spark, project.tables[name].path)


def _replaced(project: Project, name: str) -> None:
    project.tables[name].replace((1, "new"))


def _record(project: Project, name: str) -> None:
    (record,) = project.zone(name).glob("_mirrorfeed/*/*.json")
    record.write_text("{", encoding="utf-8")


def _log_id(project: Project, name: str) -> None:
    (project.zone(name) / "_mirrorfeed/log.json").unlink()


def _another_file(project: Project, name: str) -> None:
    (project.zone(name) / data_name(9)).write_bytes(b"PAR1")


def _keys(project: Project, name: str) -> None:
    project.entries[name]["keys"] = ["v"]
    project.configure()


def _renamed(project: Project, name: str) -> None:
    project.tables[name].sql("ALTER TABLE {} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    project.run("publish", f"s.{name}")
    project.tables[name].sql("ALTER TABLE {} RENAME COLUMN v TO w")


def _lost(project: Project, name: str) -> None:
    project.tables[name].insert(3)
    project.run("publish", f"s.{name}")
    (project.zone(name) / data_name(2)).unlink()


def _delete_all_files(project: Project, name: str) -> None:
    (project.zone(name) / data_name(1)).unlink()


def _no_bytes(project: Project, name: str) -> None:
    (project.zone(name) / data_name(1)).write_bytes(b"")


def _left(project: Project, name: str) -> None:
    (log,) = project.zone(name).glob("_mirrorfeed/*/")
    (log / f"{1:020d}-ab-00000-00000.parquet").write_bytes(b"left")


def _not_renamed(project: Project, name: str) -> None:
    (path,) = project.zone(name).glob("_mirrorfeed/*/*.json")
    (file,) = json.loads(path.read_text(encoding="utf-8"))["files"]
    (project.zone(name) / data_name(1)).rename(path.parent / file["staged"])


def _shorten_retention(project: Project, name: str) -> None:
    project.tables[name].sql(f"ALTER TABLE {{}} SET TBLPROPERTIES ('{FILES}' = 'interval 1 second')")
    time.sleep(2)


def _clone(project: Project, name: str) -> None:
    original, path = project.tables[name].source.sql, project.tables[name].path.with_name(f"clone of {name}")
    project.spark.sql(f"CREATE TABLE delta.`{path}` SHALLOW CLONE {original}")
    project.entries[name]["source"] = f"./lake/{path.name}"
    project.configure()
    _never(project, name)


def _never(project: Project, name: str) -> None:
    shutil.rmtree(project.zone(name))


def _never_off(project: Project, name: str) -> None:
    _never(project, name)
    _feed_off(project, name)


def _no_file(project: Project, name: str) -> None:
    for each in (*project.zone(name).glob("*.parquet"), project.zone(name) / "_mirrorfeed"):
        shutil.rmtree(each) if each.is_dir() else each.unlink()


def _dropped(project: Project, name: str) -> None:
    shutil.rmtree(project.tables[name].path)


def _twice(project: Project, name: str) -> None:
    project.tables[name].insert(2)


def _paused(project: Project, name: str) -> None:
    project.entries[name]["paused"] = {"until": "2999-01-01", "reason": "migration"}
    project.configure()


def _damaged_ledger(project: Project, _: str) -> None:
    log = project.folder / "ledger/_delta_log"
    (log / f"{len([*log.glob('*.json')]):020d}.json").write_text("{", encoding="utf-8")


SOLVED: dict[str, Break] = {
    "FeedOff": _never_off,
    "FeedGap": _gap,
    "SourceRecreated": _recreated,
    "DamagedFile": _record,
    "LogIdMissing": _log_id,
    "FileNumberConflict": _another_file,
    "KeysChanged": _keys,
    "IncompatibleSchema": _renamed,
    "PublishedFilesLost": _lost,
    "LastFileMissing": _delete_all_files,
    "EMPTY_FILE": _no_bytes,
    "UNFINISHED": _not_renamed,
    "ORPHANS": _left,
    "NOT_PUBLISHED": _never,
    "NOT_FROM_FEED": _replaced,
    "EMPTY_TABLE": _no_file,
}
"""Problems by the name of their finding. The suggested command solves the problem."""
OFF = "off"
BY_SQL: dict[str, Break] = {"RETENTION_SHORT": _shorten_retention}
"""Problems that a statement in SQL solves, which is the suggested fix."""
UNSOLVED: dict[str, Break] = {"NoTableAtPath": _dropped, "RowsRefused": _twice, "PAUSED": _paused, "CLONED": _clone}
"""Problems that only a person can solve, so no command is suggested."""
NOT_MADE = {
    *("TEXT_TOO_LONG", "FALLS_BEHIND"),  # they need 16 MiB of text and days
    "LOG_RETENTION_SHORT",  # Delta refuses a log that is kept for less time than its files
    *("THROTTLED", "OWNER_LEFT", "TABLE_FAILED", "STUCK_SNAPSHOTTING", "NEVER_SYNCS"),  # of Fabric
    *("MIRRORING_PAUSED", "MIRRORING_OFF"),  # of Fabric
    *("LAG_PUBLISHED", "LAG_CONSUMED", "LAG_MIRRORED", "LAG_QUERYABLE", "NOT_VERIFIED"),  # alerts, of time that passes
}
"""Rules whose problem this test does not cause. `test_rules` has the facts that trigger them."""


@pytest.mark.soak
def test_the_command_of_each_finding_solves_its_problem(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    problems = {**SOLVED, **BY_SQL, **UNSOLVED, OFF: _feed_off}
    project = Project(spark, tmp_path, [*problems])
    project.run("publish")
    for name, happen in problems.items():
        happen(project, name)
    _damaged_ledger(project, "")
    found = project.findings()
    expected = {(name, name) for name in (*SOLVED, *BY_SQL, *UNSOLVED)} | {(OFF, "FeedGap"), ("", "LedgerUnreadable")}
    assert expected <= found.keys()
    assert found.keys() - expected == {("EMPTY_TABLE", "NOT_PUBLISHED"), ("CLONED", "NOT_PUBLISHED")}
    unsolved = {(name, name) for name in UNSOLVED} | {("", "LedgerUnreadable")}
    by_sql = {(name, name) for name in BY_SQL}
    assert {key for key, row in found.items() if not row["command"]} == unsolved | by_sql
    for key, row in found.items():
        if row["command"]:
            project.shell(row["command"])
        elif key in by_sql:
            spark.sql(row["fix"])
    assert project.findings().keys() == unsolved


def test_every_rule_is_tried_or_listed_as_not_made() -> None:
    assert {*SOLVED, *BY_SQL, *UNSOLVED} & {rule.name for rule in RULES} == {rule.name for rule in RULES} - NOT_MADE


def test_the_command_of_a_finding_is_that_of_its_last_sentence_with_one() -> None:
    needed = ArchivedFilesNeededError(needed=(), arguments=("a b", "--feed-from", "2", "--feed-to", "3"))
    assert error_finding("s.t", needed).command == (
        "mirrorfeed archive plan 'a b' --feed-from 2 --feed-to 3 --to PLAN && mirrorfeed archive restore PLAN"
    )
    assert error_finding("s.t", FilesArchivedError(table="a", range=Snapshot(3))).command == ""
    still_off = FeedGapError(table="a", published=1, where=2, reason=GapReason.STILL_OFF)
    assert error_finding("s.t", still_off).command == "mirrorfeed enable-cdf s.t && mirrorfeed rebuild s.t"
