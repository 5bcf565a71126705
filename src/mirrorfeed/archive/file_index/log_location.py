"""Where a table's log is, found without opening the table, and its files on this machine: for classic Spark, through
the file systems that Spark itself has, whatever they need to log in.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from mirrorfeed.archive.file_index.columnar_log import Columns
from mirrorfeed.archive.file_index.data_skipping import Doubt
from mirrorfeed.archive.file_index.log_file import plain
from mirrorfeed.archive.file_index.spark_log import parts_at
from mirrorfeed.source.delta_protocol import commit_version
from mirrorfeed.source.errors import LogDamaged
from mirrorfeed.source.identifier import Source

_NAMES = re.compile(r"/_delta_log/([^/;,\s}]+)[;,}\]]")


@contextmanager
def columns(spark: SparkSession, source: Source, version: int | None) -> Iterator[tuple[int, Columns]]:
    """The log at a version, or the newest; `Doubt` where it is not found or not whole."""
    try:
        folder = _folder(spark, source)
        system = folder.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        folder = system.makeQualified(folder)
        log = _child(spark, folder, "_delta_log")
        arrays = spark._jvm.org.apache.commons.lang3.ArrayUtils  # type: ignore[union-attr]
        names = _NAMES.findall(str(arrays.toString(system.listStatus(log))))
    except (Py4JJavaError, PySparkException) as error:
        raise Doubt("a log that cannot be listed") from error
    versions = [found for name in names if (found := commit_version(name)) is not None]
    at = max(versions, default=-1) if version is None else version
    if at not in versions:
        raise Doubt("a version that is not there")
    location = str(folder.toString())
    try:
        parts = parts_at(str(source), names, at)
    except LogDamaged as error:
        raise Doubt("a log that is not whole") from error
    try:
        if location.startswith("file:"):
            on_disk = Path(str(folder.toUri().getPath()), "_delta_log")
            yield at, Columns(plain(location), parts, lambda name: on_disk / name)
        else:
            with tempfile.TemporaryDirectory(prefix="mirrorfeed-log-") as copies:
                yield at, Columns(plain(location), parts, lambda name: copied(spark, log, name, Path(copies)))
    except (pa.ArrowException, OSError) as error:
        raise Doubt("a log that is not as expected") from error


def _folder(spark: SparkSession, source: Source) -> Any:
    if source.path is not None:
        return _path(spark, source.path)
    catalogs = spark._jsparkSession.sessionState().catalogManager()
    *schema, table = source.parts
    if str(catalogs.currentCatalog().name()) != "spark_catalog" or len(schema) > 1:
        raise Doubt("a table of another catalog")
    found = spark._jsparkSession.sessionState().sqlParser().parseTableIdentifier(source.sql)
    catalog = spark._jsparkSession.sessionState().catalog()
    if not schema and catalog.getTempView(table).isDefined():
        raise Doubt("a view")
    return spark._jvm.org.apache.hadoop.fs.Path(catalog.getTableMetadata(found).location())  # type: ignore[union-attr]


def copied(spark: SparkSession, log: Any, name: str, folder: Path) -> Path:
    """A file of a log in this folder, where it is put once."""
    target = folder / name
    if not target.exists():
        target.parent.mkdir(exist_ok=True)
        system = log.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        try:
            system.copyToLocalFile(False, _child(spark, log, name), _path(spark, target.as_uri()), True)
        except (Py4JJavaError, PySparkException) as error:
            raise Doubt("a file of the log that is gone") from error
    return target


def _path(spark: SparkSession, text: str) -> Any:
    return spark._jvm.org.apache.hadoop.fs.Path(text)  # type: ignore[union-attr]


def _child(spark: SparkSession, folder: Any, name: str) -> Any:
    return spark._jvm.org.apache.hadoop.fs.Path(folder, name)  # type: ignore[union-attr]
