"""Random histories of Delta tables: the mirror equals its source at every published version.

The service consumes files between the publications."""

from __future__ import annotations

import os
import random
import sys
import time
from collections import Counter
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mirrorfeed.publish.change_sources.full_compare import FullCompare, RowHashTable
from mirrorfeed.publish.errors import RowsRefusedError
from mirrorfeed.publish.files import row_staging
from mirrorfeed.publish.table_publisher import TableResult, publish
from mirrorfeed.source.identifier import Source
from mirrorfeed.storage import Store
from mirrorfeed.storage.local_folder import FolderStore
from tests.support.entries import changed
from tests.support.histories import History
from tests.support.journeys import PLAN, Journey, newest_version
from tests.support.selections import random_selection

SHARED = 1000
"""Histories from this seed on append rows with existing keys, and later remove one row of each pair."""
IN_CI = [SHARED + 4]
"""A history of eight commits of five kinds, published in a few ranges. `MIRRORFEED_SEED` selects another one."""
IN_SOAK = int(os.environ.get("MIRRORFEED_HISTORIES", "300"))
FIRST = int(os.environ.get("MIRRORFEED_SEED", "0"))


pytestmark = pytest.mark.usefixtures("several_files")


@pytest.mark.parametrize("seed", [int(os.environ["MIRRORFEED_SEED"])] if "MIRRORFEED_SEED" in os.environ else IN_CI)
@pytest.mark.soak  # `publish/test_histories` covers them without Spark
def test_mirror_equals_source_at_every_published_version(
    spark: SparkSession, tmp_path: Path, seed: int, counted: Counter[str]
) -> None:
    counted["published versions of them compared"] += live_through(spark, tmp_path, seed)
    counted["histories through Delta"] += 1


@pytest.mark.soak
def test_mirror_equals_source_over_many_histories(spark: SparkSession, tmp_path: Path, counted: Counter[str]) -> None:
    started = time.monotonic()
    for number in range(IN_SOAK):
        seed = FIRST + number + SHARED * (number % 2)
        counted["published versions of them compared"] += live_through(spark, tmp_path / str(seed), seed)
        counted["histories through Delta"] += 1
    counted["seconds for the histories through Delta"] = round(time.monotonic() - started)


@pytest.mark.soak
def test_compared_mirror_equals_source_over_many_histories(
    spark: SparkSession, tmp_path: Path, counted: Counter[str]
) -> None:
    """With fewer seeds than `tests/publish/change_sources/test_compare_protocol`, which covers the protocol with every
    fault, because each seed is slow."""
    for seed in range(FIRST, FIRST + max(1, IN_SOAK // 5)):
        be_compared(spark, tmp_path / str(seed), seed, counted)
        counted["histories by comparison"] += 1


@dataclass(frozen=True)
class Compared(Journey):
    """The same, as if the source had no feed."""

    def publish(self, store: Store | None = None, **arguments: Any) -> TableResult:
        source = Source(path=str(self.source))
        feed = FullCompare(
            self.spark, source, RowHashTable(self.spark, Source(path=str(self.place / "hashes")), str(source))
        )
        return publish(feed, store or self.zone, changed(self.plan, keys=self.keys), **arguments)


class Killed(BaseException):
    """Ends the process at this point."""


class KilledBeforeRecord(FolderStore):
    def create(self, path: str, data: bytes) -> str | None:
        if Path(path).stem.isdigit():
            raise Killed
        return super().create(path, data)


def be_compared(spark: SparkSession, place: Path, seed: int, counted: Counter[str]) -> None:
    """Publish by comparison, with runs that are killed between the hashes and the record, and runs without changes."""
    place.mkdir(exist_ok=True)
    history, choose = History(spark, place / "source", seed), random.Random(-seed - 1)
    plan = changed(
        PLAN, changes="compare", target_file_size=choose.choice((1, 2**20)), max_versions_per_publication=sys.maxsize
    )
    journey = Compared(spark, place / "source", place, history.key_names, plan)
    try:
        for _ in range(choose.randint(2, 5)):
            if choose.random() < 0.4:
                with suppress(Killed):
                    journey.publish(KilledBeforeRecord(journey.zone.root))
                    counted["comparisons with nothing to record"] += 1
                counted["comparisons that were to be killed"] += 1
                history.commit()
            journey.publish()
            journey.replicate()
            journey.check(newest_version(history.path))
            assert len(journey.publish().records) == 0
            for _ in range(choose.randint(0, 3)):
                history.commit()
        journey.check_files()
    except BaseException:
        print(f"seed {seed}, {plan}", *history.log, sep=";\n")
        raise


def live_through(spark: SparkSession, place: Path, seed: int) -> int:
    """Return the number of published versions that were compared."""
    place.mkdir(exist_ok=True)
    shares_keys = seed >= SHARED
    history = History(spark, place / "source", seed, shares_keys=shares_keys)
    choose = random.Random(-seed - 1)
    plan = changed(
        PLAN,
        changes=choose.choice(("net", "full")),
        target_file_size=choose.choice((1, 2**20)),
        # Two rows of one key in one range are refused until a range ends after one of them is removed.
        max_versions_per_publication=choose.choice((1, 500, 500) if shares_keys else (1, 2, 500)),
        log_retention_records=choose.choice((1, 10)),
    )
    few_rows = choose.choice((0, row_staging.SMALL_BATCH_ROWS))
    journey = Journey(spark, place / "source", place, history.key_names, plan)
    if seed % 3:  # two in three publish only a part
        selection, wanted = random_selection(random.Random(seed), history.columns, history.key_names)
        journey = replace(journey, plan=changed(plan, selection=selection), wanted=wanted)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_staging, "SMALL_BATCH_ROWS", few_rows)
        return _publish_along(journey, history, choose, f"seed {seed}, {journey.plan}, {few_rows} rows are few")


def _publish_along(journey: Journey, history: History, choose: random.Random, description: str) -> int:
    compared = Counter[int]()

    def on_step(_: TableResult) -> None:
        version = journey.published()
        if version is not None and version not in {*compared, *history.shared} and choose.random() < 0.7:
            journey.replicate()
            journey.check(version)
            compared[version] += 1

    try:
        for _ in range(choose.randint(2, 4)):
            with suppress(RowsRefusedError) if newest_version(history.path) in history.shared else nullcontext():
                journey.publish(on_step=on_step)
                journey.replicate()
            if newest_version(history.path) not in history.shared:
                journey.check(newest_version(history.path))
                compared[newest_version(history.path)] += 1
            for _ in range(choose.randint(1, 4)):
                history.commit()
        if newest_version(history.path) in history.shared:
            history.commit()
        journey.publish(on_step=on_step)
        journey.replicate()
        journey.check(newest_version(history.path))
        journey.check_files()
    except BaseException:
        print(description, *history.log, sep=";\n")
        raise
    return len(compared) + 1
