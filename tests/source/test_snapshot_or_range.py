from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from mirrorfeed.landing.load_part import LoadPart, Slice
from mirrorfeed.source.errors import (
    FeedGapError,
    GapReason,
    PartitionsChangedError,
    PublicationBlockedError,
    SourceRecreatedError,
    feed_off,
)
from mirrorfeed.source.snapshot_or_range import (
    Commit,
    ComparisonStart,
    Facts,
    KeyRepair,
    NothingNew,
    Publication,
    PublishedVersion,
    PublishRanges,
    Range,
    Snapshot,
    decide,
    first_missing,
    split,
)
from mirrorfeed.source.table_info import FEED

OFF, HOLE, EXPIRED = GapReason.FEED_OFF, GapReason.LOG_HOLE, GapReason.EXPIRED
NOTHING: Mapping[int, GapReason] = {}


def commit(version: int) -> Commit:
    return Commit(version, datetime(2026, 1, 1, tzinfo=UTC), "WRITE")


def facts(
    *versions: int,
    latest: int | None = None,
    table_id: str = "id-1",
    unreadable: Mapping[int, GapReason] = NOTHING,
    breaks: tuple[int, ...] = (),
) -> Facts:
    newest = max(versions) if latest is None else latest
    return Facts(table_id, newest, tuple(map(commit, versions)), unreadable, breaks)


def decided(published: PublishedVersion | None, what: Facts, limit: int = 500) -> object:
    """Ranges as pairs of bounds. Other decisions are returned unchanged."""
    decision = decide("sales.orders", published, what, limit)
    if isinstance(decision, PublishRanges):
        return [(part.from_version_exclusive, part.to_version_inclusive) for part in decision.ranges]
    return decision


@pytest.mark.parametrize("latest", [0, 7])
def test_unpublished_table_gets_a_snapshot_of_its_newest_version(latest: int) -> None:
    assert decided(None, facts(latest=latest)) == Snapshot(latest)


def test_no_snapshot_if_no_changes_can_follow() -> None:
    finding = decided(None, facts(latest=7, unreadable={7: OFF}))
    assert feed_off.matches(finding)
    assert (finding.table, finding.version) == ("sales.orders", 7)


def test_table_with_published_newest_version_has_nothing_new() -> None:
    assert decided(PublishedVersion("id-1", 4), facts(latest=4)) == NothingNew(4)


@pytest.mark.parametrize(
    ("published", "what", "limit", "expected"),
    [
        (0, facts(1), 500, [(0, 1)]),
        (4, facts(5, 6, 7), 500, [(4, 7)]),
        (4, facts(5, 6, 7), 2, [(4, 6), (6, 7)]),
        (4, facts(5, 6, 7), 1, [(4, 5), (5, 6), (6, 7)]),
        (4, facts(5, 6, 7, breaks=(6,)), 500, [(4, 5), (5, 6), (6, 7)]),
        (4, facts(5, 6, 7, breaks=(5,)), 500, [(4, 5), (5, 7)]),
        (4, facts(5, 6, 7, breaks=(7, 6)), 500, [(4, 5), (5, 6), (6, 7)]),
        (4, facts(5, 6, 7, 8, 9, 10, breaks=(8,)), 2, [(4, 6), (6, 7), (7, 8), (8, 10)]),
        # Readable versions before an obstacle are published first.
        (4, facts(5, 6, 8), 500, [(4, 6)]),
        (4, facts(5, 6, 7, latest=8), 500, [(4, 7)]),
        (4, facts(5, 6, 7, unreadable={7: OFF}), 500, [(4, 6)]),
        (4, facts(5, 6, 7, 8, unreadable={7: HOLE}), 500, [(4, 6)]),
        (4, facts(5, 6, 7, 8, unreadable={7: EXPIRED}), 500, [(4, 6)]),
        (4, facts(5, 6, 8, unreadable={6: OFF}), 500, [(4, 5)]),
        (4, facts(5, 6, 7, 8, breaks=(6, 8), unreadable={8: OFF}), 500, [(4, 5), (5, 6), (6, 7)]),
    ],
)
def test_new_versions_are_published_in_ranges(
    published: int, what: Facts, limit: int, expected: list[tuple[int, int]]
) -> None:
    assert decided(PublishedVersion("id-1", published), what, limit) == expected


