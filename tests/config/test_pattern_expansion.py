"""Configurations with patterns: which tables they select, which are refused, and how commands and the API use them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
import yaml
from click.testing import CliRunner
from databricks.sdk.errors import NotFound, PermissionDenied
from databricks.sdk.service.catalog import ColumnInfo, PrimaryKeyConstraint, TableConstraint, TableInfo
from pyspark.sql import SparkSession

import mirrorfeed
from fixtures.fakes import RecordingWorkspace
from mirrorfeed.api.results import Result
from mirrorfeed.cli import main
from mirrorfeed.config import loader
from mirrorfeed.config.errors import (
    ConfigInvalidError,
    duplicate_histories,
    duplicate_targets,
    nothing_matches,
    option_invalid,
    several_landing_zones,
)
from mirrorfeed.config.model import Config
from mirrorfeed.config.pattern_expansion import Expansion, expand_patterns, select_matches
from mirrorfeed.errors import error_name
from mirrorfeed.landing.errors import invalid_key, invalid_selection
from mirrorfeed.landing.names import TABLE_LIMITS
from mirrorfeed.orchestration.dry_run import list_configured_tables
from mirrorfeed.runtime import spark_session
from mirrorfeed.source.errors import NoTableAtPathError
from mirrorfeed.source.identifier import FoundTable, Pattern, Source
from tests.raised import raises
from tests.support.delta import FEED

Written = Callable[..., Config]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """Write a configuration with these entries and return its path."""

    def write(*entries: Mapping[str, Any], **top: Any) -> Config:
        file = tmp_path / "mirrorfeed.yml"
        content = {"landing_zone": "./zone", "tables": list(entries), **top}
        file.write_text(yaml.safe_dump(content), encoding="utf-8")
        return loader.load(file)

    return write


def found_tables(*names: str) -> list[FoundTable]:
    return [FoundTable(Source.parse(name)) for name in names]


def outcomes(expansion: Expansion) -> dict[str, str]:
    """By source: its target, or the reason why it is not selected."""
    return {
        str(row.source): f"-> {row.table.target}" if row.table else row.why
        for row in expansion.candidates
    }  # fmt: skip


def unconfigured() -> RecordingWorkspace:
    raise ValueError("cannot configure default credentials")


ORDERS, LINES, TMP = "main.sales.orders", "main.sales.lines", "main.sales.tmp_x"
SALES = {"sources": "main.sales.*"}
NAMED = {"source": ORDERS, "target": "shop.orders", "keys": ["order_id"]}


@pytest.mark.parametrize(
    ("entries", "top", "found", "expected"),
    [
        ([SALES], {}, [[ORDERS, LINES]], {ORDERS: "-> sales.orders", LINES: "-> sales.lines"}),
        ([{**SALES, "target": "{table}"}], {}, [[ORDERS]], {ORDERS: "-> orders"}),
        ([{**SALES, "target": "{catalog}_{schema}.t_{table}"}], {}, [[ORDERS]], {ORDERS: "-> main_sales.t_orders"}),
        (
            [{**SALES, "exclude": ["tmp_*"]}], {}, [[ORDERS, TMP]],
            {ORDERS: "-> sales.orders", TMP: "is listed in `exclude`"},
        ),
        ([NAMED, SALES], {}, [[ORDERS, LINES]], {ORDERS: "-> shop.orders", LINES: "-> sales.lines"}),
        ([SALES, NAMED], {}, [[ORDERS.upper()]], {ORDERS: "-> shop.orders"}),
        (
            [SALES, {"sources": "main.*.orders", "target": "all.{schema}_{table}"}], {},
            [[LINES, ORDERS], [ORDERS, "main.crm.orders"]],
            {LINES: "-> sales.lines", ORDERS: "by main.sales.* already", "main.crm.orders": "-> all.crm_orders"},
        ),
        (
            [SALES], {"ledger": "main.sales.ledger"}, [[ORDERS, "main.sales.Ledger"]],
            {ORDERS: "-> sales.orders", "main.sales.Ledger": "is the ledger"},
        ),
        (
            [SALES], {"ledger": "main.sales.ledger"}, [[ORDERS, "main.sales.hashes_v_1"]],
            {ORDERS: "-> sales.orders", "main.sales.hashes_v_1": "contains row hashes of a compared table"},
        ),
        (
            [{"sources": "main.*.*"}], {"history": "main.kept"}, [["main.kept.sales_orders", ORDERS]],
            {"main.kept.sales_orders": "is in the history location", ORDERS: "-> sales.orders"},
        ),
        (
            [SALES, {"source": "main.crm.a", "target": "crm.a", "history": "main.sales.kept"}], {},
            [[ORDERS, "main.sales.kept"]],
            {"main.crm.a": "-> crm.a", ORDERS: "-> sales.orders", "main.sales.kept": "is a history"},
        ),
        (
            [SALES], {}, [[ORDERS, "main.sales._staged", "main.sales.`a.b`"]],
            {
                ORDERS: "-> sales.orders",
                "main.sales._staged": "cannot be the target 'sales._staged', which has a part that starts with '_',"
                " which Fabric ignores: '_staged'",
                "main.sales.`a.b`": "cannot be the target 'sales.`a.b`', which has a part with a dot, which some"
                " readers take for schema.table: 'a.b'",
            },
        ),
        (
            [{"sources": "/lake/*/*"}], {"staging_path": "/lake/between", "landing_zone": "/lake/zone"},
            [["/lake/sales/orders", "/lake/between/x", "/lake/zone/t"]],
            {
                "/lake/sales/orders": "-> sales.orders",
                "/lake/between/x": "is in the staging area",
                "/lake/zone/t": "is in the landing zone",
            },
        ),
    ],
)  # fmt: skip
def test_patterns_are_expanded_with_a_reason_per_table(
    written: Written, entries: list[Any], top: dict[str, Any], found: list[list[str]], expected: dict[str, str]
) -> None:
    expansion = select_matches(written(*entries, **top), [found_tables(*names) for names in found])
    shown = outcomes(expansion)
    if "by main.sales.* already" in expected.values():  # the same source: one selects it, one does not
        assert [row.why for row in expansion.candidates if str(row.source) == ORDERS] == [
            "by main.sales.*", "by main.sales.* already",
        ]  # fmt: skip
    assert shown == expected
    assert [str(table.target) for table in expansion.config.tables] == [
        f"{row.table.target}" for row in expansion.candidates if row.table
    ]


TAGGED = {"sources": "main.*.*", "tags": {"mirror": "fabric", "pii": ""}}
MIRROR, NO_PII = ("mirror", "fabric"), ("pii", "")
TAGS = frozenset({MIRROR, NO_PII})


@pytest.mark.parametrize(
    ("tags", "why"),
    [
        ({MIRROR, NO_PII, ("tier", "1")}, "by main.*.*"),
        ({MIRROR}, "lacks the tag pii"),
        ({("mirror", "Fabric"), NO_PII}, "lacks the tag mirror=fabric"),
        ({("mirror", "other"), ("pii", "yes")}, "lacks the tag mirror=fabric, pii"),
        (set(), "lacks the tag mirror=fabric, pii"),
    ],
)
def test_tables_with_all_tags_are_selected(written: Written, tags: set[tuple[str, str]], why: str) -> None:
    found = [FoundTable(Source.parse(ORDERS), tags=frozenset(tags)), FoundTable(Source.parse(LINES), tags=TAGS)]
    candidates = select_matches(written(TAGGED), [found]).candidates
    assert [row.why for row in candidates] == [why, "by main.*.*"]
    with raises(nothing_matches, match=r"main\.sales\.orders lacks the tag mirror=fabric, pii\."):
        select_matches(written(TAGGED), [found_tables(ORDERS)])


def test_tags_are_read_only_for_patterns_that_have_them(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    requests, found = list[Any](), [FoundTable(Source.parse(ORDERS), tags=TAGS), *found_tables(LINES)]

    def list_tables(pattern: Pattern, *others: Any) -> list[FoundTable]:
        tags = others[-1]
        requests.append((str(pattern), tags and list(tags)))
        return found

    monkeypatch.setattr("mirrorfeed.source.catalog.list_tables", list_tables)
    config = written(TAGGED, {"sources": "main.sales.l*", "target": "l.{table}"})
    expansion = expand_patterns(config, lambda: pytest.fail("Spark was started"))
    assert [str(table.target) for table in expansion.config.tables] == ["sales.orders", "l.lines"]
    assert requests == [("main.*.*", ["mirror", "pii"]), ("main.sales.l*", None)]


def test_table_without_a_change_feed_is_excluded_with_its_type(written: Written) -> None:
    found = [FoundTable(Source.parse(ORDERS)), FoundTable(Source.parse("main.sales.seen"), "a view")]
    assert (
        outcomes(select_matches(written(SALES), [found]))["main.sales.seen"]
        == "is a view, which has no change data feed"
    )


def test_table_without_a_change_feed_is_included_if_compared(written: Written) -> None:
    loaded = written({**SALES, "changes": "compare", "keys": ["id"]}, ledger="main.ops.ledger")
    view = FoundTable(Source(("main", "sales", "v")), "a view", ("id",))
    (table,) = select_matches(loaded, [[view]]).config.tables
    assert (str(table.target), table.keys, table.changes) == ("sales.v", ("id",), "compare")


def test_tables_of_a_pattern_have_options_of_entry_and_file(written: Written) -> None:
    entry = {**SALES, "changes": "full", "history": "main.kept"}
    (table,) = select_matches(written(entry, on_gap="reseed", changes="net"), [found_tables(ORDERS)]).config.tables
    assert (table.changes, table.on_gap, table.on_schema_change) == ("full", "reseed", "stop")
    assert str(table.history.table) == "main.kept.sales_orders"
    chosen = {"exclude_columns": ["secret"], "where": "region = 'north'", "rename": {"v": "value"}}
    (table,) = select_matches(written({**SALES, **chosen}), [found_tables(ORDERS)]).config.tables
    assert (table.exclude_columns, table.where, table.rename) == (("secret",), "region = 'north'", {"v": "value"})
    (table,) = select_matches(
        written({**SALES, "history": False}, history="main.kept"), [found_tables(ORDERS)]
    ).config.tables
    assert table.history is None


@pytest.mark.parametrize(
    ("columns", "keys"),
    [(("v", "ID"), ("ID",)), (("v",), None), ((), None), (None, ("id",))],
)
def test_keys_of_a_pattern_apply_to_tables_with_these_columns(
    written: Written, columns: tuple[str, ...] | None, keys: tuple[str, ...] | None
) -> None:
    found = [[FoundTable(Source.parse(ORDERS), columns=columns)]]
    (table,) = select_matches(written({**SALES, "keys": ["id"]}), found).config.tables
    assert table.keys == keys


def test_pattern_without_a_match_is_refused(written: Written) -> None:
    loaded = written({**SALES, "exclude": ["tmp_*"]}, ledger="main.sales.ledger")
    with raises(nothing_matches) as caught:
        select_matches(loaded, [[]])
    assert (caught.value.pattern, caught.value.path, caught.value.left_out) == ("main.sales.*", loaded.path, ())
    with raises(nothing_matches) as caught:
        select_matches(loaded, [found_tables("main.sales.ledger", TMP)])
    assert (
        caught.value.computed["reasons"] == ": main.sales.ledger is the ledger, main.sales.tmp_x is listed in `exclude`"
    )


def test_pattern_may_match_only_tables_with_their_own_entry(written: Written) -> None:
    assert outcomes(select_matches(written(NAMED, SALES), [found_tables(ORDERS)])) == {ORDERS: "-> shop.orders"}


def test_two_sources_with_one_target_are_refused_by_name(written: Written) -> None:
    loaded = written({"sources": "main.*.*", "target": "all.{table}"})
    with raises(duplicate_targets) as caught:
        select_matches(loaded, [found_tables("main.crm.Orders", ORDERS)])
    assert caught.value.path == loaded.path
    assert caught.value.conflicts == ["main.crm.Orders and main.sales.orders in all.orders"]
    entry = {"source": "main.crm.orders", "target": "sales.orders"}
    with raises(duplicate_targets, match=r"main\.crm\.orders and main\.sales\.orders in sales\.orders"):
        select_matches(written(entry, SALES), [found_tables(ORDERS)])


def test_two_histories_in_one_table_are_refused_by_name(written: Written) -> None:
    loaded = written({"sources": "main.*.*"}, history="main.kept")
    with raises(duplicate_histories) as caught:
        select_matches(loaded, [found_tables("main.a.b_c", "main.a_b.c")])
    assert (caught.value.path, caught.value.conflicts) == (loaded.path, ["a.b_c and a_b.c in main.kept.a_b_c"])


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"sources": "main.sales.orders"}, "sources: 'main.sales.orders' contains no '*'"),
        ({"sources": 7}, "sources: must be text, not 7: put it in quotes"),
        ({**SALES, "source": "a"}, "source: excludes sources: an entry names one table or a pattern"),
        ({**SALES, "target": "sales.all"}, "target: 'sales.all' has no {table}, so all tables would have t"),
        (
            {**SALES, "target": "{tables}"},
            "target: '{tables}' contains {tables}; allowed are {catalog}, {sch",
        ),
        ({**SALES, "target": "a.b.{table}"}, "target: 'a.b.x' has 3 parts"),
        ({"sources": "sales.*", "target": "{catalog}.{table}"}, "tables: target: sales.* has no catalog to fill in"),
        ({**SALES, "exclude": "tmp_*"}, "exclude: must be a list of names, such as [tmp_*, staging.*], not 't"),
        ({**SALES, "exclude": ["a..b"]}, "exclude: 'a..b' has an empty part"),
        ({**SALES, "tags": {}}, "tags: must map tags to their values, such as {mirror: fabric}, not {}"),
        ({**SALES, "tags": ["mirror"]}, "tags: must map tags to their values, such as {mirror: fabric}, not ['mi"),
        ({**SALES, "tags": {"mirror": True}}, "tags: True is not text: put it in quotes"),
        ({"sources": "sales.*", "tags": {"a": "b"}}, "tables: tags: requires a pattern for Unity Catalog with th"),
        ({**SALES, "transform_tags": {"pii": "blur"}}, "transform_tags: 'blur' is not a transformation; use one such"),
        ({**SALES, "transform_tags": {"=x": "mask"}}, "transform_tags: '=x' does not name a tag"),
        ({**SALES, "transform_tags": {"pii": "hash"}}, "transform_tags: hash requires `hash_key`, the location of a "),
        (
            {"source": "sales.orders", "target": "a", "transform_tags": {"pii": "mask"}},
            "transform_tags: requires a name in Unity Catalog with three parts, and sales.orders is none",
        ),
        (
            {"sources": "./lake/*", "transform_tags": {"pii": "mask"}},
            "transform_tags: requires a name in Unity Catalog with three parts, and /",
        ),
        ({**SALES, "keys": "id"}, "keys: must be a list of column names"),
        ({**SALES, "history": "main.kept.orders"}, "history: 'main.kept.orders' is a table: name a schema "),
        ({**SALES, "history": "./zone/kept"}, "history: is in the landing zone: name a folder elsewhere"),
        ({**SALES, "row_markers": "exact"}, "row_markers: exact requires changes: full, be"),
        ({**SALES, "exclude_columns": ["id"], "keys": ["id"]}, "exclude_columns: 'id' is a key"),
        ({**SALES, "exlude": []}, "exlude: is not a known field; did you mean exclude?"),
    ],
)
def test_pattern_mistakes_are_reported_with_those_of_the_file(
    written: Written, entry: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigInvalidError) as caught:
        written(entry)
    assert [f"{each.field}: {each.reason}"[: len(words)] for each in caught.value.mistakes] == [words]


def test_two_patterns_with_one_template_are_valid(written: Written) -> None:
    assert len(written(SALES, {"sources": "main.crm.*"}).patterns) == 2


# Several databases


CRM = "onelake://0f8fad5b-d9cb-469f-a165-70867728950e/11111111-d9cb-469f-a165-70867728950e"
HOME = CRM.replace("/1111", "/2222")


def test_file_with_two_landing_zones_is_used_with_one_at_a_time(written: Written) -> None:
    entries = ({"sources": "main.crm.*", "landing_zone": CRM}, {"source": "main.crm.a", "target": "crm.a"}, SALES)
    with raises(several_landing_zones) as caught:
        written(*entries, landing_zone=HOME)
    file = caught.value.path
    assert caught.value.zones == (CRM, HOME)
    found = [found_tables("main.crm.a", "main.crm.b"), found_tables(ORDERS)]
    crm = select_matches(loader.load(file, landing_zone=CRM.upper().replace("ONELAKE", "onelake")), found)
    assert (crm.config.landing_zone, [str(each.target) for each in crm.config.tables]) == (CRM, ["crm.b"])
    assert outcomes(crm) == {
        "main.crm.a": f"goes into {HOME}", "main.crm.b": "-> crm.b", ORDERS: f"goes into {HOME}",
    }  # fmt: skip
    home = select_matches(loader.load(file, landing_zone=HOME), found).config
    assert (home.landing_zone, [str(each.target) for each in home.tables]) == (HOME, ["crm.a", "sales.orders"])


def test_landing_zone_option_must_be_one_of_the_file(written: Written, tmp_path: Path) -> None:
    entries = ({**SALES, "landing_zone": "./crm"}, {"source": "a", "target": "a"})
    with raises(several_landing_zones):
        written(*entries)
    with raises(option_invalid) as caught:
        loader.load(tmp_path / "mirrorfeed.yml", landing_zone="/other")
    assert caught.value.option == "landing-zone"
    assert caught.value.reason == (
        f"'/other' is not a landing zone of {tmp_path}/mirrorfeed.yml, which has {tmp_path}/crm, {tmp_path}/zone"
    )


def test_one_landing_zone_in_all_entries_needs_no_option(written: Written, tmp_path: Path) -> None:
    loaded = written({**SALES, "landing_zone": "./crm"})
    assert loaded.landing_zone == f"{tmp_path}/crm"
    assert outcomes(select_matches(loaded, [found_tables(ORDERS)])) == {ORDERS: "-> sales.orders"}


def test_target_is_unique_across_landing_zones(written: Written) -> None:
    with pytest.raises(ConfigInvalidError, match="is also the target of the table"):
        written({"source": "a", "target": "a"}, {"source": "b", "target": "a", "landing_zone": "./crm"})


def test_invalid_landing_zone_is_reported_even_if_another_is_given(written: Written, tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalidError):
        written({**SALES, "landing_zone": "./crm"}, {"source": "a", "target": "a"}, landing_zone="s3://b/x")
    with pytest.raises(ConfigInvalidError, match="landing_zone: 's3://b/x' is not a folder"):
        loader.load(tmp_path / "mirrorfeed.yml", landing_zone="./crm")


@pytest.mark.parametrize(("count", "notes"), [(449, 0), (450, 1), (501, 1)])
def test_number_of_tables_near_the_database_limit_is_noted(written: Written, count: int, notes: int) -> None:
    found = found_tables(*(f"{SALES['sources'][:-1]}t{n}" for n in range(count)))
    rows = Result(*list_configured_tables(select_matches(written(SALES), [found]), None, unconfigured))
    assert (len(rows), len(rows.notes)) == (count, notes)
    assert all(note.startswith(f"{count} tables. {TABLE_LIMITS} Distribute") for note in rows.notes)


# Keys, and the change modes that they allow


def key(*columns: str) -> TableInfo:
    constraint = PrimaryKeyConstraint(name="pk", child_columns=list(columns))
    return TableInfo(table_constraints=[TableConstraint(primary_key_constraint=constraint)])


def test_table_without_a_key_is_listed_as_accepting_only_inserts(written: Written) -> None:
    workspace = RecordingWorkspace(
        {ORDERS: key("order_id"), LINES: TableInfo(), TMP: PermissionDenied("User does not have SELECT")}
    )
    rows = Result(
        *list_configured_tables(
            select_matches(written(SALES), [found_tables(ORDERS, LINES, TMP)]), None, lambda: workspace
        )
    )
    assert [(row.table, row.keys, row.takes) for row in rows] == [
        ("sales.orders", ("order_id",), "inserts, updates, deletes"),
        ("sales.lines", (), "inserts only, because the table has no keys"),
        ("sales.tmp_x", None, None),
    ]
    assert not rows.ok
    assert "The primary key of main.sales.tmp_x cannot be read" in str(rows[2].error)
    assert "\nsales.tmp_x: MF" in str(rows)  # the target, because several entries can have one source


def test_keys_are_not_guessed_without_a_configured_workspace(written: Written) -> None:
    rows = Result(
        *list_configured_tables(select_matches(written(NAMED, SALES), [found_tables(LINES)]), None, unconfigured)
    )
    assert [(row.keys, row.takes, row.why) for row in rows] == [
        (("order_id",), "inserts, updates, deletes", "has its own entry"),
        (None, None, "by main.sales.*; the keys are in Unity Catalog, but no workspace is configured here"),
    ]
    assert rows.ok


def test_configured_key_missing_in_the_catalog_is_an_error(written: Written) -> None:
    columns = [ColumnInfo(name="id", type_text="bigint"), ColumnInfo(name="price", type_text="double")]
    workspace = RecordingWorkspace({ORDERS: TableInfo(columns=columns), LINES: NotFound("no such table")})
    entries = [{"source": ORDERS, "target": f"t.{key}", "keys": [key]} for key in ("id", "nope", "price")]
    missing = {"source": LINES, "target": "t.gone", "keys": ["id"]}
    rows = Result(*list_configured_tables(select_matches(written(*entries, missing), []), None, lambda: workspace))
    assert [(row.table, row.error and error_name(row.error)) for row in rows] == [
        ("t.id", None), ("t.nope", "InvalidKey"), ("t.price", "InvalidKey"), ("t.gone", "CatalogRefused")
    ]  # fmt: skip
    assert [row.takes for row in rows] == ["inserts, updates, deletes", None, None, None]


# Commands and the API, with a folder of tables


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two tables and an excluded one, in a folder that the configuration next to it names."""
    for name in ("orders", "lines", "tmp_x"):
        deltalake.write_deltalake(tmp_path / "tables" / name, pa.table({"id": [1], "v": ["a"]}))
    entry = {"sources": "./tables/*", "exclude": ["tmp_*"], "target": "shop.{table}", "keys": ["id"]}
    file = tmp_path / "mirrorfeed.yml"
    file.write_text(yaml.safe_dump({"landing_zone": "./zone", "tables": [entry]}), encoding="utf-8")
    monkeypatch.setattr(spark_session, "get_session", lambda: pytest.fail("Spark was started"))
    monkeypatch.setattr(spark_session, "kind", lambda: spark_session.Kind.LOCAL)
    return tmp_path


