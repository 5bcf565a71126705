"""The open mirrored database: its making by name, its start and stop, and what it says about itself and its tables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter

from mirrorfeed.config import Config
from mirrorfeed.config.destination import DEFAULT_SCHEMA, FabricOptions
from mirrorfeed.display.humanize import counted
from mirrorfeed.display.rows import Row, row, shown
from mirrorfeed.landing.names import Target, fold
from mirrorfeed.landing.strict_json import Count
from mirrorfeed.mirror.fabric.client import AUDIENCE, ENDPOINT, Api
from mirrorfeed.mirror.fabric.definition import part, read, spelled
from mirrorfeed.mirror.fabric.errors import NameTaken, NotDropped, NotInFabric, NotListed, NotPaused, NotReached
from mirrorfeed.mirror.fabric.responses import Page, Place, Response, error_in, moment
from mirrorfeed.runtime.credentials import bearer

_POLL_SECONDS = 5.0
_NOTHING_SAID = FabricOptions()


@row
class TableState(Row):
    """A table of the mirrored database, as Fabric reports it."""

    table: str = shown("table")
    """The name with its schema."""
    status: str = shown("status")
    """As Fabric spells it."""
    rows: int | None = shown("rows", default=None)
    """Rows that Fabric has processed."""
    error: str | None = None
    """Fabric's message."""
    synced: datetime | None = shown("synced", default=None)
    """Time of the last synchronization. It can lag minutes behind the data."""

    @property
    def ok(self) -> bool:
        """Whether Fabric reports no error."""
        return self.error is None and self.status != "Failed"

    def remarks(self) -> Sequence[str]:
        return () if self.ok else (f"{self.table}: {self.error or 'Fabric gives no reason.'}",)

    def is_of(self, target: Target) -> bool:
        """Whether Fabric means this target; its default schema is `dbo`."""
        return fold(self.table) == fold(f"{target.schema or DEFAULT_SCHEMA}.{target.table}")

    @property
    def in_words(self) -> str:
        """Status, rows and error."""
        rows = "" if self.rows is None else f", {counted(self.rows, 'row')}"
        return f"{self.status}{rows}{f': {self.error}' if self.error else ''}"


class _Metrics(Response):
    processedRows: Count | None = None
    lastSyncDateTime: str | None = None


class _Table(Response):
    sourceSchemaName: str | None = None
    sourceTableName: str = ""
    status: str = ""
    metrics: _Metrics | None = None
    error: Any = None


class _Item(Response):
    id: str
    displayName: str


_TABLES: TypeAdapter[Page[_Table]] = TypeAdapter(Page[_Table])
_ITEMS: TypeAdapter[Page[_Item]] = TypeAdapter(Page[_Item])


@row
class DatabaseStatus(Row):
    """The status of the mirrored database."""

    status: str
    """One of Initializing, Initialized, Starting, Running, Paused, Stopping, Stopped, as Fabric spells it."""

    def remarks(self) -> Sequence[str]:
        return (f"The mirrored database is {self.status}.",)


@row
class CreatedDatabase(Row):
    """An open mirrored database, and whether this call created it."""

    name: str
    created: bool
    landing_zone: str
    """The value for `landing_zone` in the configuration."""

    def remarks(self) -> Sequence[str]:
        state = "was created" if self.created else "exists already"
        return f"{self.name!r} {state}. Add to the configuration:", f"landing_zone: {self.landing_zone}"