@pytest.mark.parametrize(
    ("what", "version", "reason"),
    [
        (facts(6, 7), 5, "the log has no commit"),
        (facts(latest=7), 5, "the log has no commit"),
        (facts(5, 6, unreadable={5: OFF}), 5, "the change data feed is off"),
        (replace(facts(5, 6, unreadable={5: OFF}), properties={FEED: "true"}), 5, "the change data feed is off"),
        (replace(facts(5, 6, unreadable={5: OFF}), properties={FEED: "false"}), 5, GapReason.STILL_OFF),
        (facts(5, 6, unreadable={5: HOLE}), 5, "the log has a hole"),
        (facts(6, unreadable={6: OFF}), 5, "the log has no commit"),
    ],
)
def test_unreadable_changes_are_a_gap(what: Facts, version: int, reason: str) -> None:
    finding = decided(PublishedVersion("id-1", 4), what)
    assert isinstance(finding, FeedGapError)
    assert (finding.published, finding.where, finding.reason) == (4, version, reason)


def test_gap_of_expired_versions_suggests_a_longer_retention() -> None:
    finding = decided(PublishedVersion("id-1", 4), facts(5, 6, unreadable={5: EXPIRED}))
    assert isinstance(finding, FeedGapError)
    assert finding.solution.startswith(
        "If VACUUM has not deleted the files yet, increase delta.deletedFileRetentionDuration"
    )


def test_gap_within_a_range_names_the_range() -> None:
    gap = FeedGapError(table="sales.orders", published=4, where=Range(4, 7), reason="a file is missing")
    assert gap.problem == (
        "The changes of sales.orders after version 4 cannot be read: in versions 5 to 7 a file is missing."
    )


@pytest.mark.parametrize("latest", [0, 4, 9])
def test_table_with_another_id_is_never_continued(latest: int) -> None:
    versions = tuple(range(5, latest + 1))
    finding = decided(PublishedVersion("id-1", 4), facts(*versions, latest=latest, table_id="id-2"))
    assert isinstance(finding, SourceRecreatedError)
    assert (finding.published_id, finding.found_id, finding.published) == ("id-1", "id-2", 4)


def test_restored_table_is_never_continued() -> None:
    finding = decided(PublishedVersion("id-1", 4), facts(latest=3))
    assert isinstance(finding, SourceRecreatedError)
    assert finding.problem == (
        "sales.orders was restored to an older version: version 4 is published, the newest is 3."
    )


@pytest.mark.parametrize(("before", "continues"), [(("day", "country"), True), (("day",), False), ((), False)])
def test_changed_partition_columns_end_a_range(before: tuple[str, ...], continues: bool) -> None:
    what = replace(facts(5, 6), partitions=("country", "day"))
    assert (decided(PublishedVersion("id-1", 4, before), what) == [(4, 6)]) is continues
    assert decided(PublishedVersion("id-1", 6, before), what) == NothingNew(6)


def test_renamed_partition_columns_end_no_range() -> None:
    what = replace(facts(5, 6), partitions=("country", "day"))
    rename = {"oldColumnPath": "region", "newColumnPath": "country"}
    commits = (what.commits[0], replace(what.commits[1], operation="RENAME COLUMN", parameters=rename))
    before = PublishedVersion("id-1", 4, ("day", "region"))
    assert decided(before, replace(what, commits=commits)) == [(4, 6)]
    assert isinstance(
        decided(replace(before, partitions=("day", "land")), replace(what, commits=commits)), PartitionsChangedError
    )


def test_changed_partition_columns_are_named() -> None:
    error = PartitionsChangedError(table="sales.orders", published=4, before=(), now=("country", "day"))
    assert error.problem.startswith(
        "The partition columns of sales.orders changed from none to 'country', 'day' after version 4."
    )


@pytest.mark.parametrize(
    ("after", "to", "versions", "expected"),
    [
        (3, 3, [], None),
        (3, 6, [4, 5, 6], None),
        (3, 6, [6, 5, 4, 3, 2], None),
        (3, 6, [5, 6], 4),
        (3, 6, [4, 6], 5),
        (3, 6, [4, 5], 6),
        (-1, 0, [], 0),
    ],
)
def test_first_missing_version_is_found(after: int, to: int, versions: list[int], expected: int | None) -> None:
    assert first_missing(after, to, list(map(commit, versions))) == expected


