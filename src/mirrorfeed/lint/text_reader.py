"""Read the content of a delimited file once, with the options that its table declares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import date, datetime, time
from typing import BinaryIO

from mirrorfeed.display.humanize import counted
from mirrorfeed.landing.names import fold
from mirrorfeed.lint.delimited_text import (
    ENCODING,
    NULL,
    VALUE,
    WIDTH,
    CutShort,
    RefusedCodec,
    TextFault,
    Unsplittable,
    decode,
    decompress,
    split,
)
from mirrorfeed.lint.duplicate_keys import KeyIndex, key_rows
from mirrorfeed.lint.facts import Broken, Column, Contents, Unreadable
from mirrorfeed.lint.metadata_file import DeclaredColumn, Settings
from mirrorfeed.lint.specification import DATA_TYPES, MARKER, Rule

_MAX_VALUES = 1000
_BATCH = 1 << 14


def text_contents(
    file: BinaryIO, name: str, settings: Settings, index: KeyIndex | None = None
) -> Contents | Unreadable:
    """Return the contents, or why they cannot be read, and add the keys of the rows to `index`."""
    facts = _FactCounter(settings, index)
    try:
        text = decode(decompress(file, name), settings.dialect.encoding)
        for row in split(text, settings.dialect):
            facts.take(row)
    except RefusedCodec as refused:
        return Unreadable(Broken.CODEC, str(refused))
    except CutShort as cut:
        return Unreadable(Broken.TRUNCATED, str(cut))
    except Unsplittable as stopped:
        facts.faults.setdefault(stopped.fault.rule, stopped.fault)
    except UnicodeError as odd:
        detail = f"it is not {settings.dialect.encoding} ({odd})"
        facts.faults.setdefault(ENCODING, TextFault(ENCODING, facts.seen + 1, detail))
    except OSError as error:
        return Unreadable(Broken.FOREIGN, str(error).rstrip("."))
    facts.add_keys()
    return facts.contents()


class _FactCounter:
    """Collects the facts that the rules need, row by row."""

    def __init__(self, settings: Settings, index: KeyIndex | None) -> None:
        self._settings, self._index = settings, index
        self._key_rows: list[tuple[list[str | None], str | None]] = []
        if index:
            index.begin()
        self._declared = {fold(column.name): column for column in settings.declared or ()}
        self._header: list[str] = []
        self._checks: list[tuple[int, str, DeclaredColumn]] = []
        self._marker: int | None = None
        self._keys: dict[int, str] = {}
        self._markers, self._nulls, self._widest = Counter[str](), Counter[str](), dict[str, int]()
        self.seen = 0
        """Rows, the header among them."""
        self.faults: dict[Rule, TextFault] = {}

    def take(self, row: list[str | None]) -> None:
        self.seen += 1
        if self.seen == 1:
            names = self._header = [name or "" for name in row]
            self._marker = names.index(MARKER) if MARKER in names else None
            self._keys = {at: name for at, name in enumerate(names) if name in self._settings.keys}
            declared = ((at, name, self._declared.get(fold(name))) for at, name in enumerate(names))
            self._checks = [(at, name, column) for at, name, column in declared if column and name != MARKER]
        elif len(row) != len(self._header):
            self._fault(WIDTH, f"it has {counted(len(row), 'value')}, and the header has {len(self._header)}")
        else:
            self._take_values(row)

    def add_keys(self) -> None:
        if self._index and self._key_rows:
            markers = None if self._marker is None else [marker for _, marker in self._key_rows]
            self._index.add(key_rows([key for key, _ in self._key_rows], markers))
        self._key_rows.clear()

    def contents(self) -> Contents:
        columns = tuple(self._column(name) for name in self._header)
        rows, nulls = max(0, self.seen - 1), {key: rows for key, rows in self._nulls.items() if rows}
        return Contents(columns, rows, frozenset(), self._markers, nulls, self._widest, tuple(self.faults.values()))

    def _column(self, name: str) -> Column:
        declared = self._declared.get(fold(name))
        if declared is None or declared.type not in DATA_TYPES:
            return Column(name, None)
        return Column(name, declared.type, declared.nullable)

    def _take_values(self, row: list[str | None]) -> None:
        marker = None
        if self._marker is not None:
            value = row[self._marker]
            marker = "NULL" if value is None else value
            known = marker in self._markers or len(self._markers) < _MAX_VALUES
            self._markers[marker if known else "other values"] += 1
        if self._index and len(self._keys) == len(self._settings.keys):
            values = {name: row[at] for at, name in self._keys.items()}
            self._key_rows.append(([values[key] for key in self._settings.keys], marker))
            if len(self._key_rows) == _BATCH:
                self.add_keys()
        for at, name in self._keys.items():
            if (text := row[at]) is None:
                self._nulls[name] += 1
            else:
                self._widest[name] = max(self._widest.get(name, 0), len(text.encode("utf-8", "replace")))
        for at, name, column in self._checks:
            if (text := row[at]) is not None:
                if not _is_valid(text, column.type):
                    self._fault(VALUE, f"{name!r} is {text[:40]!r}, which is not of type {column.type}")
            elif not column.nullable and marker != "2" and at not in self._keys:
                self._fault(NULL, f"{name!r} is NULL, and is declared as not nullable")

    def _fault(self, rule: Rule, detail: str) -> None:
        self.faults.setdefault(rule, TextFault(rule, self.seen, detail))


def _is_time(text: str) -> object:
    """The specification describes ITime as a full date and time. A time alone is valid as well."""
    is_time_alone = len(text) < len("2000-01-01") or text[2:3] == ":"
    return time.fromisoformat(text) if is_time_alone else datetime.fromisoformat(text)


def _fits(bits: int) -> Callable[[str], bool]:
    return lambda text: -(1 << bits - 1) <= int(text) < 1 << bits - 1


_CHECKS: dict[str, Callable[[str], object]] = {
    "Double": float,
    "Single": float,
    "Int16": _fits(16),
    "Int32": _fits(32),
    "Int64": _fits(64),
    "Boolean": lambda text: text.lower() in ("true", "false", "0", "1"),
    "DateTime": datetime.fromisoformat,
    "IDate": date.fromisoformat,
    "ITime": _is_time,
}
"""Checks of the text of a value. Invalid is False or `ValueError`."""


def _is_valid(text: str, data_type: str) -> bool:
    try:
        return _CHECKS[data_type](text) is not False if data_type in _CHECKS else True
    except ValueError:
        return False
