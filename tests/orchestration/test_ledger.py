"""The ledger records every publication and every failure. No decision depends on it."""

from __future__ import annotations

import json
import shutil
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mirrorfeed.archive.archive_report import Share
from mirrorfeed.config.loader import load
from mirrorfeed.errors import MirrorfeedError, UnexpectedError
from mirrorfeed.landing.log_record import File, Record
from mirrorfeed.mirror.errors import mirror_not_reached
from mirrorfeed.mirror.verify.row_comparison import Difference, RowComparison
from mirrorfeed.monitor.report import read_report
from mirrorfeed.monitor.report_sections import QUERIES
from mirrorfeed.orchestration import ledger, ledger_maintenance
from mirrorfeed.orchestration.errors import LedgerNotWrittenError
from mirrorfeed.orchestration.ledger import (
    ADOPTED,
    ARCHIVE,
    BLOCKED,
    DIFFERENT,
    FAILED,
    PUBLISHED,
    RECOVERED,
    RESEEDED,
    UNVERIFIED,
    VERIFIED,
    LedgerRow,
    all_rows_query,
)
from mirrorfeed.orchestration.publish_run import publish_tables
from mirrorfeed.orchestration.run_context import RunContext
from mirrorfeed.publish.table_result import TableResult, add_record
from mirrorfeed.runtime.version import this_build
from mirrorfeed.source import versions
from mirrorfeed.source.errors import feed_off
from mirrorfeed.source.identifier import Source
from mirrorfeed.storage.prices import Prices
from tests.support.delta import DeltaTable
from tests.support.ledgers import read_ledger

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def add_publication(
    result: TableResult, after: int | None, to: int, *files: dict[str, int], renamed: float | None = 0.5
) -> None:
    record = Record(
        number=1,
        batch=f"{to}",
        time=NOON.isoformat(),
        source="main.sales.orders",
        source_id="id",
        from_version_exclusive=after,
        to_version_inclusive=to,
        columns=(),
        keys=("id",),
        next_file_number=1 + len(files),
        files=tuple(File(f"s{n}", n, rows, 100, "") for n, rows in enumerate(files, 1)),
    )
    add_record(result, record)
    result.measured[record.batch] = {
        "stage_seconds": 2.0,
        "record_seconds": 0.25,
        "lag_versions": 9 - to,
        "lag_seconds": 300.0,
        "retries": len(files),
    } | ({} if renamed is None else {"rename_seconds": renamed})


def test_each_publication_has_a_ledger_row_with_range_rows_and_lag() -> None:
    result = TableResult("sales.orders", latest=9, tries=2)
    add_publication(result, None, 4, {"insert": 3})
    add_publication(result, 4, 7, {"upsert": 2, "delete": 1}, {"upsert": 5}, renamed=None)
    first, second = ledger.rows([result], NOON)
    assert first == LedgerRow(
        NOON, "sales.orders", PUBLISHED, None, 4, delivery="upsert", inserts=3, files=1, bytes=100, stage_seconds=2.0,
        record_seconds=0.25, rename_seconds=0.5, lag_versions=5, lag_seconds=300.0, tries=2, retries=1,
    )  # fmt: skip
    assert second == LedgerRow(
        NOON, "sales.orders", PUBLISHED, 4, 7, delivery="upsert", upserts=7, deletes=1, files=2, bytes=200,
        stage_seconds=2.0, record_seconds=0.25, rename_seconds=None, lag_versions=2, lag_seconds=300.0, tries=2,
        retries=2,
    )  # fmt: skip


def test_adoption_is_not_a_publication() -> None:
    result = TableResult("sales.orders", latest=9)
    add_publication(result, None, 4)
    adoption = replace(result.records[0], next_file_number=17)
    assert [row.outcome for row in ledger.rows([replace(result, records=[adoption])], NOON)] == [ADOPTED]


