from __future__ import annotations

import math
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest
import yaml
from pydantic import ValidationError

from mirrorfeed.config import loader
from mirrorfeed.config.errors import ConfigInvalidError, UnknownTableError, config_missing, config_unreadable
from mirrorfeed.config.model import Config, Table
from mirrorfeed.config.options import Options
from mirrorfeed.errors import TerminalError
from mirrorfeed.landing.names import Target
from mirrorfeed.landing.output_format import Delimited, Output
from mirrorfeed.landing.selection import Selection
from mirrorfeed.runtime.credentials import Credential, Default, Secret, ServiceCredential, ServicePrincipal
from mirrorfeed.source.identifier import Source
from tests.raised import raises

Load = Callable[[str], Config]

SMALLEST = """\
landing_zone: /lz
tables:
  - source: main.sales.orders
    target: sales.orders
"""

PRICES = "currency: EUR, standard: {per_gib: 0.02, per_10k_files: 5}, high: {per_gib: 0.1, per_10k_files: 50}"


TOO_MUCH = "its aliases (*name) expand to too many values, or to themselves: write the values out."
BOMB = b"a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + b"".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n".encode() for n in range(1, 10)
)
CHAIN = b"a0: &a0 [x]\n" + b"".join(f"a{n}: &a{n} [*a{n - 1}]\n".encode() for n in range(1, 5000))


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Load a text as the file mirrorfeed.yml of the working folder."""
    monkeypatch.chdir(tmp_path)

    def load_text(text: str) -> Config:
        Path("mirrorfeed.yml").write_text(dedent(text), encoding="utf-8")
        return loader.load("mirrorfeed.yml")

    return load_text


def with_table(line: str) -> str:
    return f"{SMALLEST}    {line}\n"


def test_smallest_file_has_all_defaults(load: Load) -> None:
    read = load(SMALLEST)
    assert read.landing_zone == "/lz"
    (table,) = read.tables
    assert (table.source, table.target) == (Source(("main", "sales", "orders")), Target("sales", "orders"))
    assert table.keys is None
    assert (table.changes, table.validate_keys, table.compression) == ("net", "source", "zstd")
    assert (table.target_file_size, table.max_versions_per_publication, table.log_retention_records) == (
        128 * 1024 * 1024,
        500,
        10,
    )
    assert (table.on_gap, table.on_schema_change, table.on_dropped_column) == ("stop", "stop", "keep")


def test_defaults_are_driver_upload_and_no_staging_path(load: Load, tmp_path: Path) -> None:
    read = load(SMALLEST)
    assert (read.upload_from, read.staging_path) == ("driver", None)
    read = load(f"upload_from: executors\nstaging_path: /Volumes/main/ours/staging/\n{SMALLEST}")
    assert (read.upload_from, read.staging_path) == ("executors", "/Volumes/main/ours/staging")
    assert load(f"staging_path: ./between\n{SMALLEST}").staging_path == str(tmp_path / "between")
    assert loader.load("mirrorfeed.yml", staging_path="/Volumes/a/b/c").staging_path == "/Volumes/a/b/c"


def test_top_level_option_applies_to_tables_without_their_own(load: Load) -> None:
    first, second, third = load(
        """\
        landing_zone: /lz
        changes: full
        validate_keys: range
        compression: gzip
        target_file_size: 1 KiB
        max_versions_per_publication: 7
        log_retention_records: 3
        on_gap: reseed
        on_schema_change: reseed
        on_dropped_column: reseed
        tables:
          - {source: a, target: a}
          - {source: b, target: b, changes: net, validate_keys: none, target_file_size: 2 MiB, on_gap: stop}
          - {source: c, target: c, compression: zstd, max_versions_per_publication: 500, log_retention_records: 2}
        """
    ).tables
    assert _options(first) == ("full", "range", "gzip", 1024, 7, 3, "reseed", "reseed", "reseed")
    assert _options(second) == ("net", "none", "gzip", 2 * 1024 * 1024, 7, 3, "stop", "reseed", "reseed")
    assert _options(third) == ("full", "range", "zstd", 1024, 500, 2, "reseed", "reseed", "reseed")


def test_freshness_target_of_never_differs_from_an_omitted_one(load: Load) -> None:
    never, omitted, own = load(
        """\
        landing_zone: /lz
        tables:
          - {source: a, target: a, freshness_target_minutes: never}
          - {source: b, target: b}
          - {source: c, target: c, freshness_target_minutes: 15}
        """
    ).tables
    assert [each.freshness_target_minutes for each in (never, omitted, own)] == [math.inf, None, 15.0]
    assert [each.finite_freshness_target for each in (never, omitted, own)] == [None, None, 15.0]


def _options(table: Table) -> tuple[object, ...]:
    names = (
        "changes",
        "validate_keys",
        "compression",
        "target_file_size",
        "max_versions_per_publication",
        "log_retention_records",
    )
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
def test_size_is_a_number_with_a_unit(load: Load, written: str, size: int) -> None:
    assert load(with_table(f"target_file_size: {written}")).tables[0].target_file_size == size


@pytest.mark.parametrize(
    ("written", "keys"),
    [
        ("[order_id]", ("order_id",)),
        ("[shop, order id, größe, a.b, 'c`d']", ("shop", "order id", "größe", "a.b", "c`d")),
        ("[]", ()),
    ],
)
def test_keys_preserve_their_order_and_an_empty_list_means_no_key(
    load: Load, written: str, keys: tuple[str, ...]
) -> None:
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
def test_relative_paths_are_resolved_against_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str, landing_zone: str, source: str
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    file = folder / "mirrorfeed.yml"
    file.write_text(f"landing_zone: {written}\ntables: [{{source: lake/orders, target: orders}}]\n", encoding="utf-8")
    for place, path in ((tmp_path, Path("project/mirrorfeed.yml")), (Path("/"), file)):
        monkeypatch.chdir(place)
        read = loader.load(path)
        assert read.landing_zone == landing_zone.format(folder=folder, parent=tmp_path)
        assert read.tables[0].source == Source(path=source.format(folder=folder))


@pytest.mark.parametrize("source", ["/data/orders", "abfss://lake@account.dfs.core.windows.net/orders", "file:/data/x"])
def test_absolute_paths_and_urls_are_not_changed(load: Load, source: str) -> None:
    assert load(SMALLEST.replace("main.sales.orders", source)).tables[0].source == Source(path=source)


def test_environment_variables_are_not_expanded(load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", "elsewhere")
    assert load(SMALLEST.replace("/lz", "$PLACE/$${PLACE}")).landing_zone == f"{tmp_path}/$PLACE/${{PLACE}}"


def test_all_mistakes_of_a_file_are_reported_with_their_lines(load: Load) -> None:
    text = """\
        landing_zone: onelake://workspace/database
        chanegs: net
        compression: lz4
        tables:
          - source: a.b.c.d
            target: _orders
            keys: [order_id, Order_ID]
          - target: sales.orders
            target_file_size: 12 MB
          - source: main.sales.orders
            target: Sales.Orders
            log_retention_records: 1
        """
    with pytest.raises(ConfigInvalidError) as caught:
        load(text)
    assert isinstance(caught.value, TerminalError)
    assert str(caught.value).splitlines() == [
        "The configuration has 10 mistakes:",
        "mirrorfeed.yml:1: landing_zone: 'onelake://workspace/database' does not name a workspace and a mirrored "
        "database by their ids: write onelake://<workspace id>/<mirrored database id>, both ids as in the address that"
        " Fabric shows, "
        "https://onelake.dfs.fabric.microsoft.com/<workspace id>/<mirrored database id>/Files/LandingZone",
        "mirrorfeed.yml:2: chanegs: is not a known field; did you mean changes?",
        "mirrorfeed.yml:3: compression: must be none, snappy, gzip or zstd, not 'lz4'",
        "mirrorfeed.yml:5: source: 'a.b.c.d' has 4 parts, and a name has at most 3: catalog, schema and table",
        "mirrorfeed.yml:6: target: '_orders' has a part that starts with '_', which Fabric ignores: '_orders'",
        "mirrorfeed.yml:7: keys: 'order_id' is listed 2 times",
        "mirrorfeed.yml:8: source: is missing",
        "mirrorfeed.yml:9: target_file_size: '12 MB' is not a size: write a whole number with KiB, MiB or GiB, such as"
        " 128 MiB",
        "mirrorfeed.yml:11: target: 'Sales.Orders' is also the target of the table on line 8 as 'sales.orders', "
        "and names are case-insensitive",
        "mirrorfeed.yml:12: log_retention_records: must be at least 2, not 1",
        "Correct the file and run the same command again. Nothing was done.",
    ]
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_file_format_is_set_for_all_tables_or_each(load: Load) -> None:
    first, second, third = load(
        """\
        landing_zone: /lz
        format: delimited
        delimited: {extension: tsv, column_separator: "\\t", row_separator: "\\n", encoding: utf-16, null: N/A}
        default_row_marker: upsert
        partner: {name: us, source_type: Delta, source_version: '4.0', information: {region: west, rounds: 3}}
        tables:
          - {source: a, target: a}
          - {source: b, target: b, format: parquet, file_order: modified_time}
          - {source: c, target: c, delimited: {}, default_row_marker: insert, changes: full, row_markers: exact}
        """
    ).tables
    assert first.output == Output(Delimited("tsv", "\n", "\t", null="N/A", encoding="utf-16"), upserts_by_default=True)
    assert second.output == Output(None, by_time=True, upserts_by_default=True)
    assert third.output == Output(Delimited())
    assert third.row_markers == "exact"


def test_archive_prices_are_read_from_the_configuration(load: Load) -> None:
    found = load(f"landing_zone: /lz\narchive: {{prices: {{{PRICES}}}}}\ntables: [{{source: a, target: b}}]")
    assert found.archive is not None
    assert (found.archive.prices.high.per_gib, found.archive.prices.stored) == (0.1, None)
    assert load("landing_zone: /lz\ntables: [{source: a, target: b}]").archive is None


def test_shared_list_may_be_a_yaml_alias(load: Load) -> None:
    keys = ["region", "id"]
    tables = [{"source": f"main.sales.t{n}", "target": f"sales.t{n}", "keys": keys} for n in range(200)]
    text = yaml.safe_dump({"landing_zone": "/lz", "tables": tables})
    assert "*id001" in text
    assert [table.keys for table in load(text).tables] == [("region", "id")] * 200


def test_single_mistake_is_not_counted(load: Load) -> None:
    with pytest.raises(ConfigInvalidError) as caught:
        load(with_table("kees: []"))
    assert caught.value.problem == (
        "The configuration has a mistake:\nmirrorfeed.yml:5: kees: is not a known field; did you mean keys?"
    )


def test_missing_file_error_suggests_init(tmp_path: Path) -> None:
    with raises(config_missing) as caught:
        loader.load(tmp_path / "mirrorfeed.yml")
    assert caught.value.path == f"{tmp_path}/mirrorfeed.yml"
    assert "mirrorfeed init" in caught.value.solution


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "mirrorfeed.yml: it is empty: landing_zone and tables are expected."),
        (b"# only words\n", "mirrorfeed.yml: it is empty: landing_zone and tables are expected."),
        (
            b"- a\n- b\n",
            "mirrorfeed.yml: its top level is not a map of fields and values: landing_zone and tables are expected.",
        ),
        (
            b"orders",
            "mirrorfeed.yml: its top level is not a map of fields and values: landing_zone and tables are expected.",
        ),
        (b"a: 1\nb: [1, 2\nc: 3\n", "mirrorfeed.yml:3: expected ',' or ']', but got ':'."),
        (b"a: 1\n\tb: 2\n", "mirrorfeed.yml:2: found character '\\t' that cannot start any token."),
        (b"a: 1\n---\nb: 2\n", "mirrorfeed.yml:2: but found another document."),
        (b"a: 1\nb: *c\n", "mirrorfeed.yml:2: found undefined alias: put values that begin with * or ! in quotes."),
        (b"a: 1\nb: &b [*b]\n", f"mirrorfeed.yml:2: {TOO_MUCH}"),
        (BOMB, f"mirrorfeed.yml:5: {TOO_MUCH}"),
        (CHAIN, f"mirrorfeed.yml:50: {TOO_MUCH}"),
        (b"a: 1\nb: gr\xf6\xdfe\n", "mirrorfeed.yml:2: it is not UTF-8 text."),
        (b"a: 1\nb: \x07\n", "mirrorfeed.yml:2: the character '\\x07' is not allowed in YAML."),
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
            "mirrorfeed.yml: its top level is not a map of fields and values: landing_zone and tables are expected.",
        ),
    ],
)
def test_file_that_is_not_yaml_is_refused_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, what: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mirrorfeed.yml").write_bytes(content)
    with raises(config_unreadable) as caught:
        loader.load()
    assert f"{caught.value.computed['place']}: {caught.value.reason}." == what


def test_folder_instead_of_the_file_is_refused(tmp_path: Path) -> None:
    with raises(config_unreadable, match=re.escape(f"{tmp_path}: Is a directory.")):
        loader.load(tmp_path)


def test_byte_order_mark_is_ignored(load: Load) -> None:
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
def test_tables_are_selected_by_target_or_source_in_file_order(
    load: Load, names: list[str], targets: list[str]
) -> None:
    assert [str(table.target) for table in load(SEVERAL).select(names)] == targets


def test_path_selects_its_table_from_any_working_folder(load: Load, tmp_path: Path) -> None:
    assert [str(table.target) for table in load(SEVERAL).select([f"{tmp_path}/lake/items"])] == ["items"]


@pytest.mark.parametrize("name", ["orders", "sales", "a.b.c.d", "", "`", "lake/other"])
def test_unknown_table_is_refused_with_the_known_ones(load: Load, name: str) -> None:
    with pytest.raises(UnknownTableError) as caught:
        load(SEVERAL).select(["customers", name])
    assert (caught.value.path, caught.value.names) == ("mirrorfeed.yml", (name,))
    assert caught.value.known == ("sales.orders", "customers", "copies.orders", "items")


def test_all_unknown_tables_are_named_together(load: Load) -> None:
    with pytest.raises(UnknownTableError, match=re.escape("mirrorfeed.yml has no target or source 'x', 'y'.")):
        load(SEVERAL).select(["x", "customers", "y"])


def test_configuration_is_frozen_and_picklable(load: Load) -> None:
    read = load(SEVERAL)
    with pytest.raises(ValidationError, match="frozen"):
        read.tables[0].changes = "full"
    assert pickle.loads(pickle.dumps(read)) == read
    assert hash(read) == hash(pickle.loads(pickle.dumps(read)))


def test_table_created_in_code_is_validated() -> None:
    table = Table(source=Source.parse("a"), target=Target.parse("b"), keys=("id",), target_file_size=2048)
    assert (table.keys, table.target_file_size, table.changes) == (("id",), 2048, "net")
    with pytest.raises(ValidationError, match="is listed 2 times"):
        Table(source=Source.parse("a"), target=Target.parse("b"), keys=("id", "ID"))


def test_example_is_a_valid_file(load: Load, tmp_path: Path) -> None:
    read = load(loader.EXAMPLE)
    assert read.landing_zone == f"{tmp_path}/landing"
    assert [(str(t.source), str(t.target), t.keys) for t in read.tables] == [
        ("main.sales.orders", "sales.orders", ("order_id",))
    ]


def test_example_comments_list_all_options_with_their_defaults(load: Load) -> None:
    options = re.findall(r"(?m)^#(\w+):", loader.EXAMPLE)
    assert set(options) == set(Options.model_fields)
    read = load(re.sub(r"(?m)^#(?=\w|  \w)", "", loader.EXAMPLE))
    target = read.alerts.max_lag_minutes.published  # applies if the option is omitted, so there is no other spelling
    given = {"freshness_target_minutes": target, "hash_key": Secret(scope="mirrorfeed", key="hash_key")}
    assert read.tables == tuple(each.model_copy(update=given) for each in load(loader.EXAMPLE).tables)


WORKSPACE, DATABASE = "0f8fad5b-d9cb-469f-a165-70867728950e", "7c9e6679-7425-40de-944b-e07fc1f90ae7"


def in_onelake(*lines: str, zone: str = f"onelake://{WORKSPACE}/{DATABASE}") -> str:
    return "\n".join([f"landing_zone: {zone}", *lines, "tables: [{source: a, target: b}]"])


@pytest.mark.parametrize(
    "zone",
    [
        f"onelake://{WORKSPACE}/{DATABASE}",
        f"onelake://{WORKSPACE}/{DATABASE}/",
        f"onelake://{WORKSPACE.upper()}/{DATABASE.upper()}",
        f"https://onelake.dfs.fabric.microsoft.com/{WORKSPACE}/{DATABASE}/Files/LandingZone",
    ],
)
def test_onelake_landing_zone_has_two_ids(load: Load, zone: str) -> None:
    read = load(in_onelake(zone=zone))
    assert read.landing_zone == f"onelake://{WORKSPACE}/{DATABASE}"
    assert (read.endpoint, read.ca_bundle, read.credential) == (None, None, Default())


@pytest.mark.parametrize(
    ("zone", "ids"),
    [
        (f"onelake://{WORKSPACE}/{DATABASE}", (WORKSPACE, DATABASE)),
        (f"onelake://{WORKSPACE}/", (WORKSPACE, None)),
        (f"onelake://{WORKSPACE}", (WORKSPACE, None)),
        ("landing", None),
    ],
)
def test_onelake_database_id_may_be_missing(load: Load, zone: str, ids: tuple[str, str | None] | None) -> None:
    assert load(in_onelake(zone=zone)).onelake == ids


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
def test_credential_is_parsed(load: Load, written: str, credential: Credential) -> None:
    assert load(in_onelake(f"credential: {written}")).credential == credential


def test_secret_without_a_scope_is_read_from_the_scope_of_the_deployment(load: Load) -> None:
    principal = "service_principal: {tenant_id: t, client_id: c, secret: {key: fabric, env: SECRET}}"
    hooks = "webhooks: [{name: a, kind: teams, url: {key: teams}}, {name: b, kind: slack, url: {scope: s, key: k}}]"
    read = load(in_onelake(f"credential: {{{principal}}}", f"alerts: {{{hooks}}}"))
    assert read.credential == ServicePrincipal("t", "c", Secret("SECRET", None, "fabric"))
    read = loader.load("mirrorfeed.yml", secret_scope="mirrorfeed_staging")
    assert read.credential == ServicePrincipal("t", "c", Secret("SECRET", "mirrorfeed_staging", "fabric"))
    assert [each.url for each in read.alerts.webhooks] == [
        Secret(scope="mirrorfeed_staging", key="teams"),
        Secret(scope="s", key="k"),
    ]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("credential: *hush", "found undefined alias: put values that begin with * or ! in quotes."),
        ("alerts: !hush!hush x", "found undefined tag handle: put values that begin with * or ! in quotes."),
    ],
)
def test_yaml_error_does_not_show_secrets(load: Load, line: str, what: str) -> None:
    with raises(config_unreadable) as caught:
        load(f"{line}\n")
    assert what in str(caught.value)
    assert "hush" not in str(caught.value)


def test_endpoint_and_certificates_can_be_overridden(load: Load, tmp_path: Path) -> None:
    lines = "endpoint: https://localhost:8443/", "fabric_endpoint: https://api", "trusted_hosts: [localhost, API]"
    read = load(in_onelake(*lines, "ca_bundle: ca.pem"))
    assert (read.endpoint, read.ca_bundle) == ("https://localhost:8443", f"{tmp_path}/ca.pem")
    assert (read.fabric_endpoint, read.private_link) == ("https://api", False)
    assert load(in_onelake("private_link: true")).private_link


@pytest.mark.parametrize(
    "line",
    [
        "endpoint: https://host.example",
        "fabric_endpoint: https://host.example:8443",
        "credential: {service_principal: {tenant_id: t, client_id: c, secret: {env: X},"
        " authority: 'https://host.example'}}",
    ],
)
def test_tokens_may_be_sent_to_trusted_hosts(load: Load, line: str) -> None:
    assert load(in_onelake(line, "trusted_hosts: ['*.example.com', host.example]")).onelake


def test_onelake_configuration_is_picklable(load: Load) -> None:
    read = load(in_onelake("credential: {service_principal: {tenant_id: t, client_id: c, secret: {env: X}}}"))
    assert pickle.loads(pickle.dumps(read)) == read
    assert hash(read) == hash(pickle.loads(pickle.dumps(read)))


def test_landing_zone_and_ledger_options_override_the_file(tmp_path: Path) -> None:
    (tmp_path / "mirrorfeed.yml").write_text(
        in_onelake("credential: {service_credential: fabric}", "ledger: main.ours.ledger")
    )
    read = loader.load(tmp_path / "mirrorfeed.yml", landing_zone="./zone", ledger="main.theirs.ledger")
    assert (read.landing_zone, str(read.ledger)) == (f"{tmp_path}/zone", "main.theirs.ledger")
    read = loader.load(tmp_path / "mirrorfeed.yml")
    assert (read.landing_zone, str(read.ledger)) == (f"onelake://{WORKSPACE}/{DATABASE}", "main.ours.ledger")


def test_follow_without_max_delay_is_valid(load: Load) -> None:
    limits = "follow: {max_delay_seconds: never, max_rows: 9}"
    written = f"landing_zone: here\n{limits}\ntables:\n  - {{source: a.b.c, target: s.t}}\n"
    policy = load(written).tables[0].follow
    assert (policy.max_delay_seconds, policy.max_rows, policy.max_bytes) == (None, 9, None)


def alerts(text: str) -> str:
    return f"alerts: {{{text}}}\n{SMALLEST}"


def test_alerts_have_default_limits_and_no_channels_by_default(load: Load) -> None:
    read = load(SMALLEST).alerts
    assert (
        read.max_lag_minutes.published,
        read.max_lag_minutes.consumed,
        read.max_lag_minutes.mirrored,
        read.max_lag_minutes.queryable,
    ) == (120, 30, 30, 60)
    assert (read.webhooks, read.mail, read.state_path, read.sql_endpoint) == ((), None, None, "leave")
    assert read.remind_after_hours == 24
    read = load(
        alerts(
            "max_lag_minutes: {published: 15, queryable: never}, sql_endpoint: refresh, state_path: ./told,"
            " remind_after_hours: 4,"
            " webhooks: [{name: ops, kind: slack, url: {env: HOOK}}, {name: t, kind: teams, url: {scope: s, key: k}}],"
            " mail: {server: smtp.example.com, sender: a@b.c, to: [d@e.f], user: u, password: {env: MAIL}}"
        )
    ).alerts
    assert (read.max_lag_minutes.published, read.max_lag_minutes.consumed, read.max_lag_minutes.queryable) == (
        15,
        30,
        None,
    )
    assert read.remind_after_hours == 4
    assert [(each.name, each.kind, each.url) for each in read.webhooks] == [
        ("ops", "slack", Secret(env="HOOK")),
        ("t", "teams", Secret(scope="s", key="k")),
    ]
    assert read.mail
    assert (read.mail.port, read.mail.tls, read.mail.to, read.mail.password) == (
        587, "starttls", ["d@e.f"], Secret(env="MAIL"),
    )  # fmt: skip


def test_root_is_a_folder(load: Load) -> None:
    assert load(alerts("state_path: /")).alerts.state_path == "/"


def test_history_location_is_common_or_per_table(load: Load, tmp_path: Path) -> None:
    tables = """\
