"""Fixtures and settings that all tests share: one Spark session, and the order of tests."""

from __future__ import annotations

import gc
import os
import random
import socket
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, chdir, nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from fixtures.onelake import SECRET, OneLake
from mirrorfeed.display import redact
from mirrorfeed.errors import SparkError
from mirrorfeed.lint import linter
from mirrorfeed.lint.isolated_parquet_reader import IsolatedParquetReader
from mirrorfeed.runtime.spark_session import get_session, no_connect_compute
from tests.support.click_testing import separate_streams

settings.register_profile("ci", max_examples=30, deadline=None, derandomize=True, database=None)
settings.register_profile("soak", max_examples=3000, deadline=None, database=None, print_blob=True)
separate_streams()
settings.load_profile(os.environ.get("MIRRORFEED_HYPOTHESIS", "ci"))

INTERPRETED = {"spark.sql.codegen.factoryMode": "NO_CODEGEN", "spark.sql.codegen.wholeStage": "false"}
"""Tests query few rows once, so generating and compiling code would take most of the time. The tests of isolated
executors run compiled code."""
ADAPTIVE = "spark.sql.adaptive.enabled"
"""Planning again between the stages of a query takes a sixth of a small publication. Tests with several files, commands
in other processes and the tests of isolated executors use it."""
SIMPLY = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"
    " -XX:MetaspaceSize=256m -Xms768m -XX:NewRatio=1 -XX:ActiveProcessorCount=2"
)
"""Options of every JVM that tests start: only the fast compiler, because little code runs long enough for the other;
no threads for garbage collection; room for short-lived objects; two tasks at a time on any machine."""
os.environ.setdefault("SPARK_SUBMIT_OPTS", SIMPLY)

COUNTED = pytest.StashKey[Counter[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Keep each worker and its children on one processor, so that workers do not wait for each other. Disable garbage
    collection until all tests are collected, because nothing is garbage until then."""
    gc.disable()
    worker = getattr(config, "workerinput", None)
    if worker and hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) <= worker["workercount"]:
            os.sched_setaffinity(0, {cores[int(worker["workerid"].removeprefix("gw")) % len(cores)]})


@pytest.fixture(scope="session")
def counted(request: pytest.FixtureRequest) -> Counter[str]:
    """Number of cases by kind. The last lines of a run print them."""
    return request.config.stash.setdefault(COUNTED, Counter())


@pytest.fixture(autouse=True)
def _forget_secrets_and_clients() -> Iterator[None]:
    """Without this, secrets of one test would be redacted in the texts of the next one, and its connections would stay
    open."""
    yield
    redact._memory().patterns.clear()
    sys.modules.pop("_mirrorfeed_process", None)


@pytest.fixture(scope="session", autouse=True)
def _empty_current_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads the folder in which pytest was started: in a fork, that folder has the user's `mirrorfeed.yml`.
    Processes that tests start import `fixtures`, `tests` and `tools` from there, also Spark's workers."""
    root = str(Path(__file__).parent.parent)
    with chdir(tmp_path_factory.mktemp("current")), pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", root, prepend=os.pathsep)
        yield


@pytest.fixture(scope="session", autouse=True)
def _one_parquet_reader() -> Iterator[None]:
    """One child reads the Parquet files of all calls of `lint`: starting one takes a third of a second."""
    with pytest.MonkeyPatch.context() as patch, IsolatedParquetReader() as process:
        patch.setattr(linter, "IsolatedParquetReader", lambda: nullcontext(process))
        yield


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add the counts of the worker processes."""
    counter = node.config.stash.setdefault(COUNTED, Counter())
    counter.update(getattr(node, "workeroutput", {}).get("counted", {}))


def pytest_collection_finish() -> None:
    """Exclude everything imported and collected from garbage collection."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["counted"] = dict(session.config.stash.get(COUNTED, Counter()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for kind, count in sorted(config.stash.get(COUNTED, Counter()).items()):
        terminalreporter.write_line(f"{count} {kind}")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The only session of a run. Tests that use it run last."""
    os.environ.setdefault(SECRET, uuid.uuid4().hex)  # used by all simulators, and inherited by Spark's workers
    warehouse = tmp_path_factory.mktemp("warehouse")
    options = INTERPRETED | {
        ADAPTIVE: "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
        "spark.sql.leafNodeDefaultParallelism": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.databricks.delta.allFilesInCrc.enabled": "false",  # with it each commit reads all earlier files
        "spark.delta.logStore.file.impl": "io.delta.storage.LocalLogStore",  # the default one starts processes
        "spark.sql.warehouse.dir": warehouse.as_uri(),
    }
    assert SparkSession._instantiatedSession is None, "A test without this fixture started Spark, with other options."
    try:
        session = get_session(options=options)
    except SparkError as error:
        if not no_connect_compute.matches(error):
            raise
        pytest.skip(str(error))
    yield session
    session.stop()


@pytest.fixture
def onelake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OneLake]:
    """A simulated OneLake; its clients log in with a secret from the environment."""
    with OneLake(tmp_path / "certificates") as simulator:
        for name, value in simulator.environment.items():
            monkeypatch.setenv(name, value)
        yield simulator


@pytest.fixture
def dropping() -> Iterator[str]:
    """An address that never responds, because its queue of connections is full."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        yield f"https://localhost:{server.getsockname()[1]}"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffled", type=int, metavar="SEED", help="files, and tests within each, in another order")
    parser.addoption("--renew", action="store_true", help="write tests/golden/expected instead of comparing with it")


@pytest.hookimpl(tryfirst=True)  # before tests are selected by marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that use the session, and run the others first, because they fail fast."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
    if (seed := config.getoption("shuffled")) is not None:
        chosen = random.Random(seed)
        places = {path: chosen.random() for path in sorted({item.path for item in items})}
        chosen.shuffle(items)
        items.sort(key=lambda item: places[item.path])
    items.sort(key=lambda item: "spark" in getattr(item, "fixturenames", ()))
    if seed is None and hasattr(config, "workerinput"):
        long = {item.path for item in items if "spark" in item.keywords}
        items.sort(key=lambda item: (item.path in long, _place(item)))


LONGEST = (
    *("performance/test_counters", "golden/test_with_spark", "publish/test_schema_changes"),
    "publish/change_sources/test_full_compare",
    *("archive/test_guarded_table", "publish/files/test_staging_area", "publish/change_sources/test_delta_feed"),
    *("history/test_history", "orchestration/test_verify_and_repair", "archive/test_writer", "test_notebooks"),
    *("publish/test_rows_and_markers", "archive/test_spark_plans", "publish/change_sources/test_replaced_tables"),
    *("archive/test_query", "publish/test_shared_keys", "publish/test_selection", "archive/test_needed_files"),
    *("archive/test_guarded_ranges", "monitor/test_facts", "orchestration/test_publish_run"),
    *("archive/test_guarded_writes", "publish/test_invalid_text", "source/test_reader"),
    *("runtime/test_session_settings", "archive/test_pinned_query"),
)
"""With several workers these files start first, so that all workers end at about the same time."""


def _place(item: pytest.Item) -> int:
    name = item.path.relative_to(Path(__file__).parent).with_suffix("").as_posix()
    return LONGEST.index(name) if name in LONGEST else len(LONGEST)
