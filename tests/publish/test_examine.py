"""Which file is the one that a record names, where its final name is taken or a staged file is not whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fixtures.faults import Crash
from fixtures.shared_faults import NoRenames
from fixtures.tables import TableFeed
from mirrorfeed.cli import main
from mirrorfeed.publish import ledger
from mirrorfeed.publish.commit import TableLog
from mirrorfeed.publish.table import publish
from mirrorfeed.stores import FolderStore
from tests.publish.scenes import FOLDER, plan, two_orders

PLAN = plan(file_size=10_000)


def said(tmp_path: Path, table: str = "sales.orders", *options: str) -> tuple[int, list[str]]:
    path = tmp_path / "mirrorfeed.yml"
    path.write_text(f"landing_zone: {tmp_path}/zone\ntables:\n  - {{source: a, target: sales.orders, keys: [id]}}\n")
    ended = CliRunner().invoke(main, ["log", table, *options, "--config", str(path)])
    return ended.exit_code, ended.stdout.splitlines()


def test_a_table_without_a_log_is_told(tmp_path: Path) -> None:
    assert said(tmp_path) == (
        0,
        [f"{tmp_path}/zone/{FOLDER} has no log: nothing was published there."],
    )


def test_publications_and_their_files_are_shown(tmp_path: Path) -> None:
    store, table = FolderStore(str(tmp_path / "zone")), two_orders()
    publish(TableFeed(table), store, PLAN)
    table.update(1, status="paid")
    publish(TableFeed(table), store, PLAN)
    (newest, first) = TableLog(store, FOLDER).records(TableLog(store, FOLDER).look())  # type: ignore[arg-type]

    code, lines = said(tmp_path)

    assert (code, lines[1:3], lines[3:]) == (
        0,
        [
            f"  record 1 of {first.time}: snapshot at version 1, 2 rows, 1 file",
            f"  record 2 of {newest.time}: version 2, 1 row, 1 file",
        ],
        [
            f"{tmp_path}/zone/{FOLDER}/00000000000000000002.parquet: the file, {newest.files[0].bytes:,} bytes,"
            " with the checksum of the record"
        ],
    )


def test_programs_are_told_the_same_under_the_names_of_the_ledger(tmp_path: Path) -> None:
    def told() -> dict[str, Any]:
        found: dict[str, Any] = json.loads("".join(said(tmp_path, "sales.orders", "--json")[1]))
        return found

    assert told() == {"log": None, "follows_on": None, "records": [], "files": [], "error": None}
    store, table = FolderStore(str(tmp_path / "zone")), two_orders()
    publish(TableFeed(table), store, PLAN)
    table.update(1, status="paid")
    publish(TableFeed(table), store, PLAN)

    found = told()

    newest = found["records"][0]
    names = {name for name, _, _ in ledger.COLUMNS}
    assert newest.keys() - names == {"record", "from_version_exclusive", "to_version_inclusive"}
    assert [
        newest[name] for name in ("record", "from_version_exclusive", "to_version_inclusive", "upserts", "files")
    ] == [2, 1, 2, 1, 1]
    assert [place["is_the_file"] for place in found["files"]] == [False, True]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not the file: it has 0 bytes, and the record says"),
        (None, "not the file: it has the"),
    ],
    ids=["empty, as a creation that took effect late leaves it", "of the same size"],
)
def test_of_two_files_the_one_that_the_record_names_is_told(tmp_path: Path, content: bytes | None, words: str) -> None:
    with pytest.raises(Crash):
        publish(TableFeed(two_orders()), NoRenames(str(tmp_path / "zone")), PLAN)
    store = FolderStore(str(tmp_path / "zone"))
    view = TableLog(store, FOLDER).look()
    assert view is not None
    assert view.newest is not None
    other = bytes(view.newest.files[0].bytes) if content is None else content
    store.create(f"{FOLDER}/00000000000000000001.parquet", other)

    code, lines = said(tmp_path)

    assert code == 1
    assert "the file, " in lines[-2]
    assert lines[-1].startswith(f"{tmp_path}/zone/{FOLDER}/00000000000000000001.parquet: {words}")
