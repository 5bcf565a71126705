"""Differences in a mirror are repaired: the decisions, and the whole path through the commands."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable as AnyDeltaTable
from deltalake import write_deltalake
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from fixtures.memory import MemoryStore
from fixtures.mirror import canonical
from mirrorfeed.cli import main
from mirrorfeed.config.model import Config, Table
from mirrorfeed.config.options import Pause
from mirrorfeed.orchestration import run_context, table_task, verify_and_repair
from mirrorfeed.orchestration.errors import TableTimeoutError, too_many_to_repair
from mirrorfeed.orchestration.exporter import Exporter
from mirrorfeed.orchestration.ledger_writer import LedgerWriter
from mirrorfeed.orchestration.run_context import Callbacks, RunContext
from mirrorfeed.orchestration.verify_and_repair import count_repairable
from mirrorfeed.publish.files.staging_job import Staged, StagingJob
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.publish.table_result import TableResult
from mirrorfeed.source.errors import SourceRecreatedError
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.snapshot_or_range import Facts
from mirrorfeed.storage.errors import StorageUnavailableError
from tests.publish.scenarios import plan, two_orders
from tests.support.clock import FakeClock, Time
from tests.support.delta import DeltaTable
from tests.support.entries import FOLDER
from tests.support.json_output import run_json
from tests.support.tables import TableFeed

NO_SPARK: Any = None


@pytest.mark.parametrize(
    ("wrong", "by_time", "max_keys", "keys", "remaining"),
    [
        ((3,), False, None, 3, ""),
        ((3,), False, 3, 3, ""),
        ((0,), False, 0, 0, ""),
        ((3, 2), False, None, 3, ""),
        (
            (3, 2),
            True,
            None,
            1,
            "the mirror has duplicates of 2 keys, and the order of its files does",
        ),
        ((3, 0), True, None, 3, ""),
        (
            (1, 0, 1),
            False,
            None,
            1,
            "1 row of the mirror cannot be replaced, because the key contains NULL",
        ),
    ],
)
def test_repairable_keys_depend_on_differing_keys(
    wrong: tuple[int, ...], by_time: bool, max_keys: int | None, keys: int, remaining: str
) -> None:
    count, unrepaired = count_repairable("s.t", *wrong, by_time=by_time, max_keys=max_keys)
    assert (count, bool(unrepaired)) == (keys, bool(remaining))
    assert remaining in str(unrepaired)


def test_repair_above_the_key_limit_is_refused() -> None:
    count, refused = count_repairable("s.t", 4, max_keys=3)
    assert count == 0
    assert too_many_to_repair.matches(refused)
    assert (refused.table, refused.keys, refused.at_most) == ("s.t", 4, 3)


@dataclass(frozen=True)
class Failing(TableFeed):
    """Fails once when the rows of a repair are read."""

    fail: Callable[[], None] = lambda: None

    def stage(self, what: Any, facts: Facts, table: Table, job: StagingJob) -> Staged:
        self.fail()
        return super().stage(what, facts, table, job)


class Repairs:
    """Repairs of a published table, with a simulated clock and without Spark."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        self.store, self.source, self.clock = MemoryStore(), two_orders(), Time()
        self.steps, self.written, self.sent = list[str](), list[TableResult](), list[TableResult]()
        publish(TableFeed(self.source), self.store, plan())
        self.source.update(2, status="not published")
        self.failures = iter([seconds])
        monkeypatch.setattr(run_context, "zone_of", lambda _: self.store)
        monkeypatch.setattr(table_task, "source_for", lambda *_: Failing(self.source, fail=self.fail))
        monkeypatch.setattr(LedgerWriter, "write", lambda _, results: self.written.extend(results))
        monkeypatch.setattr(Exporter, "add", lambda _, finished: self.sent.append(finished.result))

    def fail(self) -> None:
        if seconds := next(self.failures, None):
            self.clock.now += seconds
            raise StorageUnavailableError(action="create", address="a", reason="timeout")

    def repair(self, table: Table, *ids: int) -> TableResult:
        location = Source(path="/nowhere/ledger")
        config = Config(landing_zone="/nowhere", tables=(table,), ledger=location, lineage="openlineage")
        callbacks = Callbacks(on_step=lambda _, step: self.steps.append(step), on_problem=lambda _: None)
        clock = FakeClock(self.clock.sleep, self.clock.monotonic)
        return verify_and_repair.publish_again(RunContext(NO_SPARK, config, callbacks, clock), table, [(ids, False)])


