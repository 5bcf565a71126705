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
from operator import itemgetter
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from mirrorfeed.errors import Terminal, Transient, first_line
from mirrorfeed.feed.faults import FILES_GONE, first_of
from mirrorfeed.publish.carry import Data, Kept
from mirrorfeed.publish.parts import Sink
from mirrorfeed.publish.writer import CARRIED_DDL, RECEIPT, StagingJob
from mirrorfeed.stores import Store

VOLUMES = "/Volumes/"
_ROW_GROUP_BYTES = 16 * 2**20
_WRITING = {
    "compression": "uncompressed",  # files are compressed as they are
    "parquet.enable.dictionary": "false",
    # Rows are large here: Parquet would look at sizes only after a hundred of them.
    "parquet.block.size": str(_ROW_GROUP_BYTES),
    "parquet.block.size.row.check.min": "4",
    "parquet.block.size.row.check.max": "4",
    "parquet.page.size.row.check.min": "1",
    "parquet.page.size.row.check.max": "1",
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
        place = f"{self.root}/{_digest(store, '')}-{uuid.uuid4().hex}"
        try:
            self.spark.range(1).write.parquet(place)
        except Exception as error:
            raise HandoverUnusable(self.root, _reason(error)) from error
        finally:
            self._remove(place)

    @contextmanager
    def keep(self, encoded: DataFrame, job: StagingJob) -> Iterator[Kept]:
        folder, _, _ = job.folder.rsplit("/", 2)  # of the table: what is above its log
        table = f"{self.root}/{_digest(job.store, folder)}"
        place = f"{table}/{job.record_number:020d}-{job.batch}"
        receipts = Observation()
        counted = encoded.observe(receipts, F.count_if(F.col("part").isNull()).alias("count"))
        try:
            with _faults(place, writing=True):
                counted.write.options(**_WRITING).parquet(place)
            with _faults(place):
                found = self.spark.read.schema(CARRIED_DDL).parquet(place)
                rows = found.where("part IS NULL").select(RECEIPT.names).toArrow().to_pylist()
            if len(rows) != receipts.get["count"]:
                raise HandoverLost(place, f"{len(rows)} of {receipts.get['count']} receipts are there")
            yield _Kept(rows, place, found)
        except BaseException:
            self._remove(place)
            raise
        # All of it: others have left theirs when they died, or are about to lose the race for the same record.
        self._remove(table)

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

    def data(self, names: Sequence[str], first: int, end: int) -> Data:
        chosen = F.col("staged").isin(*names) & (F.col("part") >= first) & (F.col("part") < end)
        with _faults(self.place):
            parts = self.found.where(chosen).select("staged", "part", "data").toArrow()
        by_name: dict[str, list[tuple[int, Any]]] = {name: [] for name in names}
        for staged, part, data in zip(*parts.columns, strict=True):
            by_name[staged.as_py()].append((part.as_py(), data.as_buffer()))
        return {name: [data for _, data in sorted(found, key=itemgetter(0))] for name, found in by_name.items()}


def _digest(store: Sink, folder: str) -> str:
    return hashlib.sha256(store.address(folder).encode()).hexdigest()[:20]


@contextmanager
def _faults(place: str, writing: bool = False) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise HandoverLost(place, _reason(error)) from error


def _reason(error: Exception) -> str:
    return first_line(str(error))


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
