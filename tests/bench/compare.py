"""Compare results with the stored baseline, as the product's share of the CPU time of each side. CPU time varies
less."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.race import ratios

BASELINE = Path(__file__).with_name("baseline.json")
FOUND = Path(".bench/found.json")

Spread = tuple[float, float, float]
"""The median, the least and the greatest."""


@dataclass(frozen=True)
class Share:
    """What the product takes of what another side takes."""

    case: str
    side: str
    seconds: Spread
    cpu_seconds: Spread
    before: Spread | None = None
    """In CPU, by the baseline, where that has this case at this size."""

    @property
    def verdict(self) -> str:
        """Only what every round says."""
        if self.before is None:
            return "new"
        if self.cpu_seconds[1] > self.before[2]:
            return "slower"
        return "faster" if self.cpu_seconds[2] < self.before[1] else "as before"


def shares(found: Mapping[str, Any], baseline: Mapping[str, Any] | None = None) -> Iterator[Share]:
    known = (baseline or {}).get("cases", {})
    for case, measured in found["cases"].items():
        before = known.get(case)
        same = before is not None and before["facts"] == measured["facts"]
        product, *others = measured["sides"]
        for side in others:
            of_now = {kind: _ratios(measured, product, side, kind) for kind in ("seconds", "cpu_seconds")}
            there = same and {product, side} <= before["sides"].keys()
            yield Share(case, side, **of_now, before=_ratios(before, product, side, "cpu_seconds") if there else None)


def _ratios(measured: Mapping[str, Any], product: str, side: str, kind: str) -> Spread:
    return ratios(measured["sides"][product][kind], measured["sides"][side][kind])


def read(path: Path) -> dict[str, Any] | None:
    found: dict[str, Any] | None = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    return found


def write(path: Path, found: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