def run(lake: Path, *arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, [*arguments, "--config", str(lake / "mirrorfeed.yml")])
    assert result.exit_code == code, result.output
    return result.stdout


def test_tables_lists_a_folder_with_reasons_without_spark(lake: Path) -> None:
    reason = f"by {lake}/tables/*"
    takes = "inserts, updates, deletes"
    assert json.loads(run(lake, "tables", "--json"))["rows"] == [
        {
            "table": f"shop.{name}", "source": f"{lake}/tables/{name}", "selected": True, "why": reason, "keys": ["id"],
            "takes": takes, "error": None, "part": None, "delivery": None,
        }
        for name in ("lines", "orders")
    ] + [
        {
            "table": None, "source": f"{lake}/tables/tmp_x", "selected": False, "why": "is listed in `exclude`",
            "keys": None, "takes": None, "error": None, "part": None, "delivery": None,
        }
    ]  # fmt: skip
    shown = " ".join(run(lake, "tables").split())
    assert "shop.orders" in shown
    assert f"│ - │ {lake}/tables/tmp_x │ no │" in shown
    assert "is listed in `exclude`" in shown
    assert " part " not in shown


def test_tables_fails_for_a_missing_source_or_column(lake: Path) -> None:
    config = lake / "mirrorfeed.yml"
    written = yaml.safe_load(config.read_text(encoding="utf-8"))
    orders = {"source": "./tables/orders", "keys": ["id"]}
    written["tables"] = [
        {**orders, "target": "good"},
        {**orders, "target": "no_key", "keys": ["nope"]},
        {**orders, "target": "no_column", "columns": ["id", "nope"]},
        {**orders, "target": "no_source", "source": "./tables/nothing"},
    ]
    config.write_text(yaml.safe_dump(written), encoding="utf-8")
    found = json.loads(run(lake, "tables", "--json", code=1))["rows"]
    codes = [invalid_key.code, invalid_selection.code, NoTableAtPathError.code]
    assert [row["error"] and row["error"]["code"] for row in found] == [None, *codes]
    assert [row["takes"] for row in found] == ["inserts, updates, deletes", None, None, None]


