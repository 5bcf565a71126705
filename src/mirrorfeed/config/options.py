"""Options of tables: file format, limits of continuous publishing, pauses, histories, and selected columns and rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from functools import partial
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, ValidationInfo, WrapValidator, model_validator

from mirrorfeed.config import validators
from mirrorfeed.landing.delivery import UPSERT, Delivery
from mirrorfeed.landing.names import Target, fold
from mirrorfeed.landing.output_format import COMPRESSION, Delimited, Output
from mirrorfeed.landing.selection import EVERYTHING, Cast, Selection, TagRules, key_faults, name_fault
from mirrorfeed.runtime.credentials import Secret, SecretLocation
from mirrorfeed.source.errors import IntervalTextError
from mirrorfeed.source.identifier import MAX_PARTS, Source
from mirrorfeed.source.table_info import parse_days


class FollowLimits(validators.ConfigModel):
    """Limits at which `publish --follow` publishes the new commits of a table. None means no limit."""

    # Fabric merges at most every 15 seconds, so publishing more often has no effect.
    max_delay_seconds: validators.Seconds = 15.0
    """Publish when this number of seconds has passed since the previous publication of the table."""
    max_rows: Annotated[int, Field(ge=1)] | None = None
    max_bytes: validators.Size | None = None

    @model_validator(mode="after")
    def _check_limits(self) -> Self:
        if self.max_delay_seconds is None and self.max_rows is None and self.max_bytes is None:
            raise ValueError("would never publish anything: set max_delay_seconds, max_rows or max_bytes")
        return self

    @property
    def measures(self) -> bool:
        """True if a limit depends on the rows or bytes of new commits."""
        return self.max_rows is not None or self.max_bytes is not None

    @property
    def poll(self) -> float:
        """Seconds between two checks for new commits."""
        return 3.0 if self.max_delay_seconds is None else min(3.0, max(0.2, self.max_delay_seconds / 5))


def _parse_time(value: object) -> datetime:
    try:
        time = datetime.fromisoformat(str(value) if isinstance(value, date | str) else "")
    except ValueError:
        example = "2026-12-01 or 2026-12-01 18:00 (default time zone: UTC)"
        raise ValueError(f"must be a date or a time, such as {example}, not {validators.shorten(value)}") from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


class Pause(validators.ConfigModel):
    reason: Annotated[str, AfterValidator(partial(validators.check_not_empty, hint=": write a reason"))]
    until: Annotated[datetime, validators.TextValidator(_parse_time)]

    def __str__(self) -> str:
        return f"paused until {self.until.astimezone(UTC):%Y-%m-%d %H:%M} UTC: {self.reason}"


class Partner(validators.ConfigModel):
    """Description of the publisher, which is written to `_partnerEvents.json`."""

    name: Annotated[str, Field(min_length=1)]
    source_type: Annotated[str, Field(min_length=1)]
    source_version: Annotated[str, Field(min_length=1)]
    information: dict[str, str | int | float | bool] = Field(default_factory=dict)


_DeliveryInput = Literal["upsert", "soft_delete", "append"] | Delivery
_AS_MODE = BeforeValidator(lambda value: {"mode": value} if isinstance(value, str) else value, _DeliveryInput)


class Options(validators.ConfigModel):
    """Options that can be set at the top level for all tables, or in the entry of a table."""

    format: Literal["parquet", "delimited"] = "parquet"
    delimited: Delimited = Delimited()
    file_order: Literal["sequence", "modified_time"] = "sequence"
    """Order in which Fabric reads the files of a table: by number, or by modification time."""
    default_row_marker: Literal["insert", "upsert"] = "insert"
    """Marker that Fabric assumes for rows without a marker."""

    delivery: Annotated[Delivery, _AS_MODE] = UPSERT
    """How changes arrive in the mirror."""
    changes: Literal["net", "full", "compare"] = "net"
    row_markers: Literal["upsert", "exact"] = "upsert"
    validate_keys: Literal["source", "range", "none"] = "source"
    policies: Literal["check", "accept"] = "check"
    """Action if a policy of attribute-based access control may filter or mask rows for the publisher."""
    compression: Literal["none", "snappy", "gzip", "zstd"] = COMPRESSION
    target_file_size: validators.Size = 128 * 2**20
    """Target size of data files, in bytes."""
    load_part_size: validators.TableSize = 32 * 2**30
    """Size of the source, in bytes, from which a first load has several parts, and the size of each part."""
    max_versions_per_publication: Annotated[int, Field(ge=1, le=100_000)] = 500
    log_retention_records: Annotated[int, Field(ge=2)] = 10
    on_gap: Literal["stop", "reseed", "compare"] = "stop"
    on_replace: Literal["compare", "stop", "reseed"] = "compare"
    """Action if the source was replaced. The difference of two versions is exact, so the default continues."""
    on_schema_change: Literal["stop", "reseed"] = "stop"
    on_dropped_column: Literal["keep", "reseed"] = "keep"
    follow: FollowLimits = FollowLimits()
    auto_repair_max_keys: Annotated[int, Field(ge=0)] = 0
    """Maximum number of keys whose rows `verify` repairs automatically. 0 means no repair."""
    hash_key: SecretLocation | None = None
    """Location of the secret for hashes. Required with `transform: {…: hash}`."""
    priority: Annotated[int, Field(ge=-100, le=100)] = 0
    """Tables with a higher priority are published first."""
    freshness_target_minutes: validators.TargetMinutes = None
    """Target for the minutes from a commit until it is published, infinite without a target. None means
    `max_lag_minutes.published` of `alerts` or, with `publish --follow`, no target."""
    table_timeout_minutes: validators.Minutes = None
    """Maximum minutes that one run spends on a table. None means no limit."""

    @property
    def finite_freshness_target(self) -> float | None:
        """The freshness target in minutes, or None if there is none of the table's own."""
        return None if self.freshness_target_minutes == math.inf else self.freshness_target_minutes

    @property
    def output(self) -> Output:
        return Output(
            delimited=self.delimited if self.format == "delimited" else None,
            by_time=self.file_order == "modified_time",
            upserts_by_default=self.default_row_marker == "upsert",
            compression=self.compression,
            target_file_size=self.target_file_size,
        )


