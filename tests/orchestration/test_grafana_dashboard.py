"""The Grafana dashboard shows every metric that runs and checks send, under the names that Prometheus gives to them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from itertools import combinations, product
from typing import Any

import pytest

from mirrorfeed.orchestration.exporter import Lags
from tests.orchestration.test_telemetry import FAILED, published, sent_metrics
from tools.pages import ROOT

DASHBOARD = json.loads((ROOT / "docs/grafana-dashboard.json").read_text(encoding="utf-8"))
PANELS = DASHBOARD["panels"]
UNITS = {"s": "seconds", "By": "bytes"}
"""Words that Prometheus appends to a name for a unit. It appends none for a unit in braces."""


def _word(name: str) -> str:
    return name.replace(".", "_")


@cache
def _queries() -> list[str]:
    variables = [each["query"]["query"] for each in DASHBOARD["templating"]["list"] if each["type"] == "query"]
    return [*(target["expr"] for panel in PANELS for target in panel["targets"]), *variables]


def _metrics(query: str) -> set[str]:
    return set(re.findall(r"(\w+)\{", query))


def _prometheus_names(metric: Any) -> Iterator[str]:
    """Yield the series that Prometheus stores for a metric of the SDK, except the buckets of a histogram."""
    name, unit = _word(metric.name), UNITS.get(metric.unit)
    if unit and unit not in name.split("_"):
        name += f"_{unit}"
    kind = type(metric.data).__name__
    if kind == "Histogram":
        yield from (f"{name}_sum", f"{name}_count")
    else:
        yield f"{name}_total" if kind == "Sum" else name


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Labels by the name that Prometheus gives to a metric, of all metrics that are sent."""
    found: dict[str, set[str]] = {}
    lags = [Lags("a", {"published": 90.0})]
    for metric in sent_metrics(published(tmp_path_factory.mktemp("zone")), FAILED, lags=lags):
        assert metric.unit in UNITS or metric.unit.startswith("{"), metric.unit
        for name, point in product(_prometheus_names(metric), metric.data.data_points):
            found.setdefault(name, set()).update(map(_word, point.attributes))
    return found


def test_dashboard_queries_all_sent_metrics_and_no_others(labels: dict[str, set[str]]) -> None:
    assert set().union(*map(_metrics, _queries())) == labels.keys()


def test_labels_of_queries_and_legends_are_attributes_of_their_metrics(labels: dict[str, set[str]]) -> None:
    targets = [(panel["title"], target) for panel in PANELS for target in panel["targets"]]
    for title, target in targets:
        query = target["expr"]
        used = {name for group in re.findall(r"by \(([^)]*)\)", query) for name in group.split(", ")}
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= used, title
        used.update(re.findall(r"(\w+)=", query))
        for metric in _metrics(query):
            assert used <= labels[metric], title
    assert re.search(r"label_values\(\w+\{\},mirrorfeed_table\)", _queries()[-1])


def test_variables_of_queries_exist() -> None:
    names = {each["name"] for each in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(PANELS)))
    assert used - {"__range"} == names


def test_panels_do_not_overlap() -> None:
    places = [panel["gridPos"] for panel in PANELS]
    for first, second in combinations(places, 2):
        assert any(
            before[at] + before[size] <= after[at]
            for at, size in (("x", "w"), ("y", "h"))
            for before, after in ((first, second), (second, first))
        ), (first, second)
    assert all(each["x"] + each["w"] <= 24 for each in places)
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
