"""Count what an operation costs, independent of the machine: Spark's jobs, storage calls and HTTP requests."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from fixtures.onelake import OneLake
from mirrorfeed.storage.onelake import OneLakeStore

_READS = ("list", "read", "open_read")
_WRITES = ("create", "create_once", "replace", "open_write", "rename", "remove", "remove_folder")
STORE_METHODS = (*_READS, *_WRITES)


class Counters(NamedTuple):
    """What an operation costs. The fields are the columns of `counters.txt`."""

    jobs: int
    stages: int
    shuffles: int
    scans: int
    """Number of times that a plan reads data files of the source, including files of its change data feed."""
    bytes_per_row: int
    """Bytes that shuffles write before compression, per published row. 0 if the operation publishes no rows."""
    reads: int
    """Calls of the store that read."""
    writes: int
    """Calls of the store that change something."""
    requests: int
    """HTTP requests to OneLake and Fabric, without logins."""


class Meter:
    """Measures operations in a session and a simulated OneLake. `folder` holds Spark's events."""

    def __init__(self, spark: SparkSession, onelake: OneLake, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._spark, self._onelake, self._folder = spark, onelake, folder
        self._calls = Counter[str]()
        self.found: dict[str, Counters] = {}
        """Counters of the measured operations, by operation."""
        for name in STORE_METHODS:
            patch.setattr(OneLakeStore, name, self._counted(name, getattr(OneLakeStore, name)))

    def _counted(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(store: OneLakeStore, *arguments: Any, **named: Any) -> Any:
            self._calls[name] += 1
            return method(store, *arguments, **named)

        return call

    @contextmanager
    def measure(self, operation: str, *sources: Path, published_rows: int = 0) -> Iterator[None]:
        """Count what the block does. `sources` are the folders of the source tables."""
        self._calls.clear()
        requests = len(self._onelake.verbs())
        with recorded_events(self._spark, self._folder) as file:
            yield
        jobs, stages, shuffles, scans, shuffled = count_events(file.read_text(encoding="utf-8"), sources)
        self.found[operation] = Counters(
            jobs,
            stages,
            shuffles,
            scans,
            round(shuffled / published_rows) if published_rows else 0,
            reads=sum(self._calls[name] for name in _READS),
            writes=sum(self._calls[name] for name in _WRITES),
            requests=len(self._onelake.verbs()) - requests,
        )


@contextmanager
def recorded_events(spark: SparkSession, folder: Path) -> Iterator[Path]:
    """Record Spark's events in a file, which is complete after the block."""
    jvm, context = spark._jvm, spark.sparkContext._jsc.sc()
    file = folder / f"events-{len(list(folder.iterdir()))}"
    conf = context.getConf().set("spark.eventLog.rolling.enabled", "false").set("spark.eventLog.compress", "false")
    none, uri = jvm.scala.Option.empty(), jvm.java.net.URI(folder.as_uri())
    hadoop = context.hadoopConfiguration()
    listener = jvm.org.apache.spark.scheduler.EventLoggingListener(file.name, none, uri, conf, hadoop)
    context.listenerBus().waitUntilEmpty()
    listener.start()
    context.addSparkListener(listener)
    try:
        yield file
    finally:
        context.listenerBus().waitUntilEmpty()
        context.removeSparkListener(listener)
        listener.stop()


def count_events(text: str, sources: Sequence[Path]) -> tuple[int, int, int, int, int]:
    """Return the number of jobs, of stages, of shuffles and of scans of the sources, and the shuffled bytes."""
    kinds, shuffled, plans = Counter[str](), 0, dict[int, Any]()
    for event in map(json.loads, text.splitlines()):
        kind = event["Event"].rpartition(".")[2]
        kinds[kind] += 1
        if kind == "SparkListenerStageCompleted":
            metrics = event["Stage Info"]["Accumulables"]
            shuffled += sum(int(each["Value"]) for each in metrics if each["Name"] == "data size")
        elif "sparkPlanInfo" in event:  # the last plan of a query is the one that ran
            plans[event["executionId"]] = event["sparkPlanInfo"]
    nodes = [node for plan in plans.values() for node in _nodes(plan)]
    shuffles, scans = (sum(map(test, nodes)) for test in (_shuffles, lambda node: _scans(node, sources)))
    return kinds["SparkListenerJobStart"], kinds["SparkListenerStageCompleted"], shuffles, scans, shuffled


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan["children"]:
        yield from _nodes(child)


def _shuffles(node: dict[str, Any]) -> bool:
    return bool(node["nodeName"] == "Exchange")


def _scans(node: dict[str, Any], sources: Sequence[Path]) -> bool:
    files = node["metadata"].get("Location", "")
    return "_delta_log" not in files and any(f"{source}{end}" in files for source in sources for end in "/],")
