"""Status of a mirrored database and its tables in Fabric, and settings that differ between Fabric and configuration."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from mirrorfeed.config.connections import DEFAULT_SCHEMA, FabricOptions
from mirrorfeed.display.rows import Row, counted, row, shown
from mirrorfeed.landing.names import Target, fold

OPEN_MIRROR = "GenericMirror"
_RETENTION_DAYS = 7
"""Value of the setting `retention_days` of a new database if it is not configured."""
FIELDS = {
    "retention_days": "retentionInDays",
    "change_data_feed": "enableDeltaChangeDataFeed",
    "default_schema": "defaultSchema",
}
"""Maps the name of each setting in the configuration to the name of this setting in `mirroring.json`."""
NOTES = {
    "change_data_feed": "uses capacity; the feed is read through a shortcut in a lakehouse",
    "default_schema": "requires `mirrorfeed fabric stop` first; the next start loads every table again",
}


@row
class TableState(Row):
    """Status of a table of the mirrored database, as Fabric reports it."""

    table: str = shown("table")
    """Name with schema, such as `sales.orders`."""
    status: str = shown("status")
    """Status as Fabric returns it, such as Replicating or Failed."""
    rows: int | None = shown("rows", default=None)
    """Number of rows that Fabric has processed. None if Fabric does not report the number."""
    error: str | None = None
    """Fabric's error message, or None."""
    synced: datetime | None = shown("synced", default=None)
    """Time of the last synchronization that Fabric reports, or None. The mirror can have data that is minutes newer."""

    @property
    def ok(self) -> bool:
        return self.error is None and self.status != "Failed"

    def remarks(self) -> Sequence[str]:
        return () if self.ok else (f"{self.table}: {self.error or 'Fabric gives no reason.'}",)

    def is_of(self, target: Target) -> bool:
        """Return whether this is the mirrored table of `target`. Ignores case. The default schema is `dbo`."""
        return fold(self.table) == fold(f"{target.schema or DEFAULT_SCHEMA}.{target.table}")

    @property
    def in_words(self) -> str:
        """Status, number of rows and error in one line."""
        rows = "" if self.rows is None else f", {counted(self.rows, 'row')}"
        return f"{self.status}{rows}{f': {self.error}' if self.error else ''}"


@row
class TableSync(Row):
    """Result of refreshing one table in the SQL endpoint of the mirrored database."""

    table: str = shown("table")
    """Name of the table, which may start with the schema and a dot."""
    status: str = shown("status")
    """Success, Failure, or NotRun if there was nothing new."""
    synced: datetime | None = shown("synced", default=None)
    """Time of the last successful refresh of the table, or None."""
    error: str | None = None
    """Fabric's error message, or None."""

    @property
    def ok(self) -> bool:
        return self.status in ("Success", "NotRun")

    def remarks(self) -> Sequence[str]:
        return (f"{self.table}: {self.error or self.status}",) if self.error or not self.ok else ()


@row
class DatabaseStatus(Row):
    """Status of the mirrored database."""

    status: str
    """Initializing, Initialized, Starting, Running, Paused, Stopping or Stopped, as Fabric returns it."""

    def remarks(self) -> Sequence[str]:
        return (f"The mirrored database is {self.status}.",)


@row
class CreatedDatabase(Row):
    """Result of `create`: an open mirrored database that was created, or that already existed."""

    name: str
    created: bool
    landing_zone: str
    """Address of its landing zone: the value to set for `landing_zone` in the configuration."""

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
    """Setting of the mirrored database whose value in Fabric differs from the configured value."""

    field: str = shown("field")
    """Name in the configuration."""
    current: Value = shown("in Fabric", setting_text)
    """Current value in Fabric. None if it is not set there."""
    wanted: Value = shown("configured", setting_text)
    changes: bool
    """True if `mirrorfeed fabric apply` changes the setting. False for `default_schema` if mirroring is not stopped."""
    note: str = shown("note", default="")

    @property
    def in_words(self) -> str:
        """One line with the current value, the configured value and the note."""
        note = f" ({self.note})" if self.note else ""
        return f"{self.field}: {setting_text(self.current)} -> {setting_text(self.wanted)}{note}"


def sync_of(syncs: Sequence[TableSync], target: Target, all_targets: Collection[Target]) -> TableSync | None:
    """Return the result in `syncs` for the table of `target`, or None if there is none.

    A result whose table name has no schema is used only if exactly one of `all_targets` has this table name.
    """
    schema, table = fold(target.schema or DEFAULT_SCHEMA), fold(target.table)
    names = {f"{schema}.{table}"}
    if sum(fold(each.table) == table for each in all_targets) == 1:
        names.add(table)
    return next((each for each in syncs if fold(each.table.replace("[", "").replace("]", "")) in names), None)


def new_definition(options: FabricOptions) -> dict[str, Any]:
    """Return the content of `mirroring.json` for a new database, with the settings in `options` or their defaults."""
    target: dict[str, Any] = {
        "defaultSchema": options.default_schema or DEFAULT_SCHEMA,
        "format": "Delta",
        "retentionInDays": options.retention_days or _RETENTION_DAYS,
    }
    if options.change_data_feed is not None:
        target["enableDeltaChangeDataFeed"] = options.change_data_feed
    return {
        "properties": {
            "source": {"type": OPEN_MIRROR, "typeProperties": {}},
            "target": {"type": "MountedRelationalDatabase", "typeProperties": target},
        }
    }


def find_differences(definition: Mapping[str, Any], options: FabricOptions, stopped: bool = False) -> list[Setting]:
    """Return the settings that have different values in `options` and in `definition`, the content of `mirroring.json`.

    Ignores settings that `options` does not set. `Setting.changes` is True if Fabric can change the setting now. Fabric
    can change `default_schema` only while mirroring is stopped (`stopped` is True), and other settings at any time.
    """
    target, settings = target_settings(definition), []
    for field, name in FIELDS.items():
        current, wanted = target.get(name), getattr(options, field)
        if field == "change_data_feed":
            current = None if current is None else str(current).lower() == "true"
        if wanted is not None and (current or False) != wanted:
            changes = stopped or field != "default_schema"
            note = NOTES.get(field, "") if wanted is not False and not (field == "default_schema" and stopped) else ""
            settings.append(Setting(field, current, wanted, changes, note))
    return settings


def change_settings(definition: Mapping[str, Any], settings: list[Setting]) -> dict[str, Any]:
    """Return `definition`, the content of `mirroring.json`, with the configured values of `settings`.

    A setting with `Setting.changes` False keeps its value from `definition`.
    """
    changed = {FIELDS[each.field]: each.wanted for each in settings if each.changes}
    target = definition["properties"].get("target") or {}
    target = {**target, "typeProperties": {**target_settings(definition), **changed}}
    return {**definition, "properties": {**definition["properties"], "target": target}}


def target_settings(definition: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings in `definition`, the content of `mirroring.json`. Empty if `definition` has no settings.

    The keys are the names of the settings in `mirroring.json`, such as `retentionInDays`.
    """
    target = definition["properties"].get("target") or {}
    return target.get("typeProperties") or {}
