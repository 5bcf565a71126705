"""A first publication whose files executors write themselves, beside the same sent by the driver."""

from __future__ import annotations

import shutil
from pathlib import Path

from pyspark.sql import SparkSession

from mirrorfeed.feed.source import Source
from mirrorfeed.publish.carry import Carrier, InResult
from mirrorfeed.publish.handover import Handover
from mirrorfeed.publish.source import DeltaFeed
from mirrorfeed.publish.table import Plan, publish
from mirrorfeed.stores import FolderStore
from tests.bench import tables
from tests.bench.race import Case


def case(spark: SparkSession, folder: Path, rows: int) -> Case:
    source, zone = Source(path=str(folder / "source")), FolderStore(str(folder / "zone"))
    tables.create(spark, source, rows)

    def to_zone(carrier: Carrier | None) -> None:
        plan = Plan(str(source), "bench", "bench", ("id",), check_keys=False)
        publish(DeltaFeed(spark, source, lambda: carrier), zone, plan)

    return Case(
        {
            "executors write": lambda: to_zone(None),
            "through a handover": lambda: to_zone(Handover(spark, str(folder / "handover"))),
            "in the query's result": lambda: to_zone(InResult()),
        },
        lambda: shutil.rmtree(folder / "zone", ignore_errors=True),
        {"table_rows": rows},
    )
