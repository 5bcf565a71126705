"""Split delimited text into rows of values, with all separators, quotes and escapes that the format allows.

In a quoted value, the escape character protects itself and the quote (a doubled quote, if both are the same). In a
value without quotes it protects separators, line breaks, the quote and itself. Otherwise it is a plain character.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain

from mirrorfeed.lint.metadata_file import Dialect

MAX_ROW_LENGTH = 64 << 20
"""Maximum length of a row, in characters."""


class Fault(StrEnum):
    """How a delimited file can deviate from its own options."""

    ENCODING = "encoding"
    WIDTH = "width"
    UNCLOSED = "unclosed"
    AFTER_QUOTE = "after quote"
    LINE_BREAK = "line break"
    VALUE = "value"
    NULL = "null"


@dataclass(frozen=True, slots=True)
class TextFault:
    fault: Fault
    row: int
    """Counted from 1, which is the header."""
    detail: str


class Unsplittable(Exception):
    """The rest of the text cannot be split into values."""

    def __init__(self, fault: TextFault) -> None:
        super().__init__(fault.detail)
        self.fault = fault


def decode(data: Iterable[bytes], encoding: str) -> Iterator[str]:
    """Decode text and remove its byte order mark. Raises `UnicodeError`, after it yielded the text before it."""
    decoder = codecs.getincrementaldecoder(encoding)()
    begun = False
    for piece in chain(data, [b""]):
        try:
            text = decoder.decode(piece, final=not piece)
        except UnicodeDecodeError as error:  # the caller splits the text before it, to know the row
            yield error.object[: error.start].decode(encoding, "ignore")
            raise
        plain = text if begun else text.removeprefix("\ufeff")
        begun = begun or bool(text)
        if plain:
            yield plain


def split(pieces: Iterable[str], dialect: Dialect, *, takes_breaks: bool = False) -> Iterator[list[str | None]]:
    """Yield rows of values, the header first. None is NULL, which a header never has. Raises `Unsplittable`.

    Other line breaks than the row separator are invalid outside of quotes, except in rows with `takes_breaks` or
    without quotes.
    """
    splitter = _Splitter(dialect, None, takes_breaks=False)
    text, at, number = "", 0, 1
    source = iter(pieces)
    ended = False
    while not ended or at < len(text):
        row, end, is_complete = splitter.row(text, at, ended)
        if is_complete:
            yield row
            if number == 1:
                splitter = _Splitter(dialect, dialect.null, takes_breaks=takes_breaks or not dialect.quote)
            at, number = end, number + 1
        elif fault := splitter.fault(text, at, end, number, ended):
            raise Unsplittable(fault)
        else:
            more = _at_least(source, len(text) - at)
            ended, text, at = not more, text[at:] + more, 0


def _at_least(source: Iterator[str], count: int) -> str:
    """Return more than `count` characters, so that a long row is not read again for each piece."""
    parts: list[str] = []
    length = 0
    while length <= count and (piece := next(source, "")):
        parts.append(piece)
        length += len(piece)
    return "".join(parts)


class _Splitter:
    def __init__(self, dialect: Dialect, null: str | None, *, takes_breaks: bool) -> None:
        self._dialect, self._null = dialect, null
        row, column, quote, escape = map(re.escape, (dialect.row, dialect.column, dialect.quote, dialect.escape))
        inside = rf"[^{quote}{escape}]++|{escape}[\s\S]" if escape else rf"[^{quote}]++"
        if escape == quote:  # it is a plain character outside of quotes
            inside, escape = rf"[^{quote}]++|{quote}{quote}", ""
        protected = rf"|{escape}(?:{row}|[\s\S])?+" if escape else ""
        breaks = rf"|(?!{row})[\r\n]" if takes_breaks else ""
        quoted = rf"{quote}((?:{inside})*+)" if quote else "(?!)()"
        plain = rf"(?!{quote})" if quote else ""
        plain += rf"((?:[^{column}{escape}\r\n]++{protected}{breaks})*+)"
        self._begun_value = re.compile(rf"{quoted}({quote}|)|{plain}")
        self._value, self._last_value = (
            re.compile(rf"(?:{quoted}{quote}|{plain})(?:({column})|{row}{end})") for end in ("", r"|\Z")
        )
        self._unquote = re.compile(rf"{escape or quote}([{quote}{escape}])") if dialect.escape and quote else None
        self._unescape = re.compile(rf"{escape}([{column}{quote}{escape}\r\n])") if escape else None

    def row(self, text: str, at: int, ended: bool) -> tuple[list[str | None], int, bool]:
        """Return the values of a row, its end, and True. Or False, and the start of a value without an end."""
        match_value, escape = (self._last_value if ended else self._value).match, self._dialect.escape
        values: list[str | None] = []
        while match := match_value(text, at):
            quoted, plain, column = match.groups()
            if quoted is not None:
                values.append(self._unquote.sub(r"\1", quoted) if self._unquote and escape in quoted else quoted)
            elif plain == self._null:  # before escapes are removed, because some publishers write NULL as \N
                values.append(None)
            else:
                values.append(self._unescape.sub(r"\1", plain) if self._unescape and escape in plain else plain)
            at = match.end()
            if column is None:
                return values, at, True
        return values, at, False

    def fault(self, text: str, row: int, at: int, number: int, ended: bool) -> TextFault | None:
        """Return why the value at `at` has no end. None if more text is needed to know."""
        if len(text) - row > MAX_ROW_LENGTH:
            return TextFault(Fault.UNCLOSED, number, f"it has more than {MAX_ROW_LENGTH:,} characters")
        match = self._begun_value.match(text, at)
        assert match  # it also matches the empty text
        quoted, closed = match[1], match[2]
        if quoted is not None and not closed:
            detail = f"it ends inside a quoted value, which begins with {_shown(text[at : at + 20])}"
            return TextFault(Fault.UNCLOSED, number, detail) if ended else None
        rest = text[match.end() : match.end() + 10]
        if not ended and len(rest) < 2:
            return None
        if quoted is not None and rest[0] not in "\r\n":
            detail = f"it has {_shown(rest)} after the value {_shown(quoted)}, and no separator"
            return TextFault(Fault.AFTER_QUOTE, number, detail)
        line_break = "\r\n" if rest.startswith("\r\n") else rest[0]
        where = f"ends in {line_break!r}" if number == 1 else f"has the line break {line_break!r} outside of quotes"
        return TextFault(Fault.LINE_BREAK, number, f"it {where}, and RowSeparator is {self._dialect.row!r}")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 20 else text[:20] + "…")
