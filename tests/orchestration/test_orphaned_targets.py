from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mirrorfeed.cli import main
from mirrorfeed.config.loader import load
from mirrorfeed.config.model import Config
from mirrorfeed.config.pattern_expansion import select_matches
from mirrorfeed.orchestration.errors import orphaned_tables
from mirrorfeed.orchestration.orphaned_targets import find_orphans, orphans_problem
from mirrorfeed.orchestration.table_task import TableTask
from mirrorfeed.publish.errors import FileNumberConflictError
from mirrorfeed.publish.table_log import TableLog
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.publish.table_result import TableResult
from mirrorfeed.runtime import spark_session
from mirrorfeed.source import catalog
from mirrorfeed.source.identifier import FoundTable, Source
from mirrorfeed.storage.local_folder import FolderStore
from tests.publish.scenarios import two_orders
from tests.support.entries import entry
from tests.support.fleets import fleet
from tests.support.json_output import run_json
from tests.support.tables import TableFeed

Published = Callable[..., tuple[FolderStore, Config]]


@pytest.fixture
def published(tmp_path: Path) -> Published:
    """A landing zone with these tables, and a configuration that contains only sales.orders."""

    def make(*targets: str) -> tuple[FolderStore, Config]:
        store = FolderStore(str(tmp_path / "zone"))
        for target in targets:
            publish(TableFeed(two_orders()), store, entry("a", target))
        (tmp_path / "mirrorfeed.yml").write_text(
            "landing_zone: ./zone\ntables:\n  - {source: a, target: sales.orders, keys: [id]}\n"
        )
        return store, load(tmp_path / "mirrorfeed.yml")

    return make


def test_published_tables_missing_from_the_configuration_are_found(published: Published) -> None:
    store, config = published("sales.orders", "sales.old", "alone")
    store.create("_partnerEvents.json", b"{}")
    store.create("theirs/00000000000000000001.parquet", b"of another publisher")
    store.create("sales.schema/theirs/_metadata.json", b"{}")
    store.create("refused/00000000000000000001.parquet", b"of another publisher, into whose folder we looked once")
    store.create("refused/_mirrorfeed/log.json", b'{"log_id": "abc"}')
    store.create("odd/_mirrorfeed/log.json", b"nothing that we wrote")
    for state in ("begun", "described"):
        store.create(f"{state}/_mirrorfeed/log.json", b'{"log_id": "abc"}')
    store.create("described/_metadata.json", b'{"keyColumns": ["id"]}')
    assert [str(target) for target in find_orphans(store, config)] == ["alone", "begun", "described", "sales.old"]


def test_target_that_differs_only_in_case_is_the_same_table(published: Published) -> None:
    store, config = published("Sales.Orders")
    assert find_orphans(store, config) == []


def test_source_no_longer_matched_by_a_pattern_is_reported_but_not_removed(
    published: Published, tmp_path: Path
) -> None:
    store, _ = published("sales.orders", "sales.old")
    (tmp_path / "mirrorfeed.yml").write_text("landing_zone: ./zone\ntables: [{sources: sales.*}]\n")
    found = [FoundTable(Source(("sales", "orders")))]
    orphans = orphans_problem(select_matches(load(tmp_path / "mirrorfeed.yml"), [found]).config)
    assert orphaned_tables.matches(orphans)
    assert (orphans.targets, orphans.path) == (("sales.old",), str(tmp_path / "mirrorfeed.yml"))
    assert store.list("sales.schema/old")


