"""How far a table has come: what counts as waiting, for which step and since when, and what is not known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mirrorfeed.config import Config
from mirrorfeed.landing.record import PublishedFile, Record
from mirrorfeed.monitor.facts import TableFacts
from mirrorfeed.monitor.freshness import AHEAD, NOTHING_PUBLISHED, Beyond, Freshness, Step, freshness
from mirrorfeed.monitor.watch import ledger_rows
from mirrorfeed.orchestration import ledger

NOW = datetime(2026, 3, 14, 9, 30, tzinfo=UTC)


def ago(minutes: float) -> datetime:
    return NOW - timedelta(minutes=minutes)


def record(number: int, minutes: float, *files: int, next_: int = 0) -> Record:
    """Record `number`, made so many minutes ago, with these file numbers; `next_` where it has none."""
    made = tuple(PublishedFile(f"s{n}", n, {"upsert": 1}, 10, "") for n in files)
    following = files[-1] + 1 if files else next_
    return Record(number, "b", ago(minutes).isoformat(), "s", "id", number - 1, number, (), (), following, made)


RECORDS = [record(3, 10, 4), record(2, 20, 2, 3), record(1, 30, 1)]
"""The newest first: files 1; 2 and 3; 4."""


def waits(found: Freshness) -> dict[str, float]:
    """In minutes, by step."""
    return {step.value: seconds / 60 for step in AHEAD if (seconds := found.behind(step, NOW))}


@pytest.mark.parametrize(
    ("records", "left", "published", "consumed", "expected"),
    [
        pytest.param(RECORDS, [4], 10, 10, {}, id="the last file stays and counts as taken"),
        pytest.param(RECORDS, [], 10, 10, {}, id="nothing is left"),
        pytest.param(RECORDS, [3, 4], 10, 20, {"consumed": 10}, id="the oldest of two may have been taken"),
        pytest.param(RECORDS, [2, 3, 4], 10, 30, {"consumed": 20}, id="a record that is taken in part waits"),
        pytest.param(RECORDS, [1, 2, 3, 4], 10, 30, {"consumed": 20}, id="of all files the oldest may be taken"),
        pytest.param(RECORDS[:1], [3, 4], 10, None, {"consumed": 10}, id="older records are gone"),
        pytest.param([record(4, 5, next_=5), *RECORDS], [4], 10, 10, {}, id="a range without rows is no file"),
        pytest.param([record(4, 5, next_=5)], [4], None, None, {}, id="only records without files are kept"),
        pytest.param([record(4, 5, next_=5)], [3, 4], None, None, {"consumed": 5}, id="which wait so long at least"),
    ],
)
def test_the_files_that_are_left_tell_what_was_taken(
    records: list[Record], left: list[int], published: float | None, consumed: float | None, expected: dict[str, float]
) -> None:
    found = freshness(records, left, ago(12), None)
    assert (found.published, found.consumed) == tuple(
        None if each is None else ago(each) for each in (published, consumed)
    )
    assert waits(found) == expected
    assert set(found.unknown) == {Step.MIRRORED, Step.QUERYABLE}


@pytest.mark.parametrize(
    ("unpublished", "unfinished", "published", "expected"),
    [
        (None, False, 10, {}),
        (ago(7), False, 10, {"published": 7}),
        (ago(7), True, 20, {"published": 10}),
        (None, True, 20, {"published": 10}),
    ],
)
def test_what_is_committed_waits_until_its_files_have_their_names(
    unpublished: datetime | None, unfinished: bool, published: float, expected: dict[str, float]
) -> None:
    found = freshness(RECORDS, [3], ago(5), unpublished, unfinished=unfinished)
    assert found.published == ago(published)
    assert waits(found) == expected


@pytest.mark.parametrize(
    ("beyond", "expected"),
    [
        pytest.param(Beyond(ago(9), ago(8)), {}, id="through"),
        pytest.param(Beyond(ago(15), ago(14)), {"mirrored": 10}, id="the newest is not in the mirror"),
        pytest.param(Beyond(ago(25), ago(24)), {"mirrored": 20}, id="since the oldest that is not"),
        pytest.param(Beyond(None, None), {"mirrored": 30}, id="no such table yet"),
        pytest.param(Beyond(ago(9), None), {}, id="an endpoint that took up what there is"),
        pytest.param(Beyond(ago(9), ago(11)), {}, id="and found nothing new since"),
        pytest.param(Beyond(ago(9), None, refused=True), {"queryable": 9}, id="never seen"),
        pytest.param(Beyond(ago(9), ago(11), refused=True), {"queryable": 9}, id="seen as it was before"),
        pytest.param(Beyond(ago(9), ago(8), refused=True), {}, id="a failure with nothing new"),
        pytest.param(Beyond(ago(9), unknown={Step.QUERYABLE: "no"}), {}, id="of the endpoint nothing is known"),
    ],
)
def test_what_is_visible_waits_for_the_mirror_and_that_for_its_endpoint(
    beyond: Beyond, expected: dict[str, float]
) -> None:
    assert waits(freshness(RECORDS, [4], ago(12), None, beyond=beyond)) == expected


@pytest.mark.parametrize("unfinished", [False, True])
def test_of_a_table_that_was_never_published_nothing_is_guessed(unfinished: bool) -> None:
    found = freshness(RECORDS[:1] if unfinished else [], [], ago(5), None, unfinished=unfinished)
    known = {Step.PUBLISHED} if unfinished else set()
    assert {step for step in AHEAD if found.behind(step, NOW) is not None} == known
    assert found.unknown[Step.CONSUMED] == NOTHING_PUBLISHED
    assert found.to_dict()["published"] is None


def test_no_more_records_are_read_than_are_needed() -> None:
    read: list[int] = []

    def records() -> Iterator[Record]:
        for each in RECORDS:
            read.append(each.number)
            yield each

    freshness(records(), [4], ago(12), None)
    assert read == [3]


def test_programs_are_told_every_time_by_its_name_and_what_is_not_known() -> None:
    told: dict[str, Any] = freshness(RECORDS, [3, 4], None, ago(7)).to_dict()
    assert (told["committed"], told["consumed"], told["queryable"]) == (None, ago(20).isoformat(), None)
    waiting = {"published": ago(7).isoformat(), "consumed": ago(10).isoformat(), "mirrored": None, "queryable": None}
    assert told["waiting_since"] == waiting
    assert set(told["unknown"]) == {"committed", "mirrored", "queryable"}


def test_people_are_told_in_a_line() -> None:
    assert str(freshness(RECORDS, [3, 4], ago(12), None)) == (
        "committed 2026-03-14 09:18:00, published 2026-03-14 09:20:00, consumed 2026-03-14 09:10:00 (something waits),"
        " mirrored not known, queryable not known"
    )


def test_clocks_that_disagree_make_no_wait_negative() -> None:
    assert freshness(RECORDS, [4], NOW, NOW + timedelta(seconds=3)).behind(Step.PUBLISHED, NOW) == 0


def test_the_ledger_tells_the_times_and_for_how_long_something_had_waited() -> None:
    found = freshness(RECORDS, [3, 4], ago(12), None, beyond=Beyond(ago(15), unknown={Step.QUERYABLE: "no"}))
    facts = TableFacts("sales.orders", "a.b.c", fresh=found, at=NOW)
    (row,) = ledger_rows(Config(landing_zone="zone", tables=()), [facts, replace(facts, fresh=None)])
    assert (row.time, row.table, row.outcome) == (NOW, "sales.orders", ledger.WATCHED)
    assert (row.committed_at, row.published_at, row.consumed_at) == (ago(12), ago(10), ago(20))
    assert (row.mirrored_at, row.queryable_at) == (ago(15), None)
    assert (
        row.published_lag_seconds,
        row.consumed_lag_seconds,
        row.mirrored_lag_seconds,
        row.queryable_lag_seconds,
    ) == (0, 600, 600, None)
