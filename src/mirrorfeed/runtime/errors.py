"""Errors of the place where the process runs, and the error conditions of Spark and Delta."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mirrorfeed.errors import Terminal, Transient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class SettingFixed(Terminal):
    code = "MF2207"
    what = "The Spark session does not allow changing {name} = {value}, which can make published rows wrong."
    fix = "Set {name} to {wanted} in the Spark configuration of the compute."


_INSTALL_JAVA = "Install JDK 17 or 21 (for example openjdk-17-jdk) and add it to PATH or set JAVA_HOME."


class SparkMissing(Terminal):
    code = "MF1201"
    what = (
        "This command needs Spark, but pyspark and delta-spark are not installed, and this is not a Databricks runtime."
    )
    fix = "Run `make setup` in the project, or `pip install pyspark==4.2.0 delta-spark==4.4.0`."


class ConnectNotConfigured(Terminal):
    code = "MF1203"
    what = "Databricks Connect is installed, but no compute is configured for it."
    fix = (
        "Set DATABRICKS_CONFIG_PROFILE, or DATABRICKS_HOST, with DATABRICKS_CLUSTER_ID or"
        " DATABRICKS_SERVERLESS_COMPUTE_ID=auto. To use Spark on this machine, replace databricks-connect by pyspark."
    )


class JavaMissing(Terminal):
    code = "MF1204"
    what = {
        True: "Spark needs Java, but JAVA_HOME is {home}, which has no bin/java.",
        False: "Spark needs Java, but there is none on PATH.",
    }
    fix = _INSTALL_JAVA
    home: str | None

    @property
    def case(self) -> bool:
        return bool(self.home)


class JavaUnfit(Terminal):
    code = "MF1205"
    what = {
        True: "{command} does not report its Java version.",
        False: "{command} is Java {version}, which Spark does not support.",
    }
    fix = _INSTALL_JAVA
    version: str | None

    @property
    def case(self) -> bool:
        return self.version is None


class SparkDidNotStart(Terminal):
    code = "MF1207"
    what = "Spark did not start on this machine: {last_words}."
    fix = {
        True: "The first start downloads Delta's JARs: check that Maven Central can be reached. See {log}.",
        False: "See {log} for the rest.",
    }
    resolving: bool

    @property
    def case(self) -> bool:
        return bool(self.resolving)


class CacheUnusable(Terminal):
    code = "MF1208"
    what = "The start of Spark cannot write to {folder}: {reason}."
    fix = "Set the environment variable MIRRORFEED_CACHE to a writable folder."


class CredentialRefused(Terminal):
    code = "MF4301"
    what = {
        "": "Cannot get a token for {credential}: {reason:phrase}.",
        "AADSTS7000222": "Cannot get a token for {credential}: its client secret has expired (AADSTS7000222).",
        "AADSTS7000215": "Cannot get a token for {credential}: its client secret is wrong (AADSTS7000215).",
        "AADSTS700016": "Cannot get a token for {credential}: the tenant does not know the application (AADSTS700016).",
        "AADSTS90002": "Cannot get a token for {credential}: the tenant does not exist (AADSTS90002).",
        "AADSTS900023": "Cannot get a token for {credential}: the tenant does not exist (AADSTS900023).",
        "AADSTS500011": "Cannot get a token for {credential}: the tenant does not know the service (AADSTS500011).",
    }
    fix = {
        "": (
            "Check `credential` in the configuration. With `upload_from: executors` use a service principal with an"
            " environment variable, or a service credential, because executors cannot use the login of a person."
        ),
        "AADSTS7000222": "Create a new secret in Entra ID and put it into {place}.",
        "AADSTS7000215": "Put the value of the right secret, not its id, into {place}.",
        "AADSTS700016": "Check `client_id` and `tenant_id`.",
        "AADSTS90002": "Check `tenant_id`.",
        "AADSTS900023": "Check `tenant_id`.",
        "AADSTS500011": "Check that `tenant_id` is the tenant of the Fabric workspace.",
    }
    meaning = "The login service refuses the credential, or no way to log in works here."
    credential: Any
    reason: str
    entra_code: str = ""

    @property
    def case(self) -> str:
        return self.entra_code if self.entra_code in self.fix else ""

    @property
    def place(self) -> str:
        return str(getattr(self.credential, "secret", "the place that the configuration names"))


class LoginUnavailable(Transient):
    code = "MF4302"
    what = "Cannot get a token at the moment: {reason:phrase}."
    fix = "Check that this machine can reach the login service, then run the same command again."
    reason: str
    reached: bool = True
    """False if there was no connection at all."""


class CertificatesUnreadable(Terminal):
    code = "MF4303"
    what = "Cannot read the certificates in {file}: {reason:phrase}."
    fix = "Set `ca_bundle` in the configuration to a file with certificates in PEM format."


class SecretUnreachable(Terminal):
    code = "MF4304"
    what = "Cannot read the client secret from {secret}: {reason:phrase}."
    fix = {
        "variable": (
            "Set the environment variable for the driver, on a Databricks cluster in `spark_env_vars`. On serverless"
            " compute use `secret: {{scope, key}}`, because it has no environment variables."
        ),
        "scope": (
            "Check that the scope and the key exist and that this identity may read them. Executors cannot read secret"
            " scopes: with `upload_from: executors` add an environment variable (`secret: {{scope, key, env}}`) and set"
            ' it in `spark_env_vars` of the cluster to "{{{{secrets/{path}}}}}".'
        ),
    }
    secret: Any
    reason: str

    @property
    def case(self) -> str:
        return "scope" if getattr(self.secret, "scope", None) else "variable"

    @property
    def path(self) -> str:
        return f"{getattr(self.secret, 'scope', 'scope')}/{getattr(self.secret, 'key', 'key')}"


class ServiceCredentialUnreachable(Terminal):
    code = "MF4305"
    what = "Cannot use the service credential {name} of Unity Catalog: {reason:phrase}."
    fix = (
        "Use an Azure service credential for OneLake, or one of AWS for S3, on Databricks Runtime 16.2 or newer, with"
        " the privilege ACCESS. Executors can use it on dedicated clusters only. Elsewhere use a service principal or"
        " the default credential."
    )


NOT_THERE = "DELTA_VERSION_NOT_FOUND"
"""Time travel to a version that the table no longer has, or not yet."""
_VECTOR_GONE = "DELETION_VECTOR_NOT_FOUND"
"""Our name for a deletion vector that VACUUM deleted."""
FILES_GONE = (
    "FAILED_READ_FILE.FILE_NOT_EXIST",
    "FAILED_READ_FILE.DBR_FILE_NOT_EXIST",
    "DELTA_FILE_NOT_FOUND",
    "DELTA_CHANGE_DATA_FILE_NOT_FOUND",
    "PATH_NOT_FOUND",
    _VECTOR_GONE,
)
LOG_GONE = (
    "DELTA_VERSIONS_NOT_CONTIGUOUS",
    "DELTA_LOG_FILE_NOT_FOUND",
    "DELTA_TRUNCATED_TRANSACTION_LOG",
    "DELTA_NO_RECREATABLE_HISTORY_FOUND",
    NOT_THERE,
)
NOT_IN_CATALOG = (
    "TABLE_OR_VIEW_NOT_FOUND",
    "SCHEMA_NOT_FOUND",
    "CATALOG_NOT_FOUND",
    "NO_SUCH_CATALOG_EXCEPTION",
    "REQUIRES_SINGLE_PART_NAMESPACE",  # a name of three parts, where the only catalog is Spark's own
    "DELTA_TABLE_NOT_FOUND",
)
EXPIRED = "DELTA_UNSUPPORTED_TIME_TRAVEL_BEYOND_DELETED_FILE_RETENTION_DURATION"
"""Delta looks back no further, whether files are gone or not; the newest version it always gives."""
FEED_OFF = "DELTA_MISSING_CHANGE_DATA"
SCHEMA_DIFFERS = "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE"
LARGE_VECTOR = "LARGE_DELETION_VECTOR"
"""Our name. Delta's feed reader serializes a deletion vector as a string, which Java limits to 64 KiB
(delta-io/delta issue 5662)."""
UNREADABLE = "FAILED_READ_FILE"
"""A file is there and cannot be read. The names of files that are gone begin with it as well."""
SOURCE_FAULTS = (*FILES_GONE, *LOG_GONE, EXPIRED, FEED_OFF, SCHEMA_DIFFERS, LARGE_VECTOR, UNREADABLE)
"""Failures that are in the source, wherever its rows are read."""

_STREAM = "STREAM_FAILED"
"""The condition of any failure of a stream; the reason is in its text."""

_UNNAMED = re.compile(
    r"Cannot time travel Delta table to version (?P<userVersion>\d+)\. "
    r"Available versions: \[(?P<earliest>\d+), (?P<latest>\d+)\]"
)
"""The text of NOT_THERE in Delta 4.0, where it has no name and no parameters."""

_BY_TEXT = (
    (_UNNAMED, NOT_THERE),
    (re.compile(r"java\.io\.UTFDataFormatException"), LARGE_VECTOR),
    (re.compile(r"java\.io\.FileNotFoundException\W.*deletion_vector_[0-9a-f-]+\.bin"), _VECTOR_GONE),
)
"""Failures without a condition of their own, by their text."""

_FILE_READ = re.compile(r"Encountered error while reading file (\S+)\.(?:\s|$)")

_NAMED = re.compile(r"\[([A-Z][A-Z0-9]*_[A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\]")


def conditions(error: Exception) -> tuple[str, ...]:
    """The conditions that an error names, outermost first.

    A failure in a task, and one of Delta's that Spark has no class for, arrive without a condition of their own: as
    the text of a stack of Java exceptions (and not even as a PySparkException), with the names in brackets.
    """
    own: str | None = getattr(error, "getCondition", lambda: None)()
    if own and own != _STREAM:
        return (own,)
    text = str(error)
    unnamed = [name for pattern, name in _BY_TEXT if pattern.search(text)]
    return tuple(dict.fromkeys(_NAMED.findall(text) + unnamed))


def first_of(error: Exception, known: tuple[str, ...]) -> str | None:
    """The first of the error's conditions that starts with one of these."""
    return next((name for name in conditions(error) if name.startswith(known)), None)


def unreadable_file(error: Exception) -> str:
    """The address of the file that could not be read."""
    found = parameter(error, "path") or next(iter(_FILE_READ.findall(str(error))), None)
    return found or "Spark does not name it"


def parameter(error: Exception, name: str) -> str | None:
    """The value of a parameter of the error message; None if it has none."""
    found: dict[str, str] | None = getattr(error, "getMessageParameters", lambda: None)()
    if not found and (unnamed := _UNNAMED.search(str(error))):
        found = unnamed.groupdict()
    return (found or {}).get(name)


def analyze(frame: DataFrame) -> DataFrame:
    """Have the engine analyze a frame, which raises its errors now, and return the frame.

    Over Connect a schema can come from a cache, so reading it does not analyze the frame.
    """
    _ = frame.isStreaming
    return frame


@contextmanager
def silence_spark_logs() -> Iterator[None]:
    """Suppress the pages of text that Spark writes to standard error before it raises an error."""
    from pyspark.logger import PySparkLogger

    loggers = [PySparkLogger.getLogger(name) for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger")]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, was in zip(loggers, before, strict=True):
            logger.disabled = was