def test_result_of_a_repair_is_written_after_a_second_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    repairs = Repairs(monkeypatch, 10.0)
    paused = Pause(reason="moved", until=datetime.now(UTC) + timedelta(hours=1))
    result = repairs.repair(plan(paused=paused), 1)
    (record,) = result.records
    assert (result.error, result.tries, result.upserts, repairs.clock.pauses) == (None, 2, 1, [2.0])
    assert (record.is_repair, record.to_version_inclusive, result.latest) == (True, 1, 2)
    assert repairs.written == repairs.sent == [result]
    repairing = "publishing a repair at version 1"
    assert repairs.steps == [repairing, repairing, "published up to version 1: 1 upsert, 1 file"]


def test_repair_over_its_timeout_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    repairs = Repairs(monkeypatch, 61.0)
    result = repairs.repair(plan(table_timeout_minutes=1), 1)
    assert isinstance(result.error, TableTimeoutError)
    assert (result.tries, result.records, repairs.clock.pauses) == (1, [], [])
    assert repairs.written == [result]


@pytest.mark.parametrize("options", [{"on_replace": "reseed"}, {"on_replace": "compare"}])
def test_repair_of_a_recreated_source_reloads_nothing(monkeypatch: pytest.MonkeyPatch, options: dict[str, str]) -> None:
    repairs = Repairs(monkeypatch, 0.0)
    repairs.source.id = "another id"
    before = repairs.store.copy().list(FOLDER)
    result = repairs.repair(plan(**options), 1)
    assert isinstance(result.error, SourceRecreatedError)
    assert (result.tries, result.reseeded, repairs.store.list(FOLDER)) == (1, None, before)


class Shop:
    """One table that is published and replicated, in its own folder."""

    def __init__(self, table: DeltaTable, folder: Path, keys: str, options: str = "") -> None:
        self.spark, self.folder, self.table = table.spark, folder, table
        table = f"{{source: ./source, target: s.t, keys: [{keys}]}}"
        text = f"landing_zone: landing\n{options}tables:\n  - {table}\n"
        (folder / "landing").mkdir(exist_ok=True)
        (folder / "mirrorfeed.yml").write_text(text, encoding="utf-8")

    @classmethod
    def copied(cls, original: Shop, folder: Path, options: str = "") -> Shop:
        """Copy the source and the landing zone of another shop, with a new mirror. The replica treats a copied folder
        as one that was deleted and recreated."""
        table = DeltaTable.copied(original.table, folder / "source")
        shutil.copytree(original.folder / "landing", folder / "landing")
        shop = cls(table, folder, "id", options)
        shop.replicate()
        return shop

    def run(self, *arguments: str, code: int = 0) -> str:
        configured = () if arguments[0] in ("replicate", "lint") else ("--config", str(self.folder / "mirrorfeed.yml"))
        found = CliRunner().invoke(main, [*arguments, *configured], env={"COLUMNS": "400"})
        assert found.exit_code == code, found.output
        return " ".join(found.output.split())

    def replicate(self) -> str:
        return self.run("replicate", str(self.folder / "landing"), str(self.folder / "mirror"))

    def repair(self, *arguments: str, code: int = 0) -> str:
        return self.run("repair", "s.t", "--mirror", str(self.folder / "mirror"), *arguments, code=code)

    def verify(self, code: int = 0) -> str:
        return self.run("verify", "--mirror", str(self.folder / "mirror"), code=code)

    def spoil(self, *statements: str) -> None:
        mirror = DeltaTable.at(self.spark, self.folder / "mirror/s/t")
        for statement in statements:
            mirror.sql(statement)

    @property
    def mirrored(self) -> list[dict[str, Any]]:
        """Rows of the mirror, after it applied all files."""
        self.replicate()
        rows: list[dict[str, Any]] = AnyDeltaTable(self.folder / "mirror/s/t").to_pyarrow_table().to_pylist()
        return rows

    @property
    def records(self) -> list[tuple[int | None, int]]:
        found = sorted((self.folder / "landing").glob("s.schema/t/_mirrorfeed/*/*.json"))
        read = [json.loads(path.read_text(encoding="utf-8")) for path in found]
        return [(record["from_version_exclusive"], record["to_version_inclusive"]) for record in read]


