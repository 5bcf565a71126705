from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest
import yaml
from pydantic import ValidationError

from mirrorfeed import config
from mirrorfeed.config import Config, ConfigInvalid, Options, Table, UnknownTable
from mirrorfeed.config.yaml_document import ConfigMissing, ConfigUnreadable
from mirrorfeed.credentials import Credential, Default, Secret, ServiceCredential, ServicePrincipal
from mirrorfeed.errors import Terminal
from mirrorfeed.feed.source import Source
from mirrorfeed.landing.names import Target
from mirrorfeed.landing.output import Delimited, Output
from mirrorfeed.landing.selection import Selection

Load = Callable[[str], Config]

SMALLEST = """\
landing_zone: /lz
tables:
  - source: main.sales.orders
    target: sales.orders
"""

PRICES = "currency: EUR, standard: {gib: 0.02, objects: 5}, high: {gib: 0.1, objects: 50}"


TOO_MUCH = "its aliases (*name) stand for more than any configuration has, or for themselves: write values out."
BOMB = b"a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + b"".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n".encode() for n in range(1, 10)
)
CHAIN = b"a0: &a0 [x]\n" + b"".join(f"a{n}: &a{n} [*a{n - 1}]\n".encode() for n in range(1, 5000))


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Loads a text as the file mirrorfeed.yml of the working folder."""
    monkeypatch.chdir(tmp_path)

    def load_text(text: str) -> Config:
        Path("mirrorfeed.yml").write_text(dedent(text), encoding="utf-8")
        return config.load("mirrorfeed.yml")

    return load_text


def mistakes(load: Load, text: str) -> list[str]:
    with pytest.raises(ConfigInvalid) as caught:
        load(text)
    return [f"{m.line}: {m.field}: {m.reason}" for m in caught.value.mistakes]


def with_table(line: str) -> str:
    return f"{SMALLEST}    {line}\n"


def test_the_smallest_file_takes_every_default(load: Load) -> None:
    read = load(SMALLEST)
    assert read.landing_zone == "/lz"
    (table,) = read.tables
    assert (table.source, table.target) == (Source(("main", "sales", "orders")), Target("sales", "orders"))
    assert table.keys is None
    assert (table.changes, table.validate_keys, table.compression) == ("net", "source", "zstd")
    assert (table.file_size, table.versions_per_range, table.keep_records) == (128 * 1024 * 1024, 500, 10)
    assert (table.on_gap, table.on_schema_change, table.on_dropped_column) == ("stop", "stop", "keep")


def test_the_driver_sends_and_there_is_no_handover_unless_the_file_says_otherwise(load: Load, tmp_path: Path) -> None:
    read = load(SMALLEST)
    assert (read.send, read.handover) == ("driver", None)
    read = load(f"send: executors\nhandover: /Volumes/main/ours/handover/\n{SMALLEST}")
    assert (read.send, read.handover) == ("executors", "/Volumes/main/ours/handover")
    assert load(f"handover: ./between\n{SMALLEST}").handover == str(tmp_path / "between")
    assert config.load("mirrorfeed.yml", handover="/Volumes/a/b/c").handover == "/Volumes/a/b/c"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("send: everybody", "1: send: must be driver or executors, not"),
        (
            "writers: auto",
            "1: writers: is no field any more: Spark makes all files, and the driver sends them. Take the line out; for"
            " first loads that are too much for one driver, `send: executors` lets the tasks of a dedicated cluster"
            " send them",
        ),
        (
            "handover: ''",
            "1: handover: is empty: name a volume (/Volumes/catalog/schema/volume), or leave the field out",
        ),
        ("handover: abfss://a@b/c", "1: handover: 'abfss://a@b/c' is not a folder that Spark and this process share"),
        ("handover: /lz/between", "1: handover: is in the landing zone: name a folder elsewhere"),
        ("handover: [a]", "1: handover: must be text"),
    ],
)
def test_who_sends_and_where_files_are_made_is_said_as_it_can_be(load: Load, line: str, words: str) -> None:
    (mistake,) = mistakes(load, f"{line}\n{SMALLEST}")
    assert mistake.startswith(words)


def test_an_option_at_the_top_holds_for_every_table_that_does_not_have_its_own(load: Load) -> None:
    first, second, third = load(
        """\
        landing_zone: /lz
        changes: full
        validate_keys: range
        compression: gzip
        file_size: 1 KiB
        versions_per_range: 7
        keep_records: 3
        on_gap: reseed
        on_schema_change: reseed
        on_dropped_column: reseed
        tables:
          - {source: a, target: a}
          - {source: b, target: b, changes: net, validate_keys: none, file_size: 2 MiB, on_gap: stop}
          - {source: c, target: c, compression: zstd, versions_per_range: 500, keep_records: 1}
        """
    ).tables
    assert _options(first) == ("full", "range", "gzip", 1024, 7, 3, "reseed", "reseed", "reseed")
    assert _options(second) == ("net", "none", "gzip", 2 * 1024 * 1024, 7, 3, "stop", "reseed", "reseed")
    assert _options(third) == ("full", "range", "zstd", 1024, 500, 1, "reseed", "reseed", "reseed")


def _options(table: Table) -> tuple[object, ...]:
    names = ("changes", "validate_keys", "compression", "file_size", "versions_per_range", "keep_records")
    names += ("on_gap", "on_schema_change", "on_dropped_column")
    return tuple(getattr(table, name) for name in names)


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("1 KiB", 2**10),
        ("64KiB", 2**16),
        ("128 mib", 2**27),
        ("'4 GiB'", 2**32),
        ("1048576", 2**20),
    ],
)
def test_a_size_is_a_number_with_a_unit(load: Load, written: str, size: int) -> None:
    assert load(with_table(f"file_size: {written}")).tables[0].file_size == size


@pytest.mark.parametrize(
    ("written", "keys"),
    [
        ("[order_id]", ("order_id",)),
        ("[shop, order id, größe, a.b, 'c`d']", ("shop", "order id", "größe", "a.b", "c`d")),
        ("[]", ()),
    ],
)
def test_keys_keep_their_order_and_an_empty_list_means_no_key(load: Load, written: str, keys: tuple[str, ...]) -> None:
    assert load(with_table(f"keys: {written}")).tables[0].keys == keys


@pytest.mark.parametrize(
    ("written", "landing_zone", "source"),
    [
        ("lz", "{folder}/lz", "{folder}/lake/orders"),
        ("./lz/", "{folder}/lz", "{folder}/lake/orders"),
        ("../lz", "{parent}/lz", "{folder}/lake/orders"),
        ("/Volumes/main/sales/landing", "/Volumes/main/sales/landing", "{folder}/lake/orders"),
    ],
)
def test_relative_folders_start_at_the_file_not_at_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str, landing_zone: str, source: str
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    file = folder / "mirrorfeed.yml"
    file.write_text(f"landing_zone: {written}\ntables: [{{source: lake/orders, target: orders}}]\n", encoding="utf-8")
    for place, path in ((tmp_path, Path("project/mirrorfeed.yml")), (Path("/"), file)):
        monkeypatch.chdir(place)
        read = config.load(path)
        assert read.landing_zone == landing_zone.format(folder=folder, parent=tmp_path)
        assert read.tables[0].source == Source(path=source.format(folder=folder))


@pytest.mark.parametrize("source", ["/data/orders", "abfss://lake@account.dfs.core.windows.net/orders", "file:/data/x"])
def test_an_absolute_path_and_an_address_stay_as_they_are(load: Load, source: str) -> None:
    assert load(SMALLEST.replace("main.sales.orders", source)).tables[0].source == Source(path=source)


def test_environment_variables_are_not_put_in(load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", "elsewhere")
    assert load(SMALLEST.replace("/lz", "$PLACE/${PLACE}")).landing_zone == f"{tmp_path}/$PLACE/${{PLACE}}"


def test_all_mistakes_of_a_file_are_told_at_once_with_their_lines(load: Load) -> None:
    text = """\
        landing_zone: onelake://workspace/database
        chanegs: net
        compression: lz4
        tables:
          - source: a.b.c.d
            target: _orders
            keys: [order_id, Order_ID]
          - target: sales.orders
            file_size: 12 MB
          - source: main.sales.orders
            target: Sales.Orders
            keep_records: 0
        """
    with pytest.raises(ConfigInvalid) as caught:
        load(text)
    assert isinstance(caught.value, Terminal)
    assert str(caught.value).splitlines() == [
        "The configuration has 10 mistakes:",
        "mirrorfeed.yml:1: landing_zone: 'onelake://workspace/database' does not name a workspace and a mirrored "
        "database by their ids: write onelake://<workspace id>/<mirrored database id>, both ids as in the address that"
        " Fabric shows, "
        "https://onelake.dfs.fabric.microsoft.com/<workspace id>/<mirrored database id>/Files/LandingZone",
        "mirrorfeed.yml:2: chanegs: is not a known field; did you mean changes?",
        "mirrorfeed.yml:3: compression: must be none, snappy, gzip or zstd, not 'lz4'",
        "mirrorfeed.yml:5: source: 'a.b.c.d' has 4 parts, where catalog, schema and table are 3",
        "mirrorfeed.yml:6: target: '_orders' has a part that starts with '_', which the service ignores: '_orders'",
        "mirrorfeed.yml:7: keys: 'order_id' is there 2 times",
        "mirrorfeed.yml:8: source: is missing",
        "mirrorfeed.yml:9: file_size: '12 MB' is not a size: write a whole number and KiB, MiB or GiB, as in 128 MiB",
        "mirrorfeed.yml:11: target: 'Sales.Orders' is the target of another table too, on line 8 as 'sales.orders', "
        "and names that differ only in case are one table",
        "mirrorfeed.yml:12: keep_records: must be at least 1, not 0",
        "Correct the file and run the same command again; nothing was done.",
    ]
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize(
    ("line", "mistake"),
    [
        ("changes: nett", "changes: must be net, full or compare, not 'nett'"),
        ("changes: [net]", "changes: must be net, full or compare, not ['net']"),
        ("validate_keys: true", "validate_keys: must be source, range or none, not True"),
        ("compression: snapy", "compression: must be none, snappy, gzip or zstd, not 'snapy'"),
        ("versions_per_range: 0", "versions_per_range: must be at least 1, not 0"),
        ("versions_per_range: 100001", "versions_per_range: must be at most 100000, not 100001"),
        ("versions_per_range: '5'", "versions_per_range: must be a whole number, not '5'"),
        ("versions_per_range: 2.5", "versions_per_range: must be a whole number, not 2.5"),
        ("priority: 101", "priority: must be at most 100, not 101"),
        ("fresh_within: 0", "fresh_within: must be a number of minutes from 1 to 525600, or never, not 0"),
        ("time_limit: long", "time_limit: must be a number of minutes from 1 to 525600, or never, not 'long'"),
        ("paused: true", "paused: must hold fields and their values, not True"),
        ("paused: {reason: r}", "until: is missing"),
        ("paused: {reason: ' ', until: 2026-12-01}", "reason: is empty: say why, for whoever looks meanwhile"),
        (
            "paused: {reason: r, until: soon}",
            "until: must be a day or a moment, as 2026-12-01 or 2026-12-01 18:00 (in UTC unless it says"
            " otherwise), not 'soon'",
        ),
        ("keep_records: true", "keep_records: must be a whole number, not True"),
        ("keep_records:", "keep_records: has no value: give it one, or leave the field out"),
        ("keys: order_id", "keys: must be a list of column names, as in [order_id], not 'order_id'"),
        ("keys:", "keys: has no value: give it one, or leave the field out"),
        ("keys: [a, '', ' ']", "keys: '' is not the name of a column; ' ' is not the name of a column"),
        ("keys: [1, 2024-01-01]", "keys: 1 is not text: put it in quotes; datetime.date(2024, 1, 1) is not text: put"),
        ("keys: [a, b, a]", "keys: 'a' is there 2 times"),
        ("keys: [_Change_Type]", "keys: '_Change_Type' is reserved for the feed and the landing zone"),
        ("keys: [_commit_version]", "keys: '_commit_version' is reserved for the feed and the landing zone"),
        ("keys: [_commit_timestamp]", "keys: '_commit_timestamp' is reserved for the feed and the landing zone"),
        ("keys: [__rowmarker__]", "keys: '__rowmarker__' is reserved for the feed and the landing zone"),
        ("file_size: 1.5 GiB", "file_size: '1.5 GiB' is not a size: write a whole number and KiB, MiB or GiB"),
        ("file_size: 128 MB", "file_size: '128 MB' is not a size: write a whole number and KiB, MiB or GiB"),
        ("file_size: true", "file_size: True is not a size: write a whole number and KiB, MiB or GiB"),
        ("file_size: 128", "file_size: 128 is not between 1 KiB and 4 GiB: write a number with its unit"),
        ("file_size: 0 KiB", "file_size: '0 KiB' is not between 1 KiB and 4 GiB: write a number with its unit"),
        ("file_size: 5 GiB", "file_size: '5 GiB' is not between 1 KiB and 4 GiB: write a number with its unit"),
        ("kees: [a]", "kees: is not a known field; did you mean keys?"),
        ("ledger: main.a.b", "ledger: belongs at the top level, not to a table"),
        (
            "on: 1",
            "on: is not a known field; known here: format, delimited, detection, default_marker, changes, markers",
        ),
        ("format: csv", "format: must be parquet or delimited, not 'csv'"),
        ("detection: name", "detection: must be number or time, not 'name'"),
        ("default_marker: delete", "default_marker: must be insert or upsert, not 'delete'"),
        ("markers: exact", "markers: exact is for changes: full alone; net publishes upserts and deletes"),
        ("delimited: {quote: ''}", "delimited: is for format: delimited alone"),
        ("delimited: csv", "delimited: must hold fields and their values, not 'csv'"),
        ("target: orders", "target: is there twice, first on line 4"),
        ("? [a, b]\n    : 1", ": the name of a field must be text"),
        ("changes: !env MODE", "changes: has the tag !env, which is not known here"),
        ("changes: !!python/name:os.system ''", "changes: has the tag tag:yaml.org,2002:python/name:os.system, which"),
    ],
)
def test_a_mistake_in_a_table_is_told_with_its_line_and_in_words(load: Load, line: str, mistake: str) -> None:
    (told,) = mistakes(load, with_table(line))
    assert told.startswith(f"5: {mistake}")


TEXT = (
    SMALLEST
    + """\
    format: delimited
    delimited:
      {line}
