"""Follow a table for half an hour while it is written, compacted, vacuumed and restored, and followers are killed.

No row is lost or duplicated. The test reports how long commits waited for their file."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mirrorfeed.publish.table_log import TableLog
from tests.support.delta import DeltaTable
from tests.support.journeys import FOLDER, Journey, newest_version

MINUTES = float(os.environ.get("MIRRORFEED_SOAK_MINUTES", "30"))
SEED = int(os.environ.get("MIRRORFEED_SEED", "20261121"))
SECONDS = float(os.environ.get("MIRRORFEED_SOAK_SECONDS", "5"))
"""Limit of `max_delay_seconds`."""
STATEMENTS = {
    "merge": 45,
    "update": 25,
    "delete": 14,
    "optimize": 7,
    "vacuum": 5,
    "restore": 4,
}


@pytest.mark.soak
def test_mirror_is_equal_after_half_an_hour_of_kills_while_following(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    soak = Soak(spark, tmp_path)
    try:
        soak.run(time.monotonic() + MINUTES * 60)
    finally:
        spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    with capsys.disabled():
        print(f"\n{soak.summary()}")
    assert soak.counted["SIGKILL"]
    assert soak.counted["SIGTERM"]


class Soak:
    def __init__(self, spark: SparkSession, place: Path) -> None:
        self.random, self.counted = random.Random(SEED), Counter[str]()
        properties = {"delta.deletedFileRetentionDuration": "interval 25 minutes"}
        self.table = DeltaTable(spark, place / "source", properties=properties)
        self.journey = Journey(spark, place / "source", place, ("id",))
        (place / "zone").mkdir()
        self.file = place / "mirrorfeed.yml"
        self.file.write_text(
            f"landing_zone: {place}/zone\nfollow: {{max_delay_seconds: {SECONDS}}}\nmax_versions_per_publication: 3\n"
            f"tables:\n  - {{source: {place}/source, target: s.t, keys: [id]}}\n",
            encoding="utf-8",
        )
        self.messages = place / "messages.txt"
        self.waited: list[float] = []
        """Seconds from a commit's file to the record that contains it."""
        self._measured = 0

    def run(self, end: float) -> None:
        follower = self.start()
        while time.monotonic() < end:
            until = time.monotonic() + self.random.uniform(20, 60)  # of a follower that started to follow
            while time.monotonic() < min(end, until):
                self.change(self.random.choices([*STATEMENTS], [*STATEMENTS.values()])[0])
                self.measure()
                time.sleep(self.random.uniform(0.2, 1.5))
            self.end(follower, killed=self.counted["SIGKILL"] <= self.counted["SIGTERM"])
            self.journey.replicate()
            follower = self.start()
        self.end(follower, killed=False)
        self.journey.publish()
        self.journey.replicate()
        self.journey.check(newest_version(self.journey.source))
        self.journey.check_files()

    def change(self, kind: str) -> None:
        i, note = self.random.randrange(40), f"'{kind} {self.counted.total()}'"
        match kind:
            case "merge":
                self.table.sql(
                    f"MERGE INTO {{}} t USING (SELECT {i} AS id, {note} AS v) s ON t.id = s.id"
                    " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
                )
            case "update":
                self.table.sql(f"UPDATE {{}} SET v = concat(v, '!') WHERE id % 5 = {i % 5}")
            case "delete":
                self.table.sql(f"DELETE FROM {{}} WHERE id = {i}")
            case "restore":
                version = max(1, newest_version(self.journey.source) - 3)
                self.table.sql(f"RESTORE TABLE {{}} TO VERSION AS OF {version}")
            case _:
                self.table.sql(f"{kind} {{}}")
        self.counted[kind] += 1

    def start(self) -> subprocess.Popen[bytes]:
        """Make a change, start a follower, and wait until it has published the change."""
        self.change("merge")
        changed = newest_version(self.journey.source)
        with self.messages.open("ab") as output:
            command = [sys.executable, "-m", "mirrorfeed.cli", "publish", "--follow", "--config", str(self.file)]
            follower = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        while self._published() < changed:
            assert follower.poll() is None, self.messages.read_text()
            time.sleep(0.2)
        return follower

    def end(self, follower: subprocess.Popen[bytes], *, killed: bool) -> None:
        """Stop a follower and check that it leaves a clean state."""
        if killed:
            follower.kill()
            follower.wait()
            self.counted["SIGKILL"] += 1
            return
        follower.send_signal(signal.SIGTERM)
        # A follower that is stopped exits with 1 if the source has newer versions.
        assert follower.wait(300) in (0, 1), self.messages.read_text()
        assert "MF" not in self.messages.read_text(), self.messages.read_text()
        view = TableLog(self.journey.zone, FOLDER).read_view()
        assert view is None or not (view.unfinished or view.leftovers() or view.staged)
        self.counted["SIGTERM"] += 1

    def measure(self) -> None:
        """Measure versions recorded since the last call. Commit files of versions exist for one day."""
        view = TableLog(self.journey.zone, FOLDER).read_view()
        newest = view.newest if view else None
        if newest is None or newest.number == self._measured:
            return
        self._measured = newest.number
        begin = newest.from_version_exclusive
        if begin is None:
            return
        for version in range(begin + 1, newest.to_version_inclusive + 1):
            self.waited.append(newest.at.timestamp() - self.table.commit_file(version).stat().st_mtime)

    def summary(self) -> str:
        view = TableLog(self.journey.zone, FOLDER).read_view()
        assert view is not None
        assert view.newest is not None
        waited = sorted(self.waited)
        assert waited, "nothing was published as a range while it was looked at"
        median, late = (waited[int(len(waited) * share)] for share in (0.5, 0.95))
        counted = ", ".join(f"{count} {kind}" for kind, count in self.counted.items())
        return (
            f"{MINUTES:g} minutes, at most {SECONDS:g} s: {counted}; {newest_version(self.journey.source)} versions,"
            f" {view.newest.number} publications, {view.newest.next_file_number - 1} files; commit to record, of"
            f" {len(waited)} versions: median {median:.1f} s, 95th percentile {late:.1f} s; equal"
        )

    def _published(self) -> int:
        view = TableLog(self.journey.zone, FOLDER).read_view()
        return view.newest.to_version_inclusive if view and view.newest else -1
