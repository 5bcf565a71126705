"""Replace relative times in SQL, such as current_date(), by their values, because a plan is executed hours later."""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import UTC, datetime
from typing import NamedTuple

from pyspark.sql import SparkSession

from mirrorfeed.archive.errors import relative_time_in_plan


class Moment(NamedTuple):
    """A point in time, in the time zone of a session."""

    micros: int
    """Microseconds since the epoch."""
    date: str
    local: str
    """Date and time without time zone."""
    zone: str


def moment(spark: SparkSession, now: datetime) -> Moment:
    micros = int(now.astimezone(UTC).timestamp() * 1_000_000)
    at = f"timestamp_micros({micros})"
    query = f"SELECT string(CAST({at} AS DATE)), string(CAST({at} AS TIMESTAMP_NTZ)), current_timezone()"
    return Moment(micros, *spark.sql(query).collect()[0])


_TOKEN = re.compile(
    r"""
    (?P<comment> --[^\n]* ) | (?P<block> /\* ) |
    (?P<text> [rR]'[^']*' | [rR]"[^"]*" | '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" ) | (?P<quoted> `(?:[^`]|``)*` ) |
    (?P<alias> \b(?i:AS)\s+[A-Za-z_]\w*\b(?!\s*\() ) |
    (?P<word> (?<![\w.]) [A-Za-z_]\w* )
    """,
    re.VERBOSE | re.DOTALL,
)
_SPACE = re.compile(r"\s+|--[^\n]*|/\*")
"""Regular expression for white space, a line comment, or the start of a block comment."""
_RELATIVE_TEXT = re.compile(r"\s*(now|today|tomorrow|yesterday)(\s+\S+)?\s*", re.IGNORECASE)
_WITHOUT_PARENTHESES = ("current_date", "current_timestamp", "localtimestamp", "current_time")
"""Functions that Spark also accepts without parentheses, unless a column has the same name."""


def fix_relative_times(text: str, at: Moment, columns: Collection[str] = ()) -> str:
    """Return SQL in which relative times, such as current_date(), are replaced by their values at `at`.

    A word without parentheses, such as current_date, is kept if it is a name in `columns`. Raises
    `relative_time_in_plan` for a relative time that cannot be replaced.
    """
    literals = {
        **dict.fromkeys(("current_date", "curdate"), f"DATE '{at.date}'"),
        **dict.fromkeys(("current_timestamp", "now", "getdate"), f"timestamp_micros({at.micros})"),
        "localtimestamp": f"TIMESTAMP_NTZ '{at.local}'",
        "unix_timestamp": f"{at.micros // 1_000_000}L",
        "current_timezone": f"'{at.zone}'",
    }
    column_names = {name.lower() for name in columns}
    parts, done = [], 0
    while token := _TOKEN.search(text, done):
        parts.append(text[done : token.start()])
        end = _end_of_comment(text, token.end()) if token["block"] else token.end()
        word = (token["word"] or "").lower()
        is_column = word in column_names
        if token["text"] and _RELATIVE_TEXT.fullmatch(token["text"].lstrip("rR")[1:-1]):
            raise relative_time_in_plan(text=text, word=token["text"])
        opening = _end_of_space(text, end) if word else end
        has_parentheses = bool(word) and text.startswith("(", opening)
        closing = _end_of_space(text, opening + 1) if has_parentheses else end
        has_arguments = has_parentheses and not text.startswith(")", closing)
        if has_parentheses and not has_arguments:
            end = closing + 1
        is_call = (has_parentheses or (word in _WITHOUT_PARENTHESES and not is_column)) and not has_arguments
        if word == "current_time" and (is_call or has_arguments) and not is_column:
            raise relative_time_in_plan(text=text, word=token["word"])
        parts.append(literals[word] if is_call and word in literals else text[token.start() : end])
        done = end
    return "".join([*parts, text[done:]])


def _end_of_space(text: str, start: int) -> int:
    """Return the position of the first character from `start` on that is not part of white space or of a comment."""
    while space := _SPACE.match(text, start):
        start = _end_of_comment(text, space.end()) if space[0] == "/*" else space.end()
    return start


def _end_of_comment(text: str, start: int) -> int:
    """Return the position after the end of a block comment. `start` is the position after the `/*` of the comment.

    A block comment can contain other block comments.
    """
    depth = 1
    for mark in re.finditer(r"/\*|\*/", text[start:]):
        depth += 1 if mark[0] == "/*" else -1
        if not depth:
            return start + mark.end()
    return len(text)