def _read_hash_key(location: Secret) -> str:
    from mirrorfeed.runtime.login import read_hash_key  # imported late: few tables have hashes

    return read_hash_key(location)


def _parse_columns(value: object) -> tuple[str, ...] | None:
    columns = validators.parse_column_names(value)
    if columns == ():
        raise ValueError("is empty: name a column, or omit the field")
    return columns


def _check_condition(value: str) -> str:
    text = validators.check_not_empty(value, ": write a condition, or omit the field").strip()
    from mirrorfeed.landing.where_condition import Condition  # imported late: few tables have a condition

    Condition.parse(text)
    return text


def _parse_pairs(value: object, example: str) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in (*value, *value.values())):
        raise ValueError(f"must map columns of the source to text, such as {example}, not {validators.shorten(value)}")
    return dict(value)


def _parse_renames(value: object) -> dict[str, str]:
    renames = _parse_pairs(value, "{cust_id: customer}")
    faults = [f"{new!r} {fault}" for new in renames.values() if (fault := name_fault(new))]
    folded = [fold(new) for new in renames.values()]
    repeated = [new for position, new in enumerate(renames.values()) if fold(new) in folded[:position]]
    faults += [f"{new!r} would be the name of several columns" for new in repeated]
    if faults:
        raise ValueError("; ".join(faults))
    return renames


def _parse_casts(value: object) -> dict[str, str]:
    casts = _parse_pairs(value, "{price: string}")
    for type_ in casts.values():
        Cast.parse(type_)
    return casts


def _parse_transformations(value: object) -> dict[str, str]:
    from mirrorfeed.landing.transformation import Transformation  # imported late: few tables need it

    transformations = _parse_pairs(value, "{email: hash}")
    for text in transformations.values():
        Transformation.parse(text)
    return transformations


def _parse_tag_rules(value: object) -> dict[str, str]:
    from mirrorfeed.config.tag_options import parse_tag_rules  # imported late: few tables need it

    return parse_tag_rules(value)


class EntryOptions(Options):
    """Options of a table or pattern. Except for the new names in `rename`, all column names are names in the source."""

    columns: Annotated[tuple[str, ...] | None, validators.ListValidator(_parse_columns)] = None
    """Columns to publish. None means all columns."""
    exclude_columns: Annotated[tuple[str, ...] | None, validators.ListValidator(_parse_columns)] = None
    where: Annotated[str, AfterValidator(_check_condition)] | None = None
    rename: Annotated[dict[str, str] | None, validators.PairsValidator(_parse_renames)] = None
    cast: Annotated[dict[str, str] | None, validators.PairsValidator(_parse_casts)] = None
    transform: Annotated[dict[str, str] | None, validators.PairsValidator(_parse_transformations)] = None
    """Transformation of the values of each column: hash, mask or truncate."""
    transform_tags: Annotated[dict[str, str] | None, validators.PairsValidator(_parse_tag_rules)] = None
    """Transformation of the columns that have a tag in Unity Catalog, such as `{pii: hash, level=high: mask}`. The
    first rule for a column counts, and `transform` has priority. None means that tags of columns are not read."""
    keys: Annotated[tuple[str, ...] | None, validators.ListValidator(validators.parse_column_names)] = None
    """Key columns. None means the primary key in Unity Catalog. An empty tuple means that there is no key. If a table
    that matches a pattern does not have all key columns, its key is the primary key in Unity Catalog."""
    landing_zone: Annotated[str, AfterValidator(validators.parse_landing_zone)] | None = None
    """Landing zone of this entry. None means `landing_zone` at the top level."""
    _tags: TagRules | None = PrivateAttr(None)

    @property
    def selection(self) -> Selection | None:
        """Selected columns and rows. None if the whole source is published unchanged."""
        excluded = self.exclude_columns or ()
        hash_key = partial(_read_hash_key, self.hash_key) if self.hash_key else None
        transform, tags = self.transform or {}, self._tags
        if self.transform_tags and tags is None:
            tags = TagRules(self.transform_tags, tuple(transform))
        selection = Selection(
            self.columns, excluded, self.where, self.rename or {}, self.cast or {}, transform, hash_key, tags
        )
        return None if selection == EVERYTHING and tags is None else selection

    @model_validator(mode="after")
    def _check(self) -> Self:
        validators.raise_faults([*_format_conflicts(self), *_selection_conflicts(self)])
        return self


