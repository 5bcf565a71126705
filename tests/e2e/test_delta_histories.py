"""Random histories of random Delta tables: whatever happened to the source, the mirror equals it at every version
that was published, though the service consumes files in between."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fixtures.histories import History
from fixtures.journeys import PLAN, Journey, newest_version
from fixtures.selections import drawn
from mirrorfeed.files import few
from mirrorfeed.publish.table import Progress

IN_CI = 1  # each of many kinds of commits is in `tests/publish/test_delta_cases`
IN_SOAK = int(os.environ.get("MIRRORFEED_HISTORIES", "300"))
FIRST = int(os.environ.get("MIRRORFEED_SEED", "0"))


pytestmark = pytest.mark.usefixtures("several_files")


@pytest.mark.parametrize("seed", range(FIRST, FIRST + IN_CI))
def test_the_mirror_equals_the_source_at_every_published_version(
    spark: SparkSession, tmp_path: Path, seed: int, counted: Counter[str]
) -> None:
    counted["published versions of them compared"] += live_through(spark, tmp_path, seed)
    counted["histories through Delta"] += 1


@pytest.mark.soak
def test_the_mirror_equals_the_source_through_many_histories(
    spark: SparkSession, tmp_path: Path, counted: Counter[str]
) -> None:
    begun = time.monotonic()
    for seed in range(FIRST, FIRST + IN_SOAK):
        counted["published versions of them compared"] += live_through(spark, tmp_path / str(seed), seed)
        counted["histories through Delta"] += 1
    counted["seconds for the histories through Delta"] = round(time.monotonic() - begun)


def live_through(spark: SparkSession, place: Path, seed: int) -> int:
    """How many published versions were compared."""
    place.mkdir(exist_ok=True)
    history = History(spark, place / "source", seed)
    choose = random.Random(-seed - 1)
    plan = replace(
        PLAN,
        changes=choose.choice(("net", "full")),
        file_size=choose.choice((1, 2**20)),
        versions_per_range=choose.choice((1, 2, 500)),
        keep_records=choose.choice((1, 10)),
    )
    few_rows = choose.choice((0, few.ROWS))
    journey = Journey(spark, place / "source", place, history.key_names, plan)
    if seed % 3:  # of two in three a part is published
        selection, wanted = drawn(random.Random(seed), history.columns, history.key_names)
        keys = tuple(map(selection.name_of, history.key_names))
        journey = replace(journey, keys=keys, plan=replace(plan, selection=selection), wanted=wanted)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(few, "ROWS", few_rows)
        return _publish_along(journey, history, choose, f"seed {seed}, {journey.plan}, {few_rows} rows are few")


def _publish_along(journey: Journey, history: History, choose: random.Random, told: str) -> int:
    compared = Counter[int]()

    def on_step(_: Progress) -> None:
        version = journey.published()
        if version is not None and version not in compared and choose.random() < 0.7:
            journey.replicate()
            journey.check(version)
            compared[version] += 1

    try:
        for _ in range(choose.randint(2, 4)):
            journey.publish(on_step=on_step)
            journey.replicate()
            journey.check(newest_version(history.path))
            compared[newest_version(history.path)] += 1
            for _ in range(choose.randint(1, 4)):
                history.commit()
        journey.publish(on_step=on_step)
        journey.replicate()
        journey.check(newest_version(history.path))
        journey.check_files()
    except BaseException:
        print(told, *history.log, sep=";\n")
        raise
    return len(compared) + 1
