"""Every call of a publication over HTTP fails, and the next run makes the mirror equal to the source.

The client repeats calls, as it does with OneLake. A call can fail permanently, or take effect, lose its response and be
sent again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from types import SimpleNamespace

import pytest

from fixtures.faults import PAGE
from fixtures.mirror import Audit, Mirror
from fixtures.onelake import OneLake
from fixtures.onelake.faults import Fault, How
from fixtures.onelake.service_store import Inside
from mirrorfeed.errors import TransientError
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.storage.request_retries import RetryLimits
from tests.publish.scenarios import FOLDER, SCENARIOS, Scenario, Take
from tests.support.tables import TableFeed

pytestmark = pytest.mark.proof

BRIEF = RetryLimits(seconds=0.04, first_pause=0.001, longest_pause=0.002, response_seconds=5)
MANY = 10_000


class Trouble(Enum):
    REFUSED = "the call is refused, and those after it are not"
    REPEATED = "the call takes effect, its answer is lost, and the client sends it again"
    CUT_BEFORE = "no call arrives any more, from this one on"
    CUT_AFTER = "the call takes effect, and then no call arrives any more"
    HALF = "the call takes effect, and its answer ends in its middle"
    BARELY = "the call takes effect, and of its answer no header arrives"
    SOON = "the call is sent again and answered; the first takes effect two calls later"
    LATER = "the call is sent again and answered; the first takes effect nine calls later"
    LAST = "the call is sent again and answered; the first takes effect after the run that follows"

    def faults(self, call: int) -> list[Fault]:
        refused = Fault("*", How.ANSWER, status=409, code="NotNow", after=call)
        done = Fault("*", How.DROP_AFTER, after=call)
        cut = Fault("*", How.DROP_BEFORE, MANY, after=call)
        return {
            Trouble.REFUSED: [refused],
            Trouble.REPEATED: [done],
            Trouble.CUT_BEFORE: [cut],
            Trouble.CUT_AFTER: [done, cut],
            Trouble.HALF: [Fault("*", How.CUT, after=call)],
            Trouble.BARELY: [Fault("*", How.CUT, after=call, share=0.1)],
            Trouble.SOON: [Fault("*", How.LATE, after=call, late=2)],
            Trouble.LATER: [Fault("*", How.LATE, after=call, late=9)],
            Trouble.LAST: [Fault("*", How.LATE, after=call)],
        }[self]


class Stage:
    """A scenario in a simulated OneLake that is played many times."""

    def __init__(self, onelake: OneLake, scenario: Scenario, *, preserves_etags: bool) -> None:
        # In many parts, or in one.
        part_bytes = 100 if preserves_etags else 10_000
        self._onelake, self._scenario = onelake, scenario
        self._store = onelake.store(retry_limits=BRIEF, part_bytes=part_bytes)
        onelake.files.checks_renames, onelake.files.preserves_etags = scenario.checks_renames, preserves_etags
        onelake.server.page_size = PAGE
        self._inside = Inside(onelake.files)
        self._audit, self._table = Audit(self._inside, FOLDER), scenario.table()  # type: ignore[arg-type]
        if scenario.published_before:
            publish(TableFeed(self._table, **scenario.feed), self._store, scenario.plan_before or scenario.plan)
        if scenario.deleted:
            self._store.remove_folder(FOLDER)
        scenario.change(self._table)
        self._saved = onelake.files.save()

    def play(self, faults: list[Fault]) -> int:
        """Return the number of calls of the run with faults."""
        self._onelake.files.restore(self._saved)
        audit = self._audit.on(self._inside)  # type: ignore[arg-type]
        feed = TableFeed(self._table.copy(), **self._scenario.feed)
        take = Take(self._scenario.plan, feed, self._inside, audit, Mirror(self._inside, FOLDER))  # type: ignore[arg-type]
        for fault in faults:
            self._onelake.server.faults.add(replace(fault))
        before = len(self._onelake.calls)
        with suppress(TransientError):
            publish(feed, self._store, take.plan)
        calls = len(self._onelake.calls) - before
        self._onelake.server.faults.clear()
        publish(feed, self._store, take.plan)
        self._onelake.server.deliver()
        publish(feed, self._store, take.plan)
        take.judge()
        for objection in self._inside.objections:
            raise objection
        return calls


def _named(*names: str) -> list[Scenario]:
    return [scenario for scenario in SCENARIOS if scenario.name in names]


def _troubles(calls: int) -> Iterator[tuple[int, Trouble]]:
    return ((call, trouble) for call in range(calls) for trouble in Trouble)


@pytest.fixture(autouse=True)
def _brisk_downloads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the library's pause of one second before it resumes an interrupted download."""
    monkeypatch.setattr("azure.storage.blob._download.time", SimpleNamespace(sleep=lambda _: None))


@pytest.mark.parametrize(
    "preserves_etags",
    [pytest.param(False, id="new etags"), pytest.param(True, id="kept etags", marks=pytest.mark.soak)],
)
@pytest.mark.parametrize("scenario", _named("first snapshot", "several files"), ids=lambda each: each.name)
def test_next_run_after_a_failed_call_completes_the_mirror(
    onelake: OneLake, scenario: Scenario, preserves_etags: bool, counted: Counter[str]
) -> None:
    _play(Stage(onelake, scenario, preserves_etags=preserves_etags), counted, slice(26 * preserves_etags, None, 53))


@pytest.mark.parametrize(
    "late",
    [
        pytest.param(2, id="soon", marks=pytest.mark.soak),
        pytest.param(9, id="later", marks=pytest.mark.soak),
        pytest.param(None, id="after the next run"),
    ],
)
@pytest.mark.parametrize(
    "scenario",
    [*_named("first snapshot"), *(pytest.param(each, marks=pytest.mark.soak) for each in _named("several files"))],
    ids=lambda each: each.name,
)
def test_call_that_the_network_delivers_twice_changes_nothing(
    onelake: OneLake, scenario: Scenario, late: int | None, counted: Counter[str]
) -> None:
    stage = Stage(onelake, scenario, preserves_etags=False)
    for call in range(stage.play([])):
        try:
            stage.play([Fault("*", How.TWICE, after=call, late=late)])
        except BaseException as error:
            error.add_note(f"played with call {call} delivered twice")
            raise
        counted["calls over OneLake's protocol that were delivered twice"] += 1


@pytest.mark.soak
@pytest.mark.parametrize("preserves_etags", [False, True], ids=["new etags", "kept etags"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.name)
def test_next_run_after_any_failed_call_completes_the_mirror(
    onelake: OneLake, scenario: Scenario, preserves_etags: bool, counted: Counter[str]
) -> None:
    _play(Stage(onelake, scenario, preserves_etags=preserves_etags), counted, slice(None))


def _play(stage: Stage, counted: Counter[str], some: slice) -> None:
    calls = stage.play([])
    for call, trouble in list(_troubles(calls))[some]:
        try:
            stage.play(trouble.faults(call))
        except BaseException as error:
            error.add_note(f"played with {trouble} at call {call}")
            raise
        counted["crash points over OneLake's protocol"] += 1
