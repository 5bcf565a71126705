"""Columns and rows of a source to publish. Checks them against the source and against what is already published."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mirrorfeed.display.rows import first_names
from mirrorfeed.landing.errors import invalid_selection
from mirrorfeed.landing.names import fold
from mirrorfeed.landing.schema import DECIMAL, Column, columns_of, is_text, reserved_names

if TYPE_CHECKING:
    from mirrorfeed.landing.transformation import Transformation
    from mirrorfeed.landing.where_condition import Condition

_CUT = re.compile(r"string\((\d{1,9})\)")
_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 19}
"""Integer types, narrowest first, with their maximum number of digits."""
_TIMES = frozenset({"date", "timestamp", "timestamp_ntz"})
_AS_TEXT = frozenset({*_DIGITS, "boolean", "date", "timestamp_ntz"})
_NUMBERS = frozenset({*_DIGITS, "float", "double"})
_SQL_NAMES = {"smallint": "short", "int": "integer", "bigint": "long"}
CASTS = "string, string(20), smallint, int, bigint, double, decimal(18,2)"


@dataclass(frozen=True, slots=True)
class Cast:
    """Type to which the values of a column are cast."""

    type: str
    """Name of the type in the JSON of a Spark schema, such as "integer"."""
    length: int | None = None
    """Maximum number of characters of a text. Longer texts are cut. None means no maximum."""

    @classmethod
    def parse(cls, text: str) -> Cast:
        """Parse a type such as `string(20)`. Raises `ValueError` for unsupported types."""
        name = text.strip().lower()
        if (match := _CUT.fullmatch(name)) and int(match[1]):
            return cls("string", int(match[1]))
        if (match := DECIMAL.fullmatch(name)) and 1 <= int(match[1]) <= 38 and int(match[2]) <= int(match[1]):
            return cls(f"decimal({match[1]},{match[2]})")
        if (type_ := _SQL_NAMES.get(name, name)) in ("string", "short", "integer", "long", "double"):
            return cls(type_)
        raise ValueError(f"{text!r} is not a type to cast to; use one such as {CASTS}")

    def keeps_values(self, type_: str) -> bool:
        """Return whether all values of the type `type_` can be cast without loss, whatever the session settings.
        Cutting texts to `length` does not count as loss."""
        source, target = DECIMAL.fullmatch(type_), DECIMAL.fullmatch(self.type)
        if self.length is not None:
            return type_ == "string"
        if self.type == "string":
            return type_ == "string" or type_ in _AS_TEXT or source is not None
        if self.type == "double":
            return type_ in _NUMBERS or source is not None
        if target is None:
            order = list(_DIGITS)
            return type_ in order and order.index(type_) <= order.index(self.type)
        precision, scale = int(target[1]), int(target[2])
        digits = int(source[1]) - int(source[2]) if source else _DIGITS.get(type_)
        return digits is not None and digits <= precision - scale and (source is None or int(source[2]) <= scale)


@dataclass(frozen=True, slots=True)
class TagRules:
    """Transformation of the columns with a tag. The module `tag_rules` has the functions."""

    rules: Mapping[str, str]
    """Transformation for each tag, such as `{"pii": "hash", "level=high": "mask"}`. The first matching rule counts."""
    explicit: tuple[str, ...] = ()
    """Columns that `transform` names. The rules do not change them."""
    columns: frozenset[str] | None = None
    """Columns of the table, as `fold` returns them, of which the tags were read. None means that no tags were read."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Selected columns and rows. Values of `rename` are new names. All other column names are those in the source."""

    columns: tuple[str, ...] | None = None
    """Names of selected columns. None means all columns."""
    exclude_columns: tuple[str, ...] = ()
    where: str | None = None
    """Condition on rows of the source. Rows for which the condition is false or NULL are not published."""
    rename: Mapping[str, str] = field(default_factory=dict)
    cast: Mapping[str, str] = field(default_factory=dict)
    transform: Mapping[str, str] = field(default_factory=dict)
    hash_key: Callable[[], str] | None = field(default=None, compare=False, repr=False)
    """Function that returns the secret for hashes. It is not stored in log records. None means that there is none."""
    tags: TagRules | None = field(default=None, compare=False, repr=False)
    """Rules that transform columns by their tags. `transform` has the columns that they found. Not stored in log
    records. None means that there are no such rules."""

    def includes(self, name: str) -> bool:
        return name not in self.exclude_columns and (self.columns is None or name in self.columns)

    def name_of(self, name: str) -> str:
        return self.rename.get(name, name)

    def cast_of(self, name: str) -> Cast | None:
        return Cast.parse(self.cast[name]) if name in self.cast else None

    def transformation_of(self, name: str) -> Transformation | None:
        if name not in self.transform:
            return None
        from mirrorfeed.landing.transformation import Transformation  # imported late: few tables need it

        return Transformation.parse(self.transform[name])

    @property
    def has_hashes(self) -> bool:
        return any(self.includes(name) and text.strip() == "hash" for name, text in self.transform.items())

    @property
    def key_digest(self) -> str | None:
        """Digest of the secret for hashes, or None if no column is hashed. Reads the secret."""
        if not self.has_hashes:
            return None
        from mirrorfeed.landing.transformation import digest_of_key  # imported late: few tables need it

        return digest_of_key(self.read_hash_key())

    def read_hash_key(self) -> str:
        assert self.hash_key is not None  # the configuration requires it with `transform: {…: hash}`
        return self.hash_key()

    @property
    def condition(self) -> Condition | None:
        """Parsed condition in `where`. None without `where`. Raises `ValueError` if the condition is not valid."""
        if self.where is None:
            return None
        from mirrorfeed.landing.where_condition import Condition  # imported late: few tables have a condition

        return Condition.parse(self.where)

    @property
    def summary(self) -> str:
        """The selection in one line, for display."""
        parts = [
            first_names(self.columns) if self.columns is not None else "",
            f"all except {first_names(self.exclude_columns)}" if self.exclude_columns else "",
            f"where {self.where}" if self.where is not None else "",
            first_names([f"{name} as {other}" for name, other in self.rename.items()]),
            first_names([f"{name}: {type_}" for name, type_ in self.cast.items()]),
            first_names([f"{name}: {transformation}" for name, transformation in self.transform.items()]),
            first_names([f"columns tagged {tag}: {form}" for tag, form in self.tags.rules.items()])
            if self.tags
            else "",
        ]
        return "; ".join(part for part in parts if part)