"""
)


@pytest.mark.parametrize(
    ("line", "mistake"),
    [
        ("quot: ''", "quot: is not a known field; did you mean quote?"),
        (
            "compression: gzip",
            "compression: is not a known field; known here: extension, row_separator, column_separat",
        ),
        ("extension: .tsv", "extension: must be lower-case letters and digits without a dot, as in tsv, not '.tsv'"),
        ("extension: parquet", "extension: must be lower-case letters and digits without a dot, as in tsv, not 'parq"),
        ("row_separator: '\\n'", 'row_separator: must be one of "\\r\\n", "\\n", "\\r", not "\\\\n"'),
        ("column_separator: ' '", 'column_separator: must be one of ",", ";", "|", "\\t", not " "'),
        ("quote: '`'", 'quote: must be one of "\\"", "\'", "", not "`"'),
        ("escape: 1", 'escape: must be one of "\\\\", "/", "\\"", "", not 1'),
        ("null: 0", "null: must be text, not 0: put it in quotes"),
        ("null: 'a,b'", "null: 'a,b' holds a separator, a quote, an escape character or a line break"),
        ("encoding: utf-99", "encoding: 'utf-99' is not an encoding that is known here, as UTF-8, utf-16 or windows-1"),
        ("encoding: idna", "encoding: 'idna' is not an encoding that is known here, as UTF-8, utf-16 or windows-1"),
        ("encoding: base64", "encoding: 'base64' is not an encoding that is known here, as UTF-8, utf-16 or windows-1"),
        ("schema_definition: 'no'", "schema_definition: must be true or false, not 'no'"),
        ("undeclared_types: drop", "undeclared_types: must be refuse or string, not 'drop'"),
    ],
)
def test_a_mistake_in_the_form_of_text_is_told_with_its_own_line(load: Load, line: str, mistake: str) -> None:
    (told,) = mistakes(load, TEXT.replace("{line}", line))
    assert told.startswith(f"7: {mistake}")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "changes: full\ndetection: time",
            "3: detection: time leaves files that are visible together without an order",
        ),
        ("default_marker: upsert\nkeys: []", "2: default_marker: upsert needs keys, and the table has none"),
        (
            "format: delimited\ndelimited: {quote: ''}",
            "3: null: is empty, and without a quote an empty text could not be told from NULL: set another",
        ),
        ("delimited: {quote: ''}", "2: delimited: is for format: delimited alone"),
        ("markers: exact", "2: markers: exact is for changes: full alone; net publishes upserts and deletes"),
        ("partner: {name: a}", "2: source_type: is missing"),
        ("partner: {name: '', source_type: Delta, source_version: '4'}", "2: name: is empty"),
        ("partner: {name: a, source_type: Delta, source_version: 4}", "2: source_version: must be text, not 4"),
        (f"archive: {{prices: {{{PRICES}, stored: {{hot: -1, archive: 0}}}}}}", "2: hot: must be at least 0, not -1"),
        (f"archive: {{prices: {{{PRICES}, tape: 1}}}}", "2: tape: is not a known field; known here: currency"),
        (f"archive: {{prices: {{{PRICES}, archiving: .nan}}}}", "2: archiving: must be "),
        (f"archive: {{prices: {{{PRICES}, archiving: much}}}}", "2: archiving: must be a number, not 'much'"),
    ],
)
def test_what_contradicts_itself_for_all_tables_is_told_once_where_it_is_said(load: Load, text: str, told: str) -> None:
    options = "\n".join(line for line in text.splitlines() if not line.startswith("keys"))
    keys = ", keys: []" if "keys: []" in text else ""
    found = mistakes(
        load, f"landing_zone: /lz\n{options}\ntables: [{{source: a, target: a{keys}}}, {{source: b, target: b{keys}}}]"
    )
    assert found[0].startswith(told)
    assert len(found) == (2 if "source_type: is" in told else 1)


def test_the_form_of_files_is_chosen_for_all_tables_and_for_each(load: Load) -> None:
    first, second, third = load(
        """\
        landing_zone: /lz
        format: delimited
        delimited: {extension: tsv, column_separator: "\\t", row_separator: "\\n", encoding: utf-16, null: N/A}
        default_marker: upsert
        partner: {name: us, source_type: Delta, source_version: '4.0', information: {region: west, rounds: 3}}
        tables:
          - {source: a, target: a}
          - {source: b, target: b, format: parquet, detection: time}
          - {source: c, target: c, delimited: {}, default_marker: insert, changes: full, markers: exact}
        """
    ).tables
    assert first.output == Output(Delimited("tsv", "\n", "\t", null="N/A", encoding="utf-16"), upserts_by_default=True)
    assert second.output == Output(None, by_time=True, upserts_by_default=True)
    assert third.output == Output(Delimited())
    assert third.markers == "exact"


def test_prices_stand_beside_what_is_published(load: Load) -> None:
    found = load(f"landing_zone: /lz\narchive: {{prices: {{{PRICES}}}}}\ntables: [{{source: a, target: b}}]")
    assert found.archive is not None
    assert (found.archive.prices.high.gib, found.archive.prices.month("hot")) == (0.1, None)
    assert load("landing_zone: /lz\ntables: [{source: a, target: b}]").archive is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("tables: [{source: a, target: b}]", ["1: landing_zone: is missing"]),
        ("landing_zone: /lz", ["1: tables: is missing"]),
        ("landing_zone: /lz\ntables: []", ["2: tables: is empty: name at least one table"]),
        ("landing_zone: /lz\ntables:", ["2: tables: has no value: give it one, or leave the field out"]),
        ("landing_zone: /lz\ntables: orders", ["2: tables: must be a list, not 'orders'"]),
        ("landing_zone: /lz\ntables: {source: a}", ["2: tables: must be a list, not {'source': 'a'}"]),
        (
            "landing_zone: /lz\ntables:\n- orders\n- {}",
            [
                "3: tables: must hold tables with a source and a target, not 'orders'",
                "4: source: is missing",
                "4: target: is missing",
            ],
        ),
        (
            "landing_zone: 5\ntables:\n- source: 1.5\n  target: on",
            [
                "1: landing_zone: must be text, not 5: put it in quotes",
                "3: source: must be text, not 1.5: put it in quotes",
                "4: target: must be text, not True: put it in quotes",
            ],
        ),
        (
            "landing_zone: ' '\nkeys: [a]\ntables: [{source: a, target: b}]",
            ["1: landing_zone: is empty: name a folder", "2: keys: belongs to a table, below tables"],
        ),
        (
            "landing_zone: abfss://c@a.dfs.core.windows.net/x\ntables: [{source: a, target: b}]",
            [
                "1: landing_zone: 'abfss://c@a.dfs.core.windows.net/x' is not a folder: mirrorfeed publishes to "
                "OneLake (onelake://…), to folders and to volumes (/Volumes/…)"
            ],
        ),
        (
            "landing_zone: ~/lz\ntables: [{source: a, target: b}]",
            ["1: landing_zone: '~/lz' is not expanded: write the folder in full"],
        ),
        (
            "landing_zone: /t/orders/lz\nhandover: /t/orders\ntables: [{source: /t/orders, target: b}]",
            [
                f"{line}: {field}: is in the folder of '/t/orders', where VACUUM removes what is not of the table: "
                "name a folder elsewhere"
                for line, field in ((1, "landing_zone"), (2, "handover"))
            ],
        ),
        (
            "landing_zone: /t\ntables:\n- {source: /t/orders, target: b}\n- {source: /tt, target: c}",
            ["3: source: is in the landing zone, which is for what is published alone"],
        ),
        (
            "landing_zone: /a\nlanding_zone: onelake://b/c\ntables: [{source: a, target: b, target: c}]",
            ["2: landing_zone: is there twice, first on line 1", "3: target: is there twice, first on line 3"],
        ),
        (
            "landing_zone: /lz\ntables: [{source: a, target: b}, {source: c, target: b}]",
            ["2: target: 'b' is the target of another table too, on line 2"],
        ),
        (
            "landing_zone: /lz\ntables:\n- {source: a, target: b, kees: 1}\n- {source: c, target: B}",
            [
                "3: kees: is not a known field; did you mean keys?",
                "4: target: 'B' is the target of another table too, on line 3 as 'b', and names that differ only in "
                "case are one table",
            ],
        ),
        (
            "landing_zone: /lz\ntables:\n- &t {source: a, target: b}\n- *t",
            ["3: target: 'b' is the target of another table too, on line 3"],
        ),
        (
            "landing_zone: /lz\ntables:\n- {source: a, target: a, keys: &k [1]}\n- {source: b, target: b, keys: *k}",
            ["3: keys: 1 is not text: put it in quotes", "4: keys: 1 is not text: put it in quotes"],
        ),
    ],
)
def test_a_mistake_in_the_shape_of_the_file_is_told_once(load: Load, text: str, told: list[str]) -> None:
    assert mistakes(load, text) == told


def test_a_list_that_tables_share_may_be_dumped_as_an_alias(load: Load) -> None:
    keys = ["region", "id"]
    tables = [{"source": f"main.sales.t{n}", "target": f"sales.t{n}", "keys": keys} for n in range(200)]
    text = yaml.safe_dump({"landing_zone": "/lz", "tables": tables})
    assert "*id001" in text
    assert [table.keys for table in load(text).tables] == [("region", "id")] * 200


def test_a_mistake_in_an_option_for_all_tables_is_told_where_it_stands(load: Load) -> None:
    text = "file_size: big\n" + SMALLEST + "  - {source: a, target: b}\n"
    assert [told.split(": ")[:2] for told in mistakes(load, text)] == [["1", "file_size"]]


def test_a_single_mistake_is_not_counted(load: Load) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load(with_table("kees: []"))
    assert caught.value.problem == (
        "The configuration has a mistake:\nmirrorfeed.yml:5: kees: is not a known field; did you mean keys?"
    )


def test_a_missing_file_points_to_init(tmp_path: Path) -> None:
    with pytest.raises(ConfigMissing) as caught:
        config.load(tmp_path / "mirrorfeed.yml")
    assert str(caught.value) == (
        f"There is no configuration at {tmp_path}/mirrorfeed.yml. Run `mirrorfeed init` to write a commented example, "
        "or name the file that you mean."
    )


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "mirrorfeed.yml: it is empty: landing_zone and tables are expected."),
        (b"# only words\n", "mirrorfeed.yml: it is empty: landing_zone and tables are expected."),
        (
            b"- a\n- b\n",
            "mirrorfeed.yml: its top level is not a list of fields and their values: landing_zone and tables are "
            "expected.",
        ),
        (
            b"orders",
            "mirrorfeed.yml: its top level is not a list of fields and their values: landing_zone and tables are "
            "expected.",
        ),
        (b"a: 1\nb: [1, 2\nc: 3\n", "mirrorfeed.yml:3: expected ',' or ']', but got ':'."),
        (b"a: 1\n\tb: 2\n", "mirrorfeed.yml:2: found character '\\t' that cannot start any token."),
        (b"a: 1\n---\nb: 2\n", "mirrorfeed.yml:2: but found another document."),
        (b"a: 1\nb: *c\n", "mirrorfeed.yml:2: found undefined alias: what begins with * or ! must be in quotes."),
        (b"a: 1\nb: &b [*b]\n", f"mirrorfeed.yml:2: {TOO_MUCH}"),
        (BOMB, f"mirrorfeed.yml:4: {TOO_MUCH}"),
        (CHAIN, f"mirrorfeed.yml:21: {TOO_MUCH}"),
        (b"a: 1\nb: gr\xf6\xdfe\n", "mirrorfeed.yml:2: it is not UTF-8 text."),
        (b"a: 1\nb: \x07\n", "mirrorfeed.yml:2: the character '\\x07' cannot stand in YAML."),
        (b"[" * 5000, "mirrorfeed.yml:1: it is nested more than 50 levels deep."),
        (b"a: 1\nb: " + b"[" * 400 + b"]" * 400, "mirrorfeed.yml:2: it is nested more than 50 levels deep."),
        (b"a: 1\nb: " + b"{a: " * 330 + b"}" * 330, "mirrorfeed.yml:2: it is nested more than 50 levels deep."),
        (
            b"".join(b" " * level + b"-\n" for level in range(400)),
            "mirrorfeed.yml:51: it is nested more than 50 levels deep.",
        ),
        (b'a: 1\nb: "\\UFFFFFFFF"\n', "mirrorfeed.yml:2: it has an escape that is not a character."),
        (b'a: 1\nb: "\\U00110000"\n', "mirrorfeed.yml:2: it has an escape that is not a character."),
        (
            b"!x {a: 1}",
            "mirrorfeed.yml: its top level is not a list of fields and their values: landing_zone and tables are "
            "expected.",
        ),
    ],
)
def test_a_file_that_is_not_yaml_is_refused_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, what: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mirrorfeed.yml").write_bytes(content)
    with pytest.raises(ConfigUnreadable) as caught:
        config.load()
    assert str(caught.value) == (
        f"Cannot read the configuration {what} Correct the file, or run `mirrorfeed init` in another folder for an "
        "example to compare it with."
    )


@pytest.mark.parametrize(
    ("line", "mistake"),
    [
        ("at_once: !!int ''", "must be a whole number, not ''"),
        ("at_once: !!float ''", "must be a whole number, not ''"),
        ("at_once: !!bool maybe", "must be a whole number, not 'maybe'"),
        ("at_once: !!timestamp today", "must be a whole number, not 'today'"),
        (f"at_once: {'9' * 5000}", "must be a whole number, not '999999999999...9999999999999'"),
        (f"at_once: 0x{'f' * 5000}", "is a whole number of more than 64 bits"),
        (f"fresh_within: 0b{'1' * 20_000}", "is a whole number of more than 64 bits"),
        (f"file_size: 1{':59' * 5000}", "is a whole number of more than 64 bits"),
        (f"fresh_within: 1{':59' * 5000}.5", "must be a number of minutes from 1 to 525600, or never, not '1:59:59"),
        ('handover: "\\ud800"', "has a character that cannot be written as UTF-8"),
        ("at_most: !!set {seconds}", "has the tag tag:yaml.org,2002:set, which is not known here"),
        ("at_most: !x {seconds: 1}", "has the tag !x, which is not known here"),
        ("tables: !x []", "has the tag !x, which is not known here"),
        ("tables: !!omap [a: 1]", "has the tag tag:yaml.org,2002:omap, which is not known here"),
    ],
    ids=lambda value: value[:30],
)
def test_a_value_that_yaml_cannot_make_is_refused_with_its_line(load: Load, line: str, mistake: str) -> None:
    tables = "" if line.startswith("tables") else "tables: [{source: a, target: a}]\n"
    (told,) = mistakes(load, f"landing_zone: /lz\n{line}\n{tables}")
    assert told.startswith(f"2: {line.partition(':')[0]}: {mistake}")


def test_a_folder_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigUnreadable, match=re.escape(f"{tmp_path}: Is a directory.")):
        config.load(tmp_path)


def test_a_byte_order_mark_does_no_harm(load: Load) -> None:
    assert load("\ufeff" + SMALLEST).landing_zone == "/lz"


SEVERAL = """\
landing_zone: /lz
tables:
  - {source: main.sales.orders, target: sales.orders}
  - {source: main.sales.customers, target: customers}
  - {source: main.sales.orders, target: copies.orders}
  - {source: lake/items, target: items}