def test_tables_shows_the_selection_in_short_form(lake: Path) -> None:
    config = lake / "mirrorfeed.yml"
    written = yaml.safe_load(config.read_text(encoding="utf-8"))
    written["tables"][0] |= {"where": "id > 1", "rename": {"v": "value"}, "cast": {"v": "string(9)"}}
    config.write_text(yaml.safe_dump(written), encoding="utf-8")
    part = "where id > 1; v as value; v: string(9)"
    assert [row["part"] for row in json.loads(run(lake, "tables", "--json"))["rows"]] == [part, part, None]
    assert part in " ".join(run(lake, "tables").split())
    (row, *_) = mirrorfeed.load(config).sources()
    assert (row.part, row.cells()["part"].value) == (part, part)


def test_feed_expands_patterns_in_each_call_but_not_for_its_repr(lake: Path) -> None:
    feed = mirrorfeed.load(lake / "mirrorfeed.yml")
    assert feed.tables == ("shop.lines", "shop.orders")
    deltalake.write_deltalake(lake / "tables/customers", pa.table({"id": [1]}))
    assert feed.tables == ("shop.customers", "shop.lines", "shop.orders")
    assert [row.why for row in feed.sources()][-1] == "is listed in `exclude`"
    assert str(feed) == f"<feed of {lake}/mirrorfeed.yml: {lake}/tables/*, into {lake}/zone>"
    assert "shop.{table}" in feed._repr_html_()