NESTED = "region string, `a.b` int, at timestamp, price decimal(9,2), tags map<string, int>, note string"
ROWS = (
    "INSERT INTO {} SELECT if(id % 2 = 0, 'north', 'süd'), cast(id AS int), timestamp '2026-01-01' +"
    " make_interval(0, 0, 0, id), id + 0.25, map('n', cast(id AS int)),"
    " if(id = 3, NULL, concat('note ', id)) FROM range(6)"
)


TEXT = "format: delimited\ndelimited: {schema_definition: false}\n"
FULL = "default_row_marker: upsert\nchanges: full\n"


@pytest.mark.parametrize(
    "options",
    [
        pytest.param("", id="parquet"),
        # A repair writes its files like a publication. `tests/e2e/test_file_formats` covers all formats.
        pytest.param(TEXT, id="text without declared types", marks=pytest.mark.soak),
        pytest.param(FULL, id="upserts without a marker", marks=pytest.mark.soak),
    ],
)
def test_repair_corrects_every_kind_of_difference(spark: SparkSession, tmp_path: Path, options: str) -> None:
    shop = Shop(DeltaTable(spark, tmp_path / "source", NESTED), tmp_path, "region, at", options)
    shop.table.sql(ROWS)
    assert "s.t is not published yet" in shop.repair(code=1)
    shop.run("publish")
    shop.replicate()

    published = shop.records
    shop.table.sql("DELETE FROM {} WHERE note = 'note 5'")  # after the published version
    shop.spoil(
        "DELETE FROM {} WHERE note = 'note 0'",
        "UPDATE {} SET note = 'wrong', tags = NULL WHERE note = 'note 1'",
        "UPDATE {} SET region = 'west' WHERE note = 'note 4'",
    )
    mirror = AnyDeltaTable(tmp_path / "mirror/s/t")
    write_deltalake(mirror, mirror.to_pyarrow_table(filters=[("note", "=", "note 2")]), mode="append")
    output = shop.repair()
    assert "published again at version 1: 4 upserts, 2 deletes, 1 file" in output
    assert shop.records == [*published, (1, 1)]
    log_output = shop.run("log", "s.t")
    assert "repair at version 1" in log_output
    shop.replicate()
    assert "nothing to repair, equal at version 1, 6 rows" in shop.repair()
    repaired = shop.mirrored
    shop.run("publish")
    mirrored = shop.mirrored
    assert sorted(mirrored, key=str) == sorted((row for row in repaired if row["note"] != "note 5"), key=str)
    assert len(mirrored) == 5
    shop.run("lint", str(tmp_path / "landing"))