"""


@pytest.mark.parametrize(
    ("names", "targets"),
    [
        ([], ["sales.orders", "customers", "copies.orders", "items"]),
        (["sales.orders"], ["sales.orders"]),
        (["SALES.Orders"], ["sales.orders"]),
        (["`sales`.orders"], ["sales.orders"]),
        (["main.sales.customers"], ["customers"]),
        (["main.sales.orders"], ["sales.orders", "copies.orders"]),
        (["lake/items"], ["items"]),
        (["items", "customers", "items"], ["customers", "items"]),
    ],
)
def test_tables_are_chosen_by_target_or_source_in_the_order_of_the_file(
    load: Load, names: list[str], targets: list[str]
) -> None:
    assert [str(table.target) for table in load(SEVERAL).select(names)] == targets


def test_a_path_names_its_table_from_any_working_folder(load: Load, tmp_path: Path) -> None:
    assert [str(table.target) for table in load(SEVERAL).select([f"{tmp_path}/lake/items"])] == ["items"]


@pytest.mark.parametrize("name", ["orders", "sales", "a.b.c.d", "", "`", "lake/other"])
def test_an_unknown_table_is_refused_with_the_known_ones(load: Load, name: str) -> None:
    with pytest.raises(UnknownTable) as caught:
        load(SEVERAL).select(["customers", name])
    assert str(caught.value) == (
        f"mirrorfeed.yml has no table {name!r}. Name one of its targets (sales.orders, customers, copies.orders, "
        "items), or add the table to the file."
    )


def test_all_unknown_tables_are_named_at_once(load: Load) -> None:
    with pytest.raises(UnknownTable, match=re.escape("mirrorfeed.yml has no table 'x', 'y'.")):
        load(SEVERAL).select(["x", "customers", "y"])


def test_values_are_frozen_and_can_be_sent_to_other_processes(load: Load) -> None:
    read = load(SEVERAL)
    with pytest.raises(ValidationError, match="frozen"):
        read.tables[0].changes = "full"
    assert pickle.loads(pickle.dumps(read)) == read
    assert hash(read) == hash(pickle.loads(pickle.dumps(read)))


def test_a_table_can_be_made_by_hand_and_is_checked_as_well() -> None:
    table = Table(source=Source.parse("a"), target=Target.parse("b"), keys=("id",), file_size=2048)
    assert (table.keys, table.file_size, table.changes) == (("id",), 2048, "net")
    with pytest.raises(ValidationError, match="is there 2 times"):
        Table(source=Source.parse("a"), target=Target.parse("b"), keys=("id", "ID"))


def test_the_example_is_a_valid_file(load: Load, tmp_path: Path) -> None:
    read = load(config.EXAMPLE)
    assert read.landing_zone == f"{tmp_path}/landing"
    assert [(str(t.source), str(t.target), t.keys) for t in read.tables] == [
        ("main.sales.orders", "sales.orders", ("order_id",))
    ]


def test_the_options_in_the_examples_comments_are_all_options_with_their_defaults(load: Load) -> None:
    shown = re.findall(r"(?m)^#(\w+):", config.EXAMPLE)
    assert set(shown) == set(Options.model_fields)
    assert load(re.sub(r"(?m)^#(?=\w|  \w)", "", config.EXAMPLE)).tables == load(config.EXAMPLE).tables


WORKSPACE, DATABASE = "0f8fad5b-d9cb-469f-a165-70867728950e", "7c9e6679-7425-40de-944b-e07fc1f90ae7"


def in_onelake(*lines: str, zone: str = f"onelake://{WORKSPACE}/{DATABASE}") -> str:
    return "\n".join([f"landing_zone: {zone}", *lines, "tables: [{source: a, target: b}]"])


@pytest.mark.parametrize(
    "zone",
    [
        f"onelake://{WORKSPACE}/{DATABASE}",
        f"onelake://{WORKSPACE}/{DATABASE}/",
        f"onelake://{WORKSPACE.upper()}/{DATABASE.upper()}",
    ],
)
def test_a_landing_zone_in_onelake_is_named_by_two_ids(load: Load, zone: str) -> None:
    read = load(in_onelake(zone=zone))
    assert read.landing_zone == f"onelake://{WORKSPACE}/{DATABASE}"
    assert (read.endpoint, read.ca_file, read.credential) == (None, None, Default())


@pytest.mark.parametrize(
    ("zone", "ids"),
    [
        (f"onelake://{WORKSPACE}/{DATABASE}", (WORKSPACE, DATABASE)),
        (f"onelake://{WORKSPACE}/", (WORKSPACE, None)),
        (f"onelake://{WORKSPACE}", (WORKSPACE, None)),
        ("landing", None),
    ],
)
def test_the_database_may_be_still_to_be_made(load: Load, zone: str, ids: tuple[str, str | None] | None) -> None:
    assert load(in_onelake(zone=zone)).onelake == ids


@pytest.mark.parametrize(
    "zone",
    [
        "onelake://",
        "onelake:///",
        f"onelake://{WORKSPACE}//{DATABASE}",
        f"onelake://{WORKSPACE}/{DATABASE}/Files/LandingZone",
        f"onelake://sales/{DATABASE}",
        f"onelake://{WORKSPACE}/orders.MountedRelationalDatabase",
    ],
)
def test_a_landing_zone_in_onelake_without_two_ids_is_refused(load: Load, zone: str) -> None:
    (told,) = mistakes(load, in_onelake(zone=zone))
    assert told.startswith(f"1: landing_zone: '{zone}' does not name a workspace and a mirrored database by their ids")


@pytest.mark.parametrize(
    ("written", "credential"),
    [
        ("default", Default()),
        ("{service_credential: onelake}", ServiceCredential("onelake")),
        (
            "{service_principal: {tenant_id: t, client_id: c, secret: {scope: s, key: k}}}",
            ServicePrincipal("t", "c", Secret(scope="s", key="k")),
        ),
        (
            "{service_principal: {tenant_id: t.onmicrosoft.com, client_id: c, secret: {env: NAME}}}",
            ServicePrincipal("t.onmicrosoft.com", "c", Secret(env="NAME")),
        ),
        (
            "{service_principal: {tenant_id: t, client_id: c, secret: {scope: s, key: k, env: NAME},"
            " authority: 'https://login.microsoftonline.us'}}",
            ServicePrincipal("t", "c", Secret("NAME", "s", "k"), "https://login.microsoftonline.us"),
        ),
    ],
)
def test_a_credential_names_who_publishes(load: Load, written: str, credential: Credential) -> None:
    assert load(in_onelake(f"credential: {written}")).credential == credential


CREDENTIALS = "must be default, {service_principal: {tenant_id, client_id, secret}} or {service_credential: name}"
SECRETS = (
    "service_principal: secret must say where the secret is, {scope: …, key: …} or {env: …} or both; a secret itself "
    "does not belong in this file"
)


@pytest.mark.parametrize(
    ("written", "mistake"),
    [
        ("hush", CREDENTIALS),
        ("[hush]", CREDENTIALS),
        ("{service_credential: ' '}", CREDENTIALS),
        ("{service_credential: a, service_principal: {}}", CREDENTIALS),
        ("{service_principal: hush}", CREDENTIALS),
        ("{service_principal: {tenant_id: t, client_id: c, secret: hush}}", SECRETS),
        ("{service_principal: {tenant_id: t, client_id: c, secret: {scope: hush}}}", SECRETS),
        ("{service_principal: {tenant_id: t, client_id: c, secret: {env: 5}}}", SECRETS),
        ("{service_principal: {tenant_id: t, client_id: c, secret: {env: X, value: hush}}}", SECRETS),
        (
            "{service_principal: {tenant_id: a b, client_secret: hush}}",
            "service_principal: client_id is missing; service_principal: secret is missing; service_principal: "
            "a field is not known; known here: tenant_id, client_id, secret, authority; service_principal: tenant_id is"
            " not an id",
        ),
        (
            "{service_principal: {tenant_id: t, client_id: c, secret: {env: X}, authority: login}}",
            "service_principal: authority is not an https address, as in https://login.microsoftonline.us",
        ),
    ],
)
def test_a_credential_that_is_wrong_is_told_without_its_values(load: Load, written: str, mistake: str) -> None:
    assert mistakes(load, in_onelake(f"credential: {written}")) == [f"2: credential: {mistake}"]


PASTED = "xY7~8Q~hush.hush-hush_0123"
"""As Entra ID makes them."""
HOOK = "https://hooks.slack.com/services/T0/B0/hush"


@pytest.mark.parametrize(
    "place",
    [
        f"{{env: {PASTED}}}",
        f"{{env: {HOOK}}}",
        "{env: hush hush}",
        "{env: 5hush}",
        f"{{scope: s, key: {PASTED}}}",
        f"{{scope: {PASTED}, key: k}}",
        f"{{env: X, scope: s, key: {HOOK}}}",
        f"{{{PASTED}: env}}",
        f"{{env: X, {PASTED}: k}}",
    ],
)
def test_a_secret_in_the_place_of_its_name_is_refused_and_not_repeated(load: Load, place: str) -> None:
    principal = f"credential: {{service_principal: {{tenant_id: t, client_id: c, secret: {place}}}}}"
    webhook = f"webhooks: [{{name: a, kind: slack, url: {place}}}]"
    mail = f"mail: {{server: s, sender: a@b.c, to: [d@e.f], user: u, password: {place}}}"
    assert mistakes(load, in_onelake(principal)) == [f"2: credential: {SECRETS}"]
    where = SECRETS.removeprefix("service_principal: secret ")
    assert mistakes(load, alerts(webhook)) == [f"1: url: {where}"]
    assert mistakes(load, alerts(mail)) == [f"1: password: {where}"]


@pytest.mark.parametrize(
    ("line", "mistake"),
    [
        (f"credential: {{{PASTED}}}", "(not shown): has no value: give it one, or leave the field out"),
        (
            f"credential: {{service_principal: {{tenant_id: t, client_id: c, secret: {{env: X}}, {PASTED}: x}}}}",
            "credential: service_principal: a field is not known; known here: tenant_id, client_id, secret, authority",
        ),
        (
            f"credential: {{service_principal: {{tenant_id: t, client_id: c, secret: {{{PASTED}}}}}}}",
            "(not shown): has no value: give it one, or leave the field out",
        ),
        ("credential: !hush x", "credential: has a tag that is not known here"),
        (f"alerts: {{{PASTED}: 5}}", "(not shown): is not a known field; known here: behind, webhooks, mail, state"),
        (f"alerts: {{webhooks: [{{? '{HOOK}' : 1, name: a, kind: slack, url: {{env: X}}}}]}}", "(not shown): is not a"),
        (f"alerts: {{webhooks: ['{HOOK}']}}", "webhooks: must hold fields and their values, not what is there"),
        (f"alerts: {{webhooks: '{HOOK}'}}", "webhooks: must be a list, not what is there"),
        (f"alerts: {{mail: '{PASTED}'}}", "mail: must hold fields and their values, not what is there"),
        ("alerts: {state: 'https://x/y?sig=hush'}", "state: 'https://x/y?…' is not a folder that this process can"),
        (f"alerts: {{state: ./s, a: {{? '{PASTED}' : 1, ? '{PASTED}' : 2}}}}", "(not shown): is there twice, first on"),
    ],
)
def test_nothing_that_may_be_a_secret_is_repeated(load: Load, line: str, mistake: str) -> None:
    told = mistakes(load, in_onelake(line))
    assert any(each.startswith(f"2: {mistake}") for each in told), told
    assert "hush" not in " ".join(told)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("credential: *hush", "found undefined alias: what begins with * or ! must be in quotes."),
        ("alerts: !hush!hush x", "found undefined tag handle: what begins with * or ! must be in quotes."),
    ],
)
def test_nor_is_it_where_yaml_ends_over_it(load: Load, line: str, what: str) -> None:
    with pytest.raises(ConfigUnreadable) as refused:
        load(f"{line}\n")
    assert what in str(refused.value)
    assert "hush" not in str(refused.value)


def test_an_endpoint_and_its_certificates_may_be_others(load: Load, tmp_path: Path) -> None:
    lines = "endpoint: https://localhost:8443/", "fabric_endpoint: https://api", "trusted_hosts: [localhost, API]"
    read = load(in_onelake(*lines, "ca_file: ca.pem"))
    assert (read.endpoint, read.ca_file) == ("https://localhost:8443", f"{tmp_path}/ca.pem")
    assert read.fabric_endpoint == "https://api"


@pytest.mark.parametrize("trusted", ["", "trusted_hosts: [other]", "trusted_hosts: ['*.host.example']"])
@pytest.mark.parametrize(
    ("line", "mistake"),
    [
        ("endpoint: https://host.example", "endpoint: "),
        ("fabric_endpoint: https://host.example:8443", "fabric_endpoint: "),
        (
            "credential: {service_principal: {tenant_id: t, client_id: c, secret: {env: X},"
            " authority: 'https://host.example'}}",
            "credential: service_principal: authority ",
        ),
    ],
)
def test_only_hosts_that_are_trusted_get_tokens(load: Load, line: str, mistake: str, trusted: str) -> None:
    words = "gets tokens, and is not a host of Microsoft: if you trust it, list it in trusted_hosts"
    assert mistakes(load, in_onelake(line, *filter(None, [trusted]))) == [f"2: {mistake}{words}"]
    assert load(in_onelake(line, "trusted_hosts: ['*.example.com', host.example]")).onelake


@pytest.mark.parametrize("hosts", ["host", "[5]", "['*']", "['*.com']", "['https://host.example']", "['a..b']"])
def test_a_list_of_trusted_hosts_holds_hosts(load: Load, hosts: str) -> None:
    (told,) = mistakes(load, in_onelake(f"trusted_hosts: {hosts}"))
    assert told.startswith("2: trusted_hosts: ")
    assert ", as in " in told


@pytest.mark.parametrize("name", ["endpoint", "fabric_endpoint"])
def test_user_info_is_refused_and_not_repeated(load: Load, name: str) -> None:
    lines = f"{name}: https://user:hush@host.example", "trusted_hosts: [host.example]"
    told = mistakes(load, in_onelake(*lines))
    assert told == [f"2: {name}: has user info before @, which is never sent: leave it out"]


@pytest.mark.parametrize(
    "endpoint", ["localhost", "https://[::1", "https://a..b", "http://localhost", "https://localhost/path", "https://"]
)
def test_an_endpoint_is_an_https_address(load: Load, endpoint: str) -> None:
    (told,) = mistakes(load, in_onelake(f"endpoint: {endpoint}"))
    assert told == (f"2: endpoint: '{endpoint}' is not an https address without a path, as in https://host:port")


def test_what_is_for_onelake_is_refused_for_a_folder(load: Load) -> None:
    assert mistakes(
        load, in_onelake("credential: default", "endpoint: https://onelake.dfs.fabric.microsoft.com", zone="lz")
    ) == [
        "2: credential: is for a landing zone in OneLake alone (onelake://…)",
        "3: endpoint: is for a landing zone in OneLake alone (onelake://…)",
    ]


def test_a_configuration_for_onelake_can_be_sent_to_other_processes(load: Load) -> None:
    read = load(in_onelake("credential: {service_principal: {tenant_id: t, client_id: c, secret: {env: X}}}"))
    assert pickle.loads(pickle.dumps(read)) == read
    assert hash(read) == hash(pickle.loads(pickle.dumps(read)))


def test_a_landing_zone_and_a_ledger_that_are_given_take_the_place_of_the_files(tmp_path: Path) -> None:
    (tmp_path / "mirrorfeed.yml").write_text(
        in_onelake("credential: {service_credential: fabric}", "ledger: main.ours.ledger")
    )
    read = config.load(tmp_path / "mirrorfeed.yml", landing_zone="./zone", ledger="main.theirs.ledger")
    assert (read.landing_zone, str(read.ledger)) == (f"{tmp_path}/zone", "main.theirs.ledger")
    read = config.load(tmp_path / "mirrorfeed.yml")
    assert (read.landing_zone, str(read.ledger)) == (f"onelake://{WORKSPACE}/{DATABASE}", "main.ours.ledger")


@pytest.mark.parametrize(
    "line",
    [
        "source: abfss://lake@account.dfs.core.windows.net/orders?sig=ecret",
        "source: /Volumes/main/lake/orders?sig=ecret",
        "source: https://account.blob.core.windows.net/lake/`a`.b.c.d?sig=ecret",
        "landing_zone: https://account.dfs.core.windows.net/lake?sig=ecret",
        "landing_zone: onelake://11111111-aaaa-4aaa-8aaa-111111111111?sig=ecret",
        "endpoint: https://host/a?sig=ecret",
        "ledger: abfss://lake@account.dfs.core.windows.net/ledger?sig=ecret",
    ],
)
def test_an_address_that_carries_its_access_is_refused_and_not_shown(load: Load, line: str) -> None:
    if line.startswith("source"):
        text = f"landing_zone: /lz\ntables:\n  - {line}\n    target: a"
    else:
        zone = "" if line.startswith("landing_zone") else "landing_zone: /lz\n"
        text = f"{zone}{line}\ntables: [{{source: a, target: a}}]"
    with pytest.raises(ConfigInvalid) as refused:
        load(text)

    assert "ecret" not in str(refused.value)
    assert "?…" in str(refused.value)


@pytest.mark.parametrize(
    ("written", "mistake"),
    [
        ("{seconds: never}", "at_most: would never publish anything: give it seconds, rows or bytes that come about"),
        ("{seconds: -1}", "seconds: must be a number of seconds from 0 to 86400, or never, not -1"),
        ("{seconds: .inf}", "seconds: must be a number of seconds from 0 to 86400, or never, not inf"),
        ("{rows: 0}", "rows: must be at least 1, not 0"),
        ("{bytes: 1}", "bytes: 1 is not between 1 KiB and 4 GiB"),
    ],
)
def test_a_policy_that_cannot_fire_is_refused(load: Load, written: str, mistake: str) -> None:
    with pytest.raises(ConfigInvalid, match=re.escape(mistake)):
        load(f"landing_zone: here\nat_most: {written}\ntables:\n  - {{source: a.b.c, target: s.t}}\n")


def test_a_policy_may_leave_the_time_out(load: Load) -> None:
    written = "landing_zone: here\nat_most: {seconds: never, rows: 9}\ntables:\n  - {source: a.b.c, target: s.t}\n"
    policy = load(written).tables[0].at_most.policy
    assert (policy.seconds, policy.rows, policy.bytes) == (None, 9, None)


def alerts(text: str) -> str:
    return f"alerts: {{{text}}}\n{SMALLEST}"


def test_alerts_have_limits_of_their_own_and_tell_nobody_unless_the_file_says_so(load: Load) -> None:
    read = load(SMALLEST).alerts
    assert (read.behind.visible, read.behind.consumed, read.behind.mirrored, read.behind.seen) == (120, 30, 30, 60)
    assert (read.webhooks, read.mail, read.state, read.sql_endpoint) == ((), None, None, "leave")
    read = load(
        alerts(
            "behind: {visible: 15, seen: never}, sql_endpoint: refresh, state: ./told,"
            " webhooks: [{name: ops, kind: slack, url: {env: HOOK}}, {name: t, kind: teams, url: {scope: s, key: k}}],"
            " mail: {server: smtp.example.com, sender: a@b.c, to: [d@e.f], user: u, password: {env: MAIL}}"
        )
    ).alerts
    assert (read.behind.visible, read.behind.consumed, read.behind.seen) == (15, 30, None)
    assert [(each.name, each.kind, each.url) for each in read.webhooks] == [
        ("ops", "slack", Secret(env="HOOK")),
        ("t", "teams", Secret(scope="s", key="k")),
    ]
    assert read.mail
    assert (read.mail.port, read.mail.tls, read.mail.to, read.mail.password) == (
        587, "starttls", ["d@e.f"], Secret(env="MAIL"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("behind: {seen: 0}", "1: seen: must be a number of minutes from 1 to 525600, or never, not 0"),
        ("behind: {seen: soon}", "1: seen: must be a number of minutes from 1 to 525600, or never, not 'soon'"),
        ("behind: {read: 5}", "1: (not shown): is not a known field; known here: visible, consumed, mirrored, seen"),
        ("webhooks: [{name: a, kind: irc, url: {env: H}}]", "1: kind: must be teams or slack, not what is there"),
        (
            "webhooks: [{name: a, kind: slack, url: 'https://hooks.slack.com/services/T0/B0/s3cret'}]",
            "1: url: must say where the secret is, {scope: …, key: …} or {env: …} or both; a secret itself does not"
            " belong in this file",
        ),
        (
            "webhooks: [{name: a, kind: slack, url: {env: H}}, {name: a, kind: teams, url: {env: H}}]",
            "1: alerts: webhooks: a is the name of more than one: each needs its own",
        ),
        (
            "webhooks: [{name: mail, kind: slack, url: {env: H}}]",
            "1: name: 'mail' is the name of another way to be told",
        ),
        ("mail: {server: s, sender: me, to: [d@e.f]}", "1: sender: 'me' is not an address, as in someone@example.com"),
        ("mail: {server: s, sender: a@b.c, to: []}", "1: to: is empty"),
        ("mail: {server: a..b, sender: a@b.c, to: [d@e.f]}", "1: server: 'a..b' is not a host, as in smtp.example.com"),
        (
            "mail: {server: s, sender: a@b.c, to: [d@e.f], user: u}",
            "1: mail: user and password belong together: give both, or neither",
        ),
        (
            "state: https://x/y",
            "1: state: 'https://x/y' is not a folder that this process can write to: name a volume (/Volumes/…)",
        ),
    ],
)
def test_mistakes_in_alerts_are_told_and_repeat_no_secret(load: Load, text: str, mistake: str) -> None:
    assert mistakes(load, alerts(text)) == [mistake]


def test_histories_are_in_one_place_for_all_or_where_each_table_says(load: Load, tmp_path: Path) -> None:
    tables = """\
