"""The handover: a folder, on Databricks a volume, in which Spark keeps the parts of files until the driver sent them.

Below it every table has a folder of its own, named by where the table is published, so deployments may share one. A
staging has a folder in that. Spark alone writes and reads there, so that nothing counts of tasks that failed; and as a
folder may lose files in ways that look like fewer rows, what was written is counted on the way.
"""

from __future__ import annotations

import hashlib
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from mirrorfeed.errors import Terminal, Transient, first_line
from mirrorfeed.feed.faults import FEED_OFF, FILES_GONE, LOG_GONE, SCHEMA_DIFFERS, first_of
from mirrorfeed.publish.carry import LOT_BYTES, Kept
from mirrorfeed.publish.writer import CARRIED_DDL, RECEIPT, StagingJob
from mirrorfeed.stores import Store
from mirrorfeed.stores.anew import Sink

VOLUMES = "/Volumes/"
_ROW_GROUP_BYTES = 16 * 2**20
_WRITING = {
    "compression": "uncompressed",  # files are compressed as they are
    "parquet.enable.dictionary": "false",
    "parquet.block.size": str(_ROW_GROUP_BYTES),
}


def default_workspace() -> Any:
    from databricks.sdk import WorkspaceClient  # takes seconds to import, and few runs need it

    return WorkspaceClient()


@dataclass(frozen=True)
class Handover:
    spark: SparkSession
    root: str
    workspace: Callable[[], Any] = default_workspace

    def check(self, store: Store) -> None:
        """That Spark may write there; or `HandoverUnusable`."""
        mine = _digest(store, "")
        for left in reversed(range(2)):  # another run may have cleared what this one was about to write
            place = f"{self.root}/{mine}-{uuid.uuid4().hex}"
            try:
                self.spark.range(1).write.parquet(place)
                break
            except Exception as error:
                if not left:
                    raise HandoverUnusable(self.root, _reason(error)) from error
            finally:
                self._remove(place)
        for left_over in Path(self.root).glob(f"{mine}-*"):  # of runs that died here
            self._remove(str(left_over))

    @contextmanager
    def keep(self, encoded: DataFrame, job: StagingJob) -> Iterator[Kept]:
        folder, _, _ = job.folder.rsplit("/", 2)  # of the table: what is above its log
        table = f"{self.root}/{_digest(job.store, folder)}"
        place = f"{table}/{job.record_number:020d}-{job.batch}"
        seen = Observation()
        counts = F.count_if(F.col("part").isNull()).alias("receipts"), F.sum(F.length("data")).alias("bytes")
        try:
            with _write_faults(place):
                encoded.observe(seen, *counts).write.options(**_WRITING).parquet(place)
            yield self._look(place, seen)
        except BaseException:
            self._remove(place)
            raise
        # All of it: others have left theirs when they died, or are about to lose the race for the same record.
        self._remove(table)

    def _look(self, place: str, seen: Observation) -> _Kept:
        """At what is there, which must be what was seen when it was written."""
        no_part = F.col("part").isNull()
        with _read_faults(place):
            found = self.spark.read.schema(CARRIED_DDL).parquet(place)
            few = (seen.get["bytes"] or 0) <= LOT_BYTES
            if few:
                at_hand = found.toArrow()
                rows = at_hand.filter(pc.field("part").is_null()).select(RECEIPT.names).to_pylist()
            else:  # one after the other, for those with hashes of keys are large
                at_hand = None
                rows = [row.asDict() for row in found.where(no_part).select(*RECEIPT.names).toLocalIterator()]
        if len(rows) != seen.get["receipts"]:
            raise HandoverLost(place, f"{len(rows)} of {seen.get['receipts']} receipts are there")
        return _Kept(rows, place, found, at_hand)

    def _remove(self, place: str) -> None:
        """As far as that can be done: what is left harms nobody, and the next publication of the table tries again."""
        if Path(self.root).is_dir():
            shutil.rmtree(place, ignore_errors=True)
        elif self.root.startswith(VOLUMES):  # Spark is elsewhere
            with suppress(Exception):
                self.workspace().dbfs.delete(place, recursive=True)


@dataclass(frozen=True)
class _Kept:
    rows: Sequence[dict[str, Any]]
    place: str
    found: DataFrame
    at_hand: pa.Table | None
    """All that was found, where that is little."""

    def parts(self, names: Sequence[str], first: int, end: int) -> Iterator[tuple[str, bytes]]:
        if self.at_hand is not None:
            wanted = pc.field("staged").isin(list(names)) & (pc.field("part") >= first) & (pc.field("part") < end)
            for row in self.at_hand.filter(wanted).sort_by(_ORDER).to_pylist():
                yield row["staged"], row["data"]
            return
        chosen = F.col("staged").isin(*names) & (F.col("part") >= first) & (F.col("part") < end)
        # One partition, for the order of several is nobody's promise.
        ordered = self.found.where(chosen).coalesce(1).sortWithinPartitions("staged", "part").select("staged", "data")
        with _read_faults(self.place):
            for row in ordered.toLocalIterator():
                yield row["staged"], row["data"]


_ORDER = [("staged", "ascending"), ("part", "ascending")]


def _digest(store: Sink, folder: str) -> str:
    return hashlib.sha256(store.address(folder).encode()).hexdigest()[:20]


@contextmanager
def _write_faults(place: str) -> Iterator[None]:
    """What the source is to blame for has names of its own, which whoever reads it knows."""
    try:
        yield
    except Exception as error:
        if first_of(error, (*FILES_GONE, *LOG_GONE, FEED_OFF, SCHEMA_DIFFERS)) or place not in str(error):
            raise
        raise HandoverLost(place, _reason(error)) from error


@contextmanager
def _read_faults(place: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise HandoverLost(place, _reason(error)) from error


def _reason(error: Exception) -> str:
    """The innermost cause, for the outer ones tell of tasks and stages."""
    causes = [line for line in str(error).splitlines() if line.startswith("Caused by: ")]
    return first_line(causes[-1].removeprefix("Caused by: ") if causes else str(error))


class HandoverUnusable(Terminal):
    def __init__(self, root: str, reason: str) -> None:
        self.root, self.reason = root, reason

    def what(self) -> str:
        return f"Spark cannot write into the handover {self.root}: {self.reason}."

    def next(self) -> str:
        return (
            "Check `handover`: a volume (/Volumes/catalog/schema/volume) with the privileges READ VOLUME and WRITE"
            " VOLUME for who publishes. Nothing was staged."
        )


class HandoverLost(Transient):
    def __init__(self, place: str, reason: str) -> None:
        self.place, self.reason = place, reason

    def what(self) -> str:
        return f"The handover {self.place} did not keep what executors gave: {self.reason}."

    def next(self) -> str:
        return "Nothing of it is published. See that there is room and that nobody else changes it, then publish again."
