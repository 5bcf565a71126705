"""Replace relative times in conditions and statements, because a restore plan is carried out hours later."""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import UTC, datetime
from typing import NamedTuple

from pyspark.sql import SparkSession

from mirrorfeed.archive.errors import RelativeWord


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
    asked = f"SELECT string(CAST({at} AS DATE)), string(CAST({at} AS TIMESTAMP_NTZ)), current_timezone()"
    return Moment(micros, *spark.sql(asked).collect()[0])


_TOKEN = re.compile(
    r"""
    (?P<comment> --[^\n]* ) | (?P<block> /\* ) |
    (?P<text> [rR]'[^']*' | [rR]"[^"]*" | '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" ) | (?P<quoted> `(?:[^`]|``)*` ) |
    (?P<alias> \b(?i:AS)\s+[A-Za-z_]\w*\b(?!\s*\() ) |
    (?P<word> (?<![\w.]) [A-Za-z_]\w* ) (?P<call> \s*\(\s*\) )?
    """,
    re.VERBOSE | re.DOTALL,
)
_SPECIAL = re.compile(r"\s*(now|today|tomorrow|yesterday)(\s+\S+)?\s*", re.IGNORECASE)
_BARE = ("current_date", "current_timestamp", "localtimestamp", "current_time")
"""Functions that Spark also accepts without parentheses, unless a column has the same name."""


def fix_relative_times(text: str, at: Moment, columns: Collection[str] = ()) -> str:
    """Replace every relative time in a condition or statement with its current value, because a plan is executed
    later.

    Raises `RelativeWord` for a relative time that cannot be replaced.
    """
    literals = {
        **dict.fromkeys(("current_date", "curdate"), f"DATE '{at.date}'"),
        **dict.fromkeys(("current_timestamp", "now", "getdate"), f"timestamp_micros({at.micros})"),
        "localtimestamp": f"TIMESTAMP_NTZ '{at.local}'",
        "unix_timestamp": f"{at.micros // 1_000_000}L",
        "current_timezone": f"'{at.zone}'",
    }
    own = {name.lower() for name in columns}
    found, done = [], 0
    while token := _TOKEN.search(text, done):
        found.append(text[done : token.start()])
        end = _end_of_comment(text, token.end()) if token["block"] else token.end()
        word, is_call = (token["word"] or "").lower(), token["call"] is not None
        if token["text"] and _SPECIAL.fullmatch(token["text"].lstrip("rR")[1:-1]):
            raise RelativeWord(text=text, word=token["text"])
        meant = is_call or (word in _BARE and word not in own and not text[end:].lstrip().startswith("("))
        if word == "current_time" and (meant or text[end:].lstrip().startswith("(")) and word not in own:
            raise RelativeWord(text=text, word=token["word"])
        found.append(literals[word] if meant and word in literals else text[token.start() : end])
        done = end
    return "".join([*found, text[done:]])


def _end_of_comment(text: str, start: int) -> int:
    """Return the end of a comment. Block comments can be nested."""
    depth = 1
    for mark in re.finditer(r"/\*|\*/", text[start:]):
        depth += 1 if mark[0] == "/*" else -1
        if not depth:
            return start + mark.end()
    return len(text)
