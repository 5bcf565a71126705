from __future__ import annotations

import cProfile
import pstats
from typing import Any, cast

import pytest

from mirrorfeed.publish.files import duplicate_keys
from mirrorfeed.publish.files.spark_files import SparkFiles
from mirrorfeed.publish.files.staging_area import StagingArea
from tests.bench.profile import mib, phases


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("512.0 B", 512 / 2**20),
        ("total (min, med, max (stageId: taskId))\n3.5 KiB (1.0 KiB, 2.5 KiB, 2.5 KiB)", 3.5 / 1024),
        ("total (min, med, max (stageId: taskId))\n52.9 MiB (0.0 B, 1.0 MiB, 9.0 MiB)", 52.9),
        ("1.5 GiB", 1536),
    ],
)
def test_spark_size_is_the_sum_of_all_tasks(text: str, expected: float) -> None:
    assert mib(text) == pytest.approx(expected)


def test_only_executed_phases_are_reported() -> None:
    watched = cProfile.Profile()
    files = SparkFiles(StagingArea("/"), "", cast(Any, None), [], {})
    watched.runcall(duplicate_keys.may_have_duplicates, files, cast(Any, None), [])
    (found,) = phases(pstats.Stats(watched)).items()
    assert found[0] == "keys compared"
    assert found[1] >= 0
