"""Send the results of a run or a check to other systems, such as OpenLineage and OpenTelemetry, in a separate thread.

A command waits for this thread only at its end and only for a limited time. Errors of other systems become one warning.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Protocol

from mirrorfeed.errors import MirrorfeedError, MirrorfeedWarning, first_line, problem

if TYPE_CHECKING:
    from mirrorfeed.config.model import Config, Table
    from mirrorfeed.publish.table_result import TableResult

_log = logging.getLogger(__name__)
_MAX_WAITING = 10_000
"""Maximum number of results that wait until they are sent. Further results are not sent."""


@problem(
    MirrorfeedWarning,
    "MF8004",
    meaning=(
        "Lineage events or telemetry of some publications or checks were not sent, for example because the receiver"
        " could not be reached. They are not sent later. The tables were published, and alerts were sent."
    ),
)
def results_not_sent(*, reason: str) -> None:
    """Results were not all sent as `lineage` or `telemetry` sets: {reason}.

    Check that the extra is installed, such as `pip install 'mirrorfeed[openlineage]'`, and the settings of the
    receiver. Publications and alerts do not depend on it.
    """


@dataclass(frozen=True)
class Finished:
    """New result of a table, and the time when the run got it."""

    table: Table
    result: TableResult
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    run_started: datetime | None = None
    """Start of the run. None in continuous publishing, which may never end."""


@dataclass(frozen=True)
class Lags:
    """Seconds for which changes of a table wait for each step on the way to Fabric, as a check has found them."""

    table: str
    seconds: Mapping[str, float]
    """The key is the step. A step is missing if the wait is unknown."""


class Receiver(Protocol):
    """System that receives results. The methods can take long and can raise any error."""

    def send(self, finished: Finished) -> None: ...

    def send_lags(self, lags: Lags) -> None: ...

    def close(self) -> None:
        """Wait until everything is sent."""


def receivers_of(config: Config) -> Iterator[Callable[[], Receiver]]:
    """Yield a function for each system in the configuration. The function imports the packages of the system."""

    def lineage() -> Receiver:
        from mirrorfeed.orchestration.lineage import Lineage

        return Lineage(config)

    if config.lineage:
        yield lineage
    yield from telemetry_of(config)


def telemetry_of(config: Config) -> Iterator[Callable[[], Receiver]]:
    """Yield the function of `receivers_of` for the system of `telemetry`, if the configuration has it."""

    def telemetry() -> Receiver:
        from mirrorfeed.orchestration.telemetry import Telemetry

        return Telemetry()

    if config.telemetry:
        yield telemetry


@dataclass
class Exporter:
    """Sends results to receivers, which are created in the thread that sends."""

    config: Config
    on_problem: Callable[[MirrorfeedError], None]
    """Function that receives the first problem. Later problems are only logged."""
    receivers: Callable[[Config], Iterable[Callable[[], Receiver]]] = receivers_of
    timeout: float = 10.0
    """Maximum seconds for which `finish` waits."""
    _waiting: SimpleQueue[Finished | Lags | None] = field(default_factory=SimpleQueue, init=False)
    _has_problem: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        # The interpreter ends without waiting for a daemon thread, which may hang in a connection.
        self._thread = Thread(target=self._send_all, name="mirrorfeed-exporter", daemon=True)
        self._is_started = False

    def add(self, result: Finished | Lags) -> None:
        if not self._is_started:
            self._is_started = True
            self._thread.start()
        if self._waiting.qsize() < _MAX_WAITING:
            self._waiting.put(result)
        else:
            self._report(f"more than {_MAX_WAITING:,} results were waiting")

    def finish(self) -> None:
        """Wait until all results are sent, or the time is over."""
        if not self._is_started:
            return
        self._waiting.put(None)
        self._thread.join(self.timeout)
        if self._thread.is_alive():
            self._report(f"sending took more than {self.timeout:g} seconds after the end")

    def _send_all(self) -> None:
        receivers: list[Receiver] = []
        for create in self.receivers(self.config):
            with self._reporting():
                receivers.append(create())
        while result := self._waiting.get():
            for receiver in receivers:
                with self._reporting():
                    receiver.send(result) if isinstance(result, Finished) else receiver.send_lags(result)
        for receiver in receivers:
            with self._reporting():
                receiver.close()

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._report(first_line(f"{type(error).__name__}: {error}"))

    def _report(self, reason: str) -> None:
        _log.warning("Results were not sent: %s", reason)
        if not self._has_problem:
            self._has_problem = True
            self.on_problem(results_not_sent(reason=reason))
