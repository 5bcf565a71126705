"""Results of queries over all rows of sources, so that checks do not read unchanged sources again.

`check-alerts` keeps the results in a small file next to the alert file, and `doctor` uses them. Everybody who can write
to its folder can change it, so at most a problem of a source is found late.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from pydantic import TypeAdapter

from mirrorfeed.config.model import Config
from mirrorfeed.errors import MirrorfeedError
from mirrorfeed.landing.strict_json import CONFIG, Count, parse_json, validate
from mirrorfeed.monitor.state_folder import open_state
from mirrorfeed.storage import Store

_FILE_NAME = "measured.json"
LongestText = tuple[str, int] | None
"""Name of the column with the longest text, and the length of the text in bytes. None if there is no text."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Result of one query over all rows of a source."""

    table: str
    kind: Literal["text", "keys"]
    rows: str
    """Identity of the rows, as `identify_rows` returns it."""
    column: str = ""
    bytes: Count = 0


@dataclass(frozen=True, slots=True)
class _File:
    __pydantic_config__: ClassVar = CONFIG
    measured: tuple[Measured, ...]
    format: Literal[1] = 1


_FILE: Final = TypeAdapter(_File)


def identify_rows(table_id: str, version: int, *settings: object) -> str:
    """Return a text that differs for other rows: another table, another version, or other `settings`."""
    return f"{table_id} {version} {hashlib.sha256(repr(settings).encode()).hexdigest()[:16]}"


class Measurements:
    """Results of the queries of earlier runs. Several threads can use an object. No method raises an error about the
    file."""

    def __init__(self, store: Store | None = None, path: str = "") -> None:
        """Without `store`, nothing is known at the start, and `save` does nothing."""
        self._store, self._path = store, path
        self._known, self._used = self._read(), dict[tuple[str, str], Measured]()

    def longest_text(self, table: str, rows: str | None, measure: Callable[[], LongestText]) -> LongestText:
        """Return the longest text of a table, and call `measure` only if `rows` were not measured or are None."""
        measured = self._find(table, "text", rows)
        if measured is None:
            column, length = measure() or ("", 0)
            measured = self._add(Measured(table, "text", rows or "", column, length))
        return (measured.column, measured.bytes) if measured.column else None

    def has_text(self, table: str, rows: str | None) -> bool:
        """Return whether the longest text of these rows is known."""
        return rows is not None and self._find(table, "text", rows) is not None

    def check_keys(self, table: str, rows: str, check: Callable[[], object]) -> None:
        """Call `check`, which raises an error about the keys of a table, only if `rows` did not pass it before."""
        if self._find(table, "keys", rows) is None:
            check()
            self._add(Measured(table, "keys", rows))

    def save(self, tables: Collection[str]) -> None:
        """Write all known results of `tables`. A failure only makes the next run slower."""
        entries = {key: each for key, each in (self._known | self._used).items() if each.rows and each.table in tables}
        if self._store and entries != self._known:
            with suppress(MirrorfeedError):
                self._store.replace(self._path, _FILE.dump_json(_File(tuple(entries.values())), indent=1))

    def _find(self, table: str, kind: str, rows: str | None) -> Measured | None:
        measured = self._used.get((table, kind)) or self._known.get((table, kind))
        return self._add(measured) if measured and measured.rows == rows else None

    def _add(self, measured: Measured) -> Measured:
        self._used[measured.table, measured.kind] = measured
        return measured

    def _read(self) -> dict[tuple[str, str], Measured]:
        with suppress(MirrorfeedError, ValueError):  # without the file, everything is measured again
            if self._store:
                entries = validate(_FILE, parse_json(self._store.read(self._path))).measured
                return {(each.table, each.kind): each for each in entries}
        return {}


def open_measurements(config: Config) -> Measurements:
    """Return the results of earlier runs of `check-alerts`."""
    return Measurements(*open_state(config, _FILE_NAME))