@pytest.mark.parametrize(
    ("error", "outcome", "kind"),
    [
        (feed_off(table="main.sales.orders", version=4), BLOCKED, "FeedOff"),
        (UnexpectedError(doing="Publishing", kind="ValueError", reason="odd"), FAILED, "Unexpected"),
    ],
)
def test_error_that_stops_a_table_has_its_own_ledger_row(error: MirrorfeedError, outcome: str, kind: str) -> None:
    (row,) = ledger.rows([TableResult("sales.orders", published_version=4, latest=6, tries=3, error=error)], NOON)
    assert row == LedgerRow(
        NOON, "sales.orders", outcome, from_version=4, lag_versions=2, tries=3, error=kind, message=str(error)
    )


def test_reloaded_table_has_its_own_ledger_row_and_is_not_stopped() -> None:
    off = feed_off(table="main.sales.orders", version=4)
    result = TableResult("sales.orders", latest=9, reseeded=off)
    add_publication(result, None, 9, {"insert": 3})
    found = ledger.rows([result], NOON)
    assert [(row.outcome, row.error) for row in found] == [(PUBLISHED, None), (RESEEDED, "FeedOff")]
    assert RESEEDED not in ledger.STATE_OUTCOMES


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (
            RowComparison(7, 3, 3, 0),
            LedgerRow(NOON, "sales.a", VERIFIED, to_version=7, message="equal at version 7, 3 rows."),
        ),
        (
            RowComparison(7, 3, 2, 1, (Difference("id = 1", "name", "secret", None),)),
            LedgerRow(NOON, "sales.a", DIFFERENT, to_version=7, message="DIFFERENT at version 7: 3 rows in the source,"
                " 2 in the mirror, 1 of them differ. `mirrorfeed verify sales.a` shows the first of them."),
        ),
        (
            mirror_not_reached(table="main.a"),
            LedgerRow(
                NOON, "sales.a", UNVERIFIED, error="MirrorNotReached", message=str(mirror_not_reached(table="main.a"))
            ),
        ),
    ],
    ids=["equal", "different, without a value of the rows", "not compared"],
)  # fmt: skip
def test_verification_result_is_a_ledger_row(found: RowComparison | MirrorfeedError, expected: LedgerRow) -> None:
    assert ledger.comparison_row("sales.a", found, NOON) == expected


def test_archived_share_is_a_ledger_row() -> None:
    assert ledger.archive_row(Share("main.a", 4, 100, 3, None), NOON) == LedgerRow(
        NOON, "main.a", ARCHIVE, archived_share=0.75, archived_files=3, message="3 of 4 files archived."
    )
    prices = {
        "currency": "EUR",
        "standard": {"per_gib": 0, "per_10k_files": 0},
        "high": {"per_gib": 0, "per_10k_files": 0},
    }
    rates = Prices.model_validate(prices | {"stored": {"hot": 2, "archive": 1}})
    gib = 2**30
    full = ledger.archive_row(Share("main.a", 4, 9 * gib, 3, 5 * gib, 1, gib, {"0-7 d": gib}).priced(rates), NOON)
    assert full == LedgerRow(
        NOON,
        "main.a",
        ARCHIVE,
        archived_share=5 / 9,
        archived_files=3,
        archived_bytes=5 * gib,
        restored_bytes=gib,
        hot_bytes=5 * gib,
        bytes_by_age={"0-7 d": gib},
        month_cost=14.0,
        month_saving=4.0,
        currency="EUR",
        message="3 of 4 files archived, 5.0 GiB of 9.0 GiB; 1 restored.",
    )
    copied = ledger.archive_row(Share("main.a", 4, 9 * gib, 3, 5 * gib, 1, gib, copies=True).priced(rates), NOON)
    assert (copied.month_cost, copied.month_saving) == (15.0, 3.0)  # each GiB costs hot and archive storage
    assert ledger.archive_row(Share("main.a", 4, 9, 3, 5).priced(Prices.model_validate(prices)), NOON).currency is None


def test_table_without_new_changes_has_no_ledger_row() -> None:
    assert ledger.rows([TableResult("sales.orders", published_version=4, latest=4)], NOON) == []


def test_ledger_columns_are_the_fields_of_row() -> None:
    assert [name for name, _, _ in ledger.COLUMNS] == [field.name for field in fields(LedgerRow)]


