"""What all tests share: one Spark session, and an order."""

from __future__ import annotations

import gc
import os
import random
import socket
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from fixtures.click_testing import separate_streams
from fixtures.onelake import SECRET, OneLake
from mirrorfeed.display import redact
from mirrorfeed.lint import linter
from mirrorfeed.lint.parquet_process import ParquetProcess
from mirrorfeed.runtime.errors import ConnectNotConfigured
from mirrorfeed.runtime.spark_session import get_session

settings.register_profile("ci", max_examples=30, deadline=None, derandomize=True, database=None)
settings.register_profile("soak", max_examples=3000, deadline=None, database=None, print_blob=True)
separate_streams()
settings.load_profile(os.environ.get("MIRRORFEED_HYPOTHESIS", "ci"))

INTERPRETED = {"spark.sql.codegen.factoryMode": "NO_CODEGEN", "spark.sql.codegen.wholeStage": "false"}
"""What is asked of so few rows is asked once: to write and compile code for it takes most of the time. What is behind
walls runs compiled."""
ADAPTIVE = "spark.sql.adaptive.enabled"
"""To plan anew between the stages of a query takes a sixth of a publication of few rows. The proofs with several files,
commands in processes of their own and what is behind walls have it."""
SIMPLY = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"
    " -XX:MetaspaceSize=256m -Xms768m -XX:NewRatio=1 -XX:ActiveProcessorCount=2"
)
"""For every Spark that tests start: a JVM that compiles once and simply, for little runs long enough to be worth more,
has no threads for collecting garbage beside the work, has room for what soon is garbage, and runs two tasks at once
wherever it runs."""
os.environ.setdefault("SPARK_SUBMIT_OPTS", SIMPLY)

COUNTED = pytest.StashKey[Counter[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Side by side on as few processors, each process keeps to one, with all that it starts: threads that take turns
    would else be sent where the other process is at work, and wait for it. Until all is collected, nothing that is made
    is garbage, and nobody looks for it."""
    gc.disable()
    worker = getattr(config, "workerinput", None)
    if worker and hasattr(os, "sched_setaffinity"):
        there = sorted(os.sched_getaffinity(0))
        if len(there) <= worker["workercount"]:
            os.sched_setaffinity(0, {there[int(worker["workerid"].removeprefix("gw")) % len(there)]})


@pytest.fixture(scope="session")
def counted(request: pytest.FixtureRequest) -> Counter[str]:
    """How many cases of each kind the proofs played, by its name; the last lines of a run tell."""
    return request.config.stash.setdefault(COUNTED, Counter())


@pytest.fixture(autouse=True)
def _forget_secrets() -> Iterator[None]:
    """The process remembers the secrets of one test in the next one, and would remove them from its texts."""
    yield
    redact.forget_all()


@pytest.fixture(scope="session", autouse=True)
def _one_parquet_process() -> Iterator[None]:
    """One child reads the Parquet files of all calls of `lint`: starting one takes a third of a second."""
    with pytest.MonkeyPatch.context() as patch, ParquetProcess() as process:
        patch.setattr(linter, "ParquetProcess", lambda: nullcontext(process))
        yield


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """The processes that ran tests side by side hand over what they counted."""
    counter = node.config.stash.setdefault(COUNTED, Counter())
    counter.update(getattr(node, "workeroutput", {}).get("counted", {}))


def pytest_collection_finish() -> None:
    """What was imported and collected stays: no search for garbage need look at it again."""
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
    """The one session of a run. Tests that use it come after those that do not."""
    os.environ.setdefault(SECRET, uuid.uuid4().hex)  # of all simulators from now on, for its workers to find
    warehouse = tmp_path_factory.mktemp("warehouse")
    options = INTERPRETED | {
        ADAPTIVE: "false",
        **dict.fromkeys(("spark.sql.ui.retainedExecutions", "spark.ui.retainedJobs", "spark.ui.retainedStages"), "20"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
        "spark.sql.leafNodeDefaultParallelism": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.databricks.delta.allFilesInCrc.enabled": "false",  # with it each commit asks for all files before it
        "spark.delta.logStore.file.impl": "io.delta.storage.LocalLogStore",  # the usual one starts processes
        "spark.sql.warehouse.dir": warehouse.as_uri(),
    }
    try:
        session = get_session(options=options)
    except ConnectNotConfigured as error:
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
    """An address where nobody answers, not even with a refusal: the queue of those who wait there is full."""
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


@pytest.hookimpl(tryfirst=True)  # before marks choose
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What asks for the session is marked so, and comes after what does not, which fails fast."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
    if (seed := config.getoption("shuffled")) is not None:
        drawn = random.Random(seed)
        places = {path: drawn.random() for path in sorted({item.path for item in items})}
        drawn.shuffle(items)
        items.sort(key=lambda item: places[item.path])
    items.sort(key=lambda item: "spark" in getattr(item, "fixturenames", ()))
    if seed is None and hasattr(config, "workerinput"):
        long = {item.path for item in items if "spark" in item.keywords}
        items.sort(key=lambda item: (item.path in long, _place(item)))


LONGEST = (
    *("golden/test_with_spark", "publish/test_schema_changes", "publish/sources/test_full_compare"),
    *("archive/test_table", "publish/files/test_staging_area", "publish/sources/test_delta_feed"),
    *("history/test_history", "orchestration/test_verification", "archive/test_writer", "test_notebooks"),
    *("archive/test_query", "publish/test_shared_keys", "publish/test_selection", "e2e/test_walls"),
    *("archive/test_guarded_ranges", "monitor/test_facts", "orchestration/test_publish_run"),
    *("archive/test_guarded_writes", "publish/test_invalid_text", "source/test_reader"),
)
"""Side by side these are begun first, so that all processes end together."""


def _place(item: pytest.Item) -> int:
    name = item.path.relative_to(Path(__file__).parent).with_suffix("").as_posix()
    return LONGEST.index(name) if name in LONGEST else len(LONGEST)
