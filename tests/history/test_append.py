"""Appends to a history, without Spark."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest

from mirrorfeed.config.model import Table
from mirrorfeed.config.options import HistoryLocation
from mirrorfeed.history import append
from mirrorfeed.history.append import append_versions
from mirrorfeed.history.errors import HistoryChangedError
from mirrorfeed.history.history_table import HistoryView
from mirrorfeed.landing.names import Target
from mirrorfeed.runtime.spark_errors import EXPIRED, FILES_GONE, LOG_GONE
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.snapshot_or_range import Facts
from tests.history.test_history_record import NOON, records

NO_SPARK: Any = None


class DeltaError(Exception):
    def getCondition(self) -> str:
        return str(self)


class Stored:
    """A history with one record, which is due to be repeated. `append` fails with `error`, or has no effect."""

    table = Source(path="/history")
    error: Exception | None = None
    (record,) = records((None, 5))

    def __init__(self, *_: Any) -> None: ...

    def read_view(self) -> HistoryView:
        return HistoryView(1, (self.record,), {}, 10, maps_columns=False)

    def append(self, *_: Any) -> None:
        if self.error:
            raise self.error


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Table:
    record = Stored.record
    monkeypatch.setattr(append, "HistoryTable", Stored)
    monkeypatch.setattr(append, "read_facts", lambda *_: Facts(record.source_id, 5, (), partitions=record.partitions))
    monkeypatch.setattr(append, "is_same_table", lambda *_: True)
    monkeypatch.setattr(append, "lossless_settings", lambda _: nullcontext())
    table = Table(source=Source(path="/orders"), target=Target.parse("orders"))
    return table.model_copy(update={"history": HistoryLocation(location=Stored.table)})


@pytest.mark.parametrize("condition", [LOG_GONE[0], FILES_GONE[0], EXPIRED])
def test_error_of_a_history_is_not_reported_as_an_error_of_its_source(
    table: Table, condition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Stored, "error", DeltaError(condition))
    with pytest.raises(DeltaError, match=condition):
        append_versions(NO_SPARK, table, now=lambda: NOON + timedelta(days=9))


def test_record_that_delta_accepts_only_once_is_reported(table: Table) -> None:
    with pytest.raises(HistoryChangedError) as caught:
        append_versions(NO_SPARK, table, now=lambda: NOON + timedelta(days=9))
    assert str(caught.value).startswith(
        "The history /history was restored to a version before record 2. Delta accepts each record number once, so"
        " record 2 cannot be appended again. Find the version that contains record 2 with `DESCRIBE HISTORY`,"
    )
