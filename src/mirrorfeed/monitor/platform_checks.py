"""Check the platform on the first live day: parts that differ between workspaces and could not be tested before.

The findings contain facts that help to fix mirrorfeed. They contain no names of tables and people.
"""

from __future__ import annotations

import errno
import importlib.metadata
import os
import platform
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F

from mirrorfeed.monitor.findings import Finding, attempt, not_checked, passed
from mirrorfeed.publish.files.staging_area import StagingArea
from mirrorfeed.runtime.spark_session import refused_settings
from mirrorfeed.runtime.version import this_build

_ROWS = 3
_OPTIONAL = ("pyspark", "databricks-connect", "deltalake", "boto3")


def check_environment(spark: SparkSession, environment: Mapping[str, str] = os.environ) -> Finding:
    """Report the versions in the environment of this process, and whether it was built from a lock file."""
    runtime = environment.get("DATABRICKS_RUNTIME_VERSION")
    found = [
        f"mirrorfeed {this_build()}",
        f"Databricks runtime {runtime}" if runtime else "no Databricks runtime",
        f"Spark {spark.version}",
        f"Python {platform.python_version()}",
    ]
    for name in (*_required(), *_OPTIONAL):
        with suppress(importlib.metadata.PackageNotFoundError):
            found.append(f"{name} {importlib.metadata.version(name)}")
    return passed("environment", ", ".join(found))


def _required() -> list[str]:
    """Return the packages that mirrorfeed needs. Empty if a notebook imports the files of a bundle."""
    try:
        lines = importlib.metadata.requires("mirrorfeed") or []
    except importlib.metadata.PackageNotFoundError:
        return []
    return [found[0] for line in lines if "extra ==" not in line and (found := re.match(r"[\w.-]+", line))]


def check_settings(spark: SparkSession) -> Finding:
    """Report the settings that this session does not allow changing, and that have another value than mirrorfeed
    needs."""
    what = "settings of the Spark session"
    if refused := refused_settings(spark):
        return not_checked(what, "cannot be changed: " + ", ".join(f"{name} ({why})" for name, why in refused.items()))
    return passed(what, "all can be changed")


def check_spark_writes(spark: SparkSession, area: StagingArea) -> Iterator[Finding]:
    """Report the results of `observe` and `inputFiles` for files in the staging area."""
    folder, seen = f"{area.root}/{uuid.uuid4().hex}-probe", Observation()

    def observe() -> str:
        spark.range(_ROWS).observe(seen, F.count("*").alias("rows")).write.parquet(folder)
        counted = dict(seen.get).get("rows")
        return f"counts {counted} of {_ROWS} rows" if counted is not None else "returns no metrics"

    def input_files() -> str:
        names = spark.read.parquet(folder).inputFiles()
        return ", ".join(sorted(_shape(name, folder) for name in names)) or "returns no file"

    try:
        observed = attempt("`observe` of a write", observe)
        yield observed
        if observed.ok:
            yield attempt("`inputFiles` of written files", input_files)
    finally:
        area.remove(folder)


def _shape(uri: str, folder: str) -> str:
    """Return the address of a file with letters and digits of its ids replaced."""
    scheme, _, name = uri.partition(folder)
    return f"{scheme}<folder>{re.sub(r'[0-9a-f]{8}-[0-9a-f-]{27}', '<id>', name)}"


def check_mount(what: str, volume: str) -> Finding:
    """Report the operations that the mount of a volume refuses. mirrorfeed only reads through the mount."""
    if not os.path.isdir(volume):
        return not_checked(what, "it is not mounted here, so mirrorfeed uses the Files API")
    folder = Path(volume, f"_mirrorfeed_setup-{uuid.uuid4().hex}")

    def find_refusals() -> str:
        folder.mkdir()
        file = folder / "file"
        file.write_bytes(b"content")
        refused = [f"{name} ({why})" for name, action in _ACTIONS.items() if (why := _refusal(action, file))]
        if len({os.stat(file).st_ino for _ in range(3)}) > 1:
            refused.append("stable inode numbers")
        return f"lacks {', '.join(refused)}" if refused else "lacks nothing"

    try:
        return attempt(what, find_refusals)
    finally:
        for each in (*folder.glob("*"), folder):
            with suppress(OSError):
                each.rmdir() if each == folder else each.unlink()


def _refusal(action: Callable[[Path], object], file: Path) -> str:
    try:
        action(file)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error.errno))
    return ""


def _fsync(file: Path) -> None:
    with file.open("rb") as opened:
        os.fsync(opened.fileno())


def _append(file: Path) -> None:
    with file.open("ab") as opened:
        opened.write(b"more")


def _overwrite(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.write(b"x")


def _rename(file: Path) -> None:
    other = file.with_name("other")
    other.write_bytes(b"other")
    os.rename(other, file.with_name("renamed"))


_ACTIONS: Mapping[str, Callable[[Path], object]] = {
    "fsync": _fsync,
    "hard links": lambda file: os.link(file, file.with_name("link")),
    "appends": _append,
    "random writes": _overwrite,
    "renames": _rename,
}