@pytest.mark.parametrize("breaks", [(), (3,), (1, 2, 10), (4, 9), (0, 99)])
@pytest.mark.parametrize("limit", [1, 3, 100])
def test_ranges_are_contiguous_without_overlap(breaks: tuple[int, ...], limit: int) -> None:
    parts = split(0, 10, breaks, limit)
    assert [
        version for part in parts for version in range(part.from_version_exclusive + 1, part.to_version_inclusive + 1)
    ] == list(range(1, 11))
    assert all(1 <= part.versions <= limit for part in parts)
    starts = {part.from_version_exclusive + 1 for part in parts}
    assert {version for version in breaks if 1 <= version <= 10} <= starts


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        (Snapshot(7), "snapshot at version 7"),
        (PublishRanges((Range(4, 5),)), "version 5"),
        (PublishRanges((Range(4, 7), Range(7, 8))), "versions 5 to 7, then version 8"),
        (NothingNew(7), "nothing new, version 7 is published"),
    ],
)
def test_decisions_have_a_readable_text(decision: object, words: str) -> None:
    assert str(decision) == words


PUBLISHED = PublishedVersion("id", 4)


@pytest.mark.parametrize(
    ("publication", "versions", "reads", "words"),
    [
        (Snapshot(7), (None, 7), Snapshot(7), "snapshot at version 7"),
        (Range(4, 7), (4, 7), Range(4, 7), "versions 5 to 7"),
        (KeyRepair(4, []), (4, 4), Snapshot(4), "a repair at version 4"),
        (ComparisonStart(9, PUBLISHED), (9, 9), Snapshot(4), "row hashes of version 4, then a comparison"),
    ],
)
def test_publications_have_versions_and_a_readable_text(
    publication: Publication, versions: tuple[int | None, int], reads: object, words: str
) -> None:
    assert (publication.from_version_exclusive, publication.to_version_inclusive) == versions
    assert (publication.reads, str(publication)) == (reads, words)


@pytest.mark.parametrize(
    "finding",
    [
        feed_off(table="t", version=3),
        FeedGapError(table="t", published=4, where=5, reason="the log has no commit"),
        FeedGapError(table="t", published=4, where=Range(4, 9), reason="a file is missing"),
        SourceRecreatedError(table="t", published_id="a", found_id="b", published=4, latest=2),
        PartitionsChangedError(table="t", published=4, before=("a",), now=()),
    ],
    ids=lambda finding: type(finding).__name__,
)
def test_findings_can_be_pickled(finding: PublicationBlockedError) -> None:
    again = pickle.loads(pickle.dumps(finding))
    assert type(again) is type(finding)
    assert str(again) == str(finding)


LOAD = LoadPart(1, "id", (Slice("7", 3, 90), Slice(None, 2, 50)))


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        (facts(4, 5), Snapshot(3, LOAD.next)),
        (facts(latest=3), Snapshot(3, LOAD.next)),
        (facts(5, 6), Snapshot(3, LOAD.next)),  # the gap is for the time after the load
        (replace(facts(4), partitions=("day",)), Snapshot(3, LOAD.next)),
    ],
)
def test_load_in_parts_continues_before_any_other_version(what: Facts, expected: Snapshot) -> None:
    published = PublishedVersion("id-1", 3, load=LOAD)

    assert decided(published, what) == expected
    assert str(expected) == "snapshot at version 3, part 2 of 2"
    assert decided(replace(published, load=LOAD.next), facts(4, 5)) == [(3, 5)]


def test_load_in_parts_of_a_replaced_table_does_not_continue() -> None:
    published = PublishedVersion("id-1", 3, load=LOAD)

    assert isinstance(decided(published, facts(4, table_id="id-2")), SourceRecreatedError)
    assert isinstance(decided(published, facts(latest=2)), SourceRecreatedError)
    proven = replace(facts(4, table_id="id-2"), recreation=None)
    assert decided(published, proven) == Snapshot(3, LOAD.next)
