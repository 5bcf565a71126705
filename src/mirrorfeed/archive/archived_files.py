"""Select the archived data files of a table, and raise an error if a query needs files that are not restored.

In a table with an archive interval, a file counts as archived if its age is unknown or reaches the interval. The access
tier of the file does not matter. If a clone uses a file of another table, the other table's interval applies.
"""

from __future__ import annotations

import json
import re
import string
import uuid
from base64 import b85decode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pyspark.sql import SparkSession

from mirrorfeed.archive import archive_interval
from mirrorfeed.archive.archive_interval import Policy
from mirrorfeed.archive.errors import FileOfNoTable
from mirrorfeed.display.redact import shell_argument
from mirrorfeed.display.rows import Row, counted, first_names, row, size
from mirrorfeed.errors import Terminal
from mirrorfeed.landing.strict_json import Count
from mirrorfeed.source.identifier import Source

if TYPE_CHECKING:
    from mirrorfeed.archive.restore_plan import PinnedQuery, Plan
    from mirrorfeed.storage.tier_store import Priority, TierStore


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


TiersAt = Callable[[str], "TierStore | None"]
"""Function that returns the `TierStore` for the URI of a table or file. None means that no archived file counts as
restored."""


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


def select_archived(files: Iterable[DataFile], policy: Policy | None, now: datetime) -> list[DataFile]:
    """Return the files that count as archived at `now`, and set their ages. Returns no files if `policy` is None."""
    return [
        replace(file, age_days=(now - file.created).days if file.created else None)
        for file in files
        if policy and policy.counts_as_archived(file.created, now)
    ]


def find_archived(
    spark: SparkSession, name: str, location: str, files: Iterable[DataFile], policy: Policy | None, now: datetime
) -> list[DataFile]:
    """Return the files that count as archived at `now`, each with its age.

    `policy` applies to files in `location`, the folder of the table `name`. A clone also has files in folders of other
    tables, whose archive intervals apply to these files. A deletion vector can be in another folder than its data file.
    Then both intervals apply. Raises `FileOfNoTable` if a file is in no table's folder.
    """
    location, known, archived = normalize_uri(location), dict[str, str | None](), list[DataFile]()
    policies, start = {location: policy}, f"{location.rstrip('/')}/"

    def policy_of(uri: str) -> Policy | None:
        folder = location if uri.startswith(start) else table_folder(spark, uri, known)
        if folder is None:
            raise FileOfNoTable(table=name, uri=uri)
        if folder not in policies:
            policies[folder] = archive_interval.read(spark, Source(path=folder))
        return policies[folder]

    for file in files:
        # The log does not contain the age of a vector. The vector is never older than its data file.
        selected = (each for uri in file.uris for each in select_archived([file], policy_of(uri), now))
        archived += islice(selected, 1)
    return archived


def find_unreadable(need: NeededFiles, tiers_at: TiersAt) -> list[DataFile]:
    """Return the files in `need` that cannot be read, sorted by URI.

    A file can be read if the access tiers of the file and of its deletion vector allow it. `tiers_at` returns the
    `TierStore` for the URI of a file. If `tiers_at` returns None, the file does not count as readable.
    """
    uris_by_store: dict[TierStore, set[str]] = {}
    for uri in (uri for file in need.files for uri in file.uris):  # files of a clone can be in several buckets
        if store := tiers_at(uri):
            uris_by_store.setdefault(store, set()).add(uri)
    readable: set[str] = set()
    for store, uris in uris_by_store.items():
        readable |= {uri for uri, tier in store.read_tiers(sorted(uris)).items() if tier.is_readable}
    unreadable = [file for file in need.files if not readable.issuperset(file.uris)]
    return sorted(unreadable, key=lambda file: file.uri)


def require_readable(
    needed: Sequence[NeededFiles],
    tiers_at: TiersAt,
    operation: str = "The query",
    arguments: Sequence[str] = (),
) -> None:
    """Raise `ArchivedFilesNeeded`, with the last two arguments as fields, if files in `needed` are not restored."""
    unreadable = [replace(each, files=tuple(find_unreadable(each, tiers_at))) for each in needed]
    if blocked := [each for each in unreadable if each.files]:
        raise ArchivedFilesNeeded(needed=blocked, operation=operation, arguments=arguments)


class ArchivedFilesNeeded(Terminal):
    code = "MF5001"
    what = "{operation} needs {each}. Nothing was read."
    fix = (
        "Restore the files with `{command}` and `mirrorfeed archive restore PLAN`, or use conditions that need no"
        " archived file."
    )
    needed: Sequence[NeededFiles]
    operation: str = "The query"
    statement: str | None = None
    """The query in SQL, if any."""
    query: PinnedQuery | None = None
    """The query in `statement`, as a plan contains it. None if a plan cannot contain it."""
    arguments: Sequence[str] = ()
    """Arguments with which `mirrorfeed archive plan` plans the restore. They are not used if `statement` is set."""

    @property
    def files(self) -> tuple[DataFile, ...]:
        return tuple(file for each in self.needed for file in each.files)

    @property
    def each(self) -> str:
        return "; ".join(each.description for each in self.needed)

    @property
    def command(self) -> str:
        arguments = ("--sql", self.statement) if self.statement else self.arguments
        if not arguments:
            return "error.plan().save('PLAN')"
        return f"mirrorfeed archive plan {' '.join(map(shell_argument, arguments))} --to PLAN"

    def plan(self, priority: Priority | None = None) -> Plan:
        """Return a restore plan for the files in this error. The default priority is standard.

        The plan also contains the query in `self.query`. If `self.query` is None, the plan has no query.
        """
        from mirrorfeed.archive.restore_plan import plan_files  # this import at the top would be circular

        if self.query is not None:
            return self.query.plan(self.needed, priority)
        return replace(plan_files(self.needed, priority), files_alone=True)


class LookUpNeedsArchive(ArchivedFilesNeeded):
    code = "MF5015"
    fix = (
        f"{ArchivedFilesNeeded.fix} If the keys of the table are always unique, you can set `validate_keys: range`"
        " instead."
    )
    operation: str = "A lookup of deleted keys"


class NotEnoughFiles(Terminal):
    code = "MF5003"
    what = (
        "The active files of {table} contain only {found:,} of the {limit:,} rows that LIMIT asks for. {missing} would"
        " also be needed."
    )
    fix = "Use a smaller LIMIT, or restore the archived files: create a plan with `mirrorfeed archive plan`."
    files: Sequence[DataFile]

    @property
    def missing(self) -> str:
        return describe_files(self.files)