EVERYTHING = Selection()


def target_keys(table: str, selection: Selection | None, keys: Sequence[str]) -> tuple[str, ...]:
    """Return the key names in the target. Raises `invalid_selection` if a key is excluded, or a cast can make keys
    equal.
    """
    chosen = selection or EVERYTHING
    if faults := [fault for key in keys for fault in key_faults(chosen, key)]:
        raise invalid_selection(table=table, reasons=tuple(faults))
    return tuple(map(chosen.name_of, keys))


def key_faults(selection: Selection, key: str) -> Iterator[str]:
    """Yield the reasons why a key cannot be published with the selection."""
    if not selection.includes(key):
        yield f"{key!r} is a key and cannot be excluded"
    cast = selection.cast_of(key)
    if cast is not None and (cast.length is not None or cast.type == "double"):
        yield f"{key!r} is a key, and different keys could become the same {selection.cast[key]}"
    if key in selection.transform and selection.transform[key].strip() != "hash":
        yield f"{key!r} is a key, and different keys could become the same with {selection.transform[key]}"


def source_types(schema: Mapping[str, Any]) -> dict[str, str]:
    """Return the type of each column. `schema` is the JSON of a Spark `StructType`.
    Nested types have short names such as "struct". Columns of type void are omitted."""
    types = {field["name"]: field["type"] for field in schema["fields"] if field["type"] != "void"}
    short = {name: type_ if isinstance(type_, str) else type_["type"] for name, type_ in types.items()}
    return {name: "string" if is_text(type_) else type_ for name, type_ in short.items()}


def check_names(table: str, selection: Selection, types: Mapping[str, str]) -> None:
    """Check that the selection, except for `where`, names only columns in `types`.
    Raises `invalid_selection` if not."""
    lists = {"columns": selection.columns or (), "exclude_columns": selection.exclude_columns}
    options = lists | {"rename": selection.rename, "cast": selection.cast, "transform": selection.transform}
    unknown = [(option, name) for option, names in options.items() for name in names if name not in types]
    if faults := [f"`{option}` names {_unknown(name, types)}" for option, name in unknown]:
        raise invalid_selection(table=table, reasons=tuple(faults))


