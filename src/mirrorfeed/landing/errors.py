"""Errors of the landing-zone format: invalid targets, columns, selections and settings, and unreadable files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from mirrorfeed.errors import Template, Terminal

_OR_REBUILD = "in the configuration, or reload the table with `mirrorfeed rebuild`."


class BadTarget(Terminal):
    code = "MF1110"
    what = "The target {text!r} {reason}."
    fix = "Write the target as schema.table or table. Both names must be possible as names of folders."
    text: str
    reason: str


class UnsupportedType(Terminal):
    code = "MF3001"
    what = "Column {column!r} of {table} has the type {type}, which a landing zone does not support."
    fix = "Exclude the column with `exclude_columns`, or publish a table in which it has another type."


class ReservedColumn(Terminal):
    code = "MF3002"
    what = "{table} has columns whose names are reserved for the change data feed or for Fabric: {columns:quoted}."
    fix = "Rename these columns in the source."


class BadKey(Terminal):
    code = "MF3003"
    what = "Column {column!r} cannot be a key of {table}: {reason}."
    fix = "Correct `keys` in the configuration."


class IncompatibleSchema(Terminal):
    code = "MF3004"
    what = "The columns of {table} at version {version} are incompatible with the published columns: {changes:reasons}."
    fix: ClassVar[Template] = {
        "A column was renamed": (
            "To continue without a reload, publish the column under its old name: add `{renames}` to `rename` of the"
            " table. If the column is a key, also write its new name in `keys`. Otherwise reload the table with"
            " `mirrorfeed rebuild`; with `on_schema_change: reseed`, this happens automatically."
        ),
        "A key is missing": (
            "Undo the change in the source, or set other `keys` in the configuration and reload the table with"
            " `mirrorfeed rebuild`."
        ),
        "Another change": (
            "Undo the change in the source, or reload the table with `mirrorfeed rebuild`. With `on_schema_change:"
            " reseed`, the reload happens automatically."
        ),
    }
    meaning = (
        "The columns of the source changed in a way that a table in Fabric does not support, for example to another"
        " type. Nothing was published after the change."
    )
    changes: Sequence[str]
    renamed: Mapping[str, str] = {}
    """New name of each renamed column."""
    misses_key: bool = False

    @property
    def case(self) -> str:
        if self.renamed:
            return "A column was renamed"
        return "A key is missing" if self.misses_key else "Another change"

    @property
    def renames(self) -> str:
        return ", ".join(f"{new}: {old}" for old, new in self.renamed.items())


class ColumnsDropped(Terminal):
    code = "MF3005"
    what = "{table} lost columns at version {version}: {columns:quoted}."
    fix = (
        "Run `mirrorfeed publish`. With `on_dropped_column: reseed`, this reloads the table without these columns. With"
        " `on_dropped_column: keep`, the columns stay in the mirror with NULL in new rows."
    )


class KeysChanged(Terminal):
    code = "MF3006"
    what = "The table has {keys}, but was published with the keys {published:quoted} ({address})."
    fix = f"The keys of a published table cannot change. Restore the previous keys {_OR_REBUILD}"
    wanted: Sequence[str]

    @property
    def keys(self) -> str:
        return f"the keys {', '.join(map(repr, self.wanted))}" if self.wanted else "no keys"


class SettingChanged(Terminal):
    code = "MF3007"
    what = "{address} {found}, but the configuration of the table {needed}."
    fix = f"Existing files were written with the old setting. Restore the setting {_OR_REBUILD}"
    name: str
    published: Any
    wanted: Any

    @property
    def found(self) -> str:
        return f"does not set {self.name}" if self.published is None else f"sets {self.name} to {_json(self.published)}"

    @property
    def needed(self) -> str:
        return "has no such setting" if self.wanted is None else f"needs {_json(self.wanted)}"


class ForeignPartnerEvents(Terminal):
    code = "MF3010"
    what = "{address} differs from `partner` in the configuration and was not changed: {content}"
    fix = (
        "Tables are published anyway. If no other publisher owns this file, replace the file with `mirrorfeed setup"
        " partner --force`. Otherwise copy the values of the file to the configuration, or remove `partner`."
    )


class BadSelection(Terminal):
    code = "MF3011"
    what = "The selection of {table} does not match its columns or keys: {reasons:reasons}."
    fix = (
        "Correct `columns`, `exclude_columns`, `where`, `rename` or `cast` of the table in the configuration. These"
        " options use the column names of the source. Nothing was published."
    )
    reasons: Sequence[str]


class BadCondition(Terminal):
    code = "MF3012"
    what = "The condition {condition!r} is not valid for the rows of {table}: {reason}."
    fix = (
        "Correct `where` of the table in the configuration: write the condition as in a WHERE clause. Nothing was"
        " published."
    )


class SelectionChanged(Terminal):
    code = "MF3013"
    what = "The rows of {table} were published with another selection: {changes:reasons}."
    fix = (
        "Undo the change in the configuration, or run `mirrorfeed rebuild` to reload the table with the new selection."
    )
    changes: Sequence[str]


class UpsertsWithoutKeys(Terminal):
    code = "MF3101"
    what = "{table} has no keys, so `default_row_marker: upsert` is not possible."
    fix = "Set `keys`, or remove `default_row_marker`."


class NotDeclarable(Terminal):
    code = "MF3102"
    what = "Column {column!r} of {table} has the type {type}. Delimited text has no DataType for this type."
    fix = (
        "Under `delimited`, set `undeclared_types: string` to publish the column as String, or `schema_definition:"
        " false` to declare no types. Or publish the table as Parquet."
    )


class NameNotWritable(Terminal):
    code = "MF3103"
    what = "The header of text files cannot have the name of column {column!r} of {table}: {reason}."
    fix = "Rename the column, or change `delimited`: set another `encoding` such as UTF-8, or `escape: \\`."


class EmptyLines(Terminal):
    code = "MF3104"
    what = (
        "{column!r} is the only column of {table}. NULL would be an empty line of text, and readers skip empty lines."
    )
    fix = "Set another `null` under `delimited`, for example N/A, or publish the table as Parquet."


class RecordTooNew(Terminal):
    code = "MF3202"
    what = (
        "The publication record {address} has format {found}, but this release of mirrorfeed reads only formats up to"
        " {known}."
    )
    fix = "Install a newer release of mirrorfeed."
    found: int


class DamagedFile(Terminal):
    code = "MF4008"
    what = "{address} is damaged, or mirrorfeed did not write it: {reason}."
    fix = {
        "table": "Nothing is published until this is corrected. Restore the file, or reload the table with `mirrorfeed"
        " rebuild`.",
        "history": "If a newer release of mirrorfeed wrote the history, install that release. If somebody changed the"
        " history, restore an earlier version of it with RESTORE TABLE.",
        "alerts": "The state of alerts is replaced, so current problems are reported again. If this repeats, set"
        " `state_path` of `alerts` to a folder that only `mirrorfeed check-alerts` writes to.",
    }
    reason: str
    kind: Literal["table", "history", "alerts"] = "table"

    @property
    def case(self) -> str:
        return self.kind


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
