"""Retry decisions for a table, based on the results of its attempts."""

from __future__ import annotations

import math

import pytest

from mirrorfeed.config.model import Table
from mirrorfeed.errors import MirrorfeedError, SparkSessionLostError, TerminalError, TransientError
from mirrorfeed.landing.errors import ColumnsDroppedError
from mirrorfeed.orchestration.errors import TableTimeoutError
from mirrorfeed.orchestration.retry_policy import TERMINAL_PAUSE, RetryState, needs_reload, next_state
from mirrorfeed.source.errors import FeedGapError, PartitionsChangedError, feed_off

GAP, OTHER_GAP = (
    FeedGapError(table="main.a", published=version, where=version + 1, reason="its files are gone")
    for version in (3, 7)
)


class Busy(TransientError):
    code = "MF0000"
    what = "The service is busy."
    fix = "Wait."


class Broken(TerminalError):
    code = "MF0001"
    what = "It is broken."
    fix = ""


BUSY, BROKEN, LOST = Busy(), Broken(), SparkSessionLostError()


def rules(*, reloads: bool = False, attempts: float = 4) -> tuple[bool, float]:
    return reloads, attempts


@pytest.mark.parametrize(
    ("errors", "given", "expected"),
    [
        ([None], rules(), RetryState(0, 1)),
        ([BUSY], rules(), RetryState(3, 1, 2.0, error=BUSY)),
        ([BUSY, BUSY], rules(), RetryState(2, 2, 4.0, error=BUSY)),
        ([BUSY, BUSY, None], rules(), RetryState(0, 3)),
        ([BUSY] * 4, rules(), RetryState(0, 4, error=BUSY)),
        ([BUSY], rules(attempts=1), RetryState(0, 1, error=BUSY)),
        ([BUSY] * 7, rules(attempts=9), RetryState(2, 7, 60.0, error=BUSY)),
        ([BROKEN], rules(reloads=True), RetryState(0, 1, error=BROKEN)),
        ([BUSY, BROKEN], rules(), RetryState(0, 2, error=BROKEN)),
        ([GAP], rules(), RetryState(0, 1, error=GAP)),
        ([GAP], rules(reloads=True), RetryState(4, 1, reload=GAP)),
        ([BUSY, BUSY, BUSY, GAP], rules(reloads=True), RetryState(4, 4, reload=GAP)),
        ([LOST], rules(), RetryState(0, 1, error=LOST)),
        ([GAP, OTHER_GAP], rules(reloads=True), RetryState(0, 2, reload=GAP, error=OTHER_GAP)),
        ([GAP, BROKEN], rules(reloads=True), RetryState(0, 2, reload=GAP, error=BROKEN)),
    ],
)
def test_next_retry_state_depends_on_errors_of_attempts(
    errors: list[MirrorfeedError | None], given: tuple[bool, float], expected: RetryState
) -> None:
    reloads, attempts = given
    state = RetryState(attempts)
    for error in errors:
        assert state.remaining, "no try is made after the last one"
        state = next_state(state, error, reloads=reloads and isinstance(error, FeedGapError), attempts=attempts)
    assert state == expected


def after_followed(state: RetryState, error: MirrorfeedError | None) -> RetryState:
    return next_state(state, error, reloads=isinstance(error, FeedGapError), attempts=math.inf)


@pytest.mark.parametrize(
    ("failures", "error", "pause"),
    [
        (0, LOST, 2.0),
        (1, LOST, 4.0),
        (9, LOST, 60.0),
        (5000, BUSY, 60.0),
        (3, BROKEN, TERMINAL_PAUSE),
        (0, TableTimeoutError(table="t", minutes=1, published=1, latest=2, cause=None), 2.0),
    ],
)
def test_followed_table_is_retried_until_it_succeeds(failures: int, error: MirrorfeedError, pause: float) -> None:
    state = after_followed(RetryState(math.inf, failures, 7.0), error)
    assert state == RetryState(math.inf, failures + 1, pause, error=error)


def test_followed_table_can_be_reloaded_more_than_once() -> None:
    first, ways = RetryState(math.inf), []
    for error in (OTHER_GAP, BROKEN, OTHER_GAP):
        first = after_followed(first, error)
        ways.append((first.reload, first.error))
    assert ways == [(OTHER_GAP, None), (None, BROKEN), (OTHER_GAP, None)]
    assert after_followed(first, None).remaining == 0


def test_table_is_reloaded_after_its_folder_is_deleted() -> None:
    state = RetryState(4, reload=GAP)
    assert (state.clears, state.reloaded) == (True, None)
    cleared = RetryState(4, reload=GAP, cleared=True)
    assert (cleared.clears, cleared.reloaded) == (False, GAP)


@pytest.mark.parametrize(
    ("option", "error", "expected"),
    [
        ({"on_gap": "reseed"}, GAP, True),
        ({"on_gap": "reseed"}, feed_off(table="main.a", version=4), False),
        ({"on_schema_change": "reseed"}, GAP, False),
        (
            {"on_schema_change": "reseed"},
            PartitionsChangedError(table="main.a", published=4, before=("day",), now=()),
            True,
        ),
        ({"on_dropped_column": "reseed"}, ColumnsDroppedError(table="main.a", version=4, columns=["v"]), True),
        ({"on_schema_change": "reseed"}, ColumnsDroppedError(table="main.a", version=4, columns=["v"]), False),
        ({}, GAP, False),
    ],
)
def test_configuration_decides_which_errors_cause_a_reload(
    option: dict[str, str], error: MirrorfeedError, expected: bool
) -> None:
    table = Table.model_validate({"source": "main.a", "target": "a", **option})
    assert needs_reload(table, error) is expected