tables:
  - {source: main.a, target: sales.orders}
  - {source: main.b, target: items, history: false}
  - {source: main.c, target: c, history: {into: main.audit.c, archive: 30 days}}
"""
    found = [table.history for table in load(f"landing_zone: /lz\nhistory: main.history\n{tables}").tables]
    assert [(str(each.table), each.archive_days) if each else None for each in found] == [
        ("main.history.sales_orders", None),
        None,
        ("main.audit.c", 30),
    ]
    below = load(f"landing_zone: /lz\nhistory: {{into: ./kept/, archive: 180 days}}\n{tables}").tables[0].history
    assert (below.table.path, below.archive_days) == (f"{tmp_path}/kept/sales/orders", 180)
    assert load(SMALLEST).tables[0].history is None


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("history: 5", "1: history: must name a schema or a folder, as in main.history, not 5"),
        ("history: {}", "1: history: must name a schema or a folder, as in main.history, not None"),
        ("history: a.b.c", "1: history: 'a.b.c' is a table: for all tables together name a schema, or a folder"),
        ("history: {into: a, days: 3}", "1: history: 'days' is not a known field of it; known here: into, archive"),
        ("history: {into: a, archive: 3 hours}", "1: history: archive: '3 hours' is not a whole number of days"),
        ("history: /lz/kept", "1: history: is in the landing zone: name a folder elsewhere"),
    ],
)
def test_a_history_that_cannot_be_is_refused(load: Load, text: str, mistake: str) -> None:
    found = mistakes(load, f"{text}\n{SMALLEST}")
    assert len(found) == 1
    assert found[0].startswith(mistake)


def test_a_history_is_no_source_no_ledger_and_of_one_table_alone(load: Load) -> None:
    text = """\
