"""Numbers of rows from Delta logs: by partition, at older versions, and where the log does not show them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from fixtures.memory import MemoryStore
from mirrorfeed.landing.delivery import Delivery
from mirrorfeed.mirror.row_counts import CountComparison, RowCounts, _differing, count_rows, why_unknown
from mirrorfeed.publish.table_log import TableLog
from mirrorfeed.storage.local_folder import FolderStore
from tests.publish.scenarios import snapshot_and_range
from tests.support.entries import FOLDER, entry


def _write(place: Path, days: list[str | None]) -> None:
    write_deltalake(
        str(place),
        pa.table({"day": pa.array(days, pa.string()), "n": range(len(days))}),
        mode="append",
        partition_by=["day"],
    )


def test_rows_are_counted_by_partition_at_each_version(tmp_path: Path) -> None:
    _write(tmp_path, ["a", "a", None])
    _write(tmp_path, ["b"])
    DeltaTable(str(tmp_path)).create_checkpoint()
    _write(tmp_path, ["b"])
    store = FolderStore(str(tmp_path))
    a, b, none = ((("day", value),) for value in ("a", "b", None))
    assert count_rows(store, "") == RowCounts(5, {a: 2, b: 2, none: 1})
    assert count_rows(store, "", 0) == RowCounts(3, {a: 2, none: 1})
    found = _differing(count_rows(store, ""), count_rows(store, "", 0))
    assert [str(each) for each in found] == ["day = b: 2 rows in the source, 0 rows in the mirror"]
    assert _differing(count_rows(store, ""), RowCounts(4, {(): 4})) == ()
    assert count_rows(store, "missing") == RowCounts(None, unknown="no commits")
    assert count_rows(store, "", 9) == RowCounts(None, unknown="a version that is not there")


def test_equal_totals_with_different_partitions_differ() -> None:
    counts = [RowCounts(3, {(("day", "a"),): first, (("day", "b"),): 3 - first}) for first in (1, 2)]
    found = CountComparison(7, 3, 3, differences=_differing(*counts))
    assert found.equal is False
    assert str(found) == "DIFFERENT at version 7: 3 rows in the source, 3 in the mirror, 2 partitions differ"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, ""),
        ({"where": "id > 1"}, "the Delta log does not show how many rows match `where`"),
        ({"delivery": Delivery("soft_delete")}, "with `delivery: soft_delete`, the mirror has other rows than"),
    ],
)
def test_tables_whose_logs_cannot_show_it_are_not_known(options: dict[str, object], reason: str) -> None:
    store = MemoryStore()
    snapshot_and_range(store)
    view = TableLog(store, FOLDER).read_view()
    assert view
    assert view.newest
    from dataclasses import replace

    record = replace(view.newest, delivery=options.pop("delivery", view.newest.delivery))
    assert why_unknown(entry(**options), record).startswith(reason)
