"""Metrics and traces, as an OpenTelemetry Collector prints them instead of the simulated receiver of this project."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest
from pyspark.sql import SparkSession

from mirrorfeed.config.loader import load
from mirrorfeed.orchestration.publish_run import publish_tables
from mirrorfeed.orchestration.run_context import Callbacks, RunContext
from mirrorfeed.source.errors import feed_off
from tests.support.delta import DeltaTable

PROGRAM = shutil.which("otelcorecol")
pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(PROGRAM is None, reason="otelcorecol, an OpenTelemetry Collector, is not on PATH"),
]
SETTINGS = """
receivers: {otlp: {protocols: {http: {endpoint: "127.0.0.1:0"}}}}
exporters: {debug: {verbosity: detailed}}
service:
  telemetry: {metrics: {level: none}}
  pipelines:
    metrics: {receivers: [otlp], exporters: [debug]}
    traces: {receivers: [otlp], exporters: [debug]}
"""


@pytest.fixture
def stop_collector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], str]]:
    """Start a collector that receives the telemetry of this process.

    The value is a function that stops the collector and returns what it printed.
    """
    assert PROGRAM is not None
    (tmp_path / "collector.yaml").write_text(SETTINGS)
    lines: list[str] = []
    with subprocess.Popen(
        [PROGRAM, "--config", str(tmp_path / "collector.yaml")],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if "Everything is ready" in line:
                break
        address = re.search(r'"endpoint": "(127.0.0.1:\d+)"', "".join(lines))
        rest = Thread(target=lines.extend, args=(process.stdout,), daemon=True)
        rest.start()

        def stop() -> str:
            process.terminate()
            rest.join()
            return "".join(lines)

        try:
            assert address, "".join(lines)
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://{address[1]}")
            yield stop
        finally:
            stop()


def test_collector_receives_metrics_and_spans_of_a_run(
    spark: SparkSession, tmp_path: Path, stop_collector: Callable[[], str]
) -> None:
    pytest.importorskip("mirrorfeed.orchestration.telemetry", exc_type=ImportError)
    DeltaTable(spark, tmp_path / "a").insert(1, 2)
    DeltaTable(spark, tmp_path / "b", feed=False)
    tables = "".join(f"  - {{source: ./{name}, target: {name}, keys: [id]}}\n" for name in "ab")
    (tmp_path / "mirrorfeed.yml").write_text(f"landing_zone: ./zone\ntelemetry: opentelemetry\ntables:\n{tables}")
    problems: list[object] = []
    context = RunContext(spark, load(tmp_path / "mirrorfeed.yml"), Callbacks(on_problem=problems.append))
    first, second = publish_tables(context)
    assert (first.error, feed_off.matches(second.error), problems) == (None, True, [])
    printed = stop_collector()
    assert set(re.findall(r"-> Name: (mirrorfeed\.[\w.]+)", printed)) == {
        "mirrorfeed.rows", "mirrorfeed.bytes", "mirrorfeed.phase.duration", "mirrorfeed.lag", "mirrorfeed.lag.versions",
        "mirrorfeed.failures",
    }  # fmt: skip
    rows = re.search(r"Name: mirrorfeed\.rows\n.*?Value: (\d+)", printed, re.DOTALL)
    assert rows
    assert rows[1] == "2"
    spans = dict(re.findall(r"^    ID +: (\w+)\n    Name +: (.+)$", printed, re.MULTILINE))
    assert sorted(spans.values()) == ["publish", "publish a", "publish b", "record", "rename", "stage"]
    assert len(set(re.findall(r"Trace ID +: (\w+)", printed))) == 1
    assert "service.name: Str(mirrorfeed)" in printed
    assert second.error
    assert f"error.type: Str({second.error.code})" in printed
