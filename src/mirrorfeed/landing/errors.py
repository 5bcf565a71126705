"""Errors of the landing-zone format: invalid targets, columns, selections and settings, and unreadable files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from mirrorfeed.errors import Computed, ConfigurationError, LandingZoneError, SourceError, Template, problem


class TargetNameError(ConfigurationError):
    code = "MF1110"
    what = "The target {text!r} {reason}."
    fix = "Write the target as schema.table or table. Both names must be possible as names of folders."
    text: str
    reason: str


@problem(SourceError, "MF3001")
def unsupported_type(*, column: str, table: str, type: str) -> None:
    """Column {column!r} of {table} has the type {type}, which a landing zone does not support.

    Exclude the column with `exclude_columns`, or publish a table in which it has another type.
    """


@problem(SourceError, "MF3002")
def reserved_columns(*, table: str, columns: Sequence[str]) -> None:
    """{table} has columns whose names are reserved for the change data feed or for Fabric: {columns:quoted}.

    Rename these columns in the source.
    """


@problem(ConfigurationError, "MF3003")
def invalid_key(*, column: str, table: str, reason: str) -> None:
    """Column {column!r} cannot be a key of {table}: {reason}.

    Correct `keys` in the configuration.
    """


class IncompatibleSchemaError(SourceError):
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
    table: str
    version: int
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


class ColumnsDroppedError(SourceError):
    code = "MF3005"
    what = "{table} lost columns at version {version}: {columns:quoted}."
    fix = (
        "Run `mirrorfeed publish`. With `on_dropped_column: reseed`, this reloads the table without these columns. With"
        " `on_dropped_column: keep`, the columns stay in the mirror with NULL in new rows."
    )
    table: str
    version: int
    columns: Sequence[str]


@problem(ConfigurationError, "MF3006")
def keys_changed(*, published: Sequence[str], address: str, wanted: Sequence[str]) -> Computed:
    """The table has {keys}, but was published with the keys {published:quoted} ({address}).

    The keys of a published table cannot change. Restore the previous keys in the configuration, or reload the table
    with `mirrorfeed rebuild`.
    """
    return {"keys": f"the keys {', '.join(map(repr, wanted))}" if wanted else "no keys"}


@problem(ConfigurationError, "MF3007")
def setting_changed(*, address: str, name: str, published: Any, wanted: Any) -> Computed:
    """{address} {found}, but the configuration of the table {needed}.

    Existing files were written with the old setting. Restore the setting in the configuration, or reload the table with
    `mirrorfeed rebuild`.
    """
    return {
        "found": f"does not set {name}" if published is None else f"sets {name} to {_json(published)}",
        "needed": "has no such setting" if wanted is None else f"needs {_json(wanted)}",
    }


@problem(ConfigurationError, "MF3010")
def foreign_partner_events(*, address: str, content: str) -> None:
    """{address} differs from `partner` in the configuration and was not changed: {content}

    Tables are published anyway. If no other publisher owns this file, replace the file with `mirrorfeed setup
    partner --force`. Otherwise copy the values of the file to the configuration, or remove `partner`.
    """


@problem(ConfigurationError, "MF3011")
def invalid_selection(*, table: str, reasons: Sequence[str]) -> None:
    """The selection of {table} does not match its columns or keys: {reasons:reasons}.

    Correct `columns`, `exclude_columns`, `where`, `rename`, `cast` or `transform` of the table in the configuration.
    These options use the column names of the source. Nothing was published.
    """


@problem(ConfigurationError, "MF3012")
def invalid_condition(*, condition: str, table: str, reason: str) -> None:
    """The condition {condition!r} is not valid for the rows of {table}: {reason}.

    Correct `where` of the table in the configuration: write the condition as in a WHERE clause. Nothing was published.
    """


@problem(ConfigurationError, "MF3013")
def selection_changed(*, table: str, changes: Sequence[str]) -> None:
    """The rows of {table} were published with another selection: {changes:reasons}.

    Undo the change in the configuration, or run `mirrorfeed rebuild` to reload the table with the new selection.
    """


@problem(ConfigurationError, "MF3101")
def upserts_without_keys(*, table: str) -> None:
    """{table} has no keys, so `default_row_marker: upsert` is not possible.

    Set `keys`, or remove `default_row_marker`.
    """


@problem(SourceError, "MF3102")
def type_not_declarable(*, column: str, table: str, type: str) -> None:
    """Column {column!r} of {table} has the type {type}. Delimited text has no DataType for this type.

    Under `delimited`, set `undeclared_types: string` to publish the column as String, or `schema_definition: false` to
    declare no types. Or publish the table as Parquet.
    """


@problem(SourceError, "MF3103")
def column_name_not_writable(*, column: str, table: str, reason: str) -> None:
    """The header of text files cannot have the name of column {column!r} of {table}: {reason}.

    Rename the column, or change `delimited`: set another `encoding` such as UTF-8, or `escape: \\`.
    """


@problem(SourceError, "MF3104")
def null_as_empty_line(*, column: str, table: str) -> None:
    """{column!r} is the only column of {table}. NULL would be an empty line of text, and readers skip empty lines.

    Set another `null` under `delimited`, for example N/A, or publish the table as Parquet.
    """


@problem(ConfigurationError, "MF3014")
def delivery_changed(*, table: str, published: str, wanted: str) -> None:
    """The rows of {table} were published with the delivery mode {published}, but the configuration has {wanted}.

    Restore the previous `delivery` in the configuration, or run `mirrorfeed rebuild` to reload the table with the new
    one. Nothing was published.
    """


@problem(ConfigurationError, "MF3015")
def delivery_column_taken(*, table: str, columns: Sequence[str], mode: str) -> None:
    """{table} has columns with the names of columns that the delivery mode {mode} adds: {columns:quoted}.

    Set other names under `delivery`, or exclude or rename these columns with `exclude_columns` or `rename`. If the
    table is already published, the names under `delivery` cannot change without `mirrorfeed rebuild`. Nothing was
    published.
    """


class RecordTooNewError(LandingZoneError):
    code = "MF3202"
    what = (
        "The publication record {address} has format {found}, but this release of mirrorfeed reads only formats up to"
        " {known}."
    )
    fix = "Install a newer release of mirrorfeed."
    address: str
    known: int
    found: int


class DamagedFileError(LandingZoneError):
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
    address: str
    reason: str
    kind: Literal["table", "history", "alerts"] = "table"

    @property
    def case(self) -> str:
        return self.kind


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
