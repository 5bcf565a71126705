"""Data files of a table as its Delta log describes them, and the files that a query needs."""

from __future__ import annotations

import json
import re
import string
import uuid
from base64 import b85decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote

from pyspark.sql import SparkSession

from mirrorfeed.display.rows import Row, counted, first_names, row, size
from mirrorfeed.landing.strict_json import Count

ABSOLUTE_PATH = r"^[A-Za-z][A-Za-z0-9+.-]*:/"
"""Regular expression for the start of an absolute path, which the Delta log of a clone contains."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FROM_Z85 = str.maketrans(
    string.digits + string.ascii_lowercase + string.ascii_uppercase + ".-:+=^!/*?&<>()[]{}@%$#",
    string.digits + string.ascii_uppercase + string.ascii_lowercase + "!#$%&()*+-;<=>?@^_`{|}~",
)
"""Translation from ZeroMQ's alphabet of base 85, which names of deletion vectors use, to Python's alphabet."""


@row
class DataFile(Row):
    """A data file of a table."""

    uri: str
    """URI without percent-encoding. A local URI starts with `file:/`."""
    bytes: Count | None = None
    rows: int | None = None
    age_days: int | None = field(default=None, compare=False)
    """Age in days. None if the file does not count as archived, or if its age is unknown."""
    partition: Mapping[str, str | None] | None = None
    deletion_vector: str | None = None
    """URI of the file with the deletion vector. None if there is no vector, or if the Delta log contains the vector."""
    why: str | None = None
    """Reason why a query needs the file, or None if it is unknown."""
    tier: str | None = None
    """Access tier. None if it was not read from the storage."""
    created: datetime | None = field(default=None, repr=False)

    @property
    def uris(self) -> tuple[str, ...]:
        """URI of the data file and, if its deletion vector is in another file, the URI of that file."""
        return (self.uri, self.deletion_vector) if self.deletion_vector else (self.uri,)

    def remarks(self) -> Sequence[str]:
        known = [None if self.bytes is None else size(self.bytes), self.tier]
        known += [None if self.age_days is None else counted(self.age_days, "day"), self.why]
        return [f"{self.uri}  {', '.join(filter(None, known))}"]


def describe_files(files: Sequence[DataFile]) -> str:
    """Return text such as "3 archived files (1.2 KiB)", without the size if the size of a file is unknown."""
    known = [file.bytes for file in files if file.bytes is not None]
    bytes_ = f" ({size(sum(known))})" if len(known) == len(files) else ""
    return f"{counted(len(files), 'archived file')}{bytes_}"


def to_data_file(location: str, action: Mapping[str, Any], names: Mapping[str, str] | None = None) -> DataFile:
    """Return the file of an `add`, `remove` or `cdc` action in a Delta log. `location` is the folder of the table.

    With column mapping, `names` maps the physical names of columns to their names in the table.
    """
    created, vector = action.get("modificationTime"), action.get("deletionVector")
    rows = action["rows"] if "rows" in action else json.loads(action.get("stats") or "{}").get("numRecords")
    deleted = vector["cardinality"] if vector else 0
    return DataFile(
        to_uri(location, action["path"]),
        action.get("size"),
        None if rows is None or deleted is None else rows - deleted,
        partition={(names or {}).get(name, name): v for name, v in dict(action.get("partitionValues") or ()).items()},
        deletion_vector=deletion_vector_uri(location, vector),
        created=_EPOCH + timedelta(milliseconds=created) if created is not None else None,
    )


@dataclass(frozen=True, slots=True)
class TableMetadata:
    """Metadata of a table at one version, from its Delta log."""

    table_id: str
    schema: str
    """Schema in Spark's JSON form."""
    partitions: tuple[str, ...]
    properties: Mapping[str, str]

    @classmethod
    def of(cls, action: Mapping[str, Any]) -> TableMetadata:
        properties = dict(action.get("configuration") or {})
        return cls(action["id"], action["schemaString"], tuple(action["partitionColumns"]), properties)

    @property
    def names(self) -> dict[str, str]:
        """Mapping from column names in data files to names in the table. The names differ only with column mapping."""
        fields = json.loads(self.schema)["fields"]
        return {str(f["metadata"].get("delta.columnMapping.physicalName", f["name"])): str(f["name"]) for f in fields}


def to_uri(location: str, path: str) -> str:
    """Decode the percent-encoding of a path in a Delta log, and return a URI. Adds `location` to a relative path."""
    return normalize_uri(unquote(path) if re.match(ABSOLUTE_PATH, path) else f"{location.rstrip('/')}/{unquote(path)}")


def normalize_uri(uri: Any) -> str:
    """Return a URI or Hadoop path as text. Shortens `file:///` at its start to `file:/`."""
    return re.sub(r"^file:///*", "file:/", str(uri))


def deletion_vector_uri(location: str, vector: Mapping[str, Any] | None) -> str | None:
    """Return the URI of the file that contains the deletion vector `vector`. None if there is no such file."""
    if vector is None or vector["storageType"] == "i":
        return None
    if vector["storageType"] == "p":
        return normalize_uri(unquote(vector["pathOrInlineDv"]))
    prefix, name = vector["pathOrInlineDv"][:-20], vector["pathOrInlineDv"][-20:]
    id_ = uuid.UUID(bytes=b85decode(name.translate(_FROM_Z85)))
    return normalize_uri("/".join(filter(None, (location.rstrip("/"), prefix, f"deletion_vector_{id_}.bin"))))


@dataclass(frozen=True, slots=True)
class NeededFiles:
    """Archived files that a query or statement needs, from one table at one version."""

    table: str
    table_id: str
    location: str
    version: Count
    files: tuple[DataFile, ...]
    active: int | None = None
    """Number of active files that the query needs. None if the number is unknown, for example on Databricks."""

    @property
    def description(self) -> str:
        """Text such as "2 archived files (1.2 KiB) of main.sales.orders at version 3: uri, uri"."""
        uris = first_names([file.uri for file in self.files])
        return f"{describe_files(self.files)} of {self.table} at version {self.version}: {uris}"


def hadoop_path(spark: SparkSession, *parts: Any) -> Any:
    return spark._jvm.org.apache.hadoop.fs.Path(*parts)  # type: ignore[union-attr]


def file_system(spark: SparkSession, path: Any) -> Any:
    return path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())


def table_folder(spark: SparkSession, path: str, known: dict[str, str | None]) -> str | None:
    """Return the nearest folder at or above `path` with a Delta log, or None. `known` is a cache of results by path."""
    folder = hadoop_path(spark, path)
    name = normalize_uri(folder)
    if name not in known and file_system(spark, folder).exists(hadoop_path(spark, folder, "_delta_log")):
        known[name] = name
    elif name not in known:
        above = folder.getParent()
        known[name] = None if above is None else table_folder(spark, str(above.toString()), known)
    return known[name]
