from __future__ import annotations

import re

import pytest

from mirrorfeed.source.identifier import Pattern, Source, is_left_out


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
def test_a_pattern_matches_names_without_regard_to_case_and_paths_with_it(
    pattern: str, source: str, matches: bool
) -> None:
    assert Pattern.parse(pattern).matches(Source.parse(source)) is matches


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("main.sales.orders", "'main.sales.orders' holds no '*': one table is named by `source`"),
        ("*", "'*' is no schema and table, with or without a catalog before them"),
        ("a.b.c.*", "'a.b.c.*' is no schema and table, with or without a catalog before them"),
        ("*.sales.*", "'*.sales.*' stands for several catalogs: name one, and write an entry for each"),
        ("main..*", "'main..*' has an empty part"),
        ("main.`sales.*", "'main.`sales.*' has a backtick that does not enclose a whole part"),
        ("abfss://c@a.net/*", "'abfss://c@a.net/*' is an address, in which no folders are listed here"),
        ("~/tables/*", "'~/tables/*' is no path of folders"),
        ("/a*/b/c/*", "'/a*/b/c/*' has '*' in another than the last two folders"),
    ],
)
def test_what_is_no_pattern_is_refused(text: str, words: str) -> None:
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
def test_what_is_left_out_is_named_from_the_end(ending: tuple[str, ...], source: str, left_out: bool) -> None:
    assert is_left_out(Source.parse(source), ending) is left_out
