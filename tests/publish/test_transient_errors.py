"""Transient errors are retried, other errors are not, and the failure of one table never stops the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mirrorfeed.config.model import Config, Table
from mirrorfeed.landing.names import Target
from mirrorfeed.orchestration import publish_run, run_context
from mirrorfeed.source.identifier import Source
from mirrorfeed.storage import Writer
from mirrorfeed.storage.errors import StorageUnavailableError
from mirrorfeed.storage.local_folder import FolderStore
from tests.support.clock import FakeClock
from tests.support.delta import DeltaTable


class NoStaging(FolderStore):
    def open_write(self, path: str) -> Writer:
        raise StorageUnavailableError(action="write", address=self.address(path), reason="the service is busy")


def test_transient_store_errors_are_retried_with_growing_pauses(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = DeltaTable(spark, tmp_path / "orders")
    table.insert(1)
    orders = Table(source=table.source, target=Target.parse("orders"), keys=("id",))
    missing = Table(source=Source(path=str(tmp_path / "none")), target=Target.parse("none"), keys=("id",))
    config = Config(landing_zone=str(tmp_path / "zone"), tables=(orders, missing))
    monkeypatch.setattr(run_context, "zone_of", lambda config: NoStaging(config.landing_zone))
    pauses: list[float] = []
    busy, deleted = publish_run.publish_tables(
        run_context.RunContext(spark, config, clock=FakeClock(pauses.append, lambda: sum(pauses)))
    )
    assert (type(busy.error), busy.tries, pauses) == (StorageUnavailableError, 4, [2.0, 4.0, 8.0])
    assert f"Cannot write {tmp_path}/zone/orders/_mirrorfeed/" in str(busy.error)
    assert ": the service is busy. Check that the storage can be reached" in str(busy.error)
    assert (type(deleted.error).__name__, deleted.tries) == ("NoTableAtPathError", 1)

    monkeypatch.undo()
    (done,) = publish_run.publish_tables(
        run_context.RunContext(spark, config.model_copy(update={"entries": (orders,)}))
    )
    assert (done.error, done.rows, done.lag_versions) == (None, {"insert": 1}, 0)