@pytest.fixture(scope="module")
def after_a_run(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two tables, one of them without a feed, and their landing zone and ledger."""
    folder = tmp_path_factory.mktemp("fleet")
    DeltaTable(spark, folder / "a")
    DeltaTable(spark, folder / "silent", feed=False)
    file = folder / "mirrorfeed.yml"
    file.write_text(
        "landing_zone: ./zone\nledger: ./ledger\ntables:\n  - {source: ./a, target: a, keys: [id]}\n"
        "  - {source: ./silent, target: silent, keys: [id]}\n"
    )
    publish_tables(RunContext(spark, load(file)))
    return folder


@pytest.fixture
def fleet(spark: SparkSession, after_a_run: Path, tmp_path: Path) -> RunContext:
    return RunContext(spark, load(shutil.copytree(after_a_run, tmp_path / "fleet") / "mirrorfeed.yml"))


def test_recovered_table_without_new_changes_is_not_stopped(
    spark: SparkSession, fleet: RunContext, tmp_path: Path
) -> None:
    config, table = fleet.config, tmp_path / "fleet/a"
    moved = table.rename(tmp_path / "away")
    publish_tables(fleet, ["a"])
    moved.rename(table)
    for _ in range(2):
        publish_tables(fleet, ["a"])
    found = [row for row in read_ledger(spark, Source(path=str(tmp_path / "fleet/ledger"))) if row.table == "a"]
    assert [row.outcome for row in found] == [PUBLISHED, FAILED, RECOVERED]  # only once
    assert found[-1].message == "The problem is solved, and nothing is new."
    assert (found[-1].from_version, found[-1].lag_versions) == (0, 0)
    assert config.ledger
    states = read_report(spark, config.ledger, datetime.now(UTC)).figures["tables"]
    assert [row["state"] for row in states if row["table"] == "a"] == [RECOVERED]
    known = ledger.read_states(spark, config.ledger, ["a", "silent", "never"], NOON)
    assert {name: (each.stopped, each.publications) for name, each in known.items()} == {
        "a": (False, [found[0].key]),
        "silent": (True, []),
    }
    assert known["a"].reported_at == found[-1].time
    assert ledger.read_states(spark, config.ledger, ["a"], datetime.now(UTC)) == {}
    wanted = [found[0], replace(found[0], table="silent"), replace(found[0], to_version=9)]
    assert ledger.find_publications(spark, config.ledger, wanted) == {("a", found[0].key)}


def test_error_about_an_unwritten_ledger_has_a_reason() -> None:
    error = LedgerNotWrittenError(ledger="main.mirrorfeed.ledger", reason="no")
    assert error.problem == "The ledger main.mirrorfeed.ledger was not written: no."


def test_run_appends_ledger_rows_in_one_commit_and_survives_its_failure(
    spark: SparkSession, fleet: RunContext, tmp_path: Path
) -> None:
    config, table = fleet.config, DeltaTable.at(spark, tmp_path / "fleet/a")
    assert config.ledger == Source(path=str(tmp_path / "fleet/ledger"))
    table.insert(1, 2)
    publish_tables(fleet, ["a"])
    found = read_ledger(spark, config.ledger)
    assert [(row.outcome, row.to_version, row.upserts, row.error) for row in found if row.table == "a"] == [
        (PUBLISHED, 0, 0, None),
        (PUBLISHED, 1, 2, None),
    ]
    assert [(row.outcome, row.error) for row in found if row.table == "silent"] == [(BLOCKED, "FeedOff")]
    assert all(row.time.tzinfo for row in found)
    assert {row.build for row in found} == {this_build()}
    records = [json.loads(file.read_text()) for file in (tmp_path / "fleet/zone/a/_mirrorfeed").glob("*/0*.json")]
    assert [record["build"] for record in records] == [this_build()] * 2
    assert len(versions.read_commits(spark, config.ledger)) == 1 + 2  # created once, then one commit per run

    table.insert(3)
    no_ledger = config.model_copy(update={"ledger": table.source})
    with pytest.warns(UserWarning, match="The ledger .* was not written"):
        (outcome,) = publish_tables(replace(fleet, config=no_ledger), ["a"])
    assert (outcome.error, outcome.published_version) == (None, 2)
    assert len(table.rows()) == 3


def test_older_ledger_is_read_with_defaults_and_gets_missing_columns_before_its_next_row(
    spark: SparkSession, tmp_path: Path
) -> None:
    DeltaTable(spark, tmp_path / "silent", feed=False)
    table = DeltaTable(spark, tmp_path / "ledger", "time timestamp, `table` string, outcome string, inserts bigint")
    table.sql("INSERT INTO {} VALUES (timestamp'2026-03-01T12:00:00Z', 'a', 'published', 3)")
    before = LedgerRow(NOON, "a", PUBLISHED, inserts=3)
    assert read_ledger(spark, table.source) == [before]
    file = tmp_path / "mirrorfeed.yml"
    file.write_text(
        "landing_zone: ./zone\nledger: ./ledger\ntables: [{source: ./silent, target: silent, keys: [id]}]\n"
    )
    publish_tables(RunContext(spark, load(file)))
    grown = spark.read.option("versionAsOf", table.latest - 1).table(table.source.sql)
    assert (sorted(grown.columns), grown.count()) == (sorted(name for name, _, _ in ledger.COLUMNS), 1)
    found = read_ledger(spark, table.source)
    assert [(row.outcome, row.build) for row in found] == [(PUBLISHED, before.build), (BLOCKED, this_build())]
    assert found[0] == before


@pytest.mark.slow
def test_changed_bytes_are_summed_per_table_also_in_a_ledger_of_a_newer_release(
    spark: SparkSession, tmp_path: Path
) -> None:
    place, hour = Source(path=str(tmp_path / "ledger")), timedelta(hours=1)
    changes = LedgerRow(NOON, "a", PUBLISHED, from_version=1, to_version=2, bytes=10)
    snapshot = LedgerRow(NOON + hour, "a", PUBLISHED, to_version=1, bytes=1000)
    others = [replace(changes, table="b", bytes=100), replace(changes, time=NOON - hour), replace(changes, bytes=3)]
    ledger.append(spark, place, [changes, snapshot, *others])
    assert ledger.changed_since(spark, place, ["a"], NOON) == 13
    assert ledger.changed_since(spark, place, ["never"], NOON) == 0
    spark.sql(f"ALTER TABLE {place.sql} ADD COLUMN later string FIRST")
    ledger.append(spark, place, [snapshot])
    assert read_ledger(spark, place)[-2:] == [replace(snapshot, build=this_build())] * 2


def files_of(spark: SparkSession, place: Source) -> list[str]:
    return sorted(Path(file).parent.name for file in spark.read.table(place.sql).inputFiles())


@pytest.mark.slow
def test_queries_read_only_files_of_their_time_and_maintenance_merges_past_days(
    spark: SparkSession, tmp_path: Path
) -> None:
    place, now = Source(path=str(tmp_path / "ledger")), datetime.now(UTC)
    rows = [LedgerRow(now - timedelta(days=days), "a", PUBLISHED, 1, 2) for days in (0, 1, 100, 200)]
    for _ in range(2):
        assert ledger.append(spark, place, rows) is None
    today, yesterday, older, oldest = (f"utc_day={row.time:%Y-%m-%d}" for row in rows)
    assert files_of(spark, place) == [*[oldest] * 2, *[older] * 2, *[yesterday] * 2, *[today] * 2]
    view = all_rows_query(spark, place, in_one_task=False)
    for name, query in QUERIES.items():
        files = spark.sql(f"WITH ledger AS ({view}) {query}").inputFiles()
        assert not any(day in file for file in files for day in (older, oldest)), name
    ledger_maintenance.maintain(spark, place, 150, now)
    assert files_of(spark, place) == [older, yesterday, *[today] * 2]
    assert read_ledger(spark, place) == [replace(row, build=this_build()) for row in rows[2::-1] for _ in range(2)]
    latest = len(versions.read_commits(spark, place))
    ledger_maintenance.maintain(spark, place, None, now)
    commits = versions.read_commits(spark, place)[latest:]
    assert {commit.operation for commit in commits} <= {"VACUUM START", "VACUUM END"}  # no file is merged again
