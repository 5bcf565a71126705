"""The net result of a range equals the difference between its two ends, read by another Delta reader."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable as OtherReader
from pyspark.sql import SparkSession

from mirrorfeed.landing.schema import columns_of
from mirrorfeed.source.reader import read_changes
from mirrorfeed.source.snapshot_or_range import Range
from mirrorfeed.source.versions import read_schema
from tests.publish.test_rows_and_markers import net
from tests.support.delta import SparkTable

DELETE, UPSERT = 2, 4
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
"""Seeds with the same statements in other orders. Other tests cover each statement."""


@pytest.mark.parametrize(
    ("seed", "commits"),
    [
        (9, 3),  # a deletion, a merge, and an update of keys
        *(pytest.param(seed, 5, marks=AGAIN) for seed in range(5)),
    ],
)
def test_net_result_equals_the_difference_read_by_another_reader(
    spark: SparkSession, tmp_path: Path, seed: int, commits: int
) -> None:
    rng = random.Random(seed)
    table = SparkTable(spark, tmp_path / "t")
    table.insert(*range(8))
    for number in range(commits):
        table.sql(rng.choice(STATEMENTS).replace("{n}", str(number)))
    range_ = Range(1, table.latest)
    columns = columns_of("t", read_schema(spark, table.source, table.latest, {}))
    own_rows = net(read_changes(spark, table.source, range_), columns, ("id",)).collect()
    before, after = (rows_at(table.path, version) for version in (1, table.latest))
    expected = {id: (UPSERT, v) for id, v in after.items() if id not in before or before[id] != v}
    expected |= {id: (DELETE, None) for id in before if id not in after}
    assert {row["id"]: (row["__rowMarker__"], row["v"]) for row in own_rows} == expected
    assert len(own_rows) == len(expected)


def rows_at(path: Path, version: int) -> dict[int, Any]:
    return {row["id"]: row["v"] for row in OtherReader(str(path), version=version).to_pyarrow_table().to_pylist()}
