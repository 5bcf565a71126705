"""Hundreds of followed tables on a virtual clock: how long commits wait, and that nothing grows over weeks."""

from __future__ import annotations

import gc
import os
import random
import threading
import tracemalloc
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles

import pytest

from fixtures.memory import MemoryStore
from mirrorfeed.config.model import Table
from mirrorfeed.landing.log_record import Record
from mirrorfeed.orchestration.run_context import Stop
from mirrorfeed.publish.table_result import TableResult, add_record
from mirrorfeed.source.pending_commits import PendingCommits
from tests.orchestration.test_follow import a_table, follow

SECONDS = 0.05
"""Time of one publication. One table is published at a time, so that the clock is exact."""
POLL = 3.0
"""Seconds between two checks of a table, with `max_delay_seconds: 15`, the default."""


@dataclass
class Arrivals:
    """Tables with commits at given times. A publication takes `SECONDS`, and publishes the commits before its start."""

    commits: Mapping[str, list[float]]
    ends: float
    now: float = 0.0
    published: Counter[str] = field(default_factory=Counter)
    waited: list[float] = field(default_factory=list)
    """Seconds from each commit to the end of its publication."""

    def clock(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += min(seconds, 1.0)

    def stop(self) -> bool:
        return self.now >= self.ends

    def tables(self) -> Sequence[Table]:
        return ()

    def pending(self, table: Table, published: int) -> PendingCommits:
        name = str(table.target)
        return PendingCommits(sum(at <= self.now for at in self.commits[name][self.published[name] :]))

    def work(self, _: object, __: object, table: Table, progress: TableResult, ____: object, stop: Stop) -> None:
        name = str(table.target)
        new = [at for at in self.commits[name][self.published[name] :] if at <= self.now]
        self.now += SECONDS if new else 0.0
        self.waited += [self.now - at for at in new]
        self.published[name] += len(new)
        progress.published_version = progress.latest = self.published[name]

    def write(self, outcomes: Sequence[TableResult]) -> None: ...

    def follow(self) -> list[TableResult]:
        options = {"follow": {"max_delay_seconds": 15}}
        return follow(self, [a_table(name, **options) for name in self.commits], max_parallel_tables=1)


def percentile_99(values: Sequence[float]) -> float:
    return quantiles(values, n=100)[-1]


def test_burst_after_a_quiet_time_waits_hardly_longer_than_if_published_at_once() -> None:
    """All tables have a commit at the same moment. Publishing them at once would take `SECONDS` for each."""
    count = 200
    arrivals = Arrivals({f"t{number}": [100.0] for number in range(count)}, ends=130.0)
    arrivals.follow()
    at_once = [SECONDS * (number + 1) for number in range(count)]
    assert len(arrivals.waited) == count
    assert min(arrivals.waited) <= POLL + SECONDS
    assert median(arrivals.waited) <= median(at_once) + POLL
    assert percentile_99(arrivals.waited) <= percentile_99(at_once) + POLL


def test_rare_commit_does_not_wait_for_tables_with_many_commits() -> None:
    """Half of the tables have a commit each second, which takes more time than there is. The others have one commit."""
    chance, count, ends = random.Random(73), 40, 60.0
    busy = {f"busy{number}": [float(at) for at in range(int(ends))] for number in range(count)}
    rare = {f"rare{number}": [chance.uniform(20, ends - 10)] for number in range(count)}
    arrivals = Arrivals(busy | rare, ends)
    waits = dict[str, float]()

    class Recorded(Arrivals):
        def work(self, *arguments: object) -> None:
            before = len(self.waited)
            super().work(*arguments)  # type: ignore[arg-type]
            if len(self.waited) > before:
                waits[str(arguments[2].target)] = self.waited[-1]  # type: ignore[attr-defined]

    Recorded(arrivals.commits, ends).follow()
    of_rare = [seconds for name, seconds in waits.items() if name in rare]
    assert len(of_rare) == count
    assert percentile_99(of_rare) <= POLL + count * SECONDS + 1


_PARALLEL = 2


@dataclass
class Rounds:
    """Tables that have a commit in every round. Each commit is published as one record of the log."""

    rounds: int
    tables_count: int
    record: Record
    at_round: Callable[[int], None]
    now: float = 0.0
    runs: int = 0
    requests: int = 0
    zone: MemoryStore = field(default_factory=MemoryStore)

    def clock(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def stop(self) -> bool:
        return self.runs >= self.rounds * self.tables_count

    def tables(self) -> Sequence[Table]:
        return ()

    def pending(self, _: Table, __: int) -> PendingCommits:
        return PendingCommits(1, 1, 1)

    def work(self, _: object, __: object, ___: object, progress: TableResult, ____: object, stop: Stop) -> None:
        progress.published_version = self.runs
        add_record(progress, self.record)
        progress.measured[f"{self.runs:032x}"] = {"stage_seconds": 0.1}
        progress.latest = progress.published_version
        self.runs += 1
        if self.runs % self.tables_count == 0:
            self.at_round(self.runs // self.tables_count)

    def write(self, outcomes: Sequence[TableResult]) -> None: ...


@pytest.mark.parametrize(
    "rounds", [60, pytest.param(20_000, marks=[pytest.mark.slow, pytest.mark.soak])], ids=["short", "weeks"]
)
def test_nothing_grows_while_tables_are_followed(rounds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    sizes = dict[int, tuple[int, int, int, int]]()

    def measure(number: int) -> None:
        if number in (rounds // 2, rounds - 1):
            gc.collect()
            files = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
            memory = tracemalloc.get_traced_memory()[0]
            sizes[number] = memory, threading.active_count(), files, len(list(tmp_path.iterdir()))

    record = Record(
        number=1, batch="b" * 32, time="2026-01-01T00:00:00.000+00:00", source="main.sales.t", source_id="id",
        from_version_exclusive=0, to_version_inclusive=1, columns=(), keys=("id",), next_file_number=2, files=(),
    )  # fmt: skip
    world, before = Rounds(rounds, 50, record, measure), threading.active_count()
    tracemalloc.start()
    try:
        follow(world, [a_table(f"t{number}") for number in range(50)], max_parallel_tables=_PARALLEL)
    finally:
        tracemalloc.stop()
    (memory, _, files, left), (memory_after, threads, files_after, left_after) = sizes.values()
    assert memory_after - memory <= 256 * 2**10
    assert files_after <= files + 3  # other threads of the process can open some
    assert left_after == left
    assert threads - before <= 3 * (_PARALLEL + 4)  # a few more than tables and checks that run at the same time
