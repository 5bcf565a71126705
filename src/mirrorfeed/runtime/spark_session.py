"""Find or start a Spark session, and apply the settings with which Spark reads and writes every row unchanged."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from enum import Enum
from functools import lru_cache
from threading import Condition, get_ident
from typing import TYPE_CHECKING

from mirrorfeed.errors import SparkError, SparkSessionLostError, first_line, problem
from mirrorfeed.runtime.errors import install_command, spark_missing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@problem(SparkError, "MF1203")
def no_connect_compute() -> None:
    """Databricks Connect is installed, but no compute is configured for it.

    Set DATABRICKS_CONFIG_PROFILE, or DATABRICKS_HOST, with DATABRICKS_CLUSTER_ID or
    DATABRICKS_SERVERLESS_COMPUTE_ID=auto. To use Spark on this machine, replace databricks-connect by pyspark.
    """


@problem(SparkError, "MF1209")
def connect_failed(*, reason: str) -> None:
    """Databricks Connect cannot start a session: {reason:phrase}.

    Check the login and the compute. The release of databricks-connect must not be newer than the runtime of the
    compute: see docs/databricks-connect.md.
    """


class SparkSettingError(SparkError):
    code = "MF2207"
    what = "{name} is {value}, and the Spark session does not allow changing it. Published rows could be wrong."
    fix = "Set {name} to {wanted} in the Spark configuration of the compute."
    name: str
    value: str
    wanted: str


class Kind(Enum):
    RUNTIME = "a Databricks runtime"
    REMOTE = "a Spark Connect server"
    CONNECT = "Databricks Connect"
    LOCAL = "this machine"


def get_session(options: Mapping[str, str] | None = None) -> SparkSession:
    """Return the active Spark session, or start one. The settings `options` apply only if Spark starts on this machine.

    Raises `spark_missing` if PySpark is not installed, `no_connect_compute` if Databricks Connect has no compute,
    `connect_failed` if Databricks Connect cannot start a session, and the errors of `start_local`.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise spark_missing(install=install_command())
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        return SparkSession.active()
    except PySparkRuntimeError:  # no active session
        pass
    match kind():
        case Kind.LOCAL:
            from mirrorfeed.runtime.local_spark import start_local

            return start_local(options or {})
        case Kind.CONNECT:
            from databricks.connect import DatabricksSession

            try:
                session: SparkSession = DatabricksSession.builder.getOrCreate()
            except Exception as error:  # a plain exception, for example if Connect is newer than the runtime
                details = getattr(error, "details", None)  # the text of gRPC's errors has several lines
                raise connect_failed(reason=first_line(str(details() if callable(details) else error))) from error
            return session
        case Kind.RUNTIME | Kind.REMOTE:
            return SparkSession.builder.getOrCreate()


def kind() -> Kind:
    """Return how this process uses Spark: in a Databricks runtime, over Databricks Connect, on a Spark Connect server,
    or on this machine. Raises `no_connect_compute` if Databricks Connect has no compute."""
    if os.environ.get("DATABRICKS_RUNTIME_VERSION"):
        return Kind.RUNTIME
    has_connect = _is_connect_installed()
    if has_connect and _is_connect_configured():
        return Kind.CONNECT
    if os.environ.get("SPARK_REMOTE"):
        return Kind.REMOTE
    if has_connect:  # then Spark for this machine is not installed
        raise no_connect_compute()
    return Kind.LOCAL


def renew_session(spark: SparkSession) -> SparkSession:
    """Return `spark` if it still works, otherwise a new session.

    Only a session of Spark Connect is replaced. Raises `SparkSessionLostError` if `spark` does not work and cannot be
    replaced.
    """
    if _is_alive(spark):
        return spark
    if "connect" in type(spark).__module__:  # a session of a runtime or of this machine ends with the process
        with suppress(Exception):
            spark.stop()
        with suppress(Exception):
            session = get_session()
            if _is_alive(session):
                return session
    raise SparkSessionLostError()


def _is_alive(spark: SparkSession) -> bool:
    try:
        return bool(spark.sql("SELECT 1").collect())
    except Exception:  # errors of the connection or of the server, of any class
        return False


def is_on_databricks(environment: Mapping[str, str]) -> bool:
    """Return whether this process runs on Databricks compute, or has Databricks Connect installed."""
    return bool(environment.get("DATABRICKS_RUNTIME_VERSION")) or _is_connect_installed()


def is_on_this_machine(spark: SparkSession, environment: Mapping[str, str]) -> bool:
    """Return whether executors are processes of this machine with the same file access as this process."""
    if is_on_databricks(environment) or "connect" in type(spark).__module__:
        return False
    return (spark.conf.get("spark.master") or "").startswith("local")


def _is_connect_installed() -> bool:
    try:
        return importlib.util.find_spec("databricks.connect") is not None
    except ModuleNotFoundError:  # not even the parent folder exists
        return False


def _is_connect_configured() -> bool:
    from databricks.sdk.core import Config

    try:
        config = Config()
    except ValueError:
        return False
    return bool(config.cluster_id or config.serverless_compute_id)


ALL_DAYS = "spark.sql.datetime.java8API.enabled"
"""Setting with which Spark correctly reads days from 1582-10-05 to 1582-10-14 in a change data feed. Otherwise, Java's
older date classes change these days to 1582-10-15, in dates, times and nested values."""

IGNORE_FILE_SETTINGS = ("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles")
"""Settings that make Spark read missing or damaged files as empty, so that changes in vacuumed files would be lost."""

