"""Start Spark with Delta on this machine: check Java, and cache the JARs for later starts."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrorfeed.runtime.errors import (
    install_command,
    java_unusable,
    spark_cache_unusable,
    spark_did_not_start,
    spark_missing,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_VERSIONS = (17, 21)
_BOUNDED_MEMORY = {
    # Spark keeps the plans of finished queries for its user interface, even if that is off.
    **dict.fromkeys(("spark.ui.retainedJobs", "spark.ui.retainedStages", "spark.sql.ui.retainedExecutions"), "5"),
    # Delta keeps the log of each table, about 1 MiB. More tables than this are not published at the same time.
    "spark.databricks.delta.delta.log.cacheSize": "64",
    # Spark starts a thread for each query until the pool is full, and ends it after a minute.
    **dict.fromkeys(
        ("spark.sql.shuffleExchange.maxThreadThreshold", "spark.sql.resultQueryStage.maxThreadThreshold"), "32"
    ),
}
"""Settings that bound the memory and threads of a process that publishes many tables."""

_ARCHIVE_KEPT_SECONDS = 30 * 86_400

_SPARK_INCLUDES = (
    *("ch.qos.*", "com.fasterxml.*", "com.github.luben", "com.google.*", "commons-*", "io.airlift", "javax.*"),
    *("org.antlr", "org.apache.*", "org.locationtech.*", "org.roaringbitmap", "org.slf4j", "org.xerial.*"),
)
"""Maven groups (70 MB) that Delta requires but that are not downloaded, because Spark includes newer releases."""


def local_options(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the default settings of Spark on this machine: little output, few partitions, and Delta.

    The driver gets 2 GiB of memory, unless `environment` has another size in `MIRRORFEED_DRIVER_MEMORY`.
    """
    log4j = Path(__file__).with_name("log4j2.properties").as_uri()
    return {
        "spark.app.name": "mirrorfeed",
        "spark.master": "local[*]",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": environment.get("MIRRORFEED_DRIVER_MEMORY") or "2g",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log4j}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **_BOUNDED_MEMORY,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",  # otherwise VACUUM starts 10,000 tasks
    }


def java_command(environment: Mapping[str, str]) -> str:
    """Return the path of the `java` program that Spark starts. Raises `java_unusable` if there is none."""
    home = environment.get("JAVA_HOME")
    command = shutil.which(f"{home}/bin/java") if home else shutil.which("java", path=environment.get("PATH", ""))
    if command is None:
        raise java_unusable(
            reason=f"there is no bin/java in JAVA_HOME ({home})" if home else "there is no Java on PATH"
        )
    return command


