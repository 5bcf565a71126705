from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorfeed.api.archive_table import ArchiveAwareTable
from mirrorfeed.errors import TerminalError
from mirrorfeed.source.errors import SourceNameError
from mirrorfeed.source.identifier import Pattern, Source, matches_end, quote

PART = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"], exclude_characters="/"), min_size=1).filter(
    lambda part: part == part.strip()
)


@pytest.mark.parametrize(
    ("identifier", "sql"),
    [
        ("orders", "`orders`"),
        ("my orders", "`my orders`"),
        ("a.b", "`a.b`"),
        ("a`b", "`a``b`"),
        ("`", "````"),
        ("``", "``````"),
        ("x` ; DROP TABLE y; --", "`x`` ; DROP TABLE y; --`"),
        ('it\'s "quoted"', '`it\'s "quoted"`'),
        ("größe", "`größe`"),
        ("", "``"),
    ],
)
def test_identifier_with_special_characters_is_quoted(identifier: str, sql: str) -> None:
    assert quote(identifier) == sql


@pytest.mark.parametrize(
    ("text", "parts", "sql"),
    [
        ("orders", ("orders",), "`orders`"),
        ("sales.orders", ("sales", "orders"), "`sales`.`orders`"),
        ("main.sales.orders", ("main", "sales", "orders"), "`main`.`sales`.`orders`"),
        ("main.`my schema`.orders", ("main", "my schema", "orders"), "`main`.`my schema`.`orders`"),
        ("main.my schema.orders", ("main", "my schema", "orders"), "`main`.`my schema`.`orders`"),
        ("my-catalog.sales.orders", ("my-catalog", "sales", "orders"), "`my-catalog`.`sales`.`orders`"),
        ("`a.b`.c", ("a.b", "c"), "`a.b`.`c`"),
        ("`a``b`.c", ("a`b", "c"), "`a``b`.`c`"),
        ("x; DROP TABLE y", ("x; DROP TABLE y",), "`x; DROP TABLE y`"),
        ("läger.bestände", ("läger", "bestände"), "`läger`.`bestände`"),
    ],
)
def test_name_is_split_into_raw_parts_and_reaches_sql_quoted(text: str, parts: tuple[str, ...], sql: str) -> None:
    source = Source.parse(text)
    assert (source.parts, source.path, source.sql) == (parts, None, sql)


@pytest.mark.parametrize(
    ("path", "sql"),
    [
        ("/data/orders", "`delta`.`/data/orders`"),
        ("./orders", "`delta`.`./orders`"),
        ("/data/my orders.v2", "`delta`.`/data/my orders.v2`"),
        ("/data/a`b", "`delta`.`/data/a``b`"),
        ("/data/`a/b`", "`delta`.`/data/``a/b```"),
        (
            "abfss://lake@account.dfs.core.windows.net/orders",
            "`delta`.`abfss://lake@account.dfs.core.windows.net/orders`",
        ),
    ],
)
def test_text_with_a_slash_is_a_path_and_reaches_sql_quoted(path: str, sql: str) -> None:
    source = Source.parse(path)
    assert (source.parts, source.path, source.sql, str(source)) == ((), path, sql, path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "has an empty part"),
        ("a..b", "has an empty part"),
        (".a", "has an empty part"),
        ("a.", "has an empty part"),
        ("``", "has an empty part"),
        ("a.b.c.d", "has 4 parts, and a name has at most 3: catalog, schema and table"),
        ("a. b", "has a part that starts or ends with a space: ' b'"),
        ("/data/orders ", "has a part that starts or ends with a space: '/data/orders '"),
        ("a.b\tc", "has a control character: '\\t'"),
        ("a.b\x00", "has a control character: '\\x00'"),
        ("/data/\x00", "has a control character: '\\x00'"),
        ("`a.b", "has a backtick that does not enclose a whole part"),
        ("a`b", "has a backtick that does not enclose a whole part"),
        ("`a`b.c", "has a backtick that does not enclose a whole part"),
        ("delta.`/data/orders`", "has '/' inside backticks"),
    ],
)
def test_invalid_source_is_rejected_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(SourceNameError) as caught:
        Source.parse(text)
    assert caught.value.reason.startswith(reason)


