"""A condition on the rows of a source, as stands after WHERE: read as far as to know which columns it names, and that
nothing but a row's own values decides it. Whether it makes sense is for the engine to say."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""(?P<space>\s+) | (?P<text>'(?:[^'\\]|\\.)*') | (?P<quoted>`(?:[^`]|``)+`)
    | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?:[LSYDF]|BD)?(?!\w)) | (?P<word>[^\W\d]\w*)
    | (?P<sign><=>|<>|!=|>=|<=|==|\|\||[-+*/%<>=(),&|^~!])""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
_KEYWORDS = frozenset(
    (
        *("AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "ILIKE", "RLIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE"),
        *("DISTINCT", "FROM", "CASE", "WHEN", "THEN", "ELSE", "END", "AS", "DIV"),
    )
)
_PREFIXES = ("DATE", "TIMESTAMP_NTZ", "X")
"""What may stand before a text and says of which type it is."""
_TYPES = frozenset(
    (
        *("STRING", "BOOLEAN", "BYTE", "TINYINT", "SHORT", "SMALLINT", "INT", "INTEGER", "LONG", "BIGINT", "FLOAT"),
        *("DOUBLE", "DECIMAL", "DATE", "TIMESTAMP_NTZ"),
    )
)
FUNCTIONS = (
    *("abs", "ceil", "floor", "round", "mod", "pmod", "sign", "greatest", "least"),
    *("cast", "try_cast", "coalesce", "if", "ifnull", "nvl", "nullif", "isnull", "isnotnull"),
    *("lower", "upper", "trim", "ltrim", "rtrim", "length", "left", "right", "substr", "substring", "concat"),
    *("startswith", "endswith", "contains"),
    *("year", "quarter", "month", "day", "dayofweek", "hour", "minute", "second", "date_add", "date_sub", "datediff"),
    *("hash", "xxhash64", "crc32", "md5"),
)
"""Each gives the same for the same values, whenever, wherever and by whom it is asked."""
_AGGREGATES = ("any", "avg", "collect_list", "collect_set", "count", "every", "max", "mean", "min", "some", "sum")
_OF_NO_ROW = ("CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "CURRENT_USER", "LOCALTIMESTAMP", "SESSION_USER")


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Condition:
    tokens: tuple[_Token, ...]

    @classmethod
    def parse(cls, text: str) -> Condition:
        """The condition, or ValueError with the rest of a sentence."""
        tokens = tuple(_tokens(text))
        for before, token, after in zip((None, *tokens), tokens, (*tokens[1:], None), strict=False):
            if fault := _fault(before, token, after):
                raise ValueError(fault)
        if (fault := _unbalanced(tokens)) is not None:
            raise ValueError(fault)
        found = cls(tuple(_named(tokens)))
        if not found.columns:
            raise ValueError("names no column")
        return found

    @property
    def columns(self) -> tuple[str, ...]:
        """The names in it that must be columns, each once."""
        return tuple(dict.fromkeys(_raw(token) for token in self.tokens if token.kind == "column"))

    def sql(self, column: Callable[[str], str] | None = None) -> str:
        """The same in one line; each column as it is to be spelled."""
        return " ".join(
            column(_raw(token)) if column and token.kind == "column" else token.text for token in self.tokens
        )


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        if text.startswith(("--", "/*"), at):
            raise ValueError("has a comment: leave it out")
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(_ODD.get(text[at], f"has {text[at]!r}, which is not understood here"))
        if match.lastgroup != "space":
            yield _Token(str(match.lastgroup), match[0])
        at = match.end()


_ODD = {
    '"': "has a double quote: write text in single quotes, and odd names in backticks",
    "'": "has a text without an end",
    "`": "has a name in backticks without an end",
    ".": "has a '.': it can name whole columns alone, without their table",
    ";": "has a ';': it is one condition, without an end of its own",
}


def _fault(before: _Token | None, token: _Token, after: _Token | None) -> str | None:
    word, called = token.text.upper(), after is not None and after.text == "("
    if token.kind == "text" and before is not None and before.kind == "text":
        return "has two texts side by side, of which not every release makes the same: write \\' for a quote in a text"
    if token.kind != "word":
        return None
    is_type, is_prefix = before is not None and before.text.upper() == "AS", after is not None and after.kind == "text"
    if word == "SELECT" or (word == "EXISTS" and called):
        return f"holds a subquery ({word}), and other rows do not tell when this one comes or goes"
    if word == "OVER" and called:
        return "holds a window (OVER), and other rows do not tell when this one comes or goes"
    if word in ("TIMESTAMP", "TIMESTAMP_LTZ") and (is_type or is_prefix):
        return f"has {word}, which depends on the session's time zone: write TIMESTAMP_NTZ, and times in UTC"
    if word in _OF_NO_ROW:
        return f"has {word}, and is to be decided by a row's own values: they would come and go without a change"
    if is_prefix and word not in (*_KEYWORDS, *_PREFIXES):
        return f"has a text after {token.text}, which is not understood here"
    if is_type:
        return None if word in _TYPES else f"casts to {token.text}: known here are {', '.join(sorted(_TYPES)).lower()}"
    if not called or word in _KEYWORDS:
        return None
    if word.lower() in _AGGREGATES:
        return f"holds an aggregate, {token.text}(), and is to be decided by a row's own values"
    if word.lower() not in FUNCTIONS:
        return (
            f"calls {token.text}(), which is none of those that are known to give the same for a row at any time and in"
            f" any session: {', '.join(FUNCTIONS)}"
        )
    return None


def _unbalanced(tokens: tuple[_Token, ...]) -> str | None:
    depth = 0
    for token in tokens:
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        if depth < 0:
            break
    return "has a parenthesis without its other half" if depth else None


def _named(tokens: tuple[_Token, ...]) -> Iterator[_Token]:
    """The same, with the kind of those that name a column."""
    for before, token, after in zip((None, *tokens), tokens, (*tokens[1:], None), strict=False):
        word = token.text.upper()
        is_type = before is not None and before.text.upper() == "AS"
        is_literal = after is not None and after.kind == "text" and word in _PREFIXES
        is_call = after is not None and after.text == "("
        if token.kind == "quoted" or (
            token.kind == "word" and not (word in _KEYWORDS or is_type or is_literal or is_call)
        ):
            yield _Token("column", token.text)
        else:
            yield token


def _raw(token: _Token) -> str:
    return token.text[1:-1].replace("``", "`") if token.text.startswith("`") else token.text
