"""Small Delta tables for tests, and a landing zone with a mirror for each."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from pyspark.sql import SparkSession

from fixtures.mirror import Mirror, canonical
from mirrorfeed.publish.change_sources.delta_feed import DeltaFeed
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.publish.table_result import TableResult
from mirrorfeed.source.identifier import Source
from mirrorfeed.storage.local_folder import FolderStore
from tests.support.commits import commit, plain_rows, with_new_identity, write_checksum
from tests.support.entries import FOLDER, entry
from tests.support.journeys import newest_version

if TYPE_CHECKING:
    from delta.tables import DeltaTableBuilder  # Databricks Connect does not include it

FEED = "delta.enableChangeDataFeed"
SPARK_4_0 = pyspark.__version__.startswith("4.0.")
"""Whether tests run on the oldest Spark, with Delta 4.0. Tests explain where it differs."""


class DeltaTable:
    """A table at a path, with its feed on by default. In statements, {} stands for the table.

    Commits of plain rows are written without Spark, in milliseconds. Readers do not see a difference. Spark writes all
    other commits and the first table of each kind. Further tables start with a copy of its commit."""

    _created: ClassVar[dict[tuple[Any, ...], str]] = {}
    _known: ClassVar[set[Path]] = set()
    """Paths that Spark has cached, even if the table is deleted."""
    _plain = False
    """Whether commits without Spark are known to work for the table."""

    def __init__(
        self,
        spark: SparkSession,
        path: Path,
        columns: str = "id int, v string",
        *,
        feed: bool = True,
        properties: Mapping[str, str] | None = None,
        by: str = "",
    ) -> None:
        self.spark, self.path, self.source = spark, path, Source(path=str(path))
        self._create(columns, {FEED: str(feed).lower(), **(properties or {})}, by)

    def _create(self, columns: str, properties: Mapping[str, str], by: str) -> None:
        kind = (columns, by, *properties.items())
        self._plain = list(properties) == [FEED]
        if kind in self._created and self.path not in self._known and not self.path.exists():
            self.commit_file(0).parent.mkdir(parents=True)
            self.commit_file(0).write_text(with_new_identity(self._created[kind]), encoding="utf-8")
            write_checksum(self.commit_file(0))
        else:
            spelled = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
            partitioned = f"PARTITIONED BY ({by})" if by else ""
            self._by_spark(f"CREATE TABLE {{}} ({columns}) USING DELTA {partitioned} TBLPROPERTIES ({spelled})")
            self._created[kind] = self.commit_file(0).read_text(encoding="utf-8")
        self._known.add(self.path)

    @classmethod
    def at(cls, spark: SparkSession, path: Path, *, plain: bool = True) -> Self:
        """The existing table at `path`."""
        table = cls.__new__(cls)
        table.spark, table.path, table.source, table._plain = spark, path, Source(path=str(path)), plain
        return table

    @classmethod
    def built(cls, spark: SparkSession, path: Path, builder: DeltaTableBuilder) -> Self:
        """A table with columns that Delta 4.0 only creates through its builder, such as generated columns."""
        builder.location(str(path)).property(FEED, "true").execute()
        return cls.at(spark, path, plain=False)

    @classmethod
    def cloned(cls, original: DeltaTable, path: Path, version: int) -> Self:
        """A shallow clone of another table at a version."""
        clone = cls.at(original.spark, path, plain=False)
        clone.sql(f"CREATE TABLE {{}} SHALLOW CLONE {original.source.sql} VERSION AS OF {version}")
        return clone

    @classmethod
    def copied(cls, original: DeltaTable, path: Path) -> Self:
        """A copy of another table with the same table id."""
        shutil.copytree(original.path, path)
        cls._known.add(path)
        return cls.at(original.spark, path, plain=original._plain)

    def sql(self, statement: str) -> None:
        if not (self._plain and commit(self.path, statement)):
            self._by_spark(statement)

    def _by_spark(self, statement: str) -> None:
        self.spark.sql(statement.replace("{}", self.source.sql))

    def insert(self, *ids: int) -> None:
        """Commit one row for each id. The other column contains the id as text."""
        self.sql("INSERT INTO {} VALUES " + ", ".join(f"({i}, 'v{i}')" for i in ids))

    def replace(self, *rows: tuple[int, str], feed: bool = True) -> None:
        """Replace the table like CREATE OR REPLACE TABLE … AS SELECT: the log continues, and the table has another id.
        The table must have the columns `id` and `v`. Written without Spark."""
        before = deltalake.DeltaTable(self.path)
        ids, values = ([row[at] for row in rows] for at in (0, 1))
        data = pa.table({"id": pa.array(ids, pa.int32()), "v": pa.array(values, pa.string())})
        deltalake.write_deltalake(before, data, mode="overwrite")
        created = json.loads(self.commit_file(0).read_text().partition('{"metaData":')[2].splitlines()[0][:-1])
        metadata = {**created, "id": str(uuid.uuid4()), "configuration": {FEED: "true"} if feed else {}}
        with self.commit_file(self.latest).open("a") as commit:
            commit.write("\n" + json.dumps({"metaData": metadata}))
        write_checksum(self.commit_file(self.latest))

    def set_feed(self, on: bool) -> None:
        self.sql(f"ALTER TABLE {{}} SET TBLPROPERTIES ({FEED} = {str(on).lower()})")

    def checkpoint(self) -> None:
        """Write a checkpoint of the newest version, without Spark."""
        deltalake.DeltaTable(self.path).create_checkpoint()

    def live_files(self) -> set[Path]:
        """Data files of the newest version."""
        return {self.path / uri for uri in deltalake.DeltaTable(self.path).file_uris()}

    def commit_file(self, version: int) -> Path:
        return self.path / "_delta_log" / f"{version:020d}.json"

    @property
    def latest(self) -> int:
        return newest_version(self.path)

    def rows(self, version: int | None = None) -> list[dict[str, Any]]:
        """Rows of the newest version, read without Spark if the table is plain."""
        if (found := plain_rows(self.path, version)) is not None:
            return found
        reader = self.spark.read if version is None else self.spark.read.option("versionAsOf", version)
        return [row.asDict(recursive=True) for row in reader.table(self.source.sql).collect()]


class SparkTable(DeltaTable):
    """Spark writes all of its commits, for tests of the content of commits."""

    def sql(self, statement: str) -> None:
        self._by_spark(statement)


class Zone:
    """A landing zone for one table, and a mirror that applies the published files."""

    def __init__(self, root: Path, table: DeltaTable, keys: tuple[str, ...] = ("id",), **options: Any) -> None:
        self.root, self.table = root, table
        self.store = FolderStore(str(root))
        self.plan = entry(table.source, keys=keys, **options)
        self.folder = root / FOLDER
        self._mirror = Mirror(self.store, FOLDER)

    @classmethod
    def copied(cls, original: Zone, folder: Path) -> Zone:
        """A copy of another landing zone and of its table, with an empty mirror."""
        shutil.copytree(original.root, folder / original.root.name)
        table = DeltaTable.copied(original.table, folder / original.table.path.name)
        return cls(folder / original.root.name, table, original.plan.target_keys)

    def publish(self) -> TableResult:
        feed = DeltaFeed(self.table.spark, self.table.source, selection=self.plan.selection)
        return publish(feed, self.store, self.plan)

    @property
    def files(self) -> list[pa.Table]:
        """Existing published files, in order."""
        return [pq.read_table(path) for path in sorted(self.folder.glob("*.parquet"))]

    @property
    def last(self) -> list[dict[str, Any]]:
        """Rows of the last published file."""
        rows: list[dict[str, Any]] = self.files[-1].to_pylist()
        return rows

    @property
    def record(self) -> dict[str, Any]:
        """Newest record."""
        found: dict[str, Any] = json.loads(max(self.folder.glob("_mirrorfeed/*/*.json")).read_text())
        return found

    def everything(self) -> dict[str, bytes]:
        """All files below the landing zone."""
        return {str(path.relative_to(self.root)): path.read_bytes() for path in self.root.rglob("*") if path.is_file()}

    @property
    def mirrored(self) -> list[Any]:
        """Rows of the mirror, after it applied all published files."""
        self._mirror.take()
        return list(self._mirror.rows)

    def mirrors_the_table(self) -> bool:
        """Whether the mirror equals the table, after it applied all published files."""
        return canonical(self.mirrored) == canonical(self.table.rows())
