"""Statements that dbt-databricks runs for its materializations. After each run, the mirror equals the table."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.publish.change_sources.test_replaced_tables import a_config, published
from tests.support.delta import SparkTable, Zone

PROPERTIES = "tblproperties ('delta.enableChangeDataFeed' = 'true')"


@pytest.mark.parametrize("runs", [3, pytest.param(10, marks=pytest.mark.slow)])
def test_nightly_job_that_replaces_its_table_publishes_only_the_rows_that_differ(
    spark: SparkSession, tmp_path: Path, runs: int
) -> None:
    """Each run adds a row, changes a row and deletes a row. Every third run adds a column."""
    table = SparkTable.at(spark, tmp_path / "t", plain=False)
    zone, config = Zone(tmp_path / "landing", table), a_config(tmp_path)
    for run in range(runs):
        more = "".join(f", cast(null as int) as c{n}" for n in range(1, run // 3 + 1))
        partitioned = "partitioned by (day)" if run % 4 == 3 else ""
        table.sql(
            f"create or replace table {{}} using delta {partitioned} {PROPERTIES} as select cast(id as int) as id,"
            f" if(id = {run + 20}, 'run {run}', 'same') as v, cast(id % 3 as int) as day{more}"
            f" from range({run}, {run + 30})"
        )
        outcome, errors = published(spark, config)
        assert (outcome.error, errors) == (None, [])
        # The row of the run, that of the run before it if it is the same row again, and the new row.
        assert outcome.rows == ({"insert": 30} if run == 0 else {"upsert": 3, "delete": 1})
        assert zone.mirrors_the_table()


ROWS = {
    "merge": {"upsert": 2},
    "append": {"upsert": 1},
    "insert_overwrite": {"upsert": 1, "delete": 2},
    "replace_where": {"upsert": 2, "delete": 1},
    "delete+insert": {"upsert": 2},
}
"""Published rows by strategy. Rows that are written again with the same values are not published."""
STATEMENTS = {
    "merge": [
        "merge into {} as DBT_INTERNAL_DEST using (select 2 as id, 'changed' as v union all select 9, 'new')"
        " as DBT_INTERNAL_SOURCE on DBT_INTERNAL_SOURCE.id = DBT_INTERNAL_DEST.id"
        " when matched then update set * when not matched then insert *"
    ],
    "append": ["insert into table {} select 9, 'new'"],
    "insert_overwrite": ["insert overwrite table {} select 1, 'v1' union all select 9, 'new'"],
    "replace_where": ["insert into table {} replace where id >= 2 select 2, 'changed' union all select 9, 'new'"],
    "delete+insert": [
        "delete from {} where id in (2, 9)",
        "insert into {} select 2, 'changed' union all select 9, 'n'",
    ],
}


@pytest.mark.parametrize(
    "strategy", ["merge", *(pytest.param(each, marks=pytest.mark.slow) for each in STATEMENTS if each != "merge")]
)
def test_incremental_model_is_published_from_the_feed(spark: SparkSession, tmp_path: Path, strategy: str) -> None:
    table = SparkTable(spark, tmp_path / "t")
    table.insert(1, 2, 3)
    zone, config = Zone(tmp_path / "landing", table), a_config(tmp_path, "on_replace: stop")
    published(spark, config)
    for statement in STATEMENTS[strategy]:
        table.sql(statement)
    outcome, errors = published(spark, config)
    assert (outcome.error, errors, outcome.rows) == (None, [], ROWS[strategy])
    assert zone.mirrors_the_table()


@pytest.mark.slow
def test_snapshot_is_published_from_the_feed_with_its_version_key(spark: SparkSession, tmp_path: Path) -> None:
    """A snapshot closes the row of an earlier version, and inserts a row for the new one."""
    columns = "id int, v string, dbt_scd_id string, dbt_valid_from timestamp, dbt_valid_to timestamp"
    table = SparkTable(spark, tmp_path / "t", columns)
    zone, config = Zone(tmp_path / "landing", table, ("dbt_scd_id",)), a_config(tmp_path, keys="[dbt_scd_id]")
    table.sql("insert into {} values (1, 'a', 's1', timestamp '2026-01-01', null)")
    published(spark, config)
    table.sql(
        "merge into {} as DBT_INTERNAL_DEST using (select * from values"
        " ('update', 1, 'a', 's1', timestamp '2026-01-01', timestamp '2026-01-02'),"
        " ('insert', 1, 'b', 's2', timestamp '2026-01-02', null)"
        " as t (dbt_change_type, id, v, dbt_scd_id, dbt_valid_from, dbt_valid_to)) as DBT_INTERNAL_SOURCE"
        " on DBT_INTERNAL_SOURCE.dbt_scd_id = DBT_INTERNAL_DEST.dbt_scd_id"
        " when matched and DBT_INTERNAL_DEST.dbt_valid_to is null and DBT_INTERNAL_SOURCE.dbt_change_type in"
        " ('update', 'delete') then update set dbt_valid_to = DBT_INTERNAL_SOURCE.dbt_valid_to"
        " when not matched and DBT_INTERNAL_SOURCE.dbt_change_type = 'insert' then insert *"
    )
    outcome, errors = published(spark, config)
    assert (outcome.error, errors, outcome.rows) == (None, [], {"upsert": 2})
    assert len(zone.mirrored) == 2
