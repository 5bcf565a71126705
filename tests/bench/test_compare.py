from __future__ import annotations

from typing import Any

import pytest

from tests.bench.compare import shares
from tests.bench.report import page


def measured(product: list[float], other: list[float], rows: int = 10) -> dict[str, Any]:
    sides = {
        "publish": {"seconds": product, "cpu_seconds": product},
        "plain <b>": {"seconds": other, "cpu_seconds": other},
    }
    case = {"title": "This beside that.", "facts": {"table_rows": rows}, "sides": sides, "driver_mib": 1.0}
    return {"machine": {"cpus": 2}, "versions": {}, "cases": {"net_range": case}}


@pytest.mark.parametrize(
    ("now", "before", "verdict"),
    [
        ([3.0, 3.2, 3.4], [2.0, 2.5, 2.9], "slower"),
        ([3.0, 3.2, 2.8], [2.0, 2.5, 2.9], "as before"),
        ([1.0, 1.5, 1.9], [2.0, 2.5, 2.9], "faster"),
    ],
)
def test_ratio_is_different_only_if_every_round_confirms_it(
    now: list[float], before: list[float], verdict: str
) -> None:
    (share,) = shares(measured(now, [1.0] * 3), measured(before, [1.0] * 3))
    assert (share.case, share.side, share.verdict) == ("net_range", "plain <b>", verdict)
    assert share.before == (sorted(before)[1], min(before), max(before))


def test_page_shows_the_profile_of_one_run() -> None:
    found = measured([2.0], [1.0])
    sides = {"publish": {"tasks": 5, "task CPU s": 0.256}, "plain <b>": {"tasks": 4, "task CPU s": 0.1}}
    found["cases"]["net_range"]["profile"] = {"sides": sides, "phases": {"record": 0.014}}
    report = page(found, None)
    assert "<tr><td>publish<td class=figure>5<td class=figure>0.26<tr><td>plain &lt;b&gt;<td class=figure>4" in report
    assert "<h3>The product's phases, s</h3><table><tr><td>record<td class=figure>0.01</table>" in report


@pytest.mark.parametrize("baseline", [None, {"cases": {}}, measured([1.0], [1.0], rows=11)])
def test_case_of_another_size_is_not_compared(baseline: dict[str, Any] | None) -> None:
    (share,) = shares(measured([2.0], [1.0]), baseline)
    assert (share.verdict, share.before) == ("new", None)


def test_page_shows_figures_and_verdict_of_each_side() -> None:
    report = page(measured([3.0, 3.2, 3.4], [1.0] * 3), measured([2.0, 2.5, 2.9], [1.0] * 3))
    assert "plain &lt;b&gt;" in report
    assert "3.20 <span class=small>3.00 to 3.40</span>" in report
    assert "<td class=slower>slower" in report
    assert "10 table rows" in report