@dataclass(frozen=True)
class MirroredDatabase:
    api: Api
    place: Place

    def status(self) -> str:
        """One of Initializing, Initialized, Starting, Running, Paused, Stopping, Stopped, as the service spells it."""
        return str(self.api.post("tell the status", self.place, "getMirroringStatus").get("status", "unknown"))

    def tables(self) -> list[TableState]:
        action = "tell the status of its tables"
        entries = self.api.pages(self.api.post, action, self.place, "getTablesMirroringStatus", _TABLES)
        return [_table_state(entry) for entry in entries]

    def start(self, on_status: Callable[[str], None], seconds: float) -> None:
        """Waits until it is running; nothing to do if it is."""
        self._reach({"Running"}, "startMirroring", {"Initialized", "Stopped", "Paused"}, on_status, seconds)

    def resume(self, on_status: Callable[[str], None], seconds: float) -> None:
        """Starts what is Paused, and waits until it is running; or `NotPaused`."""
        if (status := self.status()) not in ("Paused", "Running", "Starting"):
            raise NotPaused(place=str(self.place), status=status)
        self.start(on_status, seconds)

    def stop(self, on_status: Callable[[str], None], seconds: float) -> None:
        self._reach({"Stopped", "Initialized"}, "stopMirroring", {"Running", "Paused"}, on_status, seconds)

    def _reach(
        self, goals: Collection[str], verb: str, ripe: Collection[str], on_status: Callable[[str], None], seconds: float
    ) -> None:
        """Asks once, in a state in which that can be asked, and looks until a goal is reached."""
        deadline, asked, before = self.api.clock() + seconds, False, ""
        while True:
            status = self.status()
            if status != before:
                on_status(status)
            before = status
            if status in goals:
                return
            if status in ripe and not asked:
                self.api.post(verb.replace("Mirroring", " mirroring"), self.place, verb)
                asked = True
            elif self.api.clock() >= deadline:
                raise NotReached(place=str(self.place), verb=verb, status=status, seconds=seconds)
            else:
                self.api.sleep(_POLL_SECONDS)

    def wait_until_dropped(self, target: Target, on_wait: Callable[[str], None], seconds: float) -> None:
        """Until the service no longer has the table. While it is not running it drops nothing, and there is nothing to
        wait for: when it starts, it takes every table anew."""
        deadline, before = self.api.clock() + seconds, ""
        while True:
            state = next((found for found in self.tables() if found.is_of(target)), None)
            if state is None or self.status() in ("Initialized", "Stopped"):
                return
            if state.in_words != before:
                on_wait(state.in_words)
            before = state.in_words
            if self.api.clock() >= deadline:
                raise NotDropped(table=str(target), place=str(self.place), state=state.in_words, seconds=seconds)
            self.api.sleep(_POLL_SECONDS)


def create(
    api: Api, workspace: str, name: str, options: FabricOptions = _NOTHING_SAID, seconds: float = 120.0
) -> tuple[str, bool]:
    """The id of the open mirrored database with this name, and whether it was made now, as the options say."""
    place = Place(workspace)
    if found := _find(api, place, name):
        read(api, Place(workspace, found), name)
        return found, False
    trouble: NameTaken | None = None
    try:
        api.post(f"make {name!r}", place, body={"displayName": name, "definition": {"parts": [part(spelled(options))]}})
    except NameTaken as error:  # by this very call, if it was repeated
        trouble = error
    deadline = api.clock() + seconds
    while not (found := _find(api, place, name)):
        if api.clock() >= deadline:
            raise trouble or NotListed(name=name, place=str(place))
        api.sleep(_POLL_SECONDS)
    return found, True


def _find(api: Api, place: Place, name: str) -> str | None:
    entries = api.pages(api.get, "list the mirrored databases", place, "", _ITEMS)
    ids = [entry.id for entry in entries if fold(entry.displayName) == fold(name)]
    return ids[0] if ids else None


def _table_state(entry: _Table) -> TableState:
    metrics = entry.metrics or _Metrics()
    synced = moment(metrics.lastSyncDateTime)
    schema, name = entry.sourceSchemaName or DEFAULT_SCHEMA, entry.sourceTableName
    return TableState(f"{schema}.{name}", entry.status, metrics.processedRows, error_in(entry.error), synced)


def api_of(config: Config) -> Api:
    return Api(bearer(config.credential, AUDIENCE, config.ca_file), config.fabric_endpoint or ENDPOINT, config.ca_file)


def database_of(config: Config) -> MirroredDatabase:
    """The one that the configuration's landing zone belongs to."""
    workspace, database = config.onelake or (None, None)
    if workspace is None or database is None:
        raise NotInFabric(landing_zone=config.landing_zone)
    return MirroredDatabase(api_of(config), Place(workspace, database))
