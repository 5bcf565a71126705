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


@pytest.mark.parametrize("condition", [LOG_GONE[0], FILES_GONE[0], EXPIRED])
def test_error_of_a_history_is_not_reported_as_an_error_of_its_source(
    condition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (record,) = records((None, 5))

    class Damaged:
        table = Source(path="/history")

        def __init__(self, *_: Any) -> None: ...

        def read_view(self) -> HistoryView:
            return HistoryView(1, (record,), {}, 10, maps_columns=False)

        def append(self, *_: Any) -> None:
            raise DeltaError(condition)

    monkeypatch.setattr(append, "HistoryTable", Damaged)
    monkeypatch.setattr(append, "read_facts", lambda *_: Facts(record.source_id, 5, (), partitions=record.partitions))
    monkeypatch.setattr(append, "is_same_table", lambda *_: True)
    monkeypatch.setattr(append, "lossless_settings", lambda _: nullcontext())
    table = Table(source=Source(path="/orders"), target=Target.parse("orders"))
    table = table.model_copy(update={"history": HistoryLocation(location=Damaged.table)})
    with pytest.raises(DeltaError, match=condition):
        append_versions(NO_SPARK, table, now=lambda: NOON + timedelta(days=9))
