"""Judge the results of the benchmark by fixed bounds: the most that the product may take of what a peer takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.bench.race import Spread, ratios

BOUNDS: Mapping[tuple[str, str], float] = {
    ("initial_load", "the same, zstd"): 1.15,
    ("initial_load_20_million", "the same, zstd"): 1.25,
    ("net_range", "a usual notebook"): 0.90,
    ("net_range_half_million", "the notebook that is public"): 0.40,
    ("small_change", "count(*) on table_changes"): 2.0,
    ("small_change", "the notebook that is public"): 0.15,
    ("first_loads", "plain Spark"): 1.0,
    ("load_in_parts", "publish in one part"): 1.05,
}
"""Greatest allowed median of the ratios of seconds, by case and peer. Lower a bound when the product becomes faster. A
bound is never raised to accept a slower product."""
MAX_LOAD = 0.25
"""Greatest load average per processor at the start of a run."""
MAX_SPREAD = 1.5
"""Greatest ratio of a comparison without its extremes, as a multiple of the least. Above, the machine was not quiet."""
EXCEEDED, NOT_JUDGED = 1, 3
"""Exit codes of a run that is slower than a bound, and of a run on a machine that is not quiet."""


@dataclass(frozen=True)
class Share:
    """What the product takes of what a peer takes, as ratios of single rounds: median, least and greatest."""

    case: str
    peer: str
    seconds: Spread
    cpu_seconds: Spread
    inner: Spread
    """`seconds` without the least and the greatest ratio, because one disturbed round does not change the median."""
    bound: float | None
    """None if there is no bound, or if the case ran at another size."""

    @property
    def is_steady(self) -> bool:
        _, least, greatest = self.inner
        return greatest <= MAX_SPREAD * least

    @property
    def verdict(self) -> str:
        if self.bound is None:
            return ""
        if not self.is_steady:
            return "not judged"
        return "slower" if self.seconds[0] > self.bound else "within"


def shares(found: Mapping[str, Any]) -> Iterator[Share]:
    for case, measured in found["cases"].items():
        (_, product), *peers = measured["sides"].items()
        for peer, times in peers:
            each = (ratios(product[kind], times[kind]) for kind in ("seconds", "cpu_seconds"))
            inner = ratios(product["seconds"], times["seconds"], without_extremes=True)
            bound = BOUNDS.get((case, peer)) if measured["is_full_size"] else None
            yield Share(case, peer, *each, inner, bound)


def disturbances(found: Mapping[str, Any]) -> list[str]:
    """Return the reasons why a run cannot be judged, as sentences. Empty if the machine was quiet."""
    return loads(found) + unsteady(found)


def loads(found: Mapping[str, Any]) -> list[str]:
    """Return a sentence about the load at the start of a run, or nothing if the load was low."""
    load, cpus = found["machine"]["load"][0], found["machine"]["cpus"]
    loaded = f"The load average was {load:.2f} on {cpus} processors when the run started."
    return [loaded] if load > MAX_LOAD * cpus else []


def unsteady(found: Mapping[str, Any], case: str | None = None) -> list[str]:
    """Return each comparison with a bound whose rounds differ too much, as a sentence: of one case, or of all."""
    return [
        f"{share.case} / {share.peer}: the ratios of single rounds differ too much, {spread(*share.seconds)}."
        for share in shares(found)
        if share.bound is not None and not share.is_steady and case in (None, share.case)
    ]


def slower(found: Mapping[str, Any]) -> list[str]:
    """Return each comparison that exceeds its bound, as a sentence."""
    return [
        f"{share.case} / {share.peer}: {spread(*share.seconds)} exceeds the bound {share.bound}."
        for share in shares(found)
        if share.verdict == "slower"
    ]


def judge(found: Mapping[str, Any]) -> tuple[int, Sequence[str]]:
    """Return the exit code of a run and the lines that explain it."""
    if disturbed := disturbances(found):
        return NOT_JUDGED, ["Not judged, because the machine was not quiet.", *disturbed]
    exceeding = slower(found)
    return (EXCEEDED, exceeding) if exceeding else (0, ["All bounds are kept."])


def spread(median: float, least: float, greatest: float) -> str:
    return f"{median:.2f} ({least:.2f} to {greatest:.2f})"
