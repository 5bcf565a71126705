"""A stream that drives publication: whatever becomes of its checkpoint, the mirror is right."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mirrorfeed.config import Config, load
from mirrorfeed.errors import MirrorfeedError
from mirrorfeed.feed.source import Source
from mirrorfeed.feed.stream import StreamBroken, StreamOptionUnknown, StreamStartGone, fault
from mirrorfeed.publish.stream import drain, publisher
from mirrorfeed.publish.view import ForeignFile
from tests.delta import DeltaTable, Zone


class Streamed:
    """A table with a stream over it, and a mirror."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.checkpoint = spark, folder / "checkpoint"
        self.table = DeltaTable(spark, folder / "t")
        self.zone = Zone(folder / "landing", self.table)
        tables = "tables:\n  - {source: ./t, target: sales.orders, keys: [id]}\n"
        (folder / "mirrorfeed.yml").write_text(f"landing_zone: ./landing\n{tables}", encoding="utf-8")
        self.config: Config = load(str(folder / "mirrorfeed.yml"))
        self.troubles: list[MirrorfeedError] = []

    def drain(self, **options: str) -> int | None:
        (outcome,) = drain(self.spark, self.config, "sales.orders", str(self.checkpoint), options, self.troubles.append)
        assert outcome.error is None, outcome.error
        return outcome.progress.publications


def test_a_checkpoint_that_is_lost_damaged_or_ahead_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    streamed = Streamed(spark, tmp_path)
    table, zone, checkpoint = streamed.table, streamed.zone, streamed.checkpoint
    table.insert(1, 2, 3)
    assert streamed.drain(maxFilesPerTrigger="1") == 1
    assert streamed.drain() == 0
    table.sql("UPDATE {} SET v = 'changed' WHERE id = 2")
    shutil.rmtree(checkpoint)
    assert streamed.drain() == 1  # the stream begins with a snapshot again, and publication goes on where it was
    assert [row["id"] for row in zone.last] == [2]
    assert streamed.troubles == []

    table.sql("DELETE FROM {} WHERE id = 1")
    for kept in checkpoint.glob("offsets/*"):  # with their checksums
        kept.unlink() if kept.suffix == ".crc" else kept.write_text("damaged", encoding="utf-8")
    assert streamed.drain() == 1
    (broken,) = streamed.troubles
    assert isinstance(broken, StreamBroken)
    assert f"with the checkpoint {checkpoint} does not go on: " in str(broken)
    assert "Delete the checkpoint, or name another one: nothing is lost or doubled by that" in str(broken)

    shutil.rmtree(checkpoint)
    streamed.drain()
    shutil.rmtree(zone.folder)  # the checkpoint is ahead of a landing zone where nothing is any more
    assert streamed.drain() == 1
    assert zone.mirrors_the_table()


def test_a_start_that_is_not_in_the_history_is_named_and_nothing_is_published(
    spark: SparkSession, tmp_path: Path
) -> None:
    streamed = Streamed(spark, tmp_path)
    for id_ in range(4):
        streamed.table.insert(id_)
        if id_ == 1:
            streamed.table.checkpoint()
    for version in (0, 1):
        streamed.table.commit_file(version).unlink()
    with pytest.raises(StreamStartGone) as gone:
        streamed.drain(startingVersion="1")
    assert f"The stream over {streamed.table.source} cannot begin at startingVersion 1, which is" in str(gone.value)
    assert "Available versions: [2, 4]" in str(gone.value)
    assert not streamed.zone.folder.exists()
    with pytest.raises(StreamOptionUnknown, match=r"no option 'endingVersion' here\. Known are startingVersion, "):
        streamed.drain(endingVersion="3")


def test_a_stream_of_ones_own_publishes_in_its_batches_and_a_failure_fails_the_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    streamed = Streamed(spark, tmp_path)
    streamed.table.insert(1)

    def run() -> None:
        rows = spark.readStream.format("delta").option("readChangeFeed", "true").load(str(streamed.table.path))
        writer = rows.writeStream.foreachBatch(publisher(streamed.config, "sales.orders"))
        writer.option("checkpointLocation", str(streamed.checkpoint)).trigger(
            availableNow=True
        ).start().awaitTermination()

    run()
    assert streamed.zone.mirrors_the_table()
    streamed.table.insert(2)
    stranger = streamed.zone.folder / "a stranger.parquet"
    stranger.touch()
    with pytest.raises(Exception, match=ForeignFile.__name__):
        run()
    stranger.unlink()
    run()
    assert streamed.zone.mirrors_the_table()


IN_DELTA_4_0 = "Cannot time travel Delta table to version 3. Available versions: [5, 8]"


@pytest.mark.parametrize(
    ("options", "text", "kind", "reason"),
    [
        (
            {"startingVersion": "3"},
            "Query [id] terminated with exception: [DELTA_VERSION_NOT_FOUND] Cannot. Available: [5, 8]. SQLSTATE: X",
            StreamStartGone,
            "[DELTA_VERSION_NOT_FOUND] Cannot. Available: [5, 8]",
        ),
        (
            {"startingVersion": "3"},
            f"[STREAM_FAILED] Query [id] terminated with exception: {IN_DELTA_4_0}.",
            StreamStartGone,
            IN_DELTA_4_0,
        ),
        ({}, "Query [id] terminated with exception: [DELTA_VERSION_NOT_FOUND] Cannot.", StreamBroken, "Cannot"),
        ({"startingVersion": "3"}, "[DELTA_STREAMING_INCOMPATIBLE_SCHEMA] Rename", StreamBroken, "Rename"),
    ],
)
def test_a_failure_of_a_stream_means(options: Mapping[str, str], text: str, kind: type, reason: str) -> None:
    found = fault(Source(path="/t"), "/checkpoint", options, ValueError(text))
    assert type(found) is kind
    assert f"{reason}. " in str(found)
