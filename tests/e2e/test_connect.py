"""Publication through a local Spark Connect server, in a process without a JVM and a SparkContext."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fixtures.connect import connect_server
from tests.conftest import INTERPRETED

ROOT = Path(__file__).parent.parent.parent
ALL = (
    *("tests/publish/test_rows_and_markers.py", "tests/source/test_selection.py"),
    *("tests/orchestration/test_publish_run.py", "tests/orchestration/test_ledger.py"),
    *("tests/archive/test_predicate.py", "tests/archive/test_engines.py"),
    "tests/orchestration/test_verify_and_repair.py::test_repair_with_a_condition_works_with_and_without_the_mirror",
    "tests/history/test_history.py::test_every_version_can_be_rebuilt_despite_duplicates_and_new_columns",
    "tests/history/test_history.py::test_concurrent_runs_and_maintenance_append_each_version_once",
)


def pass_over_connect(address: str, *proven: str) -> None:
    """Run these tests unchanged in a process that has no local Spark."""
    answer = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-rA", "-p", "no:cacheprovider", "-m", "not soak", *proven],
        cwd=ROOT,
        env=os.environ | {"SPARK_REMOTE": address},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout[-4000:]
    assert " passed" in answer.stdout
    assert "skipped" not in answer.stdout.lower()


@pytest.mark.slow
def test_feed_fleet_and_ledger_tests_pass_over_spark_connect(spark: SparkSession, tmp_path: Path) -> None:
    """The session of these tests removed Delta's JARs. `test_serverless` covers the commands in a sandbox."""
    warehouse = {"spark.sql.warehouse.dir": tmp_path.as_uri(), "spark.sql.shuffle.partitions": "2"}
    with connect_server(INTERPRETED | warehouse) as address:
        pass_over_connect(address, *ALL)
