"""An initial load through a staging area, compared with a load into a folder that Spark shares."""

from __future__ import annotations

import shutil
from pathlib import Path

from pyspark.sql import SparkSession

from mirrorfeed.publish.change_sources.delta_feed import DeltaFeed
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.source.identifier import Source
from mirrorfeed.storage.local_folder import FolderStore
from tests.bench import tables
from tests.bench.race import Case
from tests.support.entries import entry


class Apart(FolderStore):
    """As a place that Spark does not write to: files go there through the store's calls alone."""

    def address(self, path: str) -> str:
        return f"apart://{self.root}/{path}"


def case(spark: SparkSession, folder: Path, rows: int) -> Case:
    source, zone = Source(path=str(folder / "source")), str(folder / "zone")
    tables.create(spark, source, rows)
    plan = entry(source, "bench", validate_keys="none")

    return Case(
        {
            "through a staging area": lambda: publish(
                DeltaFeed(spark, source, str(folder / "staging")), Apart(zone), plan
            ),
            "in a shared folder": lambda: publish(DeltaFeed(spark, source), FolderStore(zone), plan),
        },
        lambda: shutil.rmtree(zone, ignore_errors=True),
        {"table_rows": rows},
    )
