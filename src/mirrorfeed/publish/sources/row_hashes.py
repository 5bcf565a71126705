"""What was published last of a source that is compared: a Delta table with a hash for every key.

A version of this table is a state of the source, and a record names the version that it publishes. One commit holds
both the hashes of a state and the rows that differ from the one before, from one read of the source; the files of the
publication are made of that commit. So there is no moment to crash at between the two: a version that no record names
was never published, and the next comparison is with the version that the newest record does name, whatever came after.
Where nothing differs there is no commit, and that version stays the state.
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
"""The version whose commit brought a row whole. NULL: of a row that was there before, only the hash is kept."""
_MOST_WHOLE, _MOST_COMMITS = 0.5, 100
"""Of all hashes, those that are kept with their rows; and commits. With more, the next one writes the hashes anew."""
_UPKEEP = ("OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES")
"""The operations that leave the rows as they are."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The table as it is now."""

    id: str
    version: int
    folder: str = ""
    """The name of its folder, by which errors of its files are known."""


@dataclass(frozen=True, slots=True)
class Written:
    """A commit, by the engine's own count."""

    rows: int
    bytes: int
    anew: bool
    """Whether all hashes were written."""


@dataclass(frozen=True)
class RowHashTable:
    spark: SparkSession
    place: Source
    table: str
    """The source, for messages."""

    def look(self) -> Seen | None:
        """None where there is none yet."""
        if (found := self._detail()) is None:
            return None
        folder = found.location.rstrip("/").rpartition("/")[2]
        return Seen(self._id(found), newest_version(self.spark, self.place), folder)

    def id(self) -> str:
        """Nothing where there is none yet."""
        found = self._detail()
        return self._id(found) if found else ""

    def holding(self, version: int, seen: Seen) -> int:
        """The newest version, if it still holds the state of this one; else this one itself."""
        if seen.version == version:
            return version
        upkeep = {each.version for each in commits(self.spark, self.place, version) if each.operation in _UPKEEP}
        return seen.version if upkeep.issuperset(range(version + 1, seen.version + 1)) else version

    def hashes(self, version: int, key: Sequence[str]) -> DataFrame:
        """The keys that a state has, and the hash of each row."""
        newest = Window.partitionBy(*key).orderBy(F.col(_STATE).desc_nulls_last())
        rows = self._at(version).select(*key, HASH, F.row_number().over(newest).alias("__nth__"))
        return rows.where(f"__nth__ = 1 AND {HASH} IS NOT NULL").select(*key, HASH)

    def none(self, now: DataFrame, key: Sequence[str]) -> DataFrame:
        """The hashes of a state without rows."""
        return self.spark.createDataFrame([], now.select(*key, HASH).schema)

    def write(
        self, found: DataFrame, seen: Seen | None, new: Seen, key: Sequence[str], *, all_hashes: bool
    ) -> Written | None:
        """One commit, which makes the new version out of what was seen: what differs, or, of what does not, the hashes
        as well. None, and no commit, where these are not wanted and nothing differs. Or `RowHashesChanged`, if another
        commit came before."""
        batch, told = uuid.uuid4().hex, (*key, HASH, CHANGED, GAIN, PROBLEM)
        payload = [name for name in found.columns if name not in told]
        rows = found.where(f"{DIFFERS} OR {HASH} IS NOT NULL" if all_hashes else DIFFERS).selectExpr(
            *key,
            *(f"IF({DIFFERS}, {name}, NULL) AS {name}" for name in payload),
            HASH,
            f"IF({DIFFERS}, {new.version}L, NULL) AS {_STATE}",
            f"IF({HASH} IS NULL, 0, 1) AS {GAIN}" if all_hashes else GAIN,
            PROBLEM,
        )
        if all_hashes:  # one row of nothing, for of no rows at all Delta makes no commit
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
        told = ours[0]["operationMetrics"]
        return Written(int(told["numOutputRows"]) - all_hashes, int(told["numOutputBytes"]), all_hashes)

    def rows(self, version: int) -> int:
        """How many rows the source had."""
        found = self._at(version).agg(F.sum(GAIN)).first()
        return int(found[0] or 0) if found else 0

    def is_heavy(self, version: int) -> bool:
        """Whether so many rows are kept whole, or so many commits, that it is time to write the hashes alone."""
        counts = self._at(version).agg(F.count(_STATE), F.count(HASH), F.size(F.collect_set(_STATE))).first()
        assert counts is not None
        whole, hashes, commits = counts
        return bool(whole > _MOST_WHOLE * hashes or commits > _MOST_COMMITS)

    def changed(self, version: int, columns: Sequence[Column], *, with_marker: bool) -> DataFrame:
        """The landing rows of a state: what differs from the one before."""
        return differing_rows(self._at(version).where(F.col(_STATE) == version), columns, with_marker=with_marker)

    def vacuum(self) -> None:
        """Removes the files that are not in the newest version, nor were for as long as the table looks back. That is
        for where the newest record named the newest state a moment ago: no record needs one that was replaced before.
        Whoever could not remove them goes on, for they do no harm."""
        try:
            self.spark.sql(f"VACUUM {self.place.sql}").collect()
        except Exception as error:
            named(f"Removing what is not needed of {self.place}", error)

    def check(self, version: int, at: int) -> None:
        """Raise `RowHashesLost` if the version with this state is known to be missing, before anything is
        read."""
        with self.known_as(version):
            _ = self._at(at).schema

    @contextmanager
    def known_as(self, version: int, folder: str = "") -> Iterator[None]:
        """Turns what says that a state is gone into `RowHashesLost`, where it is about this table."""
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

    def _at(self, version: int) -> DataFrame:
        return self.spark.read.option("versionAsOf", version).table(self.place.sql)


_NTZ = "delta.feature.timestampNtz", "supported"
"""Or a column of that type could not come later."""
_GONE = (*FILES_GONE, *LOG_GONE, EXPIRED)
_CONFLICTS = (
    *("DELTA_CONCURRENT", "CONCURRENT", "DELTA_METADATA_CHANGED"),
    *("TABLE_OR_VIEW_ALREADY_EXISTS", "DELTA_TABLE_ALREADY_EXISTS"),
)
