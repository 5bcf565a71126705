"""Every command reports each state in which a table cannot be published, with the same code and a fix."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import mirrorfeed
from mirrorfeed.api.feed import Feed
from mirrorfeed.api.results import Result
from mirrorfeed.errors import catalogue
from tests.support.commits import write_checksum
from tests.support.delta import FEED, DeltaTable
from tools.blocking_states import STATES


@dataclass
class Broken:
    """A table of the test, and its folder in the landing zone."""

    table: DeltaTable
    folder: Path

    @property
    def log(self) -> Path:
        return next(path for path in self.folder.glob("_mirrorfeed/*/") if path.is_dir())

    def change_metadata(self, change: Callable[[dict[str, Any]], None], operation: str) -> None:
        """Commit changed metadata of the table, as `ALTER TABLE` does."""
        (first,) = (
            action
            for line in self.table.commit_file(0).read_text(encoding="utf-8").splitlines()
            if (action := json.loads(line).get("metaData"))
        )
        change(first)
        file = self.table.commit_file(self.table.latest + 1)
        info = {"timestamp": 1, "operation": operation, "operationParameters": {}}
        file.write_text(f"{json.dumps({'commitInfo': info})}\n{json.dumps({'metaData': first})}\n", encoding="utf-8")
        write_checksum(file)


def _delete_files(broken: Broken) -> None:
    """As VACUUM does."""
    broken.table.insert(2)
    before = broken.table.live_files()
    broken.table.sql("DELETE FROM {} WHERE id = 2")
    for file in before - broken.table.live_files():
        file.unlink()


def _update(broken: Broken) -> None:
    broken.table.sql("UPDATE {} SET v = 'x' WHERE id = 1")


def _rename_column(broken: Broken) -> None:
    broken.change_metadata(
        lambda metadata: metadata.update(schemaString=metadata["schemaString"].replace('"v"', '"w"')), "CHANGE COLUMN"
    )


def _insert_and_rename(broken: Broken) -> None:
    broken.table.insert(7)
    broken.table.sql("ALTER TABLE {} RENAME COLUMN v TO w")


def _insert(broken: Broken) -> None:
    broken.table.insert(3)


def _insert_again(broken: Broken) -> None:
    broken.table.insert(1)


def _switch_feed(broken: Broken) -> None:
    broken.table.set_feed(False)
    broken.table.set_feed(True)


def _replace_source(broken: Broken) -> None:
    shutil.rmtree(broken.table.path)
    broken.table.spark.catalog.clearCache()
    DeltaTable(broken.table.spark, broken.table.path)


def _replace_and_vacuum(broken: Broken) -> None:
    broken.table.replace((1, "new"))
    for file in set(broken.table.path.glob("*.parquet")) - broken.table.live_files():
        file.unlink()


def _replace_without_key(broken: Broken) -> None:
    broken.table.sql(f"CREATE OR REPLACE TABLE {{}} USING DELTA TBLPROPERTIES ({FEED} = true) AS SELECT 'x' AS v")


def _delete_source(broken: Broken) -> None:
    shutil.rmtree(broken.table.path)


def _delete_commit(broken: Broken) -> None:
    broken.table.insert(4)
    broken.table.insert(5)
    for file in broken.table.path.glob(f"_delta_log/*{broken.table.latest - 1}.*"):
        file.unlink()


def _empty_log(broken: Broken) -> None:
    for file in broken.table.path.glob("_delta_log/*"):
        file.unlink()


def _damage_source(broken: Broken) -> None:
    broken.table.insert(6)
    for file in broken.table.live_files():
        file.write_bytes(b"PAR1")


def _delete_source_files(broken: Broken) -> None:
    for file in broken.table.live_files():
        file.unlink()


def _add_foreign_file(broken: Broken) -> None:
    (broken.folder / "other.parquet").write_bytes(b"PAR1")
    broken.table.insert(3)


def _add_number(broken: Broken) -> None:
    (broken.folder / f"{9:020d}.parquet").write_bytes(b"PAR1")
    broken.table.insert(3)


def _lose_log_id(broken: Broken) -> None:
    (broken.folder / "_mirrorfeed/log.json").unlink()


def _lose_record(broken: Broken) -> None:
    newest = json.loads(max(broken.log.glob("*.json")).read_text())
    newest |= {"number": 3, "follows": {"number": 2, "batch": "ab", "etag": "x"}}
    (broken.log / f"{3:020d}.json").write_text(json.dumps(newest))
    (broken.log / f"{1:020d}.json").unlink()


def _damage_record(broken: Broken) -> None:
    (broken.log / f"{1:020d}.json").write_text("{")


def _write_newer_record(broken: Broken) -> None:
    (broken.log / f"{1:020d}.json").write_text('{"format": 99}')


def _add_reserved_column(broken: Broken) -> None:
    new = ',{"name":"__rowMarker__","type":"integer","nullable":true,"metadata":{}}]}'
    broken.change_metadata(
        lambda metadata: metadata.update(schemaString=metadata["schemaString"].removesuffix("]}") + new), "ADD COLUMNS"
    )


def _add_unknown_feature(broken: Broken) -> None:
    file = broken.table.commit_file(broken.table.latest + 1)
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["later"], "writerFeatures": ["later"]}
    info = {"timestamp": 1, "operation": "UPGRADE PROTOCOL", "operationParameters": {}}
    file.write_text(f"{json.dumps({'commitInfo': info})}\n{json.dumps({'protocol': protocol})}\n", encoding="utf-8")


def _nothing(_: Broken) -> None: ...


@dataclass(frozen=True)
class Case:
    happen: Callable[[Broken], None] = _nothing
    options: str = "keys: [id]"
    """Options of the table when it cannot be published."""
    before: str = "keys: [id]"
    """Options of its first publication. Empty if the table was never published."""
    properties: Mapping[str, str] = field(default_factory=dict)
    feed: bool = True
    slow: bool = True


CASES: Mapping[str, Case] = {
    "source_missing": Case(_delete_source),
    "feed_off": Case(before="", feed=False),
    "changes_vacuumed": Case(_delete_files),
    "feed_was_off": Case(_switch_feed),
    "commit_missing": Case(_delete_commit),
    "not_ready": Case(_empty_log, before=""),
    "source_replaced": Case(_replace_source),
    "replaced_vacuumed": Case(_replace_and_vacuum),
    "replaced_without_key": Case(_replace_without_key),
    "files_missing": Case(_delete_source_files, before=""),
    "files_damaged": Case(_damage_source),
    "reserved_column": Case(_add_reserved_column),
    "no_such_key": Case(options="keys: [nr]", before=""),
    "column_renamed": Case(_rename_column, slow=False),
    "later_renamed": Case(_insert_and_rename, properties={"delta.columnMapping.mode": "name"}),
    "keys_changed": Case(options="keys: [v]"),
    "format_changed": Case(_insert, options="keys: [id], file_order: modified_time"),
    "keys_missing": Case(_update, options="keys: []", before="keys: []", slow=False),
    "keys_repeat": Case(_insert_again, before=""),
    "no_such_column": Case(options="keys: [id], columns: [id, w]", before=""),
    "bad_condition": Case(options="keys: [id], where: CAST(v AS int) = 1", before=""),
    "selection_changed": Case(options="keys: [id], where: id > 5"),
    "record_too_new": Case(_write_newer_record),
    "record_missing": Case(_lose_record),
    "foreign_file": Case(_add_foreign_file),
    "number_taken": Case(_add_number),
    "log_id_missing": Case(_lose_log_id),
    "feed_to_comparison": Case(options="keys: [id], changes: compare", before="keys: []"),
    "record_damaged": Case(_damage_record),
}
"""How each state of `STATES` happens."""


def _configured(folder: Path, spark: SparkSession, options: Mapping[str, str], ledger: str) -> Feed:
    tables = "".join(f"  - {{source: ./{name}, target: {name}, {each}}}\n" for name, each in options.items())
    (folder / "mirrorfeed.yml").write_text(f"landing_zone: ./zone\n{ledger}tables:\n{tables}")
    return mirrorfeed.load(folder / "mirrorfeed.yml", spark)


class Said:
    """What each command says about the tables of some cases."""

    def __init__(
        self, spark: SparkSession, folder: Path, cases: Mapping[str, Case], *, ledger: bool, after_runs: bool
    ) -> None:
        """If `after_runs` is True, the commands run after two failing runs of `publish`, otherwise before them."""
        tables, line = {}, "ledger: ./ledger\n" if ledger else ""
        for name, case in cases.items():
            tables[name] = DeltaTable(spark, folder / name, feed=case.feed, properties=case.properties)
            tables[name].insert(1)
        before = {name: case.before for name, case in cases.items() if case.before}
        _configured(folder, spark, before, line).publish().check()
        for name, case in cases.items():
            case.happen(Broken(tables[name], folder / "zone" / name))
        feed = _configured(folder, spark, {name: case.options for name, case in cases.items()}, line)
        commands: list[tuple[str, Callable[[], Result[Any]]]] = [
            ("dry-run", feed.dry_run),
            ("status", feed.status),
            ("doctor", lambda: feed.doctor(deep=True)),
            ("check-alerts", lambda: feed.check_alerts(deep=True)),
        ]
        runs: list[tuple[str, Callable[[], Result[Any]]]] = [("publish", feed.publish), ("publish again", feed.publish)]
        calls = runs + commands if after_runs else [*commands, *runs, ("status again", feed.status)]
        self.results = {name: run() for name, run in calls}
        self.failures = feed.report().to_dict()["failures"] if ledger else None

    def check(self, name: str, code: str) -> None:
        for command, result in self.results.items():
            own = [row for row in result.to_dict()["rows"] if row["table"] == name]
            if command == "check-alerts":
                assert (catalogue()[code].name, True) in [(row["name"], bool(row["fix"])) for row in own], own
            elif command == "doctor":
                assert (code, True) in [(row["code"], bool(row["fix"])) for row in own], own
            else:
                (error,) = [row["error"] or {} for row in own]
                if command == "status" and STATES[name].is_deep:
                    assert error == {}, own
                    continue
                assert (error.get("code"), bool(error.get("next"))) == (code, True), (command, own)
                assert f"{name}: {code}: " in repr(result)
            assert not result.ok
        if self.failures is not None:
            assert {row["error"] for row in self.failures if row["table"] == name} == {catalogue()[code].name}


@pytest.fixture(scope="module")
def said(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Said]:
    """Return what the commands say about the table of a case. All cases that are as slow and are found at the same time
    share one configuration."""

    @cache
    def of(slow: bool, is_found: bool) -> Said:
        cases = {name: case for name, case in CASES.items() if (case.slow, STATES[name].is_found) == (slow, is_found)}
        return Said(spark, tmp_path_factory.mktemp("blocked"), cases, ledger=slow, after_runs=not is_found)

    return lambda name: of(CASES[name].slow, STATES[name].is_found)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if CASES[name].slow else []) for name in STATES]
)
def test_table_that_cannot_be_published_has_the_same_code_and_a_fix_in_every_command(
    said: Callable[[str], Said], name: str
) -> None:
    said(name).check(name, STATES[name].code)