_REQUIRED = {
    **dict.fromkeys(IGNORE_FILE_SETTINGS, "false"),
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",  # otherwise JSON has dates of the Julian calendar
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",  # the same for data files
    # Files without Spark's name in their metadata may be from any writer. Delta's dates are Gregorian.
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    # Spark may store CHAR without trailing spaces, and adds them when it reads.
    "spark.sql.readSideCharPadding": "true",
    "spark.sql.legacy.charVarcharAsString": "false",
    "spark.sql.preserveCharVarcharTypeInfo": "false",  # Arrow has no CHAR
    "spark.sql.ansi.enabled": "true",  # otherwise a condition such as `code IN (1, 2)` has another result for text
}
"""Settings without which published values can be wrong."""

_WANTED = {
    ALL_DAYS: "true",
    # Otherwise each shuffle partition becomes a file, 200 by default.
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.enabled": "true",
}
"""Settings that are applied only if the session allows changing them."""


class _Hold:
    """Value that a setting has now, because threads need it, with the original value in each changed session."""

    def __init__(self, value: str | None) -> None:
        self.value = value
        """None if threads need the original value."""
        self.threads: list[int] = []
        self.originals: list[tuple[SparkSession, str | None]] = []

    def is_value(self, value: str | None) -> bool:
        return (self.value or "").casefold() == (value or "").casefold()

    def apply(self, spark: SparkSession, name: str) -> None:
        assert self.value is not None
        original = spark.conf.get(name, None)  # None if the setting is not set
        if original is None or not self.is_value(original):
            spark.conf.set(name, self.value)
            self.originals.append((spark, original))

    def restore(self, name: str) -> None:
        for spark, original in reversed(self.originals):
            with suppress(Exception):  # the session may have expired
                if original is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, original)


_released = Condition()
"""Lock for all changes of settings. Notified when a setting has its original value again."""
_holds: dict[str, list[_Hold]] = {}
"""Present value of each setting that threads need. Other elements are values to which nested callers return."""


@contextmanager
def _hold(name: str, value: str | None) -> Iterator[_Hold]:
    """Context manager that reserves a value of a setting, and restores the original value after the last use.

    The value None means the original value, which can be that of an outer context of this thread. Waits while
    other threads need another value.
    """
    thread = get_ident()
    with _released:
        holds = _holds.setdefault(name, [])
        _released.wait_for(lambda: not holds or holds[-1].is_value(value) or {*holds[-1].threads} == {thread})
        if not holds or not holds[-1].is_value(value):
            holds.append(_Hold(value))
        hold = holds[-1]
        hold.threads.append(thread)
    try:
        yield hold
    finally:
        with _released:
            hold.threads.remove(thread)
            if not hold.threads:
                holds.remove(hold)
                hold.restore(name)
                _released.notify_all()


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Context manager in which a setting of the session has the value `value`.

    Several threads can use the same value of a setting at once, and the last one restores the original value. A thread
    that needs another value waits for them. A thread can nest the context manager with other values.
    """
    with _hold(name, value) as hold:
        with _released:
            hold.apply(spark, name)
        yield


@contextmanager
def original_setting(name: str) -> Iterator[None]:
    """Context manager in which no other thread changes a setting. Waits while other threads use another value."""
    with _hold(name, None):
        yield


@contextmanager
def lossless_settings(spark: SparkSession) -> Iterator[None]:
    """Context manager that applies the settings with which Spark reads and writes all rows unchanged.

    Raises `SparkSettingError` if a required setting has a wrong value, and the session does not allow a change. Can be
    nested, and used by several threads, as `setting`.
    """
    with ExitStack() as settings:
        for name, wanted in (_WANTED | _REQUIRED).items():
            hold = settings.enter_context(_hold(name, wanted))
            with _released:
                value = _value(spark, name)
                if value is None or hold.is_value(value):
                    continue
                try:
                    hold.apply(spark, name)
                except Exception as error:
                    if name in _REQUIRED:
                        raise SparkSettingError(name=name, value=value, wanted=wanted) from error
        yield


def _value(spark: SparkSession, name: str) -> str | None:
    """Return the value of a setting, or None if Spark does not return it, for example on serverless compute."""
    with suppress(Exception):
        return spark.conf.get(name) or "false"
    return None


def refused_settings(spark: SparkSession) -> dict[str, str]:
    """Return the settings that mirrorfeed has to change but cannot change in this session, with their current values.

    A value is "unknown" if the session does not return it. Leaves all settings unchanged.
    """
    refused: dict[str, str] = {}
    for name, wanted in (_WANTED | _REQUIRED).items():
        value = _value(spark, name)
        if value is None:
            refused[name] = "unknown"
        elif value.casefold() != wanted.casefold():
            try:
                with setting(spark, name, wanted):
                    pass
            except Exception:
                refused[name] = value
    return refused


def all_days_are_read(spark: SparkSession) -> bool:
    """Return whether Spark correctly reads dates from 1582-10-05 to 1582-10-14 in a change data feed."""
    with lossless_settings(spark):
        return _value(spark, ALL_DAYS) == "true"


@lru_cache(maxsize=8)
def is_databricks(spark: SparkSession) -> bool:
    """Return whether Spark runs on Databricks: on a cluster or serverless compute, also over Databricks Connect."""
    return bool(spark.sql("SHOW SYSTEM FUNCTIONS LIKE 'current_version'").collect())  # only in Databricks
