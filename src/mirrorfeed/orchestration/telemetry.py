"""OpenTelemetry metrics of runs and checks, and traces of runs. Imported only with `telemetry: opentelemetry`.

The SDK reads its own settings: environment variables such as OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_RESOURCE_ATTRIBUTES.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, Status, StatusCode, set_span_in_context

from mirrorfeed.display.redact import redact
from mirrorfeed.errors import MirrorfeedError
from mirrorfeed.runtime.version import this_build

if TYPE_CHECKING:
    from mirrorfeed.landing.log_record import Record
    from mirrorfeed.orchestration.exporter import Finished, Lags

_PHASES = ("stage", "record", "rename")


class _Phase(NamedTuple):
    """Part of a publication: name, start, duration, and the record that the publication added to the log."""

    name: str
    start: datetime
    seconds: float
    record: Record


class Telemetry:
    """Sends metrics of each result and of each check, and a trace of the run with a span for each table and each phase.

    In continuous publishing, each result is a separate trace, because the run may never end.
    """

    def __init__(
        self, processors: Sequence[SpanProcessor] | None = None, readers: Sequence[MetricReader] | None = None
    ) -> None:
        """By default, spans and metrics are sent over HTTP as OTLP, unless the environment turns one of them off."""
        resource = Resource.create({SERVICE_VERSION: this_build()})
        if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):  # the SDK's default
            resource = resource.merge(Resource({SERVICE_NAME: "mirrorfeed"}))
        if processors is None:
            processors = [BatchSpanProcessor(OTLPSpanExporter())] if _is_on("TRACES") else []
        if readers is None:
            readers = [PeriodicExportingMetricReader(OTLPMetricExporter())] if _is_on("METRICS") else []
        # The process may have OpenTelemetry providers of its own, so the global ones are not changed.
        self._traces = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._metrics = MeterProvider(readers, resource, shutdown_on_exit=False)
        for processor in processors:
            self._traces.add_span_processor(processor)
        self._tracer = self._traces.get_tracer("mirrorfeed", this_build())
        meter = self._metrics.get_meter("mirrorfeed", this_build())
        self._rows = meter.create_counter("mirrorfeed.rows", "{row}", "Published rows")
        self._bytes = meter.create_counter("mirrorfeed.bytes", "By", "Size of published data files")
        self._retries = meter.create_counter("mirrorfeed.retries", "{retry}", "Repeated requests and attempts")
        self._failures = meter.create_counter("mirrorfeed.failures", "{failure}", "Results with an error")
        self._phases = meter.create_histogram("mirrorfeed.phase.duration", "s", "Duration of a phase of a publication")
        self._lag = meter.create_gauge(
            "mirrorfeed.lag", "s", "Time from the oldest published commit to its publication"
        )
        self._versions = meter.create_gauge(
            "mirrorfeed.lag.versions", "{version}", "Versions that are not published yet"
        )
        self._step_lag = meter.create_gauge(
            "mirrorfeed.step.lag", "s", "Time for which changes wait for a step, at the newest check"
        )
        self._run: Span | None = None
        self._end: datetime | None = None

    def send(self, finished: Finished) -> None:
        self._measure(finished)
        self._trace(finished)

    def send_lags(self, lags: Lags) -> None:
        for step, seconds in lags.seconds.items():
            self._step_lag.set(seconds, {"mirrorfeed.table": lags.table, "mirrorfeed.step": step})

    def close(self) -> None:
        if self._run:
            self._run.end(_nanoseconds(self._end))
        self._traces.shutdown()
        self._metrics.shutdown()

    def _measure(self, finished: Finished) -> None:
        result = finished.result
        table = {"mirrorfeed.table": result.table}
        for marker, count in result.rows.items():
            self._rows.add(count, {**table, "mirrorfeed.row_marker": marker})
        if result.bytes:
            self._bytes.add(result.bytes, table)
        measured = [result.measured.get(record.batch, {}) for record in result.records]
        for kind, count in (
            ("request", sum(each.get("retries", 0) for each in measured)),
            ("attempt", result.tries - 1),
        ):
            if count > 0:
                self._retries.add(count, {**table, "mirrorfeed.retry": kind})
        if result.error:
            self._failures.add(1, {**table, "error.type": result.error.code})
        for phase in _phases_of(finished):
            self._phases.record(phase.seconds, {**table, "mirrorfeed.phase": phase.name})
        if measured and "lag_seconds" in measured[-1]:
            self._lag.set(measured[-1]["lag_seconds"], table)
        if result.lag_versions is not None:
            self._versions.set(result.lag_versions, table)

    def _trace(self, finished: Finished) -> None:
        result, phases = finished.result, list(_phases_of(finished))
        start = min([finished.at - timedelta(seconds=result.seconds), *(phase.start for phase in phases)])
        context = Context()
        if finished.run_started:
            self._run = self._run or self._tracer.start_span(
                "publish", Context(), start_time=_nanoseconds(min(start, finished.run_started))
            )
            self._end = finished.at
            context = set_span_in_context(self._run, context)
            if result.error:
                self._run.set_status(StatusCode.ERROR)
        attributes: dict[str, Any] = {
            "mirrorfeed.table": result.table,
            "mirrorfeed.source": str(finished.table.source),
            "mirrorfeed.published": result.what,
            "mirrorfeed.rows": sum(result.rows.values()),
            "mirrorfeed.files": result.files,
            "mirrorfeed.bytes": result.bytes,
            "mirrorfeed.attempts": result.tries,
        }
        span = self._tracer.start_span(
            f"publish {result.table}", context, attributes=attributes, start_time=_nanoseconds(start)
        )
        if result.error:
            _set_error(span, result.error)
        below = set_span_in_context(span, context)
        for phase in phases:
            self._tracer.start_span(
                phase.name, below, attributes=_attributes_of(phase), start_time=_nanoseconds(phase.start)
            ).end(_nanoseconds(phase.start + timedelta(seconds=phase.seconds)))
        span.end(_nanoseconds(finished.at))


def _phases_of(finished: Finished) -> Iterator[_Phase]:
    """Yield the phases of all publications of a result.

    Staging ends at the time of the record. The files of a record of an earlier run were renamed at the end of this run.
    """
    for record in finished.result.records:
        measured = finished.result.measured.get(record.batch, {})
        seconds = {name: float(measured[f"{name}_seconds"]) for name in _PHASES if measured.get(f"{name}_seconds")}
        if "stage" in seconds:
            start = record.at - timedelta(seconds=seconds["stage"])
        else:
            start = finished.at - timedelta(seconds=sum(seconds.values()))
        for name, count in seconds.items():
            yield _Phase(name, start, count, record)
            start += timedelta(seconds=count)


def _attributes_of(phase: _Phase) -> dict[str, Any]:
    record = phase.record
    versions = {"mirrorfeed.version.to_inclusive": record.to_version_inclusive}
    if record.from_version_exclusive is not None:
        versions["mirrorfeed.version.from_exclusive"] = record.from_version_exclusive
    return {**versions, "mirrorfeed.record": record.number, "mirrorfeed.rows": record.rows.total()}


def _set_error(span: Span, error: MirrorfeedError) -> None:
    span.set_attribute("error.type", error.code)
    span.set_status(Status(StatusCode.ERROR, redact(error.problem)))


def _is_on(signal: str) -> bool:
    return os.environ.get(f"OTEL_{signal}_EXPORTER", "otlp").strip().lower() != "none"


def _nanoseconds(time: datetime | None) -> int | None:
    return None if time is None else int(time.timestamp() * 1_000_000) * 1_000
