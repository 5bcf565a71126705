"""Results that are sent to other systems. They neither delay nor fail a run."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from threading import Event

import pytest

from mirrorfeed.config.model import Config
from mirrorfeed.errors import MirrorfeedError
from mirrorfeed.orchestration.exporter import Exporter, Finished, Lags, Receiver, results_not_sent
from mirrorfeed.publish.table_result import TableResult
from tests.support.entries import entry

CONFIG = Config(landing_zone="/zone", tables=(), lineage="openlineage")


class Recording:
    def __init__(self) -> None:
        self.sent: list[str] = []
        self.is_closed = False

    def send(self, finished: Finished) -> None:
        self.sent.append(finished.result.table)

    def send_lags(self, lags: Lags) -> None:
        self.sent.append(f"lags of {lags.table}")

    def close(self) -> None:
        self.is_closed = True


class Failing(Recording):
    def send(self, finished: Finished) -> None:
        super().send(finished)
        raise OSError("the receiver cannot be reached")


class Hanging(Recording):
    ends = Event()

    def send(self, _: Finished) -> None:
        self.ends.wait()


def _constant(receiver: Receiver) -> Callable[[], Receiver]:
    return lambda: receiver


def _finished(table: str) -> Finished:
    return Finished(entry(), TableResult(table))


def export(receivers: Iterable[Receiver], tables: str, timeout: float = 10.0) -> list[MirrorfeedError]:
    problems: list[MirrorfeedError] = []
    exporter = Exporter(CONFIG, problems.append, lambda _: map(_constant, receivers), timeout)
    for table in tables:
        exporter.add(_finished(table))
    exporter.finish()
    return problems


def test_every_result_is_sent_to_every_receiver_before_the_run_ends() -> None:
    first, second = Recording(), Recording()
    assert export([first, second], "abc") == []
    assert [(each.sent, each.is_closed) for each in (first, second)] == [(["a", "b", "c"], True)] * 2


def test_failing_receiver_is_one_warning_and_does_not_stop_the_others() -> None:
    failing, other = Failing(), Recording()
    (problem,) = export([failing, other], "abc")
    assert results_not_sent.matches(problem)
    assert problem.is_warning
    assert "OSError: the receiver cannot be reached" in str(problem)
    assert (failing.sent, other.sent) == (["a", "b", "c"], ["a", "b", "c"])


def test_hanging_receiver_delays_the_end_of_a_run_only_for_the_timeout() -> None:
    started = time.monotonic()
    (problem,) = export([Hanging()], "a", timeout=0.2)
    assert time.monotonic() - started < 5
    assert "more than 0.2 seconds" in str(problem)
    Hanging.ends.set()


def test_missing_package_is_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "mirrorfeed.orchestration.lineage", raising=False)
    monkeypatch.setitem(sys.modules, "openlineage.client", None)
    problems: list[MirrorfeedError] = []
    exporter = Exporter(CONFIG, problems.append)
    exporter.add(_finished("a"))
    exporter.add(_finished("b"))
    exporter.finish()
    assert len(problems) == 1
    assert "pip install 'mirrorfeed[openlineage]'" in str(problems[0])


def test_receiver_that_cannot_be_created_does_not_stop_the_others() -> None:
    def fail() -> Receiver:
        raise ModuleNotFoundError("No module named 'openlineage'")

    problems, other = list[MirrorfeedError](), Recording()
    exporter = Exporter(CONFIG, problems.append, lambda _: [fail, lambda: other])
    exporter.add(_finished("a"))
    exporter.add(Lags("b", {}))
    exporter.finish()
    assert (other.sent, len(problems)) == (["a", "lags of b"], 1)


def test_run_without_results_starts_no_thread() -> None:
    assert export([Failing()], "") == []
