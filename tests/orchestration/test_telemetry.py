"""OpenTelemetry metrics and traces of runs: in the memory of the SDK, and as received over HTTP."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from mirrorfeed.config.model import Config
from mirrorfeed.errors import MirrorfeedError
from mirrorfeed.monitor.alerts import send_lags
from mirrorfeed.monitor.findings import TableFacts
from mirrorfeed.monitor.freshness import Freshness, Step
from mirrorfeed.orchestration.exporter import Finished, Lags, results_not_sent
from mirrorfeed.orchestration.result_writer import ResultWriter
from mirrorfeed.orchestration.run_context import Callbacks, RunContext
from mirrorfeed.publish.change_sources import NO_SPARK
from mirrorfeed.publish.table_result import TableResult
from mirrorfeed.source.errors import feed_off
from mirrorfeed.storage.local_folder import FolderStore
from tests.publish.scenarios import snapshot_and_range
from tests.support.entries import entry

telemetry = pytest.importorskip("mirrorfeed.orchestration.telemetry", exc_type=ImportError)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest  # noqa: E402
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest  # noqa: E402
from opentelemetry.sdk.metrics.export import InMemoryMetricReader  # noqa: E402
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402

STARTED = datetime(2026, 3, 1, 12, tzinfo=UTC)
FAILED = TableResult("b", seconds=60.0, tries=3, error=feed_off(table="main.sales.b", version=3), latest=9)


def published(folder: Path) -> TableResult:
    """Result of a snapshot with two rows and a range with one row. The times are known."""
    result = snapshot_and_range(FolderStore(str(folder)))
    result.inserts, result.bytes = 2, sum(each.size for each in result.records)
    result.latest = result.records[1].to_version_inclusive + 2
    result.measured = {
        result.records[0].batch: {"stage_seconds": 4.0, "record_seconds": 1.0, "rename_seconds": 2.0, "retries": 2},
        result.records[1].batch: {"stage_seconds": 3.0, "record_seconds": 1.0, "retries": 1, "lag_seconds": 90.0},
    }
    result.__post_init__()
    return result


def send(*results: TableResult, run_started: datetime | None = STARTED) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the spans by name, and the values of metrics by their names and attributes."""
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    receiver = telemetry.Telemetry([SimpleSpanProcessor(spans)], [reader])
    for result in results:
        receiver.send(Finished(entry(), result, datetime.now(UTC), run_started))
    values: dict[str, Any] = {}
    for metric in _metrics_of(reader):
        for point in metric.data.data_points:
            name = ",".join([metric.name, *(str(value) for _, value in sorted(point.attributes.items()))])
            values[name] = point.sum if hasattr(point, "sum") else point.value
    receiver.close()
    found: dict[str, Any] = {}
    for span in spans.get_finished_spans():
        found.setdefault(span.name, []).append(span)
    return found, values


def sent_metrics(*results: TableResult, lags: Sequence[Lags] = ()) -> list[Any]:
    """Return the metrics that a run sends for these results, and a check for these lags."""
    reader = InMemoryMetricReader()
    receiver = telemetry.Telemetry([], [reader])
    for result in results:
        receiver.send(Finished(entry(), result))
    for each in lags:
        receiver.send_lags(each)
    metrics = _metrics_of(reader)
    receiver.close()
    return metrics


def _metrics_of(reader: Any) -> list[Any]:
    data = reader.get_metrics_data()
    return [
        metric for resource in data.resource_metrics for scope in resource.scope_metrics for metric in scope.metrics
    ]


def test_metrics_of_publications_and_failures(tmp_path: Path) -> None:
    result = published(tmp_path)
    _, values = send(result, FAILED)
    assert values == {
        "mirrorfeed.rows,insert,sales.orders": 2,
        "mirrorfeed.rows,upsert,sales.orders": 1,
        "mirrorfeed.bytes,sales.orders": result.bytes,
        "mirrorfeed.retries,request,sales.orders": 3,
        "mirrorfeed.retries,attempt,b": 2,
        "mirrorfeed.failures,MF2101,b": 1,
        "mirrorfeed.phase.duration,stage,sales.orders": 7.0,
        "mirrorfeed.phase.duration,record,sales.orders": 2.0,
        "mirrorfeed.phase.duration,rename,sales.orders": 2.0,
        "mirrorfeed.lag,sales.orders": 90.0,
        "mirrorfeed.lag.versions,sales.orders": 2,
    }


def test_check_sends_the_lag_of_each_step_that_is_known(collector: dict[str, list[bytes]]) -> None:
    at = datetime(2026, 3, 1, 12, tzinfo=UTC)
    waiting = Freshness(since={Step.PUBLISHED: at - timedelta(seconds=90)}, unknown={Step.MIRRORED: "not read"})
    facts = [TableFacts("a", "a", freshness=waiting, at=at), TableFacts("b", "b", at=at)]
    problems: list[MirrorfeedError] = []
    send_lags(Config(landing_zone="/zone", tables=(), telemetry="opentelemetry"), facts, problems.append)
    assert (problems, list(collector)) == ([], ["/v1/metrics"])
    (resource,) = ExportMetricsServiceRequest.FromString(collector["/v1/metrics"][0]).resource_metrics
    (metric,) = resource.scope_metrics[0].metrics
    assert (metric.name, metric.unit) == ("mirrorfeed.step.lag", "s")
    values = {}
    for point in metric.gauge.data_points:
        attributes = {each.key: each.value.string_value for each in point.attributes}
        values[attributes["mirrorfeed.table"], attributes["mirrorfeed.step"]] = point.as_double
    assert values == {("a", "published"): 90.0, ("a", "consumed"): 0.0, ("a", "queryable"): 0.0}


