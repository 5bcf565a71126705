"""The row hashes of a compared source as of its last publication: a Delta table with one hash per key.

A version of this table is a state of the source, and a record names the version that it publishes. One commit contains
the hashes of a state and the rows that differ from the state before, from one read of the source. The files of the
publication are made from that commit, so a crash between the two loses nothing: a version that no record names was not
published, and the next comparison is with the version that the newest record names. If nothing differs, there is no
commit.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from mirrorfeed.errors import named
from mirrorfeed.landing.schema import Column
from mirrorfeed.publish.errors import NotRowHashes, RowHashesChanged, RowHashesLost
from mirrorfeed.publish.translate.row_diff import CHANGED, DIFFERS, GAIN, HASH, PROBLEM, differing_rows
from mirrorfeed.runtime.spark_errors import EXPIRED, FILES_GONE, LOG_GONE, first_of
from mirrorfeed.source.errors import NoTableAtPath, SourceMissing
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.table_info import TableInfo, read_table_info
from mirrorfeed.source.versions import commits, newest_version, read_history

_ID = "mirrorfeed.states"
_STATE = "_state"
"""The version whose commit added the complete row. NULL for an older row, of which only the hash is stored."""
_MAX_COMPLETE, _MAX_COMMITS = 0.5, 100
"""Share of hashes that are stored with complete rows, and number of commits. Beyond either, the next commit writes all
hashes again."""
_MAINTENANCE = ("OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES")
"""Operations that do not change rows."""


@dataclass(frozen=True, slots=True)
class HashTableVersion:
    id: str
    version: int
    folder: str = ""
    """The name of its folder, which identifies errors of its files."""


@dataclass(frozen=True, slots=True)
class HashWrite:
    """A commit, as counted by the engine."""

    rows: int
    bytes: int
    all_hashes: bool


@dataclass(frozen=True)
class RowHashTable:
    spark: SparkSession
    place: Source
    table: str
    """The source, for messages."""

    def newest(self) -> HashTableVersion | None:
        """Return None if the table does not exist."""
        if (found := self._detail()) is None:
            return None
        folder = found.location.rstrip("/").rpartition("/")[2]
        return HashTableVersion(self._id(found), newest_version(self.spark, self.place), folder)

    def id(self) -> str:
        """Return an empty text if the table does not exist."""
        found = self._detail()
        return self._id(found) if found else ""

    def version_holding(self, version: int, seen: HashTableVersion) -> int:
        """Return the newest version if it still holds the state of this one, else this one."""
        if seen.version == version:
            return version
        later = commits(self.spark, self.place, version)
        maintenance = {each.version for each in later if each.operation in _MAINTENANCE}
        return seen.version if maintenance.issuperset(range(version + 1, seen.version + 1)) else version

    def hashes_at(self, version: int, key: Sequence[str]) -> DataFrame:
        """Return the keys of a state and the hash of each row."""
        newest = Window.partitionBy(*key).orderBy(F.col(_STATE).desc_nulls_last())
        rows = self._read(version).select(*key, HASH, F.row_number().over(newest).alias("__nth__"))
        return rows.where(f"__nth__ = 1 AND {HASH} IS NOT NULL").select(*key, HASH)

    def write(
        self,
        found: DataFrame,
        seen: HashTableVersion | None,
        new: HashTableVersion,
        key: Sequence[str],
        *,
        all_hashes: bool,
    ) -> HashWrite | None:
        """Write the new version in one commit: the rows that differ, with `all_hashes` also the other hashes.

        Returns None, without a commit, if there is nothing to write. Raises `RowHashesChanged` if another commit came
        first.
        """
        batch, known = uuid.uuid4().hex, (*key, HASH, CHANGED, GAIN, PROBLEM)
        payload = [name for name in found.columns if name not in known]
        rows = found.where(f"{DIFFERS} OR {HASH} IS NOT NULL" if all_hashes else DIFFERS).selectExpr(
            *key,
            *(f"IF({DIFFERS}, {name}, NULL) AS {name}" for name in payload),
            HASH,
            f"IF({DIFFERS}, {new.version}L, NULL) AS {_STATE}",
            f"IF({HASH} IS NULL, 0, 1) AS {GAIN}" if all_hashes else GAIN,
            PROBLEM,
        )
        if all_hashes:  # one empty row, because Delta commits nothing without rows
            rows = rows.unionByName(self.spark.range(1).selectExpr(f"CAST(NULL AS bigint) AS {_STATE}"), True)
        writer = rows.writeTo(self.place.sql).option("userMetadata", batch)
        try:
            if seen is None:
                writer.using("delta").tableProperty(_ID, new.id).tableProperty(*_NTZ).create()
            elif all_hashes:
                writer.option("mergeSchema", "true").overwrite(F.lit(True))
            else:
                writer.option("mergeSchema", "true").append()
        except Exception as error:
            if first_of(error, _CONFLICTS):
                raise RowHashesChanged(states=str(self.place), table=self.table) from error
            raise
        newest = read_history(self.spark, self.place, 16)
        ours = [row for row in newest if (row["version"] == 0 if seen is None else row["userMetadata"] == batch)]
        if seen and not ours and newest[-1]["version"] == seen.version:
            return None
        if [row["version"] for row in ours] != [new.version]:
            raise RowHashesChanged(states=str(self.place), table=self.table)
        metrics = ours[0]["operationMetrics"]
        return HashWrite(int(metrics["numOutputRows"]) - all_hashes, int(metrics["numOutputBytes"]), all_hashes)

    def count_rows(self, version: int) -> int:
        """Return the number of rows of the source."""
        found = self._read(version).agg(F.sum(GAIN)).first()
        return int(found[0] or 0) if found else 0

    def needs_compaction(self, version: int) -> bool:
        """Whether too many rows are stored completely, or there are too many commits."""
        counts = self._read(version).agg(F.count(_STATE), F.count(HASH), F.size(F.collect_set(_STATE))).first()
        assert counts is not None
        complete, hashes, commits = counts
        return bool(complete > _MAX_COMPLETE * hashes or commits > _MAX_COMMITS)

    def changed_rows(self, version: int, columns: Sequence[Column], *, with_marker: bool) -> DataFrame:
        """Return the landing rows that differ from the state before."""
        return differing_rows(self._read(version).where(F.col(_STATE) == version), columns, with_marker=with_marker)

    def vacuum(self) -> None:
        """Delete files that only old versions need. A failure does no harm.

        Call it only if the newest record named the newest state: then no record needs a replaced one.
        """
        try:
            self.spark.sql(f"VACUUM {self.place.sql}").collect()
        except Exception as error:
            named(f"Running VACUUM on {self.place}", error)

    def check(self, version: int, at: int) -> None:
        """Raise `RowHashesLost` if the version that holds this state is known to be gone."""
        with self.missing_as_lost(version):
            _ = self._read(at).schema

    @contextmanager
    def missing_as_lost(self, version: int, folder: str = "") -> Iterator[None]:
        """Raise `RowHashesLost` for errors which say that a state of this table is gone."""
        try:
            yield
        except Exception as error:
            if first_of(error, _GONE) and folder in str(error):
                raise RowHashesLost(
                    table=self.table, states=str(self.place), published=version, where=version
                ) from error
            raise

    def _detail(self) -> TableInfo | None:
        try:
            return read_table_info(self.spark, self.place)
        except (SourceMissing, NoTableAtPath):
            return None

    def _id(self, found: TableInfo) -> str:
        if _ID not in found.properties:
            raise NotRowHashes(states=str(self.place), table=self.table)
        return found.properties[_ID]

    def _read(self, version: int) -> DataFrame:
        return self.spark.read.option("versionAsOf", version).table(self.place.sql)


_NTZ = "delta.feature.timestampNtz", "supported"
"""Otherwise, a column of that type could not be added later."""
_GONE = (*FILES_GONE, *LOG_GONE, EXPIRED)
_CONFLICTS = (
    *("DELTA_CONCURRENT", "CONCURRENT", "DELTA_METADATA_CHANGED"),
    *("TABLE_OR_VIEW_ALREADY_EXISTS", "DELTA_TABLE_ALREADY_EXISTS"),
)
