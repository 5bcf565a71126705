"""`mirrorfeed publish` is killed at random moments, repeatedly, and the next run makes the mirror equal.

Spark runs in a Connect server, so the queries of a killed publisher continue, as they would on a cluster."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from fixtures.connect import connect_server, walled_server
from mirrorfeed.publish.table_log import TableLog
from tests.e2e.conftest import SEVERAL_FILES
from tests.support.journeys import FOLDER, Journey, newest_version

SEED = int(os.environ.get("MIRRORFEED_SEED", "20261121"))
IN_SHORT, IN_SOAK = 2, 60
ROWS = 120
ENDED = "that ended before they were to be killed"


@pytest.fixture(scope="module")
def remote(spark: SparkSession) -> Iterator[str]:
    options = {
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        **SEVERAL_FILES,
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1",  # enough for dozens of files per round
    }
    with connect_server(options) as address:
        yield address


@dataclass
class Shop:
    """One table, and processes that publish it."""

    journey: Journey
    remote: str
    staging_path: bool = False
    """Whether there is a staging area, with rows too large for a query result."""

    def open(self) -> None:
        place, sql = self.journey.place, self.journey.sql
        small = "target_file_size: 1 KiB, max_versions_per_publication: 2"
        table = f"{{source: {self.journey.source}, target: s.t, keys: [id], {small}}}"
        carried = f"staging_path: {self._parts}\n" if self.staging_path else ""
        text = f"landing_zone: {place}/zone\n{carried}tables:\n  - {table}\n"
        (place / "mirrorfeed.yml").write_text(text, encoding="utf-8")
        columns = "(id int, v string) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)"
        self.journey.spark.sql(f"CREATE TABLE {sql} {columns}")
        self.journey.spark.sql(f"INSERT INTO {sql} SELECT cast(id AS int), 'new' FROM range({ROWS})")

    def trade(self, choose: random.Random) -> None:
        first = choose.randrange(1, ROWS // 2)
        at = newest_version(self.journey.source)
        for statement in choose.sample(
            [
                f"UPDATE {self.journey.sql} SET v = {self._value(f'at {at}')} WHERE id >= {first}",
                f"UPDATE {self.journey.sql} SET id = -1 - id WHERE id = {first}",
                f"DELETE FROM {self.journey.sql} WHERE id % {first} = 0",
                f"INSERT INTO {self.journey.sql} SELECT cast({at} * 1000 + id AS int), 'later' FROM range({first})",
            ],
            choose.randint(1, 3),
        ):
            self.journey.spark.sql(statement)

    def _value(self, text: str) -> str:
        return f"repeat('{text}', 1000)" if self.staging_path else f"'{text}'"

    def publisher(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [
                "nice",
                sys.executable,
                "-m",
                "mirrorfeed.cli",
                "publish",
                "--config",
                str(self.journey.place / "mirrorfeed.yml"),
            ],
            env=os.environ | {"SPARK_REMOTE": self.remote},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def publish(self) -> float:
        """Publish without a kill and return the duration."""
        started = time.monotonic()
        publisher = self.publisher()
        output, _ = publisher.communicate()
        assert publisher.returncode == 0, output
        return time.monotonic() - started

    def check(self) -> None:
        self.publish()
        assert not any(self._parts.rglob("*.parquet"))
        self.journey.replicate()
        self.journey.check(newest_version(self.journey.source))
        self.journey.check_files()

    def publish_and_kill(self, when: Callable[[], bool]) -> str:
        """Kill a publisher and return its progress."""
        before, staged_before = self._records(), self._staged()
        publisher = self.publisher()
        while not when():
            with suppress(subprocess.TimeoutExpired):  # from staging to the last rename takes milliseconds
                publisher.wait(timeout=0 if self._staged() else 0.005)
                break
        publisher.kill()
        publisher.communicate()
        if publisher.returncode >= 0:
            return ENDED
        view = TableLog(self.journey.zone, FOLDER).read_view()
        if view is None or self._records() == before:
            some_staged = self._staged() - staged_before
            if self._carried():
                return f"killed {'while sending' if some_staged else 'with files in the staging area'}"
            return f"killed {'while staging' if some_staged else 'before anything was staged'}"
        if not view.unfinished:
            return "killed after the last rename"
        assert view.newest is not None
        some_renamed = len(view.unfinished) < len(view.newest.files)
        return f"killed {'while renaming' if some_renamed else 'before the first rename'}"

    def moment(self, choose: random.Random, seconds: float) -> Callable[[], bool]:
        """Kill at a random time of a normal run, or as soon as more files are staged, recorded or renamed."""
        kind = choose.choice(("time", "staged", "recorded", "renamed", "parts" if self.staging_path else "renamed"))
        if kind == "time":
            end = time.monotonic() + choose.uniform(0.2, 1) * seconds
            return lambda: time.monotonic() >= end
        count = {
            "staged": lambda: len(self._staged()),
            "recorded": self._records,
            "renamed": self._renamed,
            "parts": self._carried,
        }[kind]
        goal = count() + (1 if kind in ("recorded", "parts") else choose.randint(1, 10))
        return lambda: count() >= goal

    def _staged(self) -> set[Path]:
        return set(self._folder.glob("_mirrorfeed/*/*.parquet"))

    def _records(self) -> int:
        """Number of the newest record."""
        return max((int(path.stem) for path in self._folder.glob("_mirrorfeed/*/*.json")), default=0)

    def _renamed(self) -> int:
        return len(list(self._folder.glob("*.parquet")))

    def _carried(self) -> int:
        """Files of Spark in the staging area, complete or not."""
        return len(list(self._parts.glob("*/**/part-*.parquet")))

    @property
    def _parts(self) -> Path:
        return self.journey.place / "staging"

    @property
    def _folder(self) -> Path:
        return self.journey.place / "zone" / FOLDER


@pytest.mark.slow
def test_next_run_recovers_from_killed_publishers(
    spark: SparkSession, remote: str, tmp_path: Path, counted: Counter[str]
) -> None:
    _kill_in_rounds(Shop(Journey(spark, tmp_path / "source", tmp_path, ("id",)), remote), IN_SHORT, counted)


@pytest.mark.soak
def test_next_run_recovers_from_many_killed_publishers(
    spark: SparkSession, remote: str, tmp_path: Path, counted: Counter[str]
) -> None:
    _kill_in_rounds(Shop(Journey(spark, tmp_path / "source", tmp_path, ("id",)), remote), IN_SOAK, counted)


@pytest.fixture(scope="module")
def walled(spark: SparkSession) -> Iterator[str]:
    with walled_server({"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2", **SEVERAL_FILES}) as address:
        yield address


@pytest.mark.soak
@pytest.mark.skipif(pyspark.__version__ < "4.1", reason="the walls need the Unix sockets of Spark 4.1")
def test_next_run_recovers_from_drivers_killed_with_a_staging_path(
    spark: SparkSession, walled: str, tmp_path: Path, counted: Counter[str]
) -> None:
    shop = Shop(Journey(spark, tmp_path / "source", tmp_path, ("id",)), walled, staging_path=True)
    _kill_in_rounds(shop, IN_SOAK, counted)


def _kill_in_rounds(shop: Shop, rounds: int, counted: Counter[str]) -> None:
    print(f"MIRRORFEED_SEED={SEED} repeats the moments")
    choose = random.Random(SEED)
    shop.open()
    shop.publish()  # the server is warm after this
    shop.trade(choose)
    seconds = shop.publish()
    killed = 0
    while killed < rounds:
        shop.trade(choose)
        phase = shop.publish_and_kill(shop.moment(choose, seconds))
        killed += phase != ENDED
        counted[f"publishers {phase}"] += 1
        if choose.random() < 0.25:
            shop.check()
    shop.check()
