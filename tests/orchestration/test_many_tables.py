"""Many tables in one run: their order, and that no table waits for another. Without Spark."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any

import pytest

from mirrorfeed.config.model import Config, Table
from mirrorfeed.config.options import Pause
from mirrorfeed.errors import MirrorfeedError, TransientError, with_code
from mirrorfeed.orchestration import table_task
from mirrorfeed.orchestration.errors import TableTimeoutError
from mirrorfeed.orchestration.publish_run import publish_tables
from mirrorfeed.orchestration.run_context import Callbacks, RunContext, Stop
from mirrorfeed.orchestration.scheduler import default_max_tables
from mirrorfeed.publish.change_sources import feed_gap
from mirrorfeed.publish.table_result import TableResult
from mirrorfeed.source.errors import FeedGapError, GapReason
from tests.support.clock import FakeClock

NO_SPARK: Any = None


class Busy(TransientError):
    code = "MF0000"
    what = "The service is busy."
    fix = "Wait."


class World:
    """Tables whose runs and clock a test defines."""

    def __init__(self, **works: Callable[[TableResult, Stop], None]) -> None:
        self.works: Mapping[str, Callable[[TableResult, Stop], None]] = works
        self.now, self.started, self.slept = 0.0, list[str](), list[float]()

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def work(
        self,
        _: object,
        __: object,
        table: Table,
        progress: TableResult,
        on_step: Callable[[TableResult], None],
        stop: Stop,
    ) -> None:
        self.started.append(str(table.target))
        on_step(progress)
        self.works.get(str(table.target), lambda _, __: None)(progress, stop)

    def publish(self, config: Config, callbacks: Callbacks | None = None, **options: Any) -> list[TableResult]:
        context = RunContext(NO_SPARK, config, callbacks or Callbacks(), FakeClock(self.sleep, lambda: self.now))
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(table_task, "needs_no_spark", lambda _: False)
            patched.setattr(table_task, "publish", self.work)
            return publish_tables(context, **options)


Configured = Callable[..., Config]


def test_table_waiting_for_a_retry_frees_its_slot(configured: Configured) -> None:
    def fails_twice(*_: object) -> None:
        world.now += 10
        if world.started.count("a") < 3:
            raise Busy

    def takes_long(*_: object) -> None:
        world.now += 100

    world = World(a=fails_twice, b=takes_long)
    outcomes = world.publish(configured("a", "b", "c", more="max_parallel_tables: 1\n"))
    assert world.started == ["a", "b", "c", "a", "a"]
    assert world.slept == [4.0]  # because b took longer than the first pause
    assert [(each.table, each.tries, each.error) for each in outcomes] == [
        ("a", 3, None),
        ("b", 1, None),
        ("c", 1, None),
    ]
    assert [each.seconds for each in outcomes] == [30.0, 100.0, 0.0]  # run time only, without waiting


def test_steps_and_failed_attempts_are_logged(configured: Configured, caplog: pytest.LogCaptureFixture) -> None:
    def fails_once(progress: TableResult, _: Stop) -> None:
        progress.decision = "versions 2 to 3"
        if world.started == ["a"]:
            raise Busy

    caplog.set_level(logging.INFO, "mirrorfeed")
    world = World(a=fails_once)
    world.publish(configured("a"))
    assert [(each.name, each.getMessage()) for each in caplog.records if each.name != "mirrorfeed.progress"] == [
        ("mirrorfeed.orchestration.table_task", message)
        for message in (
            "a: published up to version None: no rows, 0 files",
            "a: attempt 1 failed: MF0000: The service is busy. Wait.",
            "a: publishing versions 2 to 3",
        )
    ]


def test_broken_function_of_the_user_changes_nothing_and_is_reported_once(configured: Configured) -> None:
    def broken(*_: object) -> bool:
        raise ValueError("no such widget")

    world, problems = World(), list[MirrorfeedError]()
    callbacks = Callbacks.guarded(problems.append, broken, broken, broken)
    outcomes = world.publish(configured("a", "b"), callbacks)
    assert [(each.table, each.tries, each.error, each.stopped) for each in outcomes] == [
        ("a", 1, None, False),
        ("b", 1, None, False),
    ]
    assert sorted(map(with_code, problems)) == [
        f"MF1012: The function `{name}` that you passed raised ValueError: no such widget. The run continued."
        " Correct the function. To end a run early, return True from `stop`."
        for name in ("on_done", "on_step", "stop")
    ]


def test_table_over_its_timeout_ends_without_delaying_others(configured: Configured) -> None:
    others = Event()

    def never_ends(progress: TableResult, stop: Stop) -> None:
        progress.published_version, progress.latest = 3, 9
        assert not stop()
        world.now += 60
        assert others.wait(30), "the others waited"
        assert stop()

    def last(*_: object) -> None:
        others.set()

    world = World(a=never_ends, c=last)
    outcomes = world.publish(configured("a", "b", "c", more="max_parallel_tables: 1\ntable_timeout_minutes: 1\n"))
    assert world.started == ["a", "b", "c"]
    assert [str(each.error) if each.error else None for each in outcomes] == [
        "Publishing a was stopped after 1 minute: version 3 is published, the newest is 9. The next run continues. If"
        " this happens often, increase `table_timeout_minutes` or publish more often.",
        None,
        None,
    ]


def test_table_failing_until_its_timeout_reports_the_error(configured: Configured) -> None:
    def fails(*_: object) -> None:
        world.now += 40
        raise Busy

    world = World(a=fails)
    (outcome,) = world.publish(configured("a", more="table_timeout_minutes: 1\n"))
    assert outcome.tries == 2
    assert isinstance(outcome.error, TableTimeoutError)
    assert (outcome.error.minutes, outcome.error.published) == (1, None)
    assert "The service is busy." in outcome.error.problem


def test_tables_with_higher_priority_start_first(configured: Configured) -> None:
    world, config = World(), configured("a", "b", "c", more="max_parallel_tables: 1\n")
    a, b, c = config.tables
    world.publish(replaced(config, a, b.model_copy(update={"priority": -1}), c.model_copy(update={"priority": 5})))
    assert world.started == ["c", "a", "b"]


def replaced(config: Config, *tables: Any) -> Config:
    return config.model_copy(update={"entries": tables})


def test_paused_table_is_skipped_until_its_end_unless_requested(configured: Configured) -> None:
    config = configured("a", "b", "c")
    (a, b, c), now = config.tables, datetime.now(UTC)
    ends = now + timedelta(hours=1), now - timedelta(seconds=1)
    pauses = [Pause(reason="loaded anew", until=end) for end in ends]
    tables = [each.model_copy(update={"paused": pause}) for each, pause in zip((a, b), pauses, strict=True)]
    world = World()
    outcomes = world.publish(replaced(config, *tables, c))
    assert [each.table for each in outcomes] == ["b", "c"]
    requested = world.publish(replaced(config, *tables), includes_paused=True)
    assert [each.table for each in requested] == ["a", "b"]


def test_stopped_run_starts_no_table_and_waits_for_no_retry(configured: Configured) -> None:
    stopped: list[bool] = []

    def fails(*_: object) -> None:
        stopped.append(True)
        raise Busy

    world = World(a=fails)
    outcomes = world.publish(
        configured("a", "b", more="max_parallel_tables: 1\n"), Callbacks(stop=lambda: bool(stopped))
    )
    assert [(each.table, str(each.error)) for each in outcomes] == [("a", "The service is busy. Wait.")]
    assert (world.started, world.slept) == (["a"], [])


@pytest.mark.parametrize(
    ("cores", "gib", "max_parallel_tables"), [(1, 8, 2), (2, 8, 4), (8, 64, 16), (64, 512, 32), (8, 2, 4), (4, 0.5, 2)]
)
def test_default_parallelism_depends_on_cores_and_memory(
    monkeypatch: pytest.MonkeyPatch, cores: int, gib: float, max_parallel_tables: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(cores), raising=False)
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 2**29, "SC_PHYS_PAGES": 2 * gib}.__getitem__)
    assert default_max_tables() == max_parallel_tables


@pytest.mark.parametrize("bridged", [True, False])
def test_gap_is_bridged_once_within_an_attempt(
    configured: Configured, monkeypatch: pytest.MonkeyPatch, bridged: bool
) -> None:
    gaps = [FeedGapError(table="main.a", published=4, where=version, reason=GapReason.NO_COMMIT) for version in (5, 7)]
    pending, seen = list(gaps), list[FeedGapError]()

    def meets_gap(*_: object) -> None:
        raise pending.pop(0)

    def bridge(_: object, __: object, gap: FeedGapError, ___: object) -> object:
        seen.append(gap)
        return object() if bridged else None

    monkeypatch.setattr(feed_gap, "bridge_gap", bridge)
    (outcome,) = World(a=meets_gap).publish(configured("a"))
    assert seen == gaps[:1]
    assert (outcome.error, outcome.tries) == (gaps[bridged], 1)
