"""Conditions of `where`: which are valid, and why others are invalid."""

from __future__ import annotations

import pytest

from mirrorfeed.landing.where_condition import Condition


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("region = 'EU'", ("region",)),
        ("NOT is_test AND (amount >= 1.5 OR amount IS NULL)", ("is_test", "amount")),
        ("`odd name``s` IN (1, 2L, -3)", ("odd name`s",)),
        ("created >= DATE '2024-01-01' AND at < TIMESTAMP_NTZ '2024-01-01 00:00:00'", ("created", "at")),
        ("date = '2024-01-01'", ("date",)),
        ("CASE WHEN a THEN b ELSE c END", ("a", "b", "c")),
        ("CAST(code AS int) BETWEEN 1 AND 9", ("code",)),
        ("pmod(xxhash64(id), 100) < 5 AND lower(Country) LIKE 'n%'", ("id", "Country")),
        ("a <=> b", ("a", "b")),
        ("größe > 1e3", ("größe",)),
        ("note = 'it\\'s -- a ; \" `text` rand()'", ("note",)),
        ("a\n  = 1", ("a",)),
        ("`end` > 1 AND CASE WHEN (a) THEN b ELSE c END = 1", ("end", "a", "b", "c")),
        ("a IS NOT DISTINCT FROM b AND (a) DIV 2 = 1", ("a", "b")),
    ],
)
def test_condition_has_the_names_of_its_columns(text: str, columns: tuple[str, ...]) -> None:
    assert Condition.parse(text).columns == columns


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1 = 1", "names no column"),
        ("rand() < 0.5 AND a = 1", "calls rand(), which is not supported: use only abs, "),
        ("uuid() = a", "calls uuid(), which is not supported"),
        ("main.my_function(a)", "has a '.': name top-level columns only, without their table"),
        ("my_function(a)", "calls my_function(), which is not supported"),
        ("at < current_timestamp()", "has CURRENT_TIMESTAMP, but may depend only on the values of its row"),
        ("day = current_date", "has CURRENT_DATE, but may depend only on the values of its row"),
        ("at < now()", "calls now(), which is not supported"),
        ("owner = current_user()", "has CURRENT_USER, but may depend only on the values of its row"),
        ("id IN (SELECT id FROM chosen)", "has a subquery (SELECT), but may depend only on the values of its row"),
        ("EXISTS (TABLE chosen) AND a", "has a subquery (EXISTS)"),
        ("sum(amount) > 1", "has an aggregate, sum(), but may depend only on the values of its row"),
        ("lower(a) OVER (PARTITION BY b) = 'x'", "has a window (OVER)"),
        ("at > TIMESTAMP '2024-01-01'", "has TIMESTAMP, which depends on the session's time zone: write TIMESTAMP_NTZ"),
        ("CAST(a AS timestamp) > b", "has TIMESTAMP, which depends on the session's time zone"),
        ("CAST(a AS varchar) = 'x'", "casts to varchar: supported types are bigint, boolean"),
        ('a = "x"', "has a double quote: write text in single quotes, and names with special characters in backticks"),
        ("a = 'it''s'", "has two adjacent strings"),
        ("a = 'x", "has a string without a closing quote"),
        ("`a = 1", "has a name without a closing backtick"),
        ("a = 1; DROP TABLE t", "has a ';': write one condition"),
        ("a = 1 -- always", "has a comment: remove it"),
        ("a = 1) OR (b = 2", "has an unbalanced parenthesis"),
        ("(a = 1", "has an unbalanced parenthesis"),
        ("a = r'x'", "has a string after r, which is not supported"),
        ("a[0] = 1", "has '[', which is not supported"),
        ("a = 1 AND end > 2", "has the keyword end as a column name: write `end` in backticks"),
        ("a < (from)", "has the keyword from as a column name: write `from` in backticks"),
    ],
)
def test_invalid_conditions_are_reported_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the text is compared
        Condition.parse(text)
    assert str(error.value).startswith(reason)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("hour(at) = 1 AND Minute( `a b` ) > 2", ("at", "a b")),
        ("hour(cast(a AS timestamp_ntz)) = 1", ()),
        ("hour(try_cast(concat(a, 'x') AS TIMESTAMP_NTZ)) = second(b)", ("b",)),
        ("hour(TIMESTAMP_NTZ '2026-01-01 00:00:00') = hour", ()),
        ("second(lower(a)) = 1 AND hour('2026-01-01') = hour(at)", (None, None, "at")),
    ],
)
def test_condition_has_the_arguments_of_time_parts(text: str, arguments: tuple[str | None, ...]) -> None:
    assert Condition.parse(text).time_part_arguments == arguments


def test_column_names_in_the_sql_can_be_replaced() -> None:
    condition = Condition.parse("date > DATE '2024-01-01'\n AND  `date` < d")
    assert condition.sql() == "date > DATE '2024-01-01' AND `date` < d"
    assert condition.sql(lambda name: f"<{name}>") == "<date> > DATE '2024-01-01' AND <date> < <d>"
