"""Change one option of a published table: the next publication continues, stops with an error, or is a new table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from fixtures.memory import MemoryStore
from fixtures.mirror import Mirror
from mirrorfeed.config.loader import load
from mirrorfeed.config.model import Config, Sources
from mirrorfeed.config.model import Table as ConfigTable
from mirrorfeed.config.tag_options import with_transformations
from mirrorfeed.errors import MirrorfeedError
from mirrorfeed.landing.output_format import Delimited
from mirrorfeed.orchestration.orphaned_targets import find_orphans
from mirrorfeed.orchestration.retry_policy import needs_reload
from mirrorfeed.publish.change_sources import ChangeSource
from mirrorfeed.publish.change_sources.errors import row_hashes_lost
from mirrorfeed.publish.change_sources.full_compare import FullCompare
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.source.snapshot_or_range import PublishedVersion
from tests.raised import raises
from tests.support.tables import Table, TableFeed
from tools.pages import ROOT

BASE = {"source": "main.sales.orders", "target": "sales.orders", "keys": ["id"]}
TEXT = {"format": "delimited"}
DECIMAL_AS_TEXT = {**TEXT, "cast": {"id": "decimal(20,0)"}, "delimited": {"undeclared_types": "string"}}
HASHED = {"transform": {"note": "hash"}, "hash_key": {"env": "FIRST_KEY"}}
CONTINUES = "continues"


@dataclass(frozen=True)
class Case:
    option: str
    """Name of the changed option."""
    new: Any
    result: str = CONTINUES
    """`CONTINUES`, or the code of the error."""
    before: Mapping[str, Any] = field(default_factory=dict)
    """Options of the first publication."""
    beside: Mapping[str, Any] = field(default_factory=dict)
    """Options that must change together with the option."""
    reloads: bool = False
    """True if a run reloads the table after the error."""

    def __str__(self) -> str:
        return f"{self.option}: {self.before.get(self.option, 'default')} to {self.new}"

    @property
    def tables(self) -> tuple[ConfigTable, ConfigTable]:
        first = {**BASE, **self.before}
        outer, _, inner = self.option.partition(".")
        new = {**first.get(outer, {}), inner: self.new} if inner else self.new
        second = {**first, outer: new, **self.beside}
        return configured(first), configured(second)


def configured(options: Mapping[str, Any]) -> ConfigTable:
    """Return a table whose column `note` has the tag `pii` in Unity Catalog."""
    return with_transformations(ConfigTable.model_validate(options), ["id", "status", "note"], {"note": {("pii", "")}})


CASES = [
    Case("keys", ["id"], before={"keys": []}),
    Case("keys", ["status"], "MF3009", before={"keys": []}),  # the published rows have equal values
    Case("keys", ["id", "status"], "MF3006"),
    Case("keys", [], "MF3006"),
    Case("columns", ["id", "status"]),
    Case("columns", ["id", "status"], "MF3005", beside={"on_dropped_column": "reseed"}, reloads=True),
    Case("columns", ["id", "status", "note"], "MF3013", before={"columns": ["id", "status"]}),
    Case("exclude_columns", ["note"]),
    Case("exclude_columns", ["note"], "MF3005", beside={"on_dropped_column": "reseed"}, reloads=True),
    Case("exclude_columns", None, "MF3013", before={"exclude_columns": ["note"]}),
    Case("where", "status = 'new'", "MF3013"),
    Case("rename", {"note": "remark"}, "MF3013"),
    Case("rename", {"id": "number"}, "MF3013"),
    Case("cast", {"id": "decimal(20,0)"}, "MF3013"),
    Case("transform", {"note": "mask"}, "MF3013"),
    Case("transform_tags", {"pii": "mask"}, "MF3017"),
    Case("transform_tags", {"pii": "mask"}, beside={"exclude_columns": ["note"]}),
    Case("transform_tags", {"pii": "mask('-')"}, before={"transform": {"note": "mask"}}),
    Case("transform_tags", {"other": "mask"}),
    Case("transform_tags", {"other": "mask"}, "MF3017", before={"transform_tags": {"pii": "mask"}}),
    Case("transform", {"note": "mask('-')"}, "MF3013", before={"transform": {"note": "mask"}}),
    Case("hash_key", {"env": "SECOND_KEY"}, "MF3013", before=HASHED),
    Case("hash_key", {"env": "FIRST_KEY_TOO"}, before=HASHED),
    Case("hash_key", {"env": "SECOND_KEY"}),  # nothing is hashed
    Case("changes", "full"),
    Case("changes", "net", before={"changes": "full"}),
    Case("changes", "compare", "MF3512", before={"keys": []}, beside={"keys": ["id"]}),
    Case(
        "changes", "compare", "MF3512", before={"keys": []}, beside={"keys": ["id"], "on_gap": "reseed"}, reloads=True
    ),
    Case("delivery", "soft_delete", "MF3014"),
    Case("delivery", "upsert", "MF3014", before={"delivery": "soft_delete"}),
    Case("delivery", {"mode": "soft_delete", "deleted_column": "gone"}, "MF3014", before={"delivery": "soft_delete"}),
    Case("row_markers", "exact", before={"changes": "full"}),
    Case("row_markers", "upsert", before={"changes": "full", "row_markers": "exact"}),
    Case("validate_keys", "none"),
    Case("validate_keys", "source", before={"validate_keys": "none"}),
    Case("policies", "accept"),
    Case("policies", "check", before={"policies": "accept"}),
    Case("format", "delimited", "MF3007"),
    Case("format", "parquet", "MF3007", before=TEXT),
    Case("delimited.extension", "tsv", "MF3007", before=TEXT),
    Case("delimited.row_separator", "\n", "MF3007", before=TEXT),
    Case("delimited.column_separator", ";", "MF3007", before=TEXT),
    Case("delimited.quote", "'", "MF3007", before=TEXT),
    Case("delimited.escape", "/", "MF3007", before=TEXT),
    Case("delimited.null", "NULL", "MF3007", before=TEXT),
    Case("delimited.encoding", "utf-16", "MF3007", before=TEXT),
    Case("delimited.schema_definition", False, "MF3007", before=TEXT),
    Case("delimited.schema_definition", True, "MF3007", before={**TEXT, "delimited": {"schema_definition": False}}),
    Case("delimited.undeclared_types", "string", before=TEXT),
    Case("delimited.undeclared_types", "refuse", "MF3102", before=DECIMAL_AS_TEXT),
    Case("delimited.null", "NULL"),  # Parquet has no such text
    Case("file_order", "modified_time", "MF3007"),
    Case("file_order", "sequence", "MF3007", before={"file_order": "modified_time"}),
    Case("default_row_marker", "upsert", "MF3007"),
    Case("default_row_marker", "insert", "MF3007", before={"default_row_marker": "upsert"}),
    Case("policies", "accept"),
    Case("compression", "none"),
    Case("target_file_size", "1 KiB"),
    Case("load_part_size", "1 KiB"),
    Case("max_versions_per_publication", 1),
    Case("log_retention_records", 2),
    Case("on_gap", "reseed"),
    Case("on_replace", "stop"),
    Case("on_schema_change", "reseed"),
    Case("on_dropped_column", "reseed"),
    Case("auto_repair_max_keys", 5),
    Case("follow", {"max_rows": 5}),
    Case("priority", 5),
    Case("freshness_target_minutes", 5),
    Case("table_timeout_minutes", 5),
    Case("paused", {"reason": "a test", "until": "2020-01-01"}),
    Case("history", "main.history.orders"),
    Case("source", "main.sales.renamed"),  # the same table under another name
]
BY_OTHER_TEST = {"target", "landing_zone"}
"""Options that `test_other_target_or_landing_zone_is_a_new_table` changes."""


def orders(id: str = "the table's id") -> Table:
    table = Table({"id": "long", "status": "string", "note": "string"}, ("id",), id)
    table.insert({"id": 1, "status": "new", "note": "a"}, {"id": 2, "status": "new", "note": "b"})
    return table


def source_of(rows: Table, table: ConfigTable) -> ChangeSource:
    if table.changes != "compare":
        return TableFeed(rows)
    no_hashes: Any = SimpleNamespace(info=lambda: None, location="main.ops.hashes")
    spark: Any = None  # not used without row hashes
    return FullCompare(spark, table.source, no_hashes)


@pytest.fixture
def _hash_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRST_KEY", "FIRST_KEY_TOO", "SECOND_KEY"):
        monkeypatch.setenv(name, f"the secret of {name.removesuffix('_TOO')}")


@pytest.mark.usefixtures("_hash_keys")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_change_of_an_option_continues_or_stops_before_anything_is_published(case: Case) -> None:
    (first, second), rows, zone = case.tables, orders(), MemoryStore()
    publish(TableFeed(rows), zone, first)
    rows.insert({"id": 3, "status": "paid", "note": "c"})
    folder = first.target.folder
    before = zone.list(folder), zone.read(f"{folder}/_metadata.json") if first.keys else None
    if case.result == CONTINUES:
        (record,) = publish(source_of(rows, second), zone, second).records
        assert (record.from_version_exclusive, record.to_version_inclusive) == (1, 2)
        if first.format == "parquet":
            mirror = Mirror(zone, folder)
            mirror.take()
            published = sorted((row["id"], row["status"]) for row in mirror.rows)
            assert published == [(1, "new"), (2, "new"), (3, "paid")]
        return
    with pytest.raises(MirrorfeedError) as caught:
        publish(source_of(rows, second), zone, second)
    assert caught.value.code == case.result
    assert needs_reload(second, caught.value) == case.reloads
    assert (zone.list(folder), zone.read(f"{folder}/_metadata.json") if first.keys else None) == before


@pytest.mark.parametrize("option", ["source", "changes"])
def test_other_source_stops_the_table(option: str) -> None:
    """After `changes: compare`, the published source of a table is its table of row hashes."""
    zone, table = MemoryStore(), ConfigTable.model_validate(BASE)
    publish(TableFeed(orders()), zone, table)
    new = {"source": {"source": "main.sales.invoices"}, "changes": {"changes": "net"}}[option]
    changed = ConfigTable.model_validate({**BASE, **new})
    with pytest.raises(MirrorfeedError) as caught:
        publish(TableFeed(orders("another id")), zone, changed)
    assert caught.value.code == "MF2103"
    assert not needs_reload(changed, caught.value)
    assert needs_reload(changed.model_copy(update={"on_replace": "reseed"}), caught.value)


def test_other_target_or_landing_zone_is_a_new_table(tmp_path: Path) -> None:
    rows, zone, other_zone = orders(), MemoryStore(), MemoryStore()
    publish(TableFeed(rows), zone, ConfigTable.model_validate(BASE))
    before = zone.list("sales.schema/orders")
    moved = {**BASE, "target": "sales.moved"}
    for store, options in ((zone, moved), (other_zone, {**BASE, "landing_zone": "/another"})):
        (record,) = publish(TableFeed(rows), store, ConfigTable.model_validate(options)).records
        assert record.from_version_exclusive is None, "it starts with a snapshot"
    file = tmp_path / "mirrorfeed.yml"
    file.write_text(yaml.safe_dump({"landing_zone": "./zone", "tables": [moved]}), encoding="utf-8")
    assert list(map(str, find_orphans(zone, load(file)))) == ["sales.orders"]
    assert zone.list("sales.schema/orders") == before


def test_other_ledger_stops_a_table_that_is_published_by_comparison() -> None:
    """Its row hashes are next to the old ledger."""
    table = ConfigTable.model_validate({**BASE, "changes": "compare"})
    with raises(row_hashes_lost) as caught:
        source_of(orders(), table).facts(PublishedVersion("the id of the row hashes", 1), 500)
    assert caught.value.code == "MF3501"


def test_only_keys_selection_and_delivery_are_checked_while_the_source_has_nothing_new() -> None:
    zone, rows = MemoryStore(), orders()
    publish(TableFeed(rows), zone, ConfigTable.model_validate(BASE))

    def code(**changed: Any) -> str | None:
        try:
            publish(TableFeed(rows), zone, ConfigTable.model_validate({**BASE, **changed}))
        except MirrorfeedError as error:
            return error.code
        return None

    assert code(keys=["status"]) == "MF3006"
    assert code(where="id > 1") == "MF3013"
    assert code(delivery="soft_delete") == "MF3014"
    assert code(format="delimited") is None


def _expanded(names: set[str]) -> set[str]:
    return (names - {"delimited"}) | {f"delimited.{each.name}" for each in fields(Delimited)}


def _rows_of_page() -> dict[str, str]:
    """Return the text of the page about each option."""
    page = (ROOT / "docs/schema-changes.md").read_text(encoding="utf-8")
    section = page.partition("\n## Change options of a published table\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \| (.*) \|$", section, re.MULTILINE)
    return {name: text for cell, text in rows for name in re.findall(r"`([a-z_.]+)", cell)}


def test_every_option_of_a_table_has_a_case() -> None:
    assert {case.option for case in CASES} | BY_OTHER_TEST == _expanded(set(ConfigTable.model_fields))


def test_page_has_every_option_and_the_results_of_its_cases() -> None:
    """Options that exist only at the top level do not reach the publisher of a table, so they have no case."""
    top_level = {each.alias or name for name, each in Config.model_fields.items()}
    rows = _rows_of_page()
    assert set(rows) == _expanded(set(ConfigTable.model_fields) | set(Sources.model_fields) | top_level - {"tables"})
    for case in CASES:
        text = rows[case.option]
        assert case.result in text.lower() or f"[{case.result}]" in text, case
        assert "reload" in text or not case.reloads, case
