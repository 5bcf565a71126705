"""Counters of Spark jobs, storage calls and requests of each operation. They do not depend on the machine.

The file `counters.txt` has the expected counters. `pytest tests/performance --renew` writes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fixtures.onelake import OneLake
from mirrorfeed.runtime.spark_session import is_databricks
from tests.performance.meter import Counters
from tests.performance.operations import measure_operations

FILE = Path(__file__).with_name("counters.txt")
_WIDTH = 20
_SLACK = 0.1
"""Allowed share by which bytes may differ from the table, because rows of a Delta log contain paths and times."""


def read_table() -> dict[str, Counters]:
    rows = FILE.read_text(encoding="utf-8").splitlines()[1:]
    return {row[:_WIDTH].strip(): Counters(*map(int, row[_WIDTH:].split())) for row in rows}


def write_table(counters: Mapping[str, Counters]) -> None:
    def line(first: str, values: tuple[object, ...]) -> str:
        return f"{first:{_WIDTH}}" + "".join(
            f"{value:>{len(name) + 2}}" for name, value in zip(Counters._fields, values, strict=True)
        )

    lines = [line("operation", Counters._fields), *(line(*each) for each in counters.items())]
    FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def measured(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Mapping[str, Counters]:
    is_databricks(spark)  # runs a query once per session
    folder = tmp_path_factory.mktemp("performance")
    with (
        pytest.MonkeyPatch.context() as patch,
        OneLake(folder / "certificates") as onelake,
    ):
        for name, value in onelake.environment.items():
            patch.setenv(name, value)
        found = measure_operations(spark, onelake, folder, patch)
    if pytestconfig.getoption("renew"):
        write_table(found)
    return found


def differences(found: Counters, expected: Counters) -> list[str]:
    """Return each counter that differs from the table. Bytes differ if the difference exceeds `_SLACK`."""
    differing = [name for name, *values in zip(Counters._fields, found, expected, strict=True) if len(set(values)) > 1]
    if abs(found.bytes_per_row - expected.bytes_per_row) <= max(1, _SLACK * expected.bytes_per_row):
        differing = [name for name in differing if name != "bytes_per_row"]
    return [f"{name}: {getattr(found, name)} instead of {getattr(expected, name)}" for name in differing]


@pytest.mark.parametrize("operation", read_table())
def test_operation_costs_what_the_table_states(measured: Mapping[str, Counters], operation: str) -> None:
    """If a counter grows, make the operation cheaper, or change the table and give the reason in the commit.
    If a counter falls, lower it in the table."""
    assert differences(measured[operation], read_table()[operation]) == []


def test_table_has_every_operation(measured: Mapping[str, Counters]) -> None:
    assert list(read_table()) == list(measured)


def test_more_and_fewer_jobs_and_more_bytes_are_differences() -> None:
    expected = Counters(3, 3, 1, 1, 100, 12, 3, 18)
    assert differences(expected, expected) == []
    assert differences(expected._replace(jobs=4, requests=17), expected) == [
        "jobs: 4 instead of 3",
        "requests: 17 instead of 18",
    ]
    assert differences(expected._replace(bytes_per_row=110), expected) == []
    assert differences(expected._replace(bytes_per_row=111), expected) == ["bytes_per_row: 111 instead of 100"]
    assert differences(expected._replace(bytes_per_row=89), expected) == ["bytes_per_row: 89 instead of 100"]