landing_zone: /lz
ledger: main.ours.ledger
history: main.history
tables:
  - {source: main.a, target: a, history: main.b}
  - {source: main.b, target: x_y, history: MAIN.ours.ledger}
  - {source: main.c, target: x.y}
  - {source: main.d, target: z, history: main.history.x_y}
  - {source: main.e, target: e, history: 7}
"""
    assert mistakes(load, text) == [
        "5: history: 'main.b' is the source of a table: name another table for the history of a",
        "6: history: 'MAIN.ours.ledger' is the ledger: name another table for the history of x_y",
        "8: history: 'main.history.x_y' is the history of another table too: name another table for the history of z",
        "9: history: must name a table, as in main.history.orders, or false, not 7",
    ]


# What of a table is published


def test_a_table_is_published_whole_unless_it_says_otherwise(load: Load) -> None:
    assert load(SMALLEST).tables[0].selection is None
    lines = (
        "columns: [id, cust, note]",
        "where: region = 'EU'",
        "rename: {cust: customer}",
        "cast: {note: string(20)}",
        "keys: [id]",
    )
    table = load(SMALLEST + "".join(f"    {line}\n" for line in lines)).tables[0]
    assert table.selection == Selection(
        ("id", "cust", "note"), (), "region = 'EU'", {"cust": "customer"}, {"note": "string(20)"}
    )
    assert load(with_table("except_columns: [ssn]")).tables[0].selection == Selection(except_columns=("ssn",))


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("columns: []", "columns: is empty: name a column, or leave the field out"),
        ("columns: id", "columns: must be a list of column names, as in [order_id], not 'id'"),
        ("except_columns: [a, A]", "except_columns: 'a' is there 2 times"),
        ("columns: [__rowMarker__]", "columns: '__rowMarker__' is reserved for the feed and the landing zone"),
        ("where: ''", "where: is empty: write a condition, or leave the field out"),
        ("where: 1", "where: must be text, not 1: put it in quotes"),
        ("where: true", "where: must be text, not True: put it in quotes"),
        ("where: 1 = 1", "where: names no column"),
        ("where: id IN (SELECT 1)", "where: holds a subquery (SELECT), and other rows do not tell"),
        ("where: count(id) > 1", "where: holds an aggregate, count(), and is to be decided by a row's own values"),
        ("where: rand() < id", "where: calls rand(), which is none of those that are known to give the same"),
        ("where: at < current_timestamp()", "where: has CURRENT_TIMESTAMP, and is to be decided by a row's own"),
        ("rename: [a]", "rename: must hold columns of the source, each with text, as in {cust_id: customer}"),
        ("rename: {a: x, b: X}", "rename: 'X' would be the name of more than one column"),
        ("rename: {a: _change_type}", "rename: '_change_type' is reserved for the feed and the landing zone"),
        ("rename: {a: ' '}", "rename: ' ' is not the name of a column"),
        ("cast: {a: varchar}", "cast: 'varchar' is no type to cast to; known here are such as string, string(20)"),
        ("columns: [a]\n    except_columns: [b]", "except_columns: and `columns` exclude each other"),
        ("columns: [a]\n    rename: {b: c}", "rename: 'b' is a column that is left out"),
        ("except_columns: [b]\n    cast: {b: string}", "cast: 'b' is a column that is left out"),
        ("columns: [a, b]\n    rename: {a: B}", "rename: 'a' cannot be 'B', which another column is"),
        ("columns: [a]\n    keys: [id]", "columns: 'id' is a key, and cannot be left out"),
        ("except_columns: [id]\n    keys: [id]", "except_columns: 'id' is a key, and cannot be left out"),
        ("cast: {id: string(3)}\n    keys: [id]", "cast: 'id' is a key, and two of them may be the same string(3)"),
        ("column: [a]", "column: is not a known field; did you mean columns?"),
    ],
)
def test_a_selection_that_cannot_be_is_refused_with_its_field(load: Load, lines: str, told: str) -> None:
    (found,) = mistakes(load, with_table(lines))
    assert found.partition(": ")[2].startswith(told)


def test_a_selection_is_for_a_table_and_not_for_all(load: Load) -> None:
    assert mistakes(load, f"where: a = 1\n{SMALLEST}") == ["1: where: belongs to a table, below tables"]


def test_what_is_compared_is_published_whole_also_by_a_pattern(load: Load) -> None:
    for names in ("source: main.sales.v, target: v, keys: [id]", "sources: main.sales.*, keys: [id]"):
        text = f"landing_zone: /lz\nledger: main.ours.ledger\ntables: [{{{names}, changes: compare, where: a > 1}}]\n"
        assert mistakes(load, text) == [
            "3: changes: compare publishes all of a source: select columns and rows in a view"
        ]
