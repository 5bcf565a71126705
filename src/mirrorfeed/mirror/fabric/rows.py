"""Result rows of the commands and methods for the mirrored database."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime

from mirrorfeed.config.connections import DEFAULT_SCHEMA
from mirrorfeed.display.rows import Row, counted, row, shown
from mirrorfeed.landing.names import Target, fold


@row
class TableState(Row):
    """Table of the mirrored database, as Fabric reports it."""

    table: str = shown("table")
    """Name with schema."""
    status: str = shown("status")
    """Status as Fabric spells it."""
    rows: int | None = shown("rows", default=None)
    """Rows that Fabric has processed."""
    error: str | None = None
    """Fabric's error message."""
    synced: datetime | None = shown("synced", default=None)
    """Time of the last synchronization. It can lag minutes behind the data."""

    @property
    def ok(self) -> bool:
        """True if Fabric reports no error."""
        return self.error is None and self.status != "Failed"

    def remarks(self) -> Sequence[str]:
        return () if self.ok else (f"{self.table}: {self.error or 'Fabric gives no reason.'}",)

    def is_of(self, target: Target) -> bool:
        """Return whether this is the table of a target. The default schema is `dbo`."""
        return fold(self.table) == fold(f"{target.schema or DEFAULT_SCHEMA}.{target.table}")

    @property
    def in_words(self) -> str:
        """Status, rows and error in words."""
        rows = "" if self.rows is None else f", {counted(self.rows, 'row')}"
        return f"{self.status}{rows}{f': {self.error}' if self.error else ''}"


@row
class TableSync(Row):
    """Table in the SQL endpoint of the mirrored database, after a refresh."""

    table: str = shown("table")
    """Name. It may start with the schema and a dot."""
    status: str = shown("status")
    """Success, Failure, or NotRun if there was nothing new."""
    synced: datetime | None = shown("synced", default=None)
    """Time of the last successful refresh."""
    error: str | None = None
    """Fabric's error message."""

    @property
    def ok(self) -> bool:
        """True if the refresh did not fail."""
        return self.status in ("Success", "NotRun")

    def remarks(self) -> Sequence[str]:
        return (f"{self.table}: {self.error or self.status}",) if self.error or not self.ok else ()


@row
class DatabaseStatus(Row):
    """Status of the mirrored database."""

    status: str
    """Initializing, Initialized, Starting, Running, Paused, Stopping or Stopped, as Fabric spells it."""

    def remarks(self) -> Sequence[str]:
        return (f"The mirrored database is {self.status}.",)


@row
class CreatedDatabase(Row):
    """Open mirrored database, and whether this call created it."""

    name: str
    created: bool
    landing_zone: str
    """Value for `landing_zone` in the configuration."""

    def remarks(self) -> Sequence[str]:
        state = "was created" if self.created else "already exists"
        return (
            f"The mirrored database {self.name!r} {state}. Set in the configuration:"
        ), f"landing_zone: {self.landing_zone}"


Value = int | bool | str | None


def setting_text(value: Value) -> str:
    return "not set" if value is None else value if isinstance(value, str) else json.dumps(value)


@row
class Setting(Row):
    """Setting of the mirrored database that differs from the configuration."""

    field: str = shown("field")
    """Name in the configuration."""
    there: Value = shown("in Fabric", setting_text)
    """Current value. None if the definition does not have the setting."""
    wanted: Value = shown("configured", setting_text)
    changes: bool
    """True if `apply` changes the setting."""
    note: str = shown("note", default="")

    @property
    def in_words(self) -> str:
        """Change in one line."""
        note = f" ({self.note})" if self.note else ""
        return f"{self.field}: {setting_text(self.there)} -> {setting_text(self.wanted)}{note}"
