"""Messages about histories: errors and the results of runs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mirrorfeed.cli import main
from mirrorfeed.config.loader import load
from mirrorfeed.config.model import Table
from mirrorfeed.errors import error_name
from mirrorfeed.history.append import AppendProgress
from mirrorfeed.history.errors import HistoryColumnsError, append_conflict, history_empty, no_history, not_in_history
from mirrorfeed.history.replay import resolve
from mirrorfeed.orchestration import histories
from mirrorfeed.orchestration.histories import History, append_row, select_tables
from mirrorfeed.publish.change_sources.feed_gap import _schema_breaks as breaks
from mirrorfeed.source.errors import FeedGapError
from mirrorfeed.source.identifier import Source
from tests.history.test_history_record import BOTH, at
from tests.raised import raises
from tests.support.clock import FakeClock

NO_SPARK: Any = None
GAP = FeedGapError(table="main.sales.orders", published=4, where=5, reason="the log has no commit")
BROKEN = HistoryColumnsError(table="main.sales.orders", version=5, changes=["'id' was integer and is long"])


@pytest.mark.parametrize(("requested", "version"), [(3, 3), (10, 10), (at(4.5), 4), (at(9), 9)])
def test_version_or_time_in_the_history_is_found(requested: int | datetime, version: int) -> None:
    assert resolve("h", BOTH, requested) == version


@pytest.mark.parametrize("requested", [0, 2, 7, 12, at(2), at(7), at(12)])
def test_version_or_time_outside_the_history_is_rejected_with_its_ranges(requested: int | datetime) -> None:
    with raises(not_in_history) as caught:
        resolve("h", BOTH, requested)
    assert list(caught.value.stored) == [
        "versions 3 to 6 (2026-03-01 12:03:00 UTC to 2026-03-01 12:06:00 UTC)",
        "versions 9 to 11 (2026-03-01 12:09:00 UTC to 2026-03-01 12:11:00 UTC)",
    ]
    expected = (
        f"Version {requested}"
        if isinstance(requested, int)
        else f"The time {requested.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    )
    assert caught.value.problem == f"{expected} is not in the history h."


def test_run_lists_appended_versions_and_snapshots() -> None:
    assert (
        append_row("orders", AppendProgress(newest_version=11)).what,
        append_row("orders", AppendProgress(newest_version=11)).remarks(),
    ) == (
        "nothing new",
        (),
    )
    failed = append_row("orders", AppendProgress(newest_version=11), append_conflict(history="h", conflicts=5))
    assert (failed.what, failed.ok) == ("failed", False)
    several = append_row("orders", AppendProgress(list(BOTH[:2])))
    assert (several.what, several.rows, several.from_version_exclusive, several.to_version_inclusive) == (
        *("versions 3 to 5", 4, 2, 5),
    )
    again = append_row("orders", AppendProgress([BOTH[4]], 9, [GAP]))
    assert (again.what, again.rows) == ("version 9", 2)
    assert again.remarks() == (
        f"orders: continued with a snapshot, because the versions before it are lost. {GAP.code}: {GAP}",
    )
    row = History("orders", "h", "2026-03-01T12:03:00+00:00", ((3, 6), (9, 11)), 12, 1, 10)
    assert [cell.value for cell in row.cells().values()] == [
        *("orders", "h", "2026-03-01 12:03", "3 to 6, 9 to 11", "12", 1, 10),
    ]


def test_tables_without_a_history_are_skipped_unless_named(tmp_path: Path) -> None:
    file = tmp_path / "mirrorfeed.yml"
    tables = "tables:\n  - {source: main.a, target: a}\n  - {source: main.b, target: b, history: false}\n"
    file.write_text(f"landing_zone: /lz\nhistory: main.history\n{tables}", encoding="utf-8")
    config = load(file)
    assert [str(table.target) for table in select_tables(config)] == ["a"]
    with raises(no_history, match="sets no history for b"):
        select_tables(config, ["a", "b"])
    file.write_text(f"landing_zone: /lz\n{tables}", encoding="utf-8")
    with raises(no_history, match="sets no history for a, b"):
        select_tables(load(file))


def test_histories_run_independently_in_order_of_priority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[str] = []

    def append(_: object, table: Table, *, reseed: bool, progress: AppendProgress) -> None:
        requested.append(str(table.target))
        if requested.count("a") == 1 and requested[-1] == "a":
            raise append_conflict(history="h", conflicts=5)
        if requested[-1] == "b":
            raise history_empty(history="h")
        progress.newest_version = 7

    monkeypatch.setattr(histories, "append_versions", append)
    monkeypatch.setattr(histories, "Clock", FakeClock)
    file = tmp_path / "mirrorfeed.yml"
    tables = "".join(f"  - {{source: main.{name}, target: {name}, priority: {at}}}\n" for at, name in enumerate("abc"))
    file.write_text(f"landing_zone: /lz\nhistory: main.h\nmax_parallel_tables: 1\ntables:\n{tables}", encoding="utf-8")
    found = histories.append_histories(lambda: NO_SPARK, load(file))
    assert [(each.table, each.newest_version, each.error and error_name(each.error)) for each in found] == [
        ("a", 7, None),
        ("b", None, "HistoryEmpty"),
        ("c", 7, None),
    ]
    assert requested == ["c", "b", "a", "a"]


@pytest.mark.parametrize("requested", [[], ["--to-version", "3", "--as-of", "2026-03-01"]], ids=["neither", "both"])
def test_replay_needs_either_a_version_or_a_time(requested: list[str]) -> None:
    found = CliRunner().invoke(main, ["history", "replay", "orders", "--into", "./rebuilt", *requested])
    assert found.exit_code == 2
    assert "Use either --to-version or --as-of." in found.output


def test_replay_target_is_a_name_or_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    requested = ["main.audit.orders", "./then", "abfss://lake@account.dfs.core.windows.net/then"]
    assert [str(Source.parse_argument(each)) for each in requested] == [requested[0], f"{tmp_path}/then", requested[2]]


def test_only_incompatible_column_changes_end_a_history_range() -> None:
    assert breaks(BOTH[:4]) == ()