def check_java(command: str) -> str:
    """Return what a `java` program prints about its version. Raises `java_unusable` if it is not Java 17 or 21."""
    ended = subprocess.run([command, "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'version "(?:1\.)?(\d+)', ended.stderr + ended.stdout)
    if version is None:
        raise java_unusable(reason=f"{command} does not report its version")
    if int(version[1]) not in JAVA_VERSIONS:
        raise java_unusable(reason=f"{command} is Java {version[1]}")
    return ended.stderr + ended.stdout


def class_archive_options(folder: Path, java: str, spark: Path) -> str:
    """Return the options with which a JVM starts from the archive of its classes in a cache folder.

    If there is no archive for this Java and this installation of Spark, the JVM writes one when it ends. An archive is
    complete when its first bytes are written, which happens last, so a JVM that is killed leaves none. Archives that
    were not used for a month are deleted.
    """
    made_of = f"{java}\0{spark}\0{spark.stat().st_mtime_ns}"
    archive = folder / f"{hashlib.sha256(made_of.encode()).hexdigest()[:12]}.jsa"
    for other in folder.glob("*.jsa"):
        with suppress(OSError):  # another process deleted it, or the folder is read-only
            if other.stat().st_mtime < time.time() - _ARCHIVE_KEPT_SECONDS:
                other.unlink()
    try:
        with archive.open("rb") as file:
            complete = any(file.read(4))
        os.utime(archive)
    except OSError:
        complete = False
    option = "SharedArchiveFile" if complete else "ArchiveClassesAtExit"
    return f'"-XX:{option}={archive}" -Xlog:cds=off -Xlog:cds+dynamic=off'


def cached_jars(folder: Path) -> list[Path]:
    """Return the JARs that `record_jars` recorded for a cache folder. Empty if none is recorded or one is missing."""
    try:
        names = (folder / "resolved.txt").read_text(encoding="utf-8").split()
    except FileNotFoundError:
        return []
    jars = [folder / "jars" / name for name in names]
    return jars if all(jar.is_file() for jar in jars) else []


def record_jars(folder: Path) -> None:
    """Record which JARs are in a cache folder. Call this only after Spark has started with these JARs."""
    unfinished = folder / "resolved.unfinished"
    unfinished.write_text("\n".join(sorted(jar.name for jar in folder.glob("jars/*.jar"))), encoding="utf-8")
    unfinished.replace(folder / "resolved.txt")


def cache_folder(environment: Mapping[str, str], versions: Sequence[str]) -> Path:
    """Return the cache folder for the JARs of the Delta and Spark releases `versions`, and create it if necessary.

    Raises `spark_cache_unusable` if the folder cannot be created.
    """
    cache = Path(environment.get("MIRRORFEED_CACHE") or "~/.cache/mirrorfeed").expanduser()
    folder = cache / f"ivy-{'-'.join(versions)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in (folder / "lock", cache / "spark.log"):
            name.touch()
    except OSError as error:
        raise spark_cache_unusable(folder=str(cache), reason=error.strerror or str(error)) from error
    return folder


def start_local(options: Mapping[str, str]) -> SparkSession:
    """Start Spark on this machine and return the session. `options` override the settings of `local_options`.

    Raises `java_unusable` if Java is missing or has an unsupported version, `spark_missing` if Delta is not installed,
    `spark_cache_unusable` if the cache folder cannot be created, and `spark_did_not_start` if Spark fails to start.
    """
    import pyspark
    from pyspark.sql import SparkSession

    java = check_java(java_command(os.environ))
    try:
        versions = [importlib.metadata.version(name) for name in ("delta-spark", "pyspark")]
    except importlib.metadata.PackageNotFoundError as error:
        raise spark_missing(install=install_command()) from error
    os.environ["PYSPARK_PYTHON"] = sys.executable
    folder = cache_folder(os.environ, versions)
    log = folder.with_name("spark.log")

    settings = {**local_options(os.environ), **options}
    builder: Any = SparkSession.builder
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two processes must not download into one folder at the same time
        if jars := cached_jars(folder):
            archive = class_archive_options(folder, java, Path(pyspark.__file__).parent / "jars")
            settings["spark.driver.extraJavaOptions"] += f" {archive}"
            settings["spark.driver.extraClassPath"] = os.pathsep.join(map(str, jars))  # only its classes are archived
            return _start(builder.config(map=settings).config("spark.jars", ",".join(map(str, jars))), log)
        from delta import configure_spark_with_delta_pip

        print("Resolving Delta's JARs, once; they are kept in", folder, file=sys.stderr)
        builder = configure_spark_with_delta_pip(builder.config(map=settings)).config("spark.jars.ivy", str(folder))
        builder = builder.config("spark.jars.excludes", ",".join(f"{group}:*" for group in _SPARK_INCLUDES))
        session = _start(builder, log)
        record_jars(folder)
        return session


def _start(builder: Any, log: Path) -> SparkSession:
    try:
        with _output_to(log):
            session: SparkSession = builder.getOrCreate()
            return session
    except Exception as error:
        raise spark_did_not_start(log=str(log), last_words=_first_error(log)) from error


@contextmanager
def _output_to(log: Path) -> Iterator[None]:
    """Context manager that redirects the output of this process, and of a JVM that it starts, to a file.

    No setting silences the JVM and Delta, and their output would break the JSON that a command prints.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    log.unlink(missing_ok=True)  # another process may still write to the old file
    copies = {number: os.dup(number) for number in (1, 2)}
    try:
        with log.open("ab") as file:
            for number in copies:
                os.dup2(file.fileno(), number)
        yield
    finally:
        for number, copy in copies.items():
            os.dup2(copy, number)
            os.close(copy)


def _first_error(log: Path) -> str:
    """Return the first line that looks like an error in a log, or the first line if no line looks like an error."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    error_lines = [line for line in lines if re.search(r"error|exception|invalid|not found", line, re.IGNORECASE)]
    return (error_lines or lines or ["it printed no message"])[0].rstrip(".")
