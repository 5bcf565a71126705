"""Counts what the proofs through Spark went through, for the last lines of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

COUNTED = pytest.StashKey[Counter[str]]()


@pytest.fixture(scope="session")
def counted(request: pytest.FixtureRequest) -> Counter[str]:
    """How many cases of each kind were played, by its name."""
    return request.config.stash.setdefault(COUNTED, Counter())


SEVERAL_FILES = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2",
    "spark.sql.adaptive.coalescePartitions.enabled": "false",
}
"""With small files asked for, a handful of rows fills several of them, in several tasks."""


@pytest.fixture(scope="module")
def several_files(spark: SparkSession) -> Iterator[None]:
    before = {name: str(spark.conf.get(name)) for name in SEVERAL_FILES}
    for name, value in SEVERAL_FILES.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for kind, count in sorted(config.stash.get(COUNTED, Counter()).items()):
        terminalreporter.write_line(f"{count} {kind}")