def test_up_to_date_run_reports_orphaned_tables_without_spark(
    published: Published, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, config = published("sales.orders", "sales.old")
    nothing_new = TableResult("sales.orders", "nothing new")
    monkeypatch.setattr(TableTask, "attempt_without_spark", lambda _: nothing_new)
    ended = CliRunner().invoke(main, ["publish", "--config", config.path])
    # Without patterns, a table is only removed on purpose.
    assert (ended.exit_code, "MF3408" in ended.output) == (0, False)
    file = tmp_path / "mirrorfeed.yml"
    file.write_text("landing_zone: ./zone\ntables: [{sources: sales.*}]\n")
    monkeypatch.setattr(catalog, "list_tables", lambda *_: [FoundTable(Source(("sales", "orders")))])
    ended = CliRunner().invoke(main, ["publish", "--config", str(file)])
    assert ended.exit_code == 0
    assert "no longer selects: sales.old" in " ".join(ended.output.split())
    ended = CliRunner().invoke(main, ["publish", "sales.orders", "--config", str(file)])
    assert (ended.exit_code, "MF3408" in ended.output) == (0, False)


@pytest.mark.parametrize("command", ["doctor", "status", "tables", "check-alerts", "lint zone"])
def test_each_command_names_tables_without_an_entry_unless_they_may_be_of_other_configurations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    fleet(tmp_path, 2)
    publish(TableFeed(two_orders()), FolderStore(str(tmp_path / "zone")), entry("b", "hr.people"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(spark_session, "get_session", lambda: pytest.fail("Spark was started"))

    def orphans(more: str) -> list[str]:
        table = "{source: ./source, target: sales.t0, keys: [id]}"
        Path("mirrorfeed.yml").write_text(f"landing_zone: ./zone\n{more}tables: [{table}]\n")
        output = CliRunner().invoke(main, command.split()).output
        Path("zone/_mirrorfeed/alerts.json").unlink(missing_ok=True)
        assert "mirrorfeed drop" in output
        return [name for name in ("hr.people", "sales.t1") if name in output]

    assert orphans("") == ["hr.people", "sales.t1"]
    assert orphans("shared_landing_zone: true\n") == ["sales.t1"]  # the source is published as sales.t0


def run(config: Config, *arguments: str, answer: str = "") -> tuple[int, str]:
    ended = CliRunner().invoke(main, ["drop", *arguments, "--config", config.path], input=answer)
    return ended.exit_code, ended.output


def test_table_is_dropped_after_confirmation(published: Published) -> None:
    store, config = published("sales.orders", "sales.old")
    code, output = run(config, "sales.old", answer="n\n")
    assert (code, len(store.list("sales.schema"))) == (1, 2)
    view = TableLog(store, "sales.schema/old").read_view()
    assert view is not None
    assert view.newest is not None
    shown = (
        f"The folder {store.address('sales.schema/old')} is deleted with all its contents, and Fabric drops the table."
        f" It holds 1 data file. mirrorfeed published a there, up to version 1 on {view.newest.at:%Y-%m-%d %H:%M} UTC;"
        " the last 1 publication had 2 rows.\n"
    )
    assert output.startswith(shown)
    dropped = run_json("drop", "sales.old", "--yes", "--config", config.path)
    assert dropped.rows == [
        {
            "table": "sales.old", "address": store.address("sales.schema/old"), "files": 1, "rows": 2,
            "publications": 1, "hashes": None,
        }
    ]  # fmt: skip
    assert dropped.words == shown.strip()
    assert [entry.name for entry in store.list("sales.schema")] == ["orders"]


class OfComparison(TableFeed):
    def stage(self, *arguments: Any) -> Any:
        return super().stage(*arguments)._replace(rows_read=2)


@pytest.mark.parametrize(
    ("ledger", "place", "remove"),
    [
        ("main.ops.ledger", "main.ops.hashes_sales_old_5824a2da",
         "DROP TABLE `main`.`ops`.`hashes_sales_old_5824a2da`."),
        ("./ledger", "{root}/hashes_sales_old_5824a2da", "Delete that folder."),
    ],
)  # fmt: skip
def test_remaining_hashes_of_a_dropped_table_are_reported(
    published: Published, tmp_path: Path, ledger: str, place: str, remove: str
) -> None:
    store, config = published("sales.orders")
    publish(OfComparison(two_orders()), store, entry("a", "sales.old"))
    with (tmp_path / "mirrorfeed.yml").open("a", encoding="utf-8") as file:
        file.write(f"ledger: {ledger}\n")
    code, output = run(config, "sales.old", "--yes")
    assert code == 0
    hashes = place.format(root=tmp_path)
    assert output.endswith(
        f"The row hashes of the table, some with source rows, remain in {hashes}. To delete them: {remove}\n"
    )


def test_refused_publication_does_not_make_a_foreign_folder_droppable(published: Published) -> None:
    store, config = published("sales.orders")
    store.create("sales.schema/theirs/00000000000000000001.parquet", b"of another publisher")
    with pytest.raises(FileNumberConflictError):
        publish(TableFeed(two_orders()), store, entry("a", "sales.theirs"))
    assert find_orphans(store, config) == []
    code, output = run(config, "sales.theirs", "--yes")
    assert (code, [entry.name for entry in store.list("sales.schema/theirs")]) == (1, ["00000000000000000001.parquet"])
    assert "mirrorfeed did not publish sales.theirs there." in output


@pytest.mark.parametrize(("table", "code"), [("sales.orders", "MF3401"), ("sales.never", "MF3402")])
def test_configured_and_foreign_tables_are_not_dropped(published: Published, table: str, code: str) -> None:
    store, config = published("sales.orders")
    status, output = run(config, table, "--yes")
    assert (status, output.split(":")[0]) == (1, f"Error {code}")
    assert store.list("sales.schema/orders")