def test_error_shows_the_original_source_text() -> None:
    with pytest.raises(SourceNameError) as caught:
        Source.parse("a.b.c.d")
    assert isinstance(caught.value, TerminalError)
    assert caught.value.text == "a.b.c.d"
    assert caught.value.reason == "has 4 parts, and a name has at most 3: catalog, schema and table"
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize("arguments", [((), None), (("a",), "/b"), ((), "")])
def test_source_built_from_parts_is_checked_too(arguments: tuple[tuple[str, ...], str | None]) -> None:
    with pytest.raises(SourceNameError):
        Source(*arguments)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("main.Sales.orders", "MAIN.sales.Orders", True),
        ("`main`.sales.orders", "main.sales.orders", True),
        ("sales.orders", "main.sales.orders", False),
        ("/data/orders", "/data/Orders", False),
        ("/data/orders", "/data/orders", True),
    ],
)
def test_names_are_case_insensitive_and_paths_case_sensitive(one: str, other: str, same: bool) -> None:
    assert (Source.parse(one).fold() == Source.parse(other).fold()) is same


@given(st.lists(PART, min_size=1, max_size=3))
def test_printed_name_is_parsed_to_the_same_name(parts: list[str]) -> None:
    source = Source(tuple(parts))
    assert Source.parse(str(source)) == source


@given(st.text())
def test_name_cannot_end_its_own_quotes(identifier: str) -> None:
    quoted = quote(identifier)
    assert quoted[0] == quoted[-1] == "`"
    assert "`" not in quoted[1:-1].replace("``", "")
    assert quoted[1:-1].replace("``", "`") == identifier


@pytest.mark.parametrize(
    ("pattern", "source", "matches"),
    [
        ("main.sales.*", "main.sales.orders", True),
        ("main.sales.*", "MAIN.Sales.Orders", True),
        ("main.sales.*", "main.other.orders", False),
        ("main.sales.*", "sales.orders", False),
        ("main.sales.fact_*", "main.sales.fact_orders", True),
        ("main.sales.fact_*", "main.sales.dim_fact_x", False),
        ("main.sales.*_v*", "main.sales.orders_v2", True),
        ("main.*.*", "main.sales.orders", True),
        ("main.`my.schema`.*", "main.`my.schema`.orders", True),
        ("main.sales.a[b]*", "main.sales.`a[b]c`", True),
        ("main.sales.a[b]*", "main.sales.abc", False),
        ("sales.*", "sales.orders", True),
        ("/lake/*", "/lake/orders", True),
        ("/lake/*", "/lake/sales/orders", False),
        ("/lake/*/*", "/lake/sales/orders", True),
        ("/lake/Fact_*", "/lake/fact_orders", False),
    ],
)
def test_pattern_matches_names_case_insensitively_and_paths_exactly(pattern: str, source: str, matches: bool) -> None:
    assert Pattern.parse(pattern).matches(Source.parse(source)) is matches


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("main.sales.orders", "'main.sales.orders' contains no '*'. Name a single table with `source`"),
        ("*", "'*' is not a schema and a table, with or without a catalog"),
        ("a.b.c.*", "'a.b.c.*' is not a schema and a table, with or without a catalog"),
        ("*.sales.*", "'*.sales.*' matches several catalogs. Write one entry for each catalog"),
        ("main..*", "'main..*' has an empty part"),
        ("main.`sales.*", "'main.`sales.*' has a backtick that does not enclose a whole part"),
        ("abfss://c@a.net/*", "'abfss://c@a.net/*' is a URI, and only local folders can be listed"),
        ("~/tables/*", "'~/tables/*' is not a folder path"),
        ("/a*/b/c/*", "'/a*/b/c/*' has '*' in a folder other than the last two"),
    ],
)
def test_invalid_pattern_is_rejected(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(words)}"):
        Pattern.parse(text)


@pytest.mark.parametrize(
    ("ending", "source", "left_out"),
    [
        (("tmp_*",), "main.sales.tmp_orders", True),
        (("TMP_*",), "main.sales.tmp_orders", True),
        (("tmp_*",), "main.tmp_sales.orders", False),
        (("staging", "*"), "main.staging.orders", True),
        (("main", "sales", "orders"), "main.sales.orders", True),
        (("other", "main", "sales", "orders"), "main.sales.orders", False),
        (("tmp_*",), "/lake/tmp_orders", True),
        (("tmp", "*"), "/lake/tmp/orders", True),
    ],
)
def test_exclusions_match_the_last_parts_of_a_name(ending: tuple[str, ...], source: str, left_out: bool) -> None:
    assert matches_end(Source.parse(source), ending) is left_out


def test_a_typed_path_starts_at_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Source.parse_argument("./lake/bikes").path == f"{tmp_path}/lake/bikes"
    assert ArchiveAwareTable(lambda: pytest.fail("Spark was started"), "./lake/bikes").source.path == (
        f"{tmp_path}/lake/bikes"
    )
    for name in ("main.sales.bikes", "s3://bucket/bikes"):
        assert str(Source.parse_argument(name)) == name