def test_run_is_a_trace_with_a_span_for_each_table_and_phase(tmp_path: Path) -> None:
    result = published(tmp_path)
    spans, _ = send(result, FAILED)
    (run,), (orders,), (failed,) = spans["publish"], spans["publish sales.orders"], spans["publish b"]
    assert {name: len(each) for name, each in spans.items()} == {
        "publish": 1, "publish sales.orders": 1, "publish b": 1, "stage": 2, "record": 2, "rename": 1,
    }  # fmt: skip
    assert {each.context.trace_id for group in spans.values() for each in group} == {run.context.trace_id}
    assert run.parent is None
    assert {orders.parent.span_id, failed.parent.span_id} == {run.context.span_id}
    phases = [*spans["stage"], *spans["record"], *spans["rename"]]
    assert {each.parent.span_id for each in phases} == {orders.context.span_id}
    assert run.start_time == STARTED.timestamp() * 1e9
    assert all(orders.start_time <= each.start_time <= each.end_time for each in phases)
    stage, record = spans["stage"][1], spans["record"][1]
    assert stage.end_time == record.start_time == int(result.records[1].at.timestamp() * 1_000) * 1_000_000
    assert stage.end_time - stage.start_time == 3_000_000_000
    assert stage.attributes["mirrorfeed.version.to_inclusive"] == result.records[1].to_version_inclusive
    assert "mirrorfeed.version.from_exclusive" not in spans["stage"][0].attributes
    assert (run.status.is_ok, orders.status.is_ok, failed.status.is_ok) == (False, True, False)
    assert failed.attributes["error.type"] == "MF2101"
    assert "main.sales.b" in failed.status.description
    assert failed.end_time - failed.start_time == 60_000_000_000


def test_results_of_continuous_publishing_are_separate_traces(tmp_path: Path) -> None:
    spans, _ = send(published(tmp_path), FAILED, run_started=None)
    (orders,), (failed,) = spans["publish sales.orders"], spans["publish b"]
    assert "publish" not in spans
    assert (orders.parent, failed.parent) == (None, None)
    assert orders.context.trace_id != failed.context.trace_id


def test_files_that_a_run_renamed_for_an_earlier_run_have_only_that_phase(tmp_path: Path) -> None:
    result = published(tmp_path)
    result.records = result.records[:1]
    result.measured = {result.records[0].batch: {"rename_seconds": 2.0}}
    spans, _ = send(result)
    (rename,), (table,) = spans["rename"], spans["publish sales.orders"]
    assert rename.end_time == table.end_time
    assert "stage" not in spans


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, list[bytes]]]:
    """A collector on this machine, with the bodies that it received by path."""
    received: dict[str, list[bytes]] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.setdefault(self.path, []).append(body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
        yield received
        server.shutdown()


def export(*, follows: bool = False) -> list[MirrorfeedError]:
    """Pass two results to the writer of a run. Return the problems that the run reports."""
    problems: list[MirrorfeedError] = []
    config = Config(landing_zone="/zone", tables=(), telemetry="opentelemetry")
    context = RunContext(NO_SPARK, config, Callbacks(on_problem=problems.append), follows=follows)
    writer = ResultWriter(context, lambda _: entry())
    writer.begin()
    writer.add([FAILED, TableResult("a", latest=3, published_version=3)])
    writer.finish()
    return problems


def test_settings_of_the_environment_apply(collector: dict[str, list[bytes]], monkeypatch: pytest.MonkeyPatch) -> None:
    assert export() == []
    assert sorted(collector) == ["/v1/metrics", "/v1/traces"]
    (resource,) = ExportTraceServiceRequest.FromString(collector["/v1/traces"][0]).resource_spans
    names = {span.name for scope in resource.scope_spans for span in scope.spans}
    assert names == {"publish", "publish b", "publish a"}
    attributes = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert attributes["service.name"] == "mirrorfeed"
    (measured,) = ExportMetricsServiceRequest.FromString(collector["/v1/metrics"][0]).resource_metrics
    assert {metric.name for scope in measured.scope_metrics for metric in scope.metrics} == {
        "mirrorfeed.failures", "mirrorfeed.lag.versions", "mirrorfeed.retries",
    }  # fmt: skip
    collector.clear()
    assert export(follows=True) == []
    (resource,) = ExportTraceServiceRequest.FromString(collector["/v1/traces"][0]).resource_spans
    assert {span.name for scope in resource.scope_spans for span in scope.spans} == {"publish b", "publish a"}
    collector.clear()
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "sales")
    assert export() == []
    assert list(collector) == ["/v1/metrics"]
    assert b"sales" in collector["/v1/metrics"][0]


def test_unreachable_collector_is_only_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    assert export() == []
    assert any(record.name.startswith("opentelemetry.") for record in caplog.records)


def test_missing_package_is_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "mirrorfeed.orchestration.telemetry")
    monkeypatch.setitem(sys.modules, "opentelemetry.context", None)
    (problem,) = export()
    assert results_not_sent.matches(problem)
    assert "opentelemetry" in str(problem)
