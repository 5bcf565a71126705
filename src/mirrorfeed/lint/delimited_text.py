"""Splits delimited text into rows, with any of the separators, quotes and escapes that the format allows.

A quoted value begins with the quote; in it, the escape character protects itself and the quote (where the two are the
same, a doubled quote is one). Outside of quotes the escape is a plain character, unless there are no quotes at all:
then it protects whatever comes next.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from mirrorfeed.lint.facts import Fault, TextFault
from mirrorfeed.lint.metadata_file import Dialect

LONGEST_ROW = 64 << 20
"""In characters. Text that is longer without the end of a row is not split correctly."""


class Value(NamedTuple):
    text: str
    quoted: bool


class Unsplittable(Exception):
    """From here on it cannot be told where values begin."""

    def __init__(self, fault: TextFault) -> None:
        super().__init__(fault.detail)
        self.fault = fault


class _NeedsMore(Exception):
    """The text ends before the row does."""


def split(pieces: Iterable[str], dialect: Dialect) -> Iterator[list[Value]]:
    """Rows of values, or `Unsplittable`."""
    splitter, text, at, number = _Splitter(dialect), "", 0, 1
    source = iter(pieces)
    ended = False
    while not ended or at < len(text):
        try:
            row, end = splitter.row(text, at, number, ended)
        except _NeedsMore:
            if len(text) - at > LONGEST_ROW:
                detail = f"it goes on for more than {LONGEST_ROW:,} characters"
                raise Unsplittable(TextFault(Fault.UNCLOSED, number, detail)) from None
            more = _at_least(source, len(text) - at)
            ended, text, at = not more, text[at:] + more, 0
            continue
        yield row
        at, number = end, number + 1


def _at_least(source: Iterator[str], count: int) -> str:
    """So much that going over a long row again costs no more than going over it once."""
    parts: list[str] = []
    length = 0
    while length <= count and (piece := next(source, "")):
        parts.append(piece)
        length += len(piece)
    return "".join(parts)


class _Splitter:
    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        quote, escape, column = (re.escape(one) for one in (dialect.quote, dialect.escape, dialect.column))
        if not dialect.quote:
            plain = rf"(?!{re.escape(dialect.row)})"
            body = rf"(?:{escape}[\s\S]|{plain}[^{column}{escape}])*+" if escape else rf"(?:{plain}[^{column}])*+"
        else:
            body = rf"[^{column}\r\n]*+"
        self._plain = re.compile(body)
        if not quote:
            inside = ""
        elif dialect.escape in ("", dialect.quote):
            inside = rf"(?:[^{quote}]++|{quote}{quote})*+" if escape else rf"[^{quote}]*+"
        else:
            inside = rf"(?:[^{quote}{escape}]++|{escape}[\s\S])*+"
        self._quoted = re.compile(inside)
        protected = rf"[{quote}{escape}]" if quote else r"[\s\S]"
        self._escaped = re.compile(rf"{escape}({protected})") if escape else None

    def row(self, text: str, at: int, number: int, ended: bool) -> tuple[list[Value], int]:
        """The row that begins here, and where the next one does."""
        if at == len(text):
            raise _NeedsMore
        values: list[Value] = []
        while True:
            value, at = self._value(text, at, number, ended)
            values.append(value)
            if not ended and at + len(self._dialect.row) > len(text):
                raise _NeedsMore
            if text.startswith(self._dialect.row, at):
                return values, at + len(self._dialect.row)
            if at == len(text):
                return values, at
            if not text.startswith(self._dialect.column, at):
                raise Unsplittable(self._odd(text, at, number, value))
            at += 1

    def _value(self, text: str, at: int, number: int, ended: bool) -> tuple[Value, int]:
        quote = self._dialect.quote
        if not quote or not text.startswith(quote, at):
            match = self._plain.match(text, at)
            assert match  # it also matches nothing
            as_it_stands = quote or match[0] == self._dialect.null  # some write NULL as \N
            return Value(match[0] if as_it_stands else self._unescaped(match[0]), False), match.end()
        match = self._quoted.match(text, at + 1)
        assert match
        end = match.end()
        if not ended and end + 2 >= len(text):  # a quote at the very end may be the first of two
            raise _NeedsMore
        if not text.startswith(quote, end):
            detail = f"the value that begins with {_shown(text[at : at + 20])} has no closing quote"
            raise Unsplittable(TextFault(Fault.UNCLOSED, number, detail))
        return Value(self._unescaped(match[0]), True), end + 1

    def _unescaped(self, text: str) -> str:
        return self._escaped.sub(r"\1", text) if self._escaped else text

    def _odd(self, text: str, at: int, number: int, value: Value) -> TextFault:
        if value.quoted and text[at] not in "\r\n":
            detail = f"after the value {_shown(value.text)} comes {_shown(text[at : at + 10])}, and no separator"
            return TextFault(Fault.AFTER_QUOTE, number, detail)
        line_break = "\r\n" if text.startswith("\r\n", at) else text[at]
        how = f"ends in {line_break!r}" if number == 1 else f"has the line break {line_break!r} outside of quotes"
        return TextFault(Fault.LINE_BREAK, number, f"it {how}, and RowSeparator is {self._dialect.row!r}")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 20 else text[:20] + "…")
