"""Settings and resources that all tables of a run share."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from threading import RLock
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from mirrorfeed.config.model import Config, Table, zone_of
from mirrorfeed.errors import MirrorfeedError
from mirrorfeed.errors.callbacks import guard_callback
from mirrorfeed.orchestration.scheduler import Clock
from mirrorfeed.publish.table_result import TableResult
from mirrorfeed.runtime.credentials import default_workspace
from mirrorfeed.runtime.errors import CredentialRefusedError
from mirrorfeed.runtime.spark_session import renew_session
from mirrorfeed.storage import Store, forget

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient

    from mirrorfeed.orchestration.last_failure import LastFailures
    from mirrorfeed.source.pending_commits import PendingCommits

_log = logging.getLogger(__name__)

Stop = Callable[[], bool]
OnStep = Callable[[str, str], None]
"""Function that is called with the name and the current step of a table, from several threads."""
OnDone = Callable[[TableResult], None]
"""Function that is called with each new result."""
OnProblem = Callable[[MirrorfeedError], None]
"""Function that is called with problems that do not prevent publishing a table."""


def _warn(error: MirrorfeedError) -> None:
    warnings.warn(str(error), stacklevel=3)


@dataclass(frozen=True)
class Callbacks:
    """Functions that a run calls. After `stop` returns True, no attempt to publish a table starts, and running attempts
    end after their current publication."""

    on_step: OnStep = lambda *_: None
    on_problem: OnProblem = _warn
    on_done: OnDone = lambda _: None
    stop: Stop = lambda: False

    @classmethod
    def guarded(
        cls,
        on_problem: OnProblem,
        on_step: OnStep | None = None,
        on_done: OnDone | None = None,
        stop: Stop | None = None,
    ) -> Callbacks:
        """Return callbacks for functions of a user. `on_problem` receives the first error of each of these functions,
        which changes nothing else."""
        return cls(
            guard_callback("on_step", on_step, on_problem, None),
            on_problem,
            guard_callback("on_done", on_done, on_problem, None),
            guard_callback("stop", stop, on_problem, default=False),
        )


@dataclass
class RunContext:
    """Settings and resources that the tables of a run share."""

    spark: SparkSession | Callable[[], SparkSession]
    """Spark session, or a function that starts one when it is needed."""
    config: Config
    callbacks: Callbacks = field(default_factory=Callbacks)
    clock: Clock = field(default_factory=Clock)
    drop_timeout: float = 600.0
    """Maximum number of seconds to wait until Fabric has dropped a table whose folder was deleted."""
    follows: bool = False
    """True to publish tables continuously until `stop` returns True."""
    written: Config | None = None
    """Configuration before its patterns were expanded, so that continuous publishing can expand them again."""
    start_seconds: float = field(default=0.0, init=False)
    """Seconds until the Spark session had started. 0 if no session was started."""
    _zone: Store | None = field(default=None, init=False)
    _lock: RLock = field(default_factory=RLock, init=False)
    expansion_error: str = field(default="", init=False)
    """Last error of expanding the patterns again, so that each error is reported once."""

    @property
    def session(self) -> SparkSession:
        with self._lock:
            if callable(self.spark):
                started = self.clock.now()
                self.spark = self.spark()
                self.start_seconds = self.clock.now() - started
            return self.spark

    @property
    def zone(self) -> Store:
        with self._lock:
            self._zone = self._zone or zone_of(self.config)
            return self._zone

    @cached_property
    def client(self) -> WorkspaceClient:
        """Databricks client that all tables share. Raises `ValueError` if no workspace is configured."""
        return default_workspace()

    @cached_property
    def failures(self) -> LastFailures:
        """The last failures of the tables in the landing zone, which are only shown."""
        from mirrorfeed.orchestration.last_failure import LastFailures

        return LastFailures(self.zone)

    def reconnect(self, error: MirrorfeedError) -> None:
        """Replace the Spark session if it has expired. Also make the next use of `zone` open the landing zone again.

        If `error` is a refused login, this next use also reads the client secret again, if there is one. Raises
        `SparkSessionLostError` if the session has expired and cannot be replaced.
        """
        with self._lock:
            if isinstance(error, CredentialRefusedError):
                forget(self.zone)
            self._zone = None
            self.__dict__.pop("failures", None)
            self.spark = renew_session(self.session)

    def pending(self, table: Table, published: int) -> PendingCommits | None:
        """Return the number and size of the commits after `published`, or None if the commits cannot be read."""
        from mirrorfeed.source.pending_commits import pending_commits  # imported late: only --follow needs it

        try:
            return pending_commits(self.session, table.source, published, measured=table.follow.measures)
        except Exception:  # the next attempt reports the error
            _log.warning("Checking %s for changes failed", table.source, exc_info=True)
            return None