@pytest.fixture(scope="module")
def published(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """Rows 1 to 4, at version 1."""
    folder = tmp_path_factory.mktemp("published")
    shop = Shop(DeltaTable(spark, folder / "source"), folder, "id")
    shop.table.insert(1, 2, 3, 4)
    shop.run("publish")
    return shop


@pytest.mark.slow
def test_repair_with_a_condition_works_with_and_without_the_mirror(published: Shop, tmp_path: Path) -> None:
    shop = Shop.copied(published, tmp_path)
    shop.spoil("UPDATE {} SET v = 'wrong' WHERE id <= 2", "INSERT INTO {} VALUES (-1, 'only here')")

    assert "2 upserts, 1 file" in shop.run("repair", "s.t", "--source-only", "--where", "id BETWEEN -5 AND 2")
    assert canonical(shop.mirrored) == canonical([*shop.table.rows(), {"id": -1, "v": "only here"}])
    configured = ("--mirror", str(shop.folder / "mirror"), "--config", str(shop.folder / "mirrorfeed.yml"))
    (repaired,) = run_json("repair", "s.t", "--where", "id < 3", *configured).rows
    assert "2 upserts, 1 delete, 1 file" in repaired["what"]
    assert [repaired[name] for name in ("upserts", "deletes", "published_version", "error")] == [2, 1, 1, None]
    assert canonical(shop.mirrored) == canonical(shop.table.rows())

    assert "nothing to repair" in shop.repair("--where", "id > 100")
    assert "Error MF1006" in shop.run("repair", "s.t", "--source-only", code=1)
    records = BufferingHandler(capacity=9)
    log = PySparkLogger.getLogger("SQLQueryContextLogger")
    log.addHandler(records)
    assert "The condition 'no_such = 1' cannot be applied to" in shop.repair("--where", "no_such = 1", code=1)
    assert "The condition 'id <' cannot be applied to" in shop.repair("--where", "id <", code=1)
    log.removeHandler(records)
    assert records.buffer == []  # documentation pages of Java, which Spark writes there
    assert len(shop.records) == 3

    shutil.rmtree(shop.table.path)
    for arguments in (("--source-only",), ("--mirror", str(shop.folder / "mirror"))):
        refused = shop.run("repair", "s.t", *arguments, "--where", "id < 3", code=1)
        assert f"Error MF2002: There is no Delta table at {shop.table.path}" in refused


def test_verify_repairs_up_to_the_limit_and_still_fails(published: Shop, tmp_path: Path) -> None:
    shop = Shop.copied(published, tmp_path, "auto_repair_max_keys: 2\n")
    shop.spoil("UPDATE {} SET v = 'wrong' WHERE id <= 3")
    output = shop.verify(code=1)
    assert "DIFFERENT at version 1" in output
    assert "MF3405: s.t has 3 keys to repair" in output
    assert len(shop.records) == 1

    shop.spoil("UPDATE {} SET v = 'v3' WHERE id = 3")
    output = shop.verify(code=1)
    assert "DIFFERENT at version 1" in output
    assert "s.t: published again at version 1: 2 upserts, 1 file" in output
    assert canonical(shop.mirrored) == canonical(shop.table.rows())


@pytest.mark.slow
def test_differences_that_need_a_rebuild_are_reported(spark: SparkSession, published: Shop, tmp_path: Path) -> None:
    shop = Shop.copied(published, tmp_path / "keyed")
    shop.spoil("INSERT INTO {} VALUES (NULL, 'lost'), (5, 'too many')")
    output = shop.repair(code=1)
    assert "published again at version 1: 1 delete, 1 file" in output
    assert "s.t cannot be repaired row by row: 1 row of the mirror cannot be replaced" in output
    mirror = tmp_path / "keyed/mirror/s/t"
    keys = AnyDeltaTable(mirror).to_pyarrow_table().select(["id"])
    write_deltalake(mirror, keys, mode="overwrite", schema_mode="overwrite")
    assert "s.t cannot be repaired row by row: 'v' is missing. Run `mirrorfeed rebuild s.t --config " in shop.repair(
        code=1
    )

    bare = Shop(DeltaTable(spark, tmp_path / "bare/source"), tmp_path / "bare", "")
    bare.table.insert(1, 2)
    bare.run("publish")
    bare.replicate()
    assert "s.t cannot be repaired row by row: the table has no keys" in bare.repair(code=1)


@pytest.mark.slow
def test_key_with_two_source_rows_is_not_repaired(spark: SparkSession, tmp_path: Path) -> None:
    shop = Shop(DeltaTable(spark, tmp_path / "source"), tmp_path, "id", "validate_keys: none\n")
    shop.table.insert(1, 1, 2)
    shop.run("publish")
    shop.replicate()
    shop.spoil("DELETE FROM {} WHERE id = 1")
    assert "at version 1 a key is not unique (id = 1)" in shop.repair(code=1)
    assert len(DeltaTable.at(spark, tmp_path / "mirror/s/t").rows()) == 1
