from __future__ import annotations

from pyspark.sql import SparkSession

from mirrorfeed.files import few


def test_no_rows_come_where_one_is_wide_and_all_as_they_are_where_none_is(spark: SparkSession) -> None:
    rows = spark.sql("SELECT id, repeat('ü', IF(id = 3, 2100, 5)) AS `a b`, X'00' AS bin FROM range(5)")

    assert few.taken(rows, known=True) is None
    assert few.taken(rows, known=False) is None
    found = few.taken(rows.where("id <> 3"), known=False)
    assert found is not None
    assert found.to_pylist() == [{"id": id_, "a b": "üüüüü", "bin": b"\0"} for id_ in (0, 1, 2, 4)]
    none = few.taken(rows.where("id > 9"), known=True)
    assert none is not None
    assert none.num_rows == 0