tables:
  - {source: main.a, target: sales.orders}
  - {source: main.b, target: items, history: false}
  - {source: main.c, target: c, history: {location: main.audit.c, archive: 30 days}}
"""
    found = [table.history for table in load(f"landing_zone: /lz\nhistory: main.history\n{tables}").tables]
    assert [(str(each.table), each.archive_days) if each else None for each in found] == [
        ("main.history.sales_orders", None),
        None,
        ("main.audit.c", 30),
    ]
    below = load(f"landing_zone: /lz\nhistory: {{location: ./kept/, archive: 180 days}}\n{tables}").tables[0].history
    assert (below.table.path, below.archive_days) == (f"{tmp_path}/kept/sales/orders", 180)
    assert load(SMALLEST).tables[0].history is None
    assert load(f"history: false\n{SMALLEST}").tables[0].history is None


def test_table_has_no_selection_by_default(load: Load) -> None:
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
    assert load(with_table("exclude_columns: [ssn]")).tables[0].selection == Selection(exclude_columns=("ssn",))
    hidden = load("hash_key: {env: HASH_KEY}\n" + with_table("transform: {ssn: hash, born: truncate(month)}")).tables[0]
    assert hidden.selection == Selection(transform={"ssn": "hash", "born": "truncate(month)"})
    assert hidden.hash_key == Secret(env="HASH_KEY")
