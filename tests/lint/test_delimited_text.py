"""How delimited text is split, for lint and for the replica."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorfeed.lint.delimited_text import LINE_BREAK, QUOTE, Unsplittable, split
from mirrorfeed.lint.specification import Dialect, LintRule

_DIALECTS = st.builds(
    Dialect,
    row=st.sampled_from(["\r\n", "\n", "\r"]),
    column=st.sampled_from([",", ";", "|", "\t"]),
    quote=st.sampled_from(['"', "'"]),
    escape=st.sampled_from(["\\", "/", '"', "'"]),
)
_VALUES = st.text(st.sampled_from("ab,;|\t\r\n\"'\\/ "), max_size=6)


@given(_DIALECTS, st.lists(st.lists(_VALUES, min_size=1, max_size=4), min_size=1, max_size=4), st.integers(1, 5))
def test_quoted_rows_are_read_back_for_any_chunk_size(dialect: Dialect, rows: list[list[str]], size: int) -> None:
    text = "".join(dialect.column.join(_quoted(value, dialect) for value in row) + dialect.row for row in rows)
    cut = [text[at : at + size] for at in range(0, len(text), size)]
    assert list(split(cut, dialect)) == rows


def _quoted(value: str, dialect: Dialect) -> str:
    for special in dict.fromkeys((dialect.escape, dialect.quote)):
        value = value.replace(special, dialect.escape + special)
    return dialect.quote + value + dialect.quote


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("a|b\nc|d", [["a", "b"], ["c", "d"]]),
        ("a\\|b|c\n", [["a|b", "c"]]),
        ("\\\\|a\\\nb|\\N\n", [["\\", "a\nb", "\\N"]]),
        ('"a"|b"c"\n', [['"a"', 'b"c"']]),
        ("||\n", [["", "", ""]]),
        ("", []),
    ],
)
def test_escape_protects_the_separator_without_quotes(text: str, rows: list[list[str]]) -> None:
    assert list(split([text], Dialect("\n", "|", "", "\\", "\\N"))) == rows


def test_values_are_literal_without_quotes_and_escapes() -> None:
    dialect = Dialect(quote="", escape="")
    rows = split(['a,b\r\n"x",\\y\r\n'], dialect)
    assert list(rows) == [["a", "b"], ['"x"', "\\y"]]


@given(
    st.builds(Dialect, st.sampled_from(["\r\n", "\n", "\r"]), st.just("|"), st.just(""), st.just("/"), st.just("null")),
    st.lists(st.lists(_VALUES, min_size=1, max_size=4), min_size=1, max_size=4),
    st.integers(1, 5),
)
def test_escaped_rows_are_read_back_for_any_chunk_size(dialect: Dialect, rows: list[list[str]], size: int) -> None:
    def escaped(value: str) -> str:
        return "".join("/" + each if each in "/|\r\n" else each for each in value)

    text = "".join("|".join(map(escaped, row)) + dialect.row for row in rows)
    cut = [text[at : at + size] for at in range(0, len(text), size)]
    assert list(split(cut, dialect)) == rows


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("x\\,y,z", ["x,y", "z"]),
        ('x\\"y', ['x"y']),
        ("x\\\\", ["x\\"]),
        ("x\\", ["x\\"]),
        ("x\\\r\ny", ["x\r\ny"]),
        ("C:\\new", ["C:\\new"]),
        ('"C:\\new"', ["C:\\new"]),
        ('"x\\"\\\\y"', ['x"\\y']),
        (',-,"-"', ["", None, "-"]),
    ],
)
def test_escape_protects_special_characters_outside_of_quotes(text: str, row: list[str | None]) -> None:
    assert list(split(["a\r\n", text], Dialect(null="-")))[1:] == [row]


@pytest.mark.parametrize("quote", ['"', ""])
def test_other_line_breaks_may_be_in_values_but_not_in_the_header(quote: str) -> None:
    dialect = Dialect(quote=quote)
    assert list(split(["a\r\nx\ny\r\n"], dialect, allow_line_breaks=True)) == [["a"], ["x\ny"]]
    for text in ("a\nx\ny\n", "a\rx\ry\r"):
        with pytest.raises(Unsplittable) as caught:
            list(split([text], dialect, allow_line_breaks=True))
        assert (caught.value.rule, caught.value.row) == (LINE_BREAK, 1)


@pytest.mark.parametrize(
    ("text", "rule", "row"),
    [
        ('a\r\n"x\r\n', QUOTE, 2),
        ('a\r\n"x"y\r\n', QUOTE, 2),
        ("a\r\nx\ny\r\n", LINE_BREAK, 2),
        ('a\r\n"x"\n"y"\r\n', LINE_BREAK, 2),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 100])
def test_fault_is_found_for_any_chunk_size(text: str, rule: LintRule, row: int, size: int) -> None:
    with pytest.raises(Unsplittable) as caught:
        list(split([text[at : at + size] for at in range(0, len(text), size)], Dialect()))
    assert (caught.value.rule, caught.value.row) == (rule, row)
