"""The net result from Spark equals one computed another way: by another reader of Delta, and in plain Python."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as OtherReader
from pyspark.sql import SparkSession

from mirrorfeed.feed.changes import net
from mirrorfeed.feed.ranges import Range
from mirrorfeed.feed.read import changes
from mirrorfeed.feed.schemas import schema_at
from mirrorfeed.landing.schema import columns_of
from tests.delta import SparkTable

STATEMENTS = (
    "INSERT INTO {} SELECT id + {n} * 10 + 10, concat('new', id) FROM range(3)",
    "UPDATE {} SET v = concat(v, '{n}') WHERE id % 3 = {n} % 3",
    "UPDATE {} SET id = id + 1000 * ({n} + 1) WHERE id IN (3, 4)",
    "DELETE FROM {} WHERE id % 7 = {n}",
    """MERGE INTO {} t USING (SELECT cast(id AS int) AS id, 'merged{n}' AS v FROM range(5)) s ON t.id = s.id
       WHEN MATCHED AND s.id = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *""",
    "INSERT OVERWRITE {} SELECT * FROM {} WHERE id % 5 <> {n}",
)


AGAIN = pytest.mark.soak
"""The same statements in other orders; the others have each of them."""


@pytest.mark.parametrize("seed", [1, 4, *(pytest.param(seed, marks=AGAIN) for seed in (0, 2, 3))])
def test_another_reader_of_the_feed_gives_the_same_net_result(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    table = SparkTable(spark, tmp_path / "t")
    table.insert(*range(8))
    for number in range(5):
        table.sql(rng.choice(STATEMENTS).replace("{n}", str(number)))
    range_ = Range(1, table.latest)
    columns = columns_of("t", schema_at(spark, table.source, table.latest))
    ours = net(changes(spark, table.source, range_), columns, ("id",)).collect()
    assert {row["id"]: (row["__rowMarker__"], row["v"]) for row in ours} == independently(table.path, range_)
    assert len(ours) == len({row["id"] for row in ours})


def independently(path: Path, range_: Range) -> dict[int, tuple[int, Any]]:
    reader = OtherReader(str(path)).load_cdf(range_.from_version_exclusive + 1, range_.to_version_inclusive)
    events = sorted(pa.table(reader).to_pylist(), key=_order)
    left: dict[int, tuple[int, Any]] = {}
    for event in events:
        ends = event["_change_type"] in ("delete", "update_preimage")
        left[event["id"]] = (2, None) if ends else (4, event["v"])
    return left


def _order(event: dict[str, Any]) -> tuple[int, bool]:
    """By version; within one, what ends before what lives."""
    return event["_commit_version"], event["_change_type"] in ("insert", "update_postimage")
