"""Find the file of a record when its final name is already used or a staged file is incomplete."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from fixtures.faults import Crash
from fixtures.shared_faults import NoRenames
from mirrorfeed.cli import main
from mirrorfeed.config.model import Config
from mirrorfeed.landing.log_record import FullRead
from mirrorfeed.publish.table_log import TableLog
from mirrorfeed.publish.table_log.audit import describe_publication, mirror_positions
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.storage.local_folder import FolderStore
from tests.publish.scenarios import FOLDER, plan, two_orders
from tests.support.tables import TableFeed

PLAN = plan(target_file_size=10_000)


def audit_lines(tmp_path: Path, table: str = "sales.orders", *options: str) -> tuple[int, list[str]]:
    path = tmp_path / "mirrorfeed.yml"
    path.write_text(f"landing_zone: {tmp_path}/zone\ntables:\n  - {{source: a, target: sales.orders, keys: [id]}}\n")
    ended = CliRunner().invoke(main, ["log", table, *options, "--config", str(path)])
    return ended.exit_code, ended.stdout.splitlines()


def test_compared_publication_reports_number_of_rows_read(tmp_path: Path) -> None:
    store = FolderStore(str(tmp_path / "zone"))
    publish(TableFeed(two_orders()), store, PLAN)
    view = TableLog(store, FOLDER).read_view()
    assert view is not None
    assert view.newest is not None
    record = replace(view.newest, from_version_exclusive=0, read=FullRead(3, 0.5))
    assert describe_publication(record) == "version 1, 3 rows compared"


def test_publication_is_not_in_the_mirror_before_its_files_are_renamed(tmp_path: Path) -> None:
    with pytest.raises(Crash):
        publish(TableFeed(two_orders()), NoRenames(str(tmp_path / "zone")), PLAN)
    config = Config(landing_zone=str(tmp_path / "zone"), tables=(PLAN,))
    ((_, view, candidates),) = mirror_positions(config)
    assert view is not None
    assert (view.number, candidates) == (1, ())

    publish(TableFeed(two_orders()), FolderStore(str(tmp_path / "zone")), PLAN)
    ((_, _, candidates),) = mirror_positions(config)
    assert [record.number for record in candidates] == [1]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not the file: it has 0 bytes, but the record has"),
        (None, "not the file: it has the"),
    ],
    ids=["empty, as a creation that took effect late leaves it", "of the same size"],
)
def test_audit_names_file_that_differs_from_its_record(tmp_path: Path, content: bytes | None, words: str) -> None:
    with pytest.raises(Crash):
        publish(TableFeed(two_orders()), NoRenames(str(tmp_path / "zone")), PLAN)
    store = FolderStore(str(tmp_path / "zone"))
    view = TableLog(store, FOLDER).read_view()
    assert view is not None
    assert view.newest is not None
    other = bytes(view.newest.files[0].bytes) if content is None else content
    store.create(f"{FOLDER}/00000000000000000001.parquet", other)

    code, lines = audit_lines(tmp_path)

    assert code == 1
    assert "the file, " in lines[-1]
    wrong = next(line for line in lines if line.startswith("sales.orders: "))
    assert wrong.startswith(f"sales.orders: {tmp_path}/zone/{FOLDER}/00000000000000000001.parquet: {words}")
