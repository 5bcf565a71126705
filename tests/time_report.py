"""`make slow`: the time and CPU of a run by cause, by file and by test.

A thread samples the stack of the tests' thread, and the CPU of the process and its children, ten times a second. Other
runs do not load it.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import astuple, dataclass, field
from pathlib import PurePath
from types import FrameType
from typing import Any

import psutil
import pytest

EVERY = 0.1
"""Seconds between samples."""
SPARK = "Spark, called by a test"
BETWEEN = "before and between tests"
CAUSES = {
    "a session's start": ("mirrorfeed/runtime/spark_session.py", "mirrorfeed/runtime/local_spark.py"),
    "walls and servers": ("fixtures/sandbox.py", "fixtures/connect.py"),
    "commands and other processes": ("/subprocess.py",),
    "making source tables": (
        "tests/support/delta.py",
        "tests/support/tables.py",
        "fixtures/demo/shop.py",
        "tests/support/journeys.py",
    ),
    "publishing": ("mirrorfeed/publish/", "mirrorfeed/orchestration/"),
    "reading the feed": ("mirrorfeed/source/",),
    "archive": ("mirrorfeed/archive/",),
    "the mirror, replica and verify": ("mirrorfeed/mirror/", "fixtures/mirror.py"),
    "stores": ("mirrorfeed/storage/", "fixtures/onelake/"),
    SPARK: ("/pyspark/sql/",),
}
"""Causes, by parts of file names. The innermost frame that matches decides. Spark comes last, because it is below all
others."""


@dataclass
class Spent:
    seconds: float = 0
    cpu: float = 0
    java: float = 0
    idle: float = 0
    javas: int = 0
    """Java processes that were seen for the first time."""

    def add(self, other: Spent) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


@dataclass
class Watch:
    """Time and CPU, by test and by cause."""

    test: str = BETWEEN
    tests: defaultdict[str, Spent] = field(default_factory=lambda: defaultdict(Spent))
    causes: defaultdict[str, Spent] = field(default_factory=lambda: defaultdict(Spent))
    lock: threading.Lock = field(default_factory=threading.Lock)
    _main: int | None = field(default_factory=lambda: threading.main_thread().ident)
    _at: float = field(default_factory=time.perf_counter)
    _used: float = 0
    _javas: dict[int, float] = field(default_factory=dict)

    def look(self) -> None:
        """Add the time since the last sample to the current test and cause."""
        with self.lock:
            used, java, javas = 0.0, 0.0, 0
            for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
                try:
                    times, name = process.cpu_times(), process.name()
                except psutil.Error:
                    continue
                used += times.user + times.system + times.children_user + times.children_system
                if name == "java":
                    javas += process.pid not in self._javas
                    java += times.user + times.system - self._javas.get(process.pid, 0)
                    self._javas[process.pid] = times.user + times.system
            now = time.perf_counter()
            seconds, cpu = now - self._at, max(0.0, used - self._used)
            self._at, self._used = now, max(used, self._used)
            spent = Spent(seconds, cpu, java, max(0.0, seconds - cpu), javas)
            self.tests[self.test].add(spent)
            self.causes[cause(sys._current_frames().get(self._main or 0))].add(spent)

    def follow(self) -> None:
        while True:
            self.look()
            time.sleep(EVERY)


def cause(frame: FrameType | None) -> str:
    last = "the tests' own Python"
    while frame is not None:
        name = PurePath(frame.f_code.co_filename).as_posix()
        for title, parts in CAUSES.items():
            if any(part in name for part in parts):
                if title != SPARK:
                    return title
                last = title
        frame = frame.f_back
    return last


WATCH = Watch()


def pytest_sessionstart(session: pytest.Session) -> None:
    if session.config.getoption("dist", "no") == "no" or hasattr(session.config, "workerinput"):
        threading.Thread(target=WATCH.follow, daemon=True).start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    WATCH.test = item.nodeid
    try:
        return (yield)
    finally:
        WATCH.look()
        WATCH.test = BETWEEN


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["spent"] = [
            {name: astuple(spent) for name, spent in table.items()} for table in (WATCH.tests, WATCH.causes)
        ]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    for table, sent in zip(
        (WATCH.tests, WATCH.causes), getattr(node, "workeroutput", {}).get("spent", ()), strict=False
    ):
        for name, spent in sent.items():
            table[name].add(Spent(*spent))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    files: defaultdict[str, Spent] = defaultdict(Spent)
    for test, spent in WATCH.tests.items():
        files[test.partition("::")[0]].add(spent)
    for title, table, most in (("causes", WATCH.causes, 99), ("files", files, 999), ("tests", WATCH.tests, 60)):
        terminalreporter.section(f"time by {title}")
        terminalreporter.write_line("seconds     CPU    Java    idle  JVMs")
        for name, spent in sorted(table.items(), key=lambda pair: -pair[1].cpu)[:most]:
            figures = f"{spent.seconds:7.1f} {spent.cpu:7.1f} {spent.java:7.1f} {spent.idle:7.1f} {spent.javas:5}"
            terminalreporter.write_line(f"{figures}  {name}")
