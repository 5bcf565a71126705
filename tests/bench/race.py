"""Run the sides of one case in turn. The speed of a machine varies by the minute, so only ratios are meaningful."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

WARM_UPS = 4
"""Rounds before the measured ones. After fewer, the JVM still compiles the code of a publication."""
Spread = tuple[float, float, float]
"""The median, the least and the greatest."""


@dataclass(frozen=True)
class Case:
    """What is compared: the first side is the product, the others are what a user has without it."""

    sides: Mapping[str, Callable[[], object]]
    between: Callable[[], None] = lambda: None
    """Makes things as they were before a side ran; its time counts for nobody."""
    facts: Mapping[str, int] = field(default_factory=dict)
    """Sizes."""
    zone: Path | None = None
    """Landing zone of the product, if the sizes of its data files are shown."""


@dataclass(frozen=True)
class Times:
    """One figure a round."""

    seconds: Sequence[float]
    cpu_seconds: Sequence[float]
    """Of this process and all under it: Spark's, and the Python workers."""


def race(case: Case, rounds: int, warm_ups: int = WARM_UPS) -> dict[str, Times]:
    found = {name: Times([], []) for name in case.sides}
    for number in range(-warm_ups, rounds):
        for name in turns(list(case.sides), number):
            case.between()
            cpu, started = cpu_seconds(), time.perf_counter()
            case.sides[name]()
            seconds, cpu = time.perf_counter() - started, cpu_seconds() - cpu
            if number >= 0:
                found[name] = Times([*found[name].seconds, seconds], [*found[name].cpu_seconds, cpu])
    return found


def turns(names: Sequence[str], round_: int) -> Sequence[str]:
    """Each side runs as often after every other as before it."""
    return names if round_ % 2 else names[::-1]


def ratios(product: Sequence[float], other: Sequence[float], *, without_extremes: bool = False) -> Spread:
    """The median, the least and the greatest of the ratios of single rounds."""
    each = sorted(ours / theirs if theirs else float("inf") for ours, theirs in zip(product, other, strict=True))
    if without_extremes and len(each) > 3:
        each = each[1:-1]
    return statistics.median(each), min(each), max(each)


_workers: dict[psutil.Process, float] = {}
"""Python's workers, which end after a minute without work, and what each had taken when it was seen last: what starts
them ignores their end, so that the system counts them no more."""


def cpu_seconds() -> float:
    """So far; those of other processes that ended count through their parents."""
    total = 0.0
    here = psutil.Process()
    for process in (here, *here.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            used = times.user + times.system + times.children_user + times.children_system
            if "pyspark.daemon" in process.cmdline():
                _workers[process] = used
            else:
                total += used
    return total + sum(_workers.values())
