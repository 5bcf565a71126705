"""The mark of a table's verifications: which results follow which, and every call of writing one fails in every way."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime

import pytest

from fixtures.faults import Crash, Fault, FaultyStore, Mode, faults_at
from fixtures.memory import MemoryStore
from mirrorfeed.errors import MirrorfeedError
from mirrorfeed.landing.errors import DamagedFileError, RecordTooNewError
from mirrorfeed.publish.table_log import TableLog
from mirrorfeed.publish.table_log.verification_mark import (
    VerificationMark,
    different_at,
    equal_at,
    read_mark,
    write_mark,
)
from mirrorfeed.publish.table_log.view import View
from mirrorfeed.storage import Store
from tests.publish.mark_model import Loss, MarkRules, explore
from tests.publish.scenarios import snapshot_and_range
from tests.support.entries import FOLDER

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def equal(version: int) -> VerificationMark:
    return equal_at(version, "id", NOW)


def different(version: int, kept: VerificationMark | None = None) -> VerificationMark:
    return different_at(version, "id", NOW, kept)


def published() -> MemoryStore:
    store = MemoryStore()
    snapshot_and_range(store)
    return store


def opened(store: Store) -> tuple[TableLog, View]:
    log = TableLog(store, FOLDER)
    view = log.read_view()
    assert view
    return log, view


def newest(store: Store) -> VerificationMark | None:
    return read_mark(*opened(store))


def write(store: Store, base: VerificationMark | None, new: VerificationMark) -> VerificationMark | None:
    return write_mark(*opened(store), base, new)


def test_mark_moves_with_each_equal_verification_and_older_ones_are_deleted() -> None:
    store = published()
    assert newest(store) is None
    for version in (1, 2, 2):
        assert write(store, newest(store), equal(version))
        mark = newest(store)
        assert mark
        assert (mark.verified_through, mark.equal, mark.at) == (version, True, NOW)
    assert opened(store)[1].marks == (3,)


def test_equal_result_does_not_follow_a_mark_of_the_meantime() -> None:
    store = published()
    assert write(store, None, different(2))
    assert not write(store, None, equal(2))
    mark = newest(store)
    assert mark
    assert (mark.equal, mark.verified_through) == (False, None)


@pytest.mark.parametrize(
    ("between", "kept", "through"),
    [
        (equal(3), equal(2), 2),  # the changes since version 2 are read again
        (equal(3), None, None),
        (different(3), equal(2), None),
        (different(3, equal(1)), equal(2), 1),
    ],
)
def test_difference_follows_any_mark(
    between: VerificationMark, kept: VerificationMark | None, through: int | None
) -> None:
    store = published()
    assert write(store, None, between)
    assert write(store, None, different(4, kept))
    mark = newest(store)
    assert mark
    assert (mark.equal, mark.compared_version, mark.verified_through) == (False, 4, through)
    assert (mark.verified_at is None) is (through is None)


def test_mark_ends_with_its_log() -> None:
    store = published()
    log, view = opened(store)
    store.remove_folder(FOLDER)
    assert not write_mark(log, view, None, equal(2))
    assert store.list(FOLDER) == []


@pytest.mark.parametrize(
    ("content", "expected"),
    [(b"{", DamagedFileError), (b'{"format": 2}', RecordTooNewError), (b'{"format": 1}', DamagedFileError)],
)
def test_mark_that_cannot_be_read_is_an_error(content: bytes, expected: type[MirrorfeedError]) -> None:
    store = published()
    store.create(f"{FOLDER}/_mirrorfeed/{opened(store)[1].log_id}/00000000000000000001.verified", content)
    with pytest.raises(expected):
        newest(store)


@pytest.mark.proof
@pytest.mark.parametrize("result", ["equal", "different in changed rows", "different"])
def test_a_difference_stays_known_after_any_fault(result: str, counted: Counter[str]) -> None:
    """The faulty verification runs first, then one that finds a difference, and then the late calls arrive."""
    begun = published()
    assert write(begun, None, equal(1))
    base = newest(begun)
    new = {"equal": equal(2), "different": different(2)}.get(result) or different(2, base)
    clean = FaultyStore(begun.copy())
    assert write_mark(*opened(clean), base, new)
    for call, verb in enumerate(clean.verbs):
        for fault in (*faults_at(call, verb, (1, 4, None)), Fault(call, Mode.DELETED)):
            store = begun.copy()
            faulty = FaultyStore(store, [fault], delete=lambda store=store: store.remove_folder(FOLDER))
            with suppress(Crash, MirrorfeedError, AssertionError):
                assert write_mark(*opened(faulty), base, new)
            if fault.mode is Mode.DELETED:
                assert not any(entry.name.endswith(".json") for entry in store.list(f"{FOLDER}/_mirrorfeed"))
                continue
            mark = newest(store)
            assert mark
            assert mark.id in (base and base.id, new.id), fault
            assert write(store, mark, different(2))
            faulty.deliver()
            last = newest(store)
            assert last
            assert (last.equal, last.verified_through) == (False, None), fault
            counted["crash points of a verification mark"] += 1


RULES = (
    "marks_position_of_mirror",
    "follows_the_mark_it_read",
    "creates_if_absent",
    "differences_take_the_mark_away",
    "differences_stop_the_mark",
    "differences_are_retried",
)


@pytest.mark.proof
@pytest.mark.parametrize("rules", [MarkRules(runs=1), MarkRules(versions=2), MarkRules(faults=0, kills=0)], ids=str)
def test_no_order_of_steps_marks_a_difference(rules: MarkRules, counted: Counter[str]) -> None:
    counted["states of the mark's model"] += explore(rules, 15_000)


@pytest.mark.soak
@pytest.mark.parametrize("rules", [MarkRules(runs=1), MarkRules(versions=2), MarkRules(faults=0, kills=0)], ids=str)
def test_no_order_of_all_steps_marks_a_difference(rules: MarkRules, counted: Counter[str]) -> None:
    counted["states of the mark's model"] += explore(rules, 2_000_000)


@pytest.mark.proof
@pytest.mark.parametrize("rule", RULES)
def test_removing_any_rule_of_the_mark_hides_a_difference(rule: str) -> None:
    with pytest.raises(Loss, match="is marked"):
        explore(MarkRules(versions=2, faults=0, kills=0, repairs=0, **{rule: False}))
