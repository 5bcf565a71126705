"""`make bench-report`: draw the last results of `make bench` and the baseline as an HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from tests.bench.compare import BASELINE, FOUND, Share, Spread, read, shares

PAGE = Path(".bench/report.html")
_WIDTH = 420
_MOST = 4.0
"""Bars of larger shares end here; the figure beside them says how large."""

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; color: #1f2933 }
td, th { padding: .2rem .8rem .2rem 0; text-align: left; vertical-align: middle; white-space: nowrap }
th:not(:first-child) { text-align: right } td.figure { text-align: right; font-variant-numeric: tabular-nums }
td:first-child { min-width: 14rem }
.slower { color: #b42318 } .faster { color: #067647 } .small { color: #667085 }
"""


def main() -> None:
    found = read(FOUND)
    if found is None:
        raise SystemExit(f"There is no {FOUND}: run make bench first.")
    PAGE.write_text(page(found, read(BASELINE)), encoding="utf-8")
    print(PAGE)


def page(found: Mapping[str, Any], baseline: Mapping[str, Any] | None) -> str:
    drawn = list(shares(found, baseline))
    parts = [f"<!doctype html><meta charset=utf-8><title>make bench</title><style>{_STYLE}</style>"]
    parts.append("<h1>What the product takes of what others take</h1>")
    parts.append(
        "<p>Ratios of rounds in which the sides took turns: the median, and a line from the least to the greatest."
        " The upright line is 1: the same. The pale bar is the baseline.</p>"
    )
    for case, measured in found["cases"].items():
        facts = ", ".join(f"{size:,} {name.replace('_', ' ')}" for name, size in measured["facts"].items())
        parts.append(f"<h2>{escape(case)}</h2><p>{escape(measured['title'])}<br><span class=small>{facts}</span></p>")
        rows = "".join(_row(share) for share in drawn if share.case == case)
        parts.append(f"<table><tr><th>beside<th>CPU<th><th>wall<th>{rows}</table>")
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
    return (
        f"<tr><td>{escape(share.side)}<td>{_bar(share.cpu_seconds, share.before)}"
        f"<td>{_figures(share.cpu_seconds)}<td>{_figures(share.seconds)}<td class={share.verdict.split()[0]}>"
        f"{share.verdict}"
    )


def _figures(spread: Spread) -> str:
    return f"{spread[0]:.2f} <span class=small>{spread[1]:.2f} to {spread[2]:.2f}</span>"


def _bar(now: Spread, before: Spread | None) -> str:
    median, least, most = (_x(value) for value in now)
    baseline_bar = f"<rect x=0 y=2 width={_x(before[0])} height=18 fill='#d0d5dd'/>" if before else ""
    return (
        f"<svg width={_WIDTH} height=22>{baseline_bar}<rect x=0 y=6 width={median} height=10 fill='#2e90fa'/>"
        f"<line x1={least} x2={most} y1=11 y2=11 stroke='#1f2933'/>"
        f"<line x1={_x(1)} x2={_x(1)} y1=0 y2=22 stroke='#1f2933' stroke-dasharray=2 /></svg>"
    )


def _x(ratio: float) -> int:
    return round(min(ratio, _MOST) / _MOST * _WIDTH)


if __name__ == "__main__":
    main()
