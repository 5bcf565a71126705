"""Which conditions decide about a row by its own values alone; each other one is refused, and says why."""

from __future__ import annotations

import pytest

from mirrorfeed.landing.condition import Condition


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
    ],
)
def test_a_condition_names_its_columns(text: str, columns: tuple[str, ...]) -> None:
    assert Condition.parse(text).columns == columns


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1 = 1", "names no column"),
        ("rand() < 0.5 AND a = 1", "calls rand(), which is none of those that are known to give the same for a row"),
        ("uuid() = a", "calls uuid(), which is none of"),
        ("main.my_function(a)", "has a '.': it can name whole columns alone, without their table"),
        ("my_function(a)", "calls my_function(), which is none of"),
        ("at < current_timestamp()", "has CURRENT_TIMESTAMP, and is to be decided by a row's own values"),
        ("day = current_date", "has CURRENT_DATE, and is to be decided by a row's own values"),
        ("at < now()", "calls now(), which is none of"),
        ("owner = current_user()", "has CURRENT_USER, and is to be decided by a row's own values"),
        ("id IN (SELECT id FROM chosen)", "holds a subquery (SELECT), and other rows do not tell when this one comes"),
        ("EXISTS (TABLE chosen) AND a", "holds a subquery (EXISTS)"),
        ("sum(amount) > 1", "holds an aggregate, sum(), and is to be decided by a row's own values"),
        ("lower(a) OVER (PARTITION BY b) = 'x'", "holds a window (OVER)"),
        ("at > TIMESTAMP '2024-01-01'", "has TIMESTAMP, which depends on the session's time zone: write TIMESTAMP_NTZ"),
        ("CAST(a AS timestamp) > b", "has TIMESTAMP, which depends on the session's time zone"),
        ("CAST(a AS varchar) = 'x'", "casts to varchar: known here are bigint, boolean"),
        ('a = "x"', "has a double quote: write text in single quotes, and odd names in backticks"),
        ("a = 'it''s'", "has two texts side by side"),
        ("a = 'x", "has a text without an end"),
        ("`a = 1", "has a name in backticks without an end"),
        ("a = 1; DROP TABLE t", "has a ';': it is one condition"),
        ("a = 1 -- always", "has a comment: leave it out"),
        ("a = 1) OR (b = 2", "has a parenthesis without its other half"),
        ("(a = 1", "has a parenthesis without its other half"),
        ("a = r'x'", "has a text after r, which is not understood here"),
        ("a[0] = 1", "has '[', which is not understood here"),
    ],
)
def test_any_other_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError) as told:  # noqa: PT011 - the words are looked at
        Condition.parse(text)
    assert str(told.value).startswith(reason)


def test_it_is_asked_with_columns_as_they_are_to_be_spelled() -> None:
    condition = Condition.parse("date > DATE '2024-01-01'\n AND  `date` < d")
    assert condition.sql() == "date > DATE '2024-01-01' AND `date` < d"
    assert condition.sql(lambda name: f"<{name}>") == "<date> > DATE '2024-01-01' AND <date> < <d>"
