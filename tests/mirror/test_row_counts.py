"""Numbers of rows from Delta logs: by partition, at older versions, and where the log does not show them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake

from fixtures.memory import MemoryStore
from fixtures.onelake import DATABASE, OneLake
from mirrorfeed.cli import main
from mirrorfeed.config.loader import load
from mirrorfeed.landing.delivery import Delivery
from mirrorfeed.landing.names import data_name
from mirrorfeed.mirror.row_counts import CountComparison, RowCounts, _differing, count_rows, why_unknown
from mirrorfeed.publish.table_log import TableLog
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.storage.local_folder import FolderStore
from tests.publish.scenarios import snapshot_and_range
from tests.support.entries import FOLDER, entry
from tests.support.tables import Table, TableFeed


def _write(place: Path, days: list[str | None]) -> None:
    write_deltalake(
        str(place),
        pa.table({"day": pa.array(days, pa.string()), "n": pa.array(range(len(days)), pa.int64())}),
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


def test_mirror_in_onelake_is_counted_from_its_log(onelake: OneLake, tmp_path: Path) -> None:
    """The numbers of rows are those of the version that the mirror has, also while Fabric lags."""
    source, mirror, store = tmp_path / "source", tmp_path / "mirror", onelake.store()
    written = f"tables:\n  - {{source: {source}, target: sales.orders, keys: [n]}}\n"
    (tmp_path / "mirrorfeed.yml").write_text(onelake.configuration() + written, encoding="utf-8")
    (table,) = load(tmp_path / "mirrorfeed.yml").tables
    rows = Table({"day": "string", "n": "long"}, ("n",))

    def publish_rows(*days: str | None) -> None:
        if not source.exists():
            _write(source, [])
        _write(source, list(days))
        rows.insert(*({"day": day, "n": rows.latest * 10 + at} for at, day in enumerate(days)))
        publish(TableFeed(rows), store, table)

    def mirror_rows(*days: str | None) -> None:
        _write(mirror, list(days))
        for file in (mirror / "_delta_log").glob("*.json"):
            address = f"{DATABASE}/Tables/sales/orders/_delta_log/{file.name}"
            onelake.files.put_blob(address, file.read_bytes(), if_absent=False)

    def quick() -> str:
        arguments = ["verify", "--quick", "--json", "--config", str(tmp_path / "mirrorfeed.yml")]
        (found,) = json.loads(CliRunner().invoke(main, arguments).stdout)["rows"]
        return str(found["what"] if found["error"] is None else found["error"]["code"])

    publish_rows("a", "a", None)
    assert quick() == "not known at version 1: the log of the mirror has no commits"
    store.remove(f"{table.target.folder}/{data_name(1)}")  # Fabric has consumed it
    mirror_rows("a", "a", None)
    assert quick() == "as many rows at version 1, 3 counted"
    publish_rows("b")
    assert quick() == "as many rows at version 1, 3 counted"
    mirror_rows("b")
    assert quick() == "as many rows at version 2, 4 counted"
    store.remove(f"{table.target.folder}/{data_name(2)}")
    mirror_rows("a")
    assert quick() == "DIFFERENT at version 2: 4 rows in the source, 5 in the mirror, 1 partitions differ"
