"""Which publications the ledger has, so that a run does not read the ledger to find out.

Each landing zone has a small file about its ledger, `_mirrorfeed/ledger_<digest>.json`, which Fabric ignores. A run
reads the file, and replaces it after it wrote to the ledger. The file may be behind: then a run looks up in the ledger
the few publications that may be missing. Nothing that decides a publication reads the file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, Final, Literal

from pydantic import TypeAdapter

from mirrorfeed.landing.names import LOG
from mirrorfeed.landing.strict_json import CONFIG, Count, UtcTime, parse_json, validate
from mirrorfeed.orchestration.ledger import Known, PublicationKey
from mirrorfeed.source.identifier import Source
from mirrorfeed.storage import Store
from mirrorfeed.storage.errors import PathExistsError, PathMissingError

_ATTEMPTS = 8
"""Attempts to replace the file while other runs replace it, too."""


@dataclass(frozen=True, slots=True)
class TableState:
    """What is known about the ledger's rows of a table."""

    table: str
    stopped: bool = False
    """True if the newest outcome of publishing is `blocked` or `failed`."""
    time: UtcTime | None = None
    """Time and versions of a publication. The ledger has it, and every earlier one that it can have. None if there is
    no publication."""
    from_version: Count | None = None
    to_version: Count | None = None
    reported_at: UtcTime | None = None
    """Time of the newest row with an outcome of publishing."""

    @property
    def known(self) -> Known:
        key = PublicationKey(self.time, self.from_version, self.to_version) if self.time else None
        return Known(self.stopped, [key] if key else [], self.reported_at)


@dataclass(frozen=True, slots=True)
class _File:
    __pydantic_config__: ClassVar = CONFIG
    tables: tuple[TableState, ...] = ()
    maintained_at: UtcTime | None = None
    """Time of the last start of a maintenance of the ledger."""
    format: Literal[1] = 1


_FILE: Final = TypeAdapter(_File)


@dataclass
class LedgerState:
    """The file of a landing zone about its ledger. No method raises an error: without the file, a run looks up more."""

    open_store: Callable[[], Store]
    ledger: Source
    _content: _File | None = field(default=None, init=False)

    @property
    def path(self) -> str:
        digest = hashlib.sha256("\0".join(map(str, self.ledger.fold())).encode()).hexdigest()[:8]
        return f"{LOG}/ledger_{digest}.json"

    @property
    def tables(self) -> Mapping[str, TableState]:
        """What this run knows about each table. Read once."""
        return {each.table: each for each in self._known().tables}

    @property
    def maintained_at(self) -> datetime | None:
        return self._known().maintained_at

    def update(self, changed: Mapping[str, TableState], maintained_at: datetime | None = None) -> bool:
        """Replace the entries of the tables in `changed`, and keep those that other runs wrote. Set `maintained_at`.

        Returns False if `maintained_at` was not set, for example because another run set it since this run read it.
        """
        known, tables = self._known(), dict(self.tables)
        if maintained_at is None and all(tables.get(name) == each for name, each in changed.items()):
            return False
        with suppress(Exception):  # the next run looks up in the ledger what the file does not say
            store = self.open_store()
            for _ in range(_ATTEMPTS):
                folder, _, name = self.path.rpartition("/")
                etag = next((each.etag for each in store.list(folder) if each.name == name), None)
                before = self._read() if etag else _File()
                is_first = maintained_at is not None and before.maintained_at == known.maintained_at
                tables = {each.table: each for each in before.tables} | dict(changed)
                self._content = _File(tuple(tables.values()), maintained_at if is_first else before.maintained_at)
                data = _FILE.dump_json(self._content)
                try:
                    if etag is None:
                        store.create(self.path, data)
                    else:
                        store.replace(self.path, data, etag)
                    return is_first
                except (PathExistsError, PathMissingError):  # another run replaced the file
                    continue
        return False

    def remove(self) -> None:
        """Delete the file, because the ledger is new."""
        self._content = _File()
        with suppress(Exception):
            self.open_store().remove(self.path)

    def _known(self) -> _File:
        if self._content is None:
            self._content = self._read()
        return self._content

    def _read(self) -> _File:
        with suppress(Exception):
            return validate(_FILE, parse_json(self.open_store().read(self.path)))
        return _File()