def selected_schema(table: str, selection: Selection | None, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of the selected columns, with their new names and types.

    `schema` is the JSON of a Spark `StructType`. Selected columns that it does not have are ignored. Raises
    `invalid_selection` for a cast that can lose values, a transformation that the type does not allow, a duplicate
    name, or an unknown or nested column in `where`.
    """
    if selection is None:
        return schema
    types, fields = source_types(schema), []
    faults = [*_condition_faults(selection, types)]
    for each in schema["fields"]:
        name = each["name"]
        if not selection.includes(name):
            continue
        cast = selection.cast_of(name)
        if cast and not cast.keeps_values(types.get(name, "")):
            faults.append(
                f"{name!r} is {types.get(name)}, and not all its values can be cast to {selection.cast[name]} exactly"
            )
        type_, transformation = cast.type if cast else each["type"], selection.transformation_of(name)
        if transformation:
            plain = cast.type if cast else types.get(name, "")
            if transformation.kind == "hash" and not Cast("string").keeps_values(plain):
                faults.append(f"{name!r} is {plain}, and only values that can be cast to string exactly can be hashed")
            elif fault := transformation.fault(plain):
                faults.append(f"{name!r} is {plain}, and {fault}")
            type_ = "string" if transformation.kind == "hash" else type_
        fields.append({**each, "name": selection.name_of(name), "type": type_})
    used: dict[str, str] = {}
    for each in fields:
        if (other := used.setdefault(fold(each["name"]), each["name"])) is not each["name"]:
            faults.append(f"two columns would have the name {other!r}")
    if faults:
        raise invalid_selection(table=table, reasons=tuple(faults))
    return {**schema, "fields": fields}


def selected_columns(table: str, selection: Selection | None, schema: dict[str, Any]) -> tuple[Column, ...]:
    """Return the selected columns. Raises the errors of `selected_schema` and `columns_of`."""
    return columns_of(table, selected_schema(table, selection, schema))


def condition_columns(selection: Selection, types: Mapping[str, str]) -> dict[str, str]:
    """Return the source column for each name in `where`, ignoring case. Omits a name if `types` has no such column."""
    columns = {fold(name): name for name in types}
    condition = selection.condition
    return {name: columns[fold(name)] for name in (condition.columns if condition else ()) if fold(name) in columns}


_WITHOUT_TIME = {"string": "the text", "date": "the date", "expression": "an expression"}
"""Types of which `hour`, `minute` and `second` can depend on the time zone of the session, as words of a message."""


def _condition_faults(selection: Selection, types: Mapping[str, str]) -> Iterator[str]:
    condition, columns = selection.condition, condition_columns(selection, types)
    for name in condition.columns if condition else ():
        if name not in columns:
            yield f"`where` names {_unknown(name, types)}"
        elif types[columns[name]] in ("struct", "array", "map", "variant"):
            yield f"`where` names {name!r}, which is nested"
    used = {name: types[column] for name, column in columns.items()}
    if condition and condition.zoned_times and not _TIMES.isdisjoint(used.values()):
        text = condition.zoned_times[0]
        yield f"`where` has the time {text} with a time zone: write the time in UTC, without a time zone"
    for part in condition.time_part_arguments if condition else ():
        type_ = "expression" if part is None else used.get(part)
        if article := _WITHOUT_TIME.get(str(type_)):
            argument = article if part is None else f"{article} {part!r}"
            yield f"`where` takes the hour, minute or second of {argument}: cast it to timestamp_ntz"


def _unknown(name: str, types: Mapping[str, str]) -> str:
    similar = [other for other in types if fold(other) == fold(name)]
    return f"{name!r}, which {f'the table spells {similar[0]!r}' if similar else 'is not a column of the table'}"


def name_fault(name: str) -> str | None:
    """Return the reason why a new column name is not valid, or None if it is valid."""
    if not name.strip():
        return "is not the name of a column"
    return "is reserved for the change data feed or the landing zone" if reserved_names([name]) else None
