"""Log records that describe a history, without a history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from mirrorfeed.history.history_record import (
    HistoryColumn,
    HistoryRecord,
    find_disorder,
    find_segment,
    find_version,
    parse_record,
    split_segments,
)
from mirrorfeed.landing.errors import DamagedFileError
from mirrorfeed.source.snapshot_or_range import Commit

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def at(minute: float) -> datetime:
    return NOON + timedelta(minutes=minute)


def records(*spans: tuple[int | None, int]) -> list[HistoryRecord]:
    """One record for each span of versions, with two rows each. Version n is committed n minutes after noon."""
    found: list[HistoryRecord] = []
    for number, (begin, end) in enumerate(spans, 1):
        versions = [end] if begin is None else range(begin + 1, end + 1)
        commits = tuple(Commit(version, at(version), "WRITE") for version in versions)
        rows = 2 if commits else 0
        total = (found[-1].total if found else 0) + rows + 1
        columns = (HistoryColumn("id", '"integer"', True, "id", "id@1"),)
        record = HistoryRecord(
            number, "b", NOON, "t", "id", begin, end, commits, columns, ("day",), rows, total, number, "build"
        )
        found.append(record)
    return found


BOTH = records((None, 3), (3, 5), (5, 5), (5, 6), (None, 9), (9, 11))
"""Versions 3 to 6 and 9 to 11. One record is repeated."""


def test_record_round_trips_through_json() -> None:
    for record in BOTH:
        assert parse_record(record.to_json(), "h") == record


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "it is not valid JSON ("),
        ("[]", "it has no format number"),
        ('{"number": 1}', "it has no format number"),
        ('{"format": 2}', "it has format 2, and this release supports format 1"),
        (BOTH[0].to_json().replace('"rows"', '"row"'), "rows: Field required"),
    ],
)
def test_damaged_record_is_reported(text: str, words: str) -> None:
    with pytest.raises(DamagedFileError) as caught:
        parse_record(text, "main.history.orders")
    assert "A record in main.history.orders is damaged, or mirrorfeed did not write it: " in str(caught.value)
    assert words in str(caught.value)


def test_snapshot_starts_a_segment_and_newest_segment_is_found() -> None:
    assert [[record.number for record in segment] for segment in split_segments(BOTH)] == [[1, 2, 3, 4], [5, 6]]
    segments = {version: find_segment(BOTH, version) for version in range(13)}
    assert {version: segment[0].number for version, segment in segments.items() if segment} == {
        **dict.fromkeys((3, 4, 5, 6), 1),
        **dict.fromkeys((9, 10, 11), 5),
    }


@pytest.mark.parametrize(
    ("minute", "version"),
    [(2.9, None), (3, 3), (3.9, 3), (4, 4), (5.5, 5), (6, 6), (6.1, None), (8.9, None), (9, 9), (11, 11), (11.1, None)],
)
def test_time_selects_the_version_of_that_time_within_a_segment(minute: float, version: int | None) -> None:
    assert find_version(BOTH, at(minute)) == version


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([], None),
        (BOTH, None),
        (BOTH[1:], "its records have the numbers 2, 3, 4, 5, 6"),
        ([*BOTH[:2], BOTH[1], *BOTH[2:]], "its records have the numbers 1, 2, 2, 3, 4, 5, 6"),
        (records((2, 3)), "its first record is not a snapshot"),
        (records((None, 3), (4, 5)), "record 2 does not continue version 3"),
        ([BOTH[0], replace(BOTH[1], rows=7)], "record 2 counts 6 rows in total instead of 11"),
    ],
    ids=["none", "whole", "without the first", "one twice", "no snapshot", "a hole", "other rows"],
)
def test_missing_and_unordered_records_are_found(found: Sequence[HistoryRecord], words: str | None) -> None:
    assert find_disorder(found) == words
