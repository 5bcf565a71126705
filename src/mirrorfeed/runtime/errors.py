"""Errors of the place where the process runs."""

from __future__ import annotations

from mirrorfeed.errors import Terminal


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
