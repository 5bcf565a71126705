"""The verdict of the benchmark: fixed bounds beside peers, and no verdict on a machine that is not quiet."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bench.__main__ import CASES
from tests.bench.bounds import BOUNDS, EXCEEDED, NOT_JUDGED, judge, shares
from tests.bench.report import figures, page
from tools import performance_page

STEADY = [1.0] * 3


def measured(product: list[float], *, load: float = 0.1, is_full_size: bool = True) -> dict[str, Any]:
    steady = [1.0] * len(product)
    sides = {
        "publish": {"seconds": product, "cpu_seconds": product},
        "a usual notebook": {"seconds": steady, "cpu_seconds": steady},
        "plain <b>": {"seconds": steady, "cpu_seconds": steady},
    }
    case = {"title": "This beside that.", "facts": {"table_rows": 10}, "sides": sides, "driver_mib": 1.0}
    machine = {"cpus": 2, "load": [load, 0.0, 0.0], "memory_gib": 8.0, "system": "Linux"}
    cases = {"net_range": case | {"is_full_size": is_full_size}}
    return {"time": "2026-11-30", "machine": machine, "versions": {"pyspark": "4.2.0"}, "cases": cases}


@pytest.mark.parametrize(
    ("found", "code", "reason"),
    [
        (measured([0.8, 0.9, 1.0]), 0, "All bounds are kept."),
        (
            measured([0.9, 0.91, 1.0]),
            EXCEEDED,
            "a usual notebook: 0.91 (0.90 to 1.00) exceeds the bound 0.9.",
        ),
        (measured([0.9, 0.91, 1.0], is_full_size=False), 0, "All bounds are kept."),
        (measured([2.0, 2.0, 2.0], load=0.6), NOT_JUDGED, "The load average was 0.60 on 2 processors"),
        (measured([0.5, 0.6, 0.8]), NOT_JUDGED, "differ too much, 0.60 (0.50 to 0.80)."),
        (measured([0.5, 0.8, 0.8, 0.8, 1.9]), 0, "All bounds are kept."),
        (measured([0.7, 0.5, 0.6, 1.0, 1.0]), NOT_JUDGED, "differ too much, 0.70 (0.50 to 1.00)."),
    ],
)
def test_run_is_judged_only_on_a_quiet_machine(found: dict[str, Any], code: int, reason: str) -> None:
    exit_code, lines = judge(found)
    assert exit_code == code
    assert reason in lines[-1]


def test_peer_without_a_bound_is_not_judged() -> None:
    of_peers = {share.peer: share.verdict for share in shares(measured([9.0] * 3))}
    assert of_peers == {"a usual notebook": "slower", "plain <b>": ""}


def test_every_bound_belongs_to_a_case() -> None:
    assert {case for case, _ in BOUNDS} <= performance_page.CASES.keys() <= CASES.keys()
    assert {peer for _, peer in BOUNDS} <= performance_page.PEERS.keys()


def test_documentation_shows_size_spread_bound_and_date() -> None:
    text = performance_page.figures(figures(measured([0.95, 0.9, 1.0])))
    assert text.startswith("Measured on 2026-11-30: 2 processors, 8.0 GiB of memory, pyspark 4.2.0.")
    assert text.splitlines()[-1] == (
        "| Range of five merges | 10 table rows | 0.95 (0.90 to 1.00)"
        " | A usual notebook: window function, one file, copy | 0.95 (0.90 to 1.00) | 0.90, exceeded |"
    )


def test_report_shows_figures_and_verdict_of_each_peer() -> None:
    report = page(measured([0.9, 0.95, 1.0]))
    assert "plain &lt;b&gt;" in report
    assert "0.95 <span class=small>0.90 to 1.00</span>" in report
    assert "<td class=slower>slower" in report
    assert "10 table rows" in report


def test_report_shows_the_profile_of_one_run() -> None:
    found = measured(STEADY)
    sides = {"publish": {"tasks": 5, "task CPU s": 0.256}, "plain <b>": {"tasks": 4, "task CPU s": 0.1}}
    found["cases"]["net_range"]["profile"] = {"sides": sides, "phases": {"record": 0.014}}
    report = page(found)
    assert "<tr><td>publish<td class=figure>5<td class=figure>0.26<tr><td>plain &lt;b&gt;<td class=figure>4" in report
    assert "<h3>The product's phases, s</h3><table><tr><td>record<td class=figure>0.01</table>" in report
