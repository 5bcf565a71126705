"""Parse the option `where`: find its columns, and check that the condition depends only on the values of a row."""

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
_KEYWORDS = (
    *("AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "ILIKE", "RLIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE"),
    *("DISTINCT", "FROM", "CASE", "WHEN", "THEN", "ELSE", "END", "AS", "DIV"),
)
_NOT_FIRST = ("END", "FROM", "AS", "DIV", "ESCAPE", "WHEN", "THEN", "ELSE")
"""Keywords that follow a value. After an operator or a parenthesis, Spark takes them for column names."""
_BEFORE_VALUES = ("AND", "OR", "NOT", "BETWEEN")
_PREFIXES = ("DATE", "TIMESTAMP_NTZ", "X")
"""Words that set the type of the text literal after them."""
_TYPES = (
    *("STRING", "BOOLEAN", "BYTE", "TINYINT", "SHORT", "SMALLINT", "INT", "INTEGER", "LONG", "BIGINT", "FLOAT"),
    *("DOUBLE", "DECIMAL", "DATE", "TIMESTAMP_NTZ"),
)
FUNCTIONS = (
    *("abs", "ceil", "floor", "round", "mod", "pmod", "sign", "greatest", "least"),
    *("cast", "try_cast", "coalesce", "if", "ifnull", "nvl", "nullif", "isnull", "isnotnull"),
    *("lower", "upper", "trim", "ltrim", "rtrim", "length", "left", "right", "substr", "substring", "concat"),
    *("startswith", "endswith", "contains"),
    *("year", "quarter", "month", "day", "dayofweek", "hour", "minute", "second", "date_add", "date_sub", "datediff"),
    *("hash", "xxhash64", "crc32", "md5"),
)
"""Functions that a condition may call, because their result depends only on their arguments."""
_AGGREGATES = ("any", "avg", "collect_list", "collect_set", "count", "every", "max", "mean", "min", "some", "sum")
_VOLATILE = ("CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "CURRENT_USER", "LOCALTIMESTAMP", "SESSION_USER")
_TIME_PARTS = ("hour", "minute", "second")
_ZONED = re.compile(r"'\s*\d{4,}-\d\d?-\d\d?[ T]\d\d?(:[\d:.]*)?\s*(Z|[+-]\d|UTC|GMT|[A-Za-z]+/).*'", re.IGNORECASE)
"""Regular expression for a text literal that is a time with a time zone."""
_ONLY_ITS_ROW = "but may depend only on the values of its row"
_UNEXPECTED = {
    '"': "has a double quote: write text in single quotes, and names with special characters in backticks",
    "'": "has a string without a closing quote",
    "`": "has a name without a closing backtick",
    ".": "has a '.': name top-level columns only, without their table",
    ";": "has a ';': write one condition without it",
}


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str

    @property
    def name(self) -> str:
        return self.text[1:-1].replace("``", "`") if self.text.startswith("`") else self.text


@dataclass(frozen=True, slots=True)
class Condition:
    """Parsed condition on the rows of a source."""

    tokens: tuple[_Token, ...]

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Parse a condition. Raises `ValueError` with the reason, such as "has an unbalanced parenthesis"."""
        tokens = list(_tokens(text))
        neighbors = zip((None, *tokens), tokens, (*tokens[1:], None), strict=False)
        condition = cls(tuple(_Token(_kind(*each), each[1].text) for each in neighbors))
        depth = 0
        for token in tokens:
            depth += {"(": 1, ")": -1}.get(token.text, 0)
            if depth < 0:
                break
        if depth:
            raise ValueError("has an unbalanced parenthesis")
        if not condition.columns:
            raise ValueError("names no column")
        return condition

    @property
    def columns(self) -> tuple[str, ...]:
        """Distinct column names in the condition, without backticks."""
        return tuple(dict.fromkeys(token.name for token in self.tokens if token.kind == "column"))

    @property
    def zoned_times(self) -> tuple[str, ...]:
        """Text literals that are times with a time zone. Spark ignores the time zone in a comparison with a time."""
        return tuple(token.text for token in self.tokens if token.kind == "text" and _ZONED.fullmatch(token.text))

    @property
    def time_part_arguments(self) -> tuple[str | None, ...]:
        """Arguments of `hour`, `minute` and `second`: the name of a column, or None for another expression.

        Omits arguments of the type timestamp_ntz. Of a text, Spark takes the hour in the session's time zone.
        """
        calls = [at for at, each in enumerate(self.tokens) if each.kind == "word" and each.text.lower() in _TIME_PARTS]
        arguments = [self._in_parentheses(at + 1) for at in calls]
        return tuple(
            argument[0].name if [each.kind for each in argument] == ["column"] else None
            for argument in arguments
            if not self._is_timestamp_ntz(argument)
        )

    def _in_parentheses(self, start: int) -> tuple[_Token, ...]:
        """Return the tokens between the parenthesis at position `start` and the matching one."""
        depth = 0
        for end, token in enumerate(self.tokens[start:], start):
            depth += {"(": 1, ")": -1}.get(token.text, 0)
            if not depth:
                return self.tokens[start + 1 : end]
        raise ValueError("has an unbalanced parenthesis")

    @staticmethod
    def _is_timestamp_ntz(argument: tuple[_Token, ...]) -> bool:
        """Return whether an argument is a literal of this type, or is cast to this type."""
        words = [each.text.upper() for each in argument]
        if words[:1] == ["TIMESTAMP_NTZ"]:
            return len(words) == 2
        is_cast = words[:2] in (["CAST", "("], ["TRY_CAST", "("]) and words[-3:] == ["AS", "TIMESTAMP_NTZ", ")"]
        return is_cast and Condition(argument)._in_parentheses(1) == argument[2:-1]

    def sql(self, column: Callable[[str], str] | None = None) -> str:
        """Return the condition as SQL in one line. `column` returns the SQL for a column name. None keeps all names."""
        return " ".join(column(each.name) if column and each.kind == "column" else each.text for each in self.tokens)


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        if text.startswith(("--", "/*"), at):
            raise ValueError("has a comment: remove it")
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(_UNEXPECTED.get(text[at], f"has {text[at]!r}, which is not supported"))
        if match.lastgroup != "space":
            yield _Token(str(match.lastgroup), match[0])
        at = match.end()


def _kind(before: _Token | None, token: _Token, after: _Token | None) -> str:
    """Return the kind of `token`, such as "column" for a column name. Raises `ValueError` for an unsupported token.

    The kind depends on the tokens `before` and `after` this token. They are None at the start and end of the condition.
    """
    if token.kind == "text" and before is not None and before.kind == "text":
        raise ValueError(
            "has two adjacent strings, which Spark releases read differently: write \\' for a quote in a string"
        )
    if token.kind != "word":
        return "column" if token.kind == "quoted" else token.kind
    word, is_type = token.text.upper(), before is not None and before.text.upper() == "AS"
    is_call, is_prefix = after is not None and after.text == "(", after is not None and after.kind == "text"
    if word == "SELECT" or (word == "EXISTS" and is_call):
        raise ValueError(f"has a subquery ({word}), {_ONLY_ITS_ROW}")
    if word == "OVER" and is_call:
        raise ValueError(f"has a window (OVER), {_ONLY_ITS_ROW}")
    if word in ("TIMESTAMP", "TIMESTAMP_LTZ") and (is_type or is_prefix):
        raise ValueError(f"has {word}, which depends on the session's time zone: write TIMESTAMP_NTZ, and times in UTC")
    if word in _VOLATILE:
        raise ValueError(f"has {word}, {_ONLY_ITS_ROW}")
    if is_prefix and word not in (*_KEYWORDS, *_PREFIXES):
        raise ValueError(f"has a string after {token.text}, which is not supported")
    if is_type and word not in _TYPES:
        raise ValueError(f"casts to {token.text}: supported types are {', '.join(sorted(_TYPES)).lower()}")
    is_value = before is None or before.text.upper() in _BEFORE_VALUES or (before.kind == "sign" and before.text != ")")
    if word in _NOT_FIRST and is_value:
        raise ValueError(f"has the keyword {token.text} as a column name: write `{token.text}` in backticks")
    if is_type or is_prefix or word in _KEYWORDS:
        return "word"
    if not is_call:
        return "column"
    if word.lower() in _AGGREGATES:
        raise ValueError(f"has an aggregate, {token.text}(), {_ONLY_ITS_ROW}")
    if word.lower() not in FUNCTIONS:
        raise ValueError(f"calls {token.text}(), which is not supported: use only {', '.join(FUNCTIONS)}")
    return "word"
