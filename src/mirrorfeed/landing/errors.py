"""Errors of the landing-zone format: targets, columns, selections, and files that cannot be read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

from mirrorfeed.errors import Terminal

_OR_REBUILD = "restore them in the configuration, or publish a new snapshot with `mirrorfeed rebuild`."


class BadTarget(Terminal):
    code = "MF1110"
    what = "The target {text!r} {reason}."
    fix = "Write it as schema.table or table, with names that can be folders in the landing zone."
    text: str
    reason: str


class UnsupportedType(Terminal):
    code = "MF3001"
    what = "Column {column!r} of {table} has the type {type}, which a landing zone does not support."
    fix = "Exclude the column with `exclude_columns`, or publish a table in which it has another type."


class ReservedColumn(Terminal):
    code = "MF3002"
    what = "{table} has columns with names that are reserved for the change data feed or Fabric: {columns:quoted}."
    fix = "Rename them in the source."


class BadKey(Terminal):
    code = "MF3003"
    what = "Column {column!r} cannot be a key of {table}: {reason}."
    fix = "Correct `keys` in the configuration."


class IncompatibleSchema(Terminal):
    code = "MF3004"
    what = "The columns of {table} at version {version} are incompatible with the published columns: {changes:reasons}."
    fix = (
        "Undo the change in the source, or publish a new snapshot with `mirrorfeed rebuild`. With"
        " `on_schema_change: reseed` this happens automatically."
    )
    meaning = (
        "The columns of the source changed in a way that a table in Fabric does not support, for example to another"
        " type. Nothing has been published since."
    )
    changes: Sequence[str]


class ColumnsDropped(Terminal):
    code = "MF3005"
    what = "{table} lost columns at version {version}: {columns:quoted}."
    fix = (
        "Run `mirrorfeed publish`. It publishes a new snapshot without these columns, because of"
        " `on_dropped_column: reseed`. With `keep` they stay and are NULL."
    )


class KeysChanged(Terminal):
    code = "MF3006"
    what = "{address} has the keys [{published:quoted}], but the table now has {keys}."
    fix = f"Published keys cannot change: {_OR_REBUILD}"
    wanted: Sequence[str]

    @property
    def keys(self) -> str:
        return f"the keys {list(self.wanted)}" if self.wanted else "no keys"


class SettingChanged(Terminal):
    code = "MF3007"
    what = "{address} {found}, but the table now {needed}."
    fix = f"Existing files were written with the old settings: {_OR_REBUILD}"
    name: str
    published: Any
    wanted: Any

    @property
    def found(self) -> str:
        return f"does not set {self.name}" if self.published is None else f"sets {self.name} to {_json(self.published)}"

    @property
    def needed(self) -> str:
        return "does not use it" if self.wanted is None else f"needs {_json(self.wanted)}"


class ForeignPartnerEvents(Terminal):
    code = "MF3010"
    what = "{address} differs from `partner` in the configuration and was not changed: {content}"
    fix = (
        "Tables are published anyway. If no other publisher owns this file, replace it with `mirrorfeed partner"
        " --force`. Otherwise copy its values to the configuration, or remove `partner`."
    )


class BadSelection(Terminal):
    code = "MF3011"
    what = "The selection of {table} does not match its columns or keys: {reasons:reasons}."
    fix = (
        "Correct `columns`, `exclude_columns`, `where`, `rename` or `cast` of the table in the configuration. They use"
        " the column names of the source. Nothing was published."
    )
    reasons: Sequence[str]


class BadCondition(Terminal):
    code = "MF3012"
    what = "The condition {condition!r} is not valid for the rows of {table}: {reason}."
    fix = "Correct `where` of the table in the configuration, a condition as after WHERE in SQL. Nothing was published."


class SelectionChanged(Terminal):
    code = "MF3013"
    what = "The rows of {table} were published with another selection: {changes:reasons}."
    fix = (
        "Publish a new snapshot with the new selection with `mirrorfeed rebuild`, or undo the change in the"
        " configuration."
    )
    changes: Sequence[str]


class UpsertsWithoutKeys(Terminal):
    code = "MF3101"
    what = "Rows of {table} cannot be upserts by default, because the table has no keys."
    fix = "Set `keys`, or remove `default_row_marker: upsert`."


class NotDeclarable(Terminal):
    code = "MF3102"
    what = "Column {column!r} of {table} has the type {type}, for which delimited text has no DataType."
    fix = (
        "Under `delimited`, set `undeclared_types: string` to publish it as String, or `schema_definition: false` to"
        " declare no types. Or publish the table as Parquet."
    )


class NameNotEncodable(Terminal):
    code = "MF3103"
    what = "The name of column {column!r} of {table} contains a character that {encoding} cannot encode."
    fix = "Set another `encoding` under `delimited`, for example UTF-8, or rename the column."


class EmptyLines(Terminal):
    code = "MF3104"
    what = "{column!r} is the only column of {table}, so NULL would be an empty line of text, which readers skip."
    fix = "Set another `null` under `delimited`, for example N/A, or publish the table as Parquet."


class NameNotEscapable(Terminal):
    code = "MF3105"
    what = "The name of column {column!r} of {table} contains characters that the text files cannot escape."
    fix = "Set an `escape` under `delimited`, for example \\, or rename the column."


class RecordTooNew(Terminal):
    code = "MF3202"
    what = "The publication record {address} has format {found}, but this version reads formats up to {known}."
    fix = "Install a newer release of mirrorfeed."
    found: int


class DamagedFile(Terminal):
    code = "MF4008"
    what = "{address} is damaged, or mirrorfeed did not write it: {reason}."
    fix = {
        "table": "Nothing is published on a guess. Restore the file, or start the table again with"
        " `mirrorfeed rebuild`.",
        "history": "Install a newer release of mirrorfeed if one wrote it. If somebody changed it, restore an earlier"
        " version of the history with RESTORE TABLE.",
        "alerts": "The file is ignored and replaced, so current problems are reported again. If this repeats, set"
        " `state_path` of `alerts` to a folder that only `mirrorfeed check-alerts` writes to.",
    }
    reason: str
    kind: Literal["table", "history", "alerts"] = "table"

    @property
    def case(self) -> str:
        return self.kind


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
