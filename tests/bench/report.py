"""`make bench-report`: draw the results of `make bench` as an HTML page, and write the figures of the documentation.

The figures are written only if the run had all cases of the documentation, at their sizes, and started without other
load. They show which ratios exceed their bound, and which could not be judged."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from tests.bench.__main__ import FOUND
from tests.bench.bounds import Share, loads, shares
from tests.bench.race import Spread
from tools import performance_page

PAGE = Path(".bench/report.html")
_WIDTH = 420
_MOST = 4.0
"""Bars of larger shares end here; the figure beside them says how large."""

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; color: #1f2933 }
td, th { padding: .2rem .8rem .2rem 0; text-align: left; vertical-align: middle; white-space: nowrap }
th:not(:first-child) { text-align: right } td.figure { text-align: right; font-variant-numeric: tabular-nums }
td:first-child { min-width: 14rem }
.slower { color: #b42318 } .within { color: #067647 } .small { color: #667085 }
"""


def main() -> None:
    if not FOUND.is_file():
        raise SystemExit(f"There is no {FOUND}: run make bench first.")
    found = json.loads(FOUND.read_text(encoding="utf-8"))
    PAGE.write_text(page(found), encoding="utf-8")
    print(PAGE)
    missing = [name for name in performance_page.CASES if not found["cases"].get(name, {}).get("is_full_size")]
    if reasons := [*loads(found), *(f"{name} was not measured at its size." for name in missing)]:
        raise SystemExit("\n".join(["The figures of the documentation stay as they are.", *reasons]))
    performance_page.FIGURES.write_text(json.dumps(figures(found), indent=1) + "\n", encoding="utf-8")
    performance_page.PAGE.write_text(performance_page.page(), encoding="utf-8")
    print(performance_page.PAGE)


def figures(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the results that the documentation shows."""
    rows = [
        {
            "case": share.case,
            "peer": share.peer,
            "facts": found["cases"][share.case]["facts"],
            "product_seconds": sorted(_product_seconds(found, share.case)),
            "ratio": share.seconds,
            "bound": share.bound,
            "verdict": share.verdict,
        }
        for share in shares(found)
        if share.case in performance_page.CASES and share.peer in performance_page.PEERS
    ]
    return {"time": found["time"], "machine": found["machine"], "versions": found["versions"], "comparisons": rows}


def _product_seconds(found: Mapping[str, Any], case: str) -> Sequence[float]:
    times: Mapping[str, Any] = next(iter(found["cases"][case]["sides"].values()))
    return [round(each, 2) for each in times["seconds"]]


def page(found: Mapping[str, Any]) -> str:
    drawn = list(shares(found))
    parts = [f"<!doctype html><meta charset=utf-8><title>make bench</title><style>{_STYLE}</style>"]
    parts.append("<h1>What the product takes of what others take</h1>")
    parts.append(
        "<p>Ratios of rounds in which the sides took turns: the median, and a line from the least to the greatest."
        " The dashed line is 1: the same. The red line is the bound.</p>"
    )
    for case, measured in found["cases"].items():
        facts = ", ".join(f"{size:,} {name.replace('_', ' ')}" for name, size in measured["facts"].items())
        parts.append(f"<h2>{escape(case)}</h2><p>{escape(measured['title'])}<br><span class=small>{facts}</span></p>")
        rows = "".join(_row(share) for share in drawn if share.case == case)
        parts.append(f"<table><tr><th>beside<th>wall<th><th>CPU<th>{rows}</table>")
        if sizes := measured.get("file_sizes"):
            parts.append(f"<p>{escape(sizes)}</p>")
        parts += _profile(measured.get("profile"))
    parts.append(f"<p class=small>{escape(str(found['machine']))}<br>{escape(str(found['versions']))}</p>")
    return "\n".join(parts)


def _profile(found: Mapping[str, Any] | None) -> Iterator[str]:
    """Where the time of one more run went."""
    if found is None:
        return
    counted = next(iter(found["sides"].values()))
    rows = "".join(_cells(name, list(counts.values())) for name, counts in found["sides"].items())
    yield f"<h3>What Spark counted</h3><table><tr><th>{''.join(f'<th>{name}' for name in counted)}{rows}</table>"
    if found["phases"]:
        rows = "".join(_cells(name, [seconds]) for name, seconds in found["phases"].items())
        yield f"<h3>The product's phases, s</h3><table>{rows}</table>"


def _cells(name: str, figures: Sequence[float]) -> str:
    texts = (str(each) if isinstance(each, int) else f"{each:.2f}" for each in figures)
    return f"<tr><td>{escape(name)}{''.join(f'<td class=figure>{figure}' for figure in texts)}"


def _row(share: Share) -> str:
    name = share.verdict.replace(" ", "-") or "none"
    return (
        f"<tr><td>{escape(share.peer)}<td>{_bar(share.seconds, share.bound)}"
        f"<td>{_figures(share.seconds)}<td>{_figures(share.cpu_seconds)}<td class={name}>{share.verdict}"
    )


def _figures(spread: Spread) -> str:
    return f"{spread[0]:.2f} <span class=small>{spread[1]:.2f} to {spread[2]:.2f}</span>"


def _bar(now: Spread, bound: float | None) -> str:
    median, least, most = (_x(value) for value in now)
    limit = f"<line x1={_x(bound)} x2={_x(bound)} y1=0 y2=22 stroke='#b42318'/>" if bound else ""
    return (
        f"<svg width={_WIDTH} height=22><rect x=0 y=6 width={median} height=10 fill='#2e90fa'/>"
        f"<line x1={least} x2={most} y1=11 y2=11 stroke='#1f2933'/>{limit}"
        f"<line x1={_x(1)} x2={_x(1)} y1=0 y2=22 stroke='#1f2933' stroke-dasharray=2 /></svg>"
    )


def _x(ratio: float) -> int:
    return round(min(ratio, _MOST) / _MOST * _WIDTH)


if __name__ == "__main__":
    main()
