"""What a condition says of today, fixed: a plan is carried out hours after it was made, and must ask the same then."""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import SparkSession

from mirrorfeed.archive.errors import RelativeWord
from mirrorfeed.runtime.engine import setting

_ZONE = "spark.sql.session.timeZone"


@dataclass(frozen=True, slots=True)
class Moment:
    """A time as a session tells it."""

    micros: int
    """Since the epoch."""
    date: str
    local: str
    """The time of its day, without a zone."""
    zone: str


def moment(spark: SparkSession, now: datetime) -> Moment:
    micros = int(now.astimezone(UTC).timestamp() * 1_000_000)
    at = f"timestamp_micros({micros})"
    asked = f"SELECT string(CAST({at} AS DATE)), string(CAST({at} AS TIMESTAMP_NTZ)), current_timezone()"
    date, local, zone = spark.sql(asked).collect()[0]
    return Moment(micros, date, local, zone)


def in_zone(spark: SparkSession, zone: str | None) -> AbstractContextManager[None]:
    """The session tells times as the one did in which a plan was made."""
    return nullcontext() if zone is None else setting(spark, _ZONE, zone)


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
"""Spark takes these without parentheses too, where no column is called so."""


def frozen(text: str, at: Moment, columns: Collection[str] = ()) -> str:
    """The same condition or statement with each word that means another time later replaced by what it means now; or
    `RelativeWord` for one that cannot be replaced."""
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
    """Comments of this kind stand in one another."""
    depth = 1
    for mark in re.finditer(r"/\*|\*/", text[start:]):
        depth += 1 if mark[0] == "/*" else -1
        if not depth:
            return start + mark.end()
    return len(text)
