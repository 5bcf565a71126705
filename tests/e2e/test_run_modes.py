"""All ways to run publish one table, in turn and two at a time, each with a crash. The mirror stays exact."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from fixtures.faults import Crash
from mirrorfeed.cli import main
from mirrorfeed.config.loader import load
from mirrorfeed.config.model import Config
from mirrorfeed.orchestration.follow import publisher
from mirrorfeed.orchestration.publish_run import publish_tables
from mirrorfeed.orchestration.run_context import Callbacks, RunContext
from mirrorfeed.storage.local_folder import FolderStore
from tests.support.clock import FakeClock
from tests.support.delta import DeltaTable, Zone

Way = Callable[[SparkSession, Config], object]


def by_a_job(_: SparkSession, config: Config) -> None:
    found = CliRunner().invoke(main, ["publish", "--config", config.path], catch_exceptions=False)
    assert found.exit_code == 0, found.output


def by_following(spark: SparkSession, config: Config) -> None:
    ended: list[object] = []
    stop, sleep = lambda: bool(ended), lambda _: None
    publish_tables(
        RunContext(
            spark, config, callbacks=Callbacks(on_done=ended.append, stop=stop), clock=FakeClock(sleep), follows=True
        )
    )


def by_a_stream(spark: SparkSession, config: Config) -> None:
    publisher(config)(spark.range(0), 0)


def by_a_notebook(spark: SparkSession, config: Config) -> None:
    _succeeds(publish_tables(RunContext(spark, config, clock=FakeClock())))


def _succeeds(outcomes: list[Any]) -> None:
    assert [outcome.error for outcome in outcomes] == [None]


WAYS: list[Way] = [by_a_job, by_following, by_a_stream, by_a_notebook]
CHANGES = [
    "INSERT INTO {} VALUES (1, 'a'), (2, 'b'), (3, 'c')",
    "UPDATE {} SET id = id + 10 WHERE id < 3",
    "DELETE FROM {} WHERE id = 3",
    "RESTORE TABLE {} TO VERSION AS OF 1",
    "INSERT INTO {} VALUES (7, 'again')",
    "UPDATE {} SET v = 'at last' WHERE id > 1",
]


class _Crashing:
    """Ends the driver at a call of one verb, before or after it took effect."""

    def __init__(self, patch: pytest.MonkeyPatch, verb: str, *, after: bool) -> None:
        self._patch, self._verb, self._after = patch, verb, after

    def __enter__(self) -> None:
        original = getattr(FolderStore, self._verb)

        def crash(store: FolderStore, *arguments: Any) -> None:
            if self._after:
                original(store, *arguments)
            raise Crash

        self._patch.setattr(FolderStore, self._verb, crash)

    def __exit__(self, *_: object) -> None:
        self._patch.undo()


def test_table_stays_exact_across_all_ways_of_running_with_crashes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = DeltaTable(spark, tmp_path / "t")
    zone = Zone(tmp_path / "landing", table)
    text = "landing_zone: ./landing\ntables:\n  - {source: ./t, target: sales.orders, keys: [id]}\n"
    (tmp_path / "mirrorfeed.yml").write_text(text, encoding="utf-8")
    config = load(str(tmp_path / "mirrorfeed.yml"))
    changes = iter(CHANGES)

    crashes = [("rename", False), ("create", True), ("rename", True), ("create", False)]
    for crashed, (verb, after) in zip(WAYS, crashes, strict=True):
        table.sql(next(changes))
        with _Crashing(monkeypatch, verb, after=after), suppress(Crash):
            crashed(spark, config)
            pytest.fail("nothing crashed")
        WAYS[WAYS.index(crashed) - 1](spark, config)
        assert zone.mirrors_the_table(), f"after {crashed.__name__} crashed"

    for one, other in ((by_a_notebook, by_a_stream), (by_following, by_a_job)):
        table.sql(next(changes))
        with ThreadPoolExecutor(2) as pool:
            both = [pool.submit(partial(way, spark, config)) for way in (one, other)]
        for each in both:
            each.result()
        assert zone.mirrors_the_table(), f"after {one.__name__} and {other.__name__} at once"

    files = [*zone.folder.glob("_ProcessedFiles/*.parquet"), *zone.folder.glob("*.parquet")]
    numbers = sorted(int(path.stem) for path in files)
    assert numbers == list(range(1, len(numbers) + 1))
    assert zone.record["to_version_inclusive"] == table.latest