Conflict = tuple[tuple[str, ...], str]
"""Path of a field, and the reason why its value conflicts with other fields of the entry."""


def _format_conflicts(entry: EntryOptions) -> Iterator[Conflict]:
    if entry.row_markers == "exact" and entry.changes != "full":
        yield ("row_markers",), "exact requires changes: full, because net publishes upserts and deletes"
    if entry.file_order == "modified_time" and entry.changes == "full":
        yield ("file_order",), "modified_time gives files of the same time no order, and changes: full requires one"
    if entry.changes == "compare" and entry.keys == ():
        yield ("keys",), "is required with changes: compare"
    if entry.default_row_marker == "upsert" and entry.keys == ():
        yield ("default_row_marker",), "upsert requires keys, and the table has none"
    if entry.delivery != UPSERT:
        from mirrorfeed.config.delivery_conflicts import delivery_conflicts  # imported late: few tables need it

        yield from delivery_conflicts(entry)
    if entry.format == "delimited" and (fault := entry.output.delimited and entry.output.delimited.fault()):
        field, reason = fault
        yield ("delimited", field), reason


def _selection_conflicts(entry: EntryOptions) -> Iterator[Conflict]:
    selection = entry.selection
    if selection is None:
        return
    if entry.columns is not None and entry.exclude_columns is not None:
        yield ("exclude_columns",), "and `columns` cannot be combined: set one of them"
        return
    for field in ("rename", "cast", "transform"):
        for name in getattr(selection, field):
            if not selection.includes(name):
                yield (field,), f"{name!r} is an excluded column"
    if selection.has_hashes and entry.hash_key is None:
        yield ("transform",), "hash requires `hash_key`, the location of a secret"
    if selection.tags:
        from mirrorfeed.config.tag_options import tag_conflicts  # imported late: few tables need it

        yield from tag_conflicts(entry)
    for name in entry.columns or ():
        for old, new in selection.rename.items():
            if fold(new) == fold(name) and old != name and name not in selection.rename:
                yield ("rename",), f"{old!r} cannot be {new!r}, because another column has this name"
    for key in entry.keys or ():
        for fault in key_faults(selection, key):
            excluded_by = "columns" if entry.columns is not None else "exclude_columns"
            option = "transform" if key in selection.transform else "cast"
            yield (option if selection.includes(key) else excluded_by,), fault


def _parse_days(value: object) -> int:
    try:
        return parse_days(validators.check_text(value))
    except IntervalTextError as error:
        raise ValueError(f"{error.text!r} {error.reason}") from error


class HistoryLocation(validators.ConfigModel):
    """Location of a history, or the schema or folder of several histories."""

    table: Annotated[Source, validators.TextValidator(validators.parse_source)] = Field(alias="location")
    archive_days: Annotated[int | None, validators.TextValidator(_parse_days)] = Field(default=None, alias="archive")
    """Age in days from which files count as archived. None means never."""
    hide_values: bool = False
    """True to store the values of columns with a transformation as they are published. Otherwise a history stores the
    values of the source."""


def _history_of(expected: str, *, is_table: bool = False) -> WrapValidator:
    """Return the validator of a `history` field: a name, a map with the fields of `HistoryLocation`, or `false`.

    `expected` describes valid values in error messages. With `is_table`, the name can be a table, not only a schema or
    folder. `false` becomes None.
    """

    def check(
        value: object, validate: Callable[[object], HistoryLocation], info: ValidationInfo
    ) -> HistoryLocation | None:
        if value is False:
            return None
        if isinstance(value, str):
            value = HistoryLocation(location=validators.parse_source(value, info))
        if not isinstance(value, dict | HistoryLocation):
            raise ValueError(f"must name {expected}, not {validators.shorten(value)}")
        history = validate(value)
        if not is_table and len(history.table.parts) == MAX_PARTS:
            raise ValueError(f"'{history.table}' is a table: name a schema or a folder for the histories of all tables")
        return history

    return WrapValidator(check, json_schema_input_type=str | Literal[False] | HistoryLocation)


CommonHistory = Annotated[HistoryLocation | None, _history_of("a schema or a folder, such as main.history")]
TableHistory = Annotated[
    HistoryLocation | None, _history_of("a table, such as main.history.orders, or false", is_table=True)
]


def history_below(common: HistoryLocation, target: Target) -> HistoryLocation:
    """Return the location of the history of `target` in the schema or folder `common`."""
    names = [part for part in (target.schema, target.table) if part is not None]
    if common.table.path is not None:
        table = Source(path="/".join([common.table.path.rstrip("/"), *names]))
    else:
        table = Source((*common.table.parts, "_".join(names)))
    return common.model_copy(update={"table": table})
