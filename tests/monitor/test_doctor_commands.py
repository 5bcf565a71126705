"""`doctor` finds each problem that a test can cause, and the suggested command solves it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from mirrorfeed.archive.archived_files import ArchivedFilesNeeded
from mirrorfeed.cli import main
from mirrorfeed.landing.names import data_name
from mirrorfeed.monitor.findings import error_finding
from mirrorfeed.source.errors import FilesArchived
from tests.delta import DeltaTable

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
        asked, tool = self.folder / "asked", self.folder / "bin/mirrorfeed"
        tool.parent.mkdir(exist_ok=True)
        tool.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" "" >> {asked}\n', encoding="utf-8")
        tool.chmod(0o755)
        asked.write_text("", encoding="utf-8")
        path = {"PATH": f"{tool.parent}:/usr/bin:/bin"}
        subprocess.run(["sh", "-c", command], check=True, env=path, cwd=self.folder)
        for arguments in asked.read_text(encoding="utf-8").removesuffix("\n\n").split("\n\n"):
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


def _all_gone(project: Project, name: str) -> None:
    (project.zone(name) / data_name(1)).unlink()


def _no_bytes(project: Project, name: str) -> None:
    (project.zone(name) / data_name(1)).write_bytes(b"")


def _left(project: Project, name: str) -> None:
    (log,) = project.zone(name).glob("_mirrorfeed/*/")
    (log / f"{1:020d}-ab-00000-00000.parquet").write_bytes(b"left")


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
    "Gap": _gap,
    "SourceRecreated": _recreated,
    "DamagedFile": _record,
    "LogIdMissing": _log_id,
    "FileNumberConflict": _another_file,
    "KeysChanged": _keys,
    "IncompatibleSchema": _renamed,
    "FilesLost": _lost,
    "LastFileMissing": _all_gone,
    "EMPTY_FILE": _no_bytes,
    "ORPHANS": _left,
    "NOT_PUBLISHED": _never,
    "EMPTY_TABLE": _no_file,
}
"""Problems by the name of their finding. The suggested command solves the problem."""
OFF = "off"
UNSOLVED: dict[str, Break] = {"NoTableAtPath": _dropped, "RowsRefused": _twice, "PAUSED": _paused}
"""Problems that only a person can solve, so no command is suggested."""


@pytest.mark.soak
def test_the_command_of_each_finding_solves_its_problem(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    project = Project(spark, tmp_path, [*SOLVED, *UNSOLVED, OFF])
    project.run("publish")
    for name, happen in {**SOLVED, **UNSOLVED, OFF: _feed_off}.items():
        happen(project, name)
    _damaged_ledger(project, "")
    found = project.findings()
    expected = {(name, name) for name in (*SOLVED, *UNSOLVED)} | {(OFF, "Gap"), ("", "LedgerUnreadable")}
    assert expected <= found.keys()
    assert found.keys() - expected == {("EMPTY_TABLE", "NOT_PUBLISHED")}
    unsolved = {(name, name) for name in UNSOLVED} | {("", "LedgerUnreadable")}
    assert {key for key, row in found.items() if not row["command"]} == unsolved
    for row in found.values():
        if row["command"]:
            project.shell(row["command"])
    assert project.findings().keys() == unsolved


def test_the_command_of_a_finding_is_that_of_its_last_sentence_with_one() -> None:
    needed = ArchivedFilesNeeded(asked="The query", table="a b", version=3, files=(), feed_from=2)
    assert error_finding("s.t", needed).command == (
        "mirrorfeed archive plan 'a b' --feed-from 2 --feed-to 3 --to PLAN && mirrorfeed archive restore PLAN"
    )
    assert error_finding("s.t", FilesArchived(table="a", range=3)).command == ""