def test_configuration_without_patterns_lists_no_catalog(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirrorfeed.source.catalog.list_tables", lambda *_: pytest.fail("it asked"))
    (lake / "mirrorfeed.yml").write_text("landing_zone: ./zone\ntables: [{source: ./tables/orders, target: a}]\n")
    assert mirrorfeed.load(lake / "mirrorfeed.yml").tables == ("a",)
    assert "has its own entry" in " ".join(run(lake, "tables").split())


def test_commands_that_need_no_tables_list_no_catalog(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirrorfeed.source.catalog.list_tables", lambda *_: pytest.fail("it asked"))
    run(lake, "setup", "partner")


def test_new_tables_get_a_snapshot_and_removed_ones_only_a_note(spark: SparkSession, tmp_path: Path) -> None:
    def table(name: str, rows: int) -> None:
        contents = pa.table({"id": list(range(rows)), "v": ["a"] * rows})
        deltalake.write_deltalake(tmp_path / "tables" / name, contents, mode="append", configuration={FEED: "true"})

    (tmp_path / "mirrorfeed.yml").write_text(
        'landing_zone: ./zone\ntables: [{sources: ./tables/*, target: "shop.{table}", keys: [id]}]\n'
    )
    feed = mirrorfeed.load(tmp_path / "mirrorfeed.yml", spark)
    table("lines", 2)
    table("orders", 3)
    first = feed.publish()
    assert [(row.table, row.what) for row in first] == [
        ("shop.lines", "snapshot to 0"),
        ("shop.orders", "snapshot to 0"),
    ]
    assert (first.ok, first.notes) == (True, ())
    (tmp_path / "tables/lines").rename(tmp_path / "tables/rows")
    results = feed.publish()
    assert [(row.table, row.what) for row in results] == [
        ("shop.orders", "nothing new at 0"),
        ("shop.rows", "snapshot to 0"),
    ]
    assert results.ok
    (note,) = results.notes
    assert note.startswith("MF3408: ")
    assert "no longer selects: shop.lines." in note
    assert (tmp_path / f"zone/shop.schema/lines/{1:020d}.parquet").exists()
