"""Validators of single values of the configuration, such as sizes, table names, paths and addresses.

A validator raises `ValueError` for an invalid value. The caller writes the field name before the text of the error. If
the validation context contains `file`, relative paths start at the folder of this file.
"""

from __future__ import annotations

import math
import os
import re
import reprlib
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator, ValidationError, ValidationInfo
from pydantic_core import InitErrorDetails, PydanticCustomError

from mirrorfeed.config.errors import invalid_landing_zone
from mirrorfeed.landing.errors import TargetNameError
from mirrorfeed.landing.names import Target, fold, split_name
from mirrorfeed.landing.schema import reserved_names
from mirrorfeed.runtime.credentials import is_host_pattern, parse_address
from mirrorfeed.source.errors import SourceNameError
from mirrorfeed.source.identifier import URI, Pattern, Source, hide_query

_UNITS = {"kib": 2**10, "mib": 2**20, "gib": 2**30}
_SIZE = re.compile(r"([0-9]{1,12}) *(KiB|MiB|GiB)", re.IGNORECASE)
_SMALLEST, _LARGEST = 2**10, 4 * 2**30
_PLACES = "mirrorfeed publishes to OneLake (onelake://…), to folders and to volumes (/Volumes/…)"
ONELAKE = "onelake://"
_FABRIC_ADDRESS = re.compile(r"https://onelake\.dfs\.fabric\.microsoft\.com/([^/]+/[^/]+)/Files/LandingZone/?")
"""Address of a landing zone, as Fabric shows it."""

_ABFSS_ADDRESS = re.compile(r"abfss?://([^@/]+)@[^/]*\bonelake\.[^/]+/([^/?]+)", re.IGNORECASE)


class ConfigModel(BaseModel):
    """Base class of all models of the configuration."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


def _parse_size(value: object, largest: int = _LARGEST, example: str = "128 MiB") -> int:
    if isinstance(value, str) and (match := _SIZE.fullmatch(value)):
        count = int(match[1]) * _UNITS[match[2].lower()]
    elif isinstance(value, int) and not isinstance(value, bool):
        count = value
    else:
        raise ValueError(f"{value!r} is not a size: write a whole number with KiB, MiB or GiB, such as {example}")
    if not _SMALLEST <= count <= largest:
        most = f"{largest // 2**30} GiB"
        raise ValueError(f"{value!r} is not between 1 KiB and {most}: write a number with its unit, such as {example}")
    return count


def parse_source(value: object, info: ValidationInfo) -> Source:
    if isinstance(value, Source):
        return value
    try:
        return _resolve(Source.parse(check_text(value)), info)
    except SourceNameError as error:
        raise ValueError(f"{error.text!r} {error.reason}") from error


def parse_target(value: object) -> Target:
    if isinstance(value, Target):
        return value
    try:
        return Target.parse(check_text(value))
    except TargetNameError as error:
        raise ValueError(f"{error.text!r} {error.reason}") from error


def parse_pattern(value: object, info: ValidationInfo) -> Pattern:
    return value if isinstance(value, Pattern) else _resolve(Pattern.parse(check_text(value)), info)


def parse_exclude(value: object) -> tuple[tuple[str, ...], ...]:
    """Split each name or pattern in `exclude` into parts, such as schema and table."""
    if not isinstance(value, list | tuple):
        raise ValueError(f"must be a list of names, such as [tmp_*, staging.*], not {shorten(value)}")
    return tuple(map(_parse_excluded_name, value))


def _parse_excluded_name(value: object) -> tuple[str, ...]:
    name = check_text(value)
    try:
        parts = tuple(name.strip("/").split("/")) if "/" in name else split_name(name)
    except ValueError as error:
        raise ValueError(f"{shorten(name)} {error}") from None
    if not all(parts):
        raise ValueError(f"{shorten(name)} has an empty part")
    return parts


def parse_tags(value: object, expected: str = "their values, such as {mirror: fabric}") -> dict[str, str]:
    """Return texts by the names of tags. For the tags of a table, an empty text is a tag without a value."""
    if not isinstance(value, dict) or not value:
        raise ValueError(f"must map tags to {expected}, not {shorten(value)}")
    if not_text := [each for each in (*value, *value.values()) if not isinstance(each, str)]:
        raise ValueError(f"{shorten(not_text[0])} is not text: put it in quotes")
    return dict(value)


_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_PARTS = ("catalog", "schema", "table")


def check_target_template(template: str) -> str:
    """Return a template for targets, such as `{schema}.{table}`, unchanged. Raises `ValueError` if it is invalid."""
    if unknown := [name for name in _PLACEHOLDER.findall(template) if name not in _PARTS]:
        known = ", ".join(f"{{{name}}}" for name in _PARTS)
        raise ValueError(f"{template!r} contains {{{unknown[0]}}}; allowed are {known}")
    if "{table}" not in template:
        raise ValueError(f"{template!r} has no {{table}}, so all tables would have the same target")
    parse_target(_PLACEHOLDER.sub("x", template))
    return template


def fill_target(template: str, parts: Mapping[str, str]) -> Target:
    """Replace each placeholder in `template` by its value in `parts`, and return the target.
    Raises `TargetNameError`."""
    names = [_PLACEHOLDER.sub(lambda match: parts[match[1]], part) for part in split_name(template)]
    return Target(names[0] if len(names) > 1 else None, names[-1])


def find_placeholders(template: str) -> set[str]:
    return set(_PLACEHOLDER.findall(template))


def parse_column_names(value: object) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list | tuple):
        raise ValueError(f"must be a list of column names, such as [order_id], not {shorten(value)}")
    names = [name for name in value if isinstance(name, str)]
    faults = [f"{shorten(name)} is not text: put it in quotes" for name in value if not isinstance(name, str)]
    faults += [f"{name!r} is not the name of a column" for name in names if not name.strip()]
    faults += [f"{name!r} is a reserved name" for name in reserved_names(names)]
    faults += [f"{name!r} is listed {n} times" for name, n in Counter(map(fold, names)).items() if n > 1]
    if faults:
        raise ValueError("; ".join(faults))
    return tuple(names)


def parse_landing_zone(value: str, info: ValidationInfo) -> str:
    check_not_empty(value, ": name a folder")
    if is_onelake(value):
        return _parse_onelake(value)
    if match := _ABFSS_ADDRESS.match(value):
        form = f"{ONELAKE}<workspace id>/<mirrored database id>"
        with suppress(ValueError):  # the address has names instead of ids
            form = _parse_onelake(ONELAKE + "/".join(match.groups()))
        raise ValueError(f"{hide_query(value)!r} is an address for Spark: write {form}")
    if URI.match(value):
        raise ValueError(f"{hide_query(value)!r} is not a folder: {_PLACES}")
    if value.startswith("~"):
        raise ValueError(f"{value!r} is not expanded: write the full path")
    return resolve_folder(value, info)


def _folder_validator(use: str, hint: str) -> AfterValidator:
    """Return a validator that accepts only local folders and volumes. Its error messages contain `use` and `hint`."""

    def check(value: str, info: ValidationInfo) -> str:
        check_not_empty(value, f": name {hint}, or omit the field")
        if URI.match(value) or value.startswith("~"):
            raise ValueError(f"{hide_query(value)!r} is not a folder that {use}: name a volume (/Volumes/…)")
        return resolve_folder(value, info)

    return AfterValidator(check)


def is_onelake(address: str) -> bool:
    """Return whether the address is in OneLake: onelake://… or the https address that Fabric shows."""
    return address.startswith(ONELAKE) or _FABRIC_ADDRESS.fullmatch(address) is not None


def _parse_onelake(value: str) -> str:
    match = _FABRIC_ADDRESS.fullmatch(value)
    ids = (match[1] if match else value.removeprefix(ONELAKE).removesuffix("/")).split("/")
    try:
        if len(ids) > 2:
            raise ValueError
        return ONELAKE + "/".join(str(uuid.UUID(each)) for each in ids)
    except ValueError:
        raise ValueError(
            f"{hide_query(value)!r} does not name a workspace and a mirrored database by their ids: write"
            " onelake://<workspace id>/<mirrored database id>, both ids as in the address that Fabric shows,"
            " https://onelake.dfs.fabric.microsoft.com/<workspace id>/<mirrored database id>/Files/LandingZone"
        ) from None


def parse_onelake_address(text: str) -> str:
    """Convert a OneLake address to the form onelake://<workspace id>/<database id>.

    Raises `invalid_landing_zone` if `text` is not an address of a mirrored database.
    """
    try:
        return _parse_onelake(text)
    except ValueError as error:
        raise invalid_landing_zone(reason=str(error)) from None


def parse_endpoint(value: str) -> str:
    if "@" in value:  # the message does not repeat the value, because it may contain a password
        raise ValueError("has user info before @: remove it")
    try:
        return parse_address(value)[0]
    except ValueError as error:
        raise ValueError(f"{shorten(hide_query(value))} {error}, as in https://host:port") from None


def parse_hosts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        example = "[fabric.example.com, '*.example.com']"
        raise ValueError(f"must be a list of hosts, such as {example}, not {shorten(value)}")
    if invalid := [each for each in value if not isinstance(each, str) or not is_host_pattern(each)]:
        raise ValueError(f"{shorten(invalid[0])} is not a host, such as fabric.example.com or *.example.com")
    return tuple(value)


def _number_validator(unit: str, low: int, high: int, never: float | None = None) -> PlainValidator:
    """Return a validator that accepts a number (in `unit`) from `low` to `high`, or `never`.
    The argument `never` is the value for this word."""

    def check(value: object) -> float | None:
        if value is None:
            return None
        if value == "never":
            return never
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise ValueError(f"must be a number of {unit} from {low} to {high}, or never, not {shorten(value)}")
        return float(value)

    return PlainValidator(check, json_schema_input_type=Annotated[float, Field(ge=low, le=high)] | Literal["never"])


def check_variables(value: object) -> None:
    """Raise `ValueError` if `value` is not a map of variables and single values. The texts are read from the file."""
    if not isinstance(value, dict):
        raise ValueError(f"must be a map of names and values, not {shorten(value)}")
    for name, default in value.items():
        if not isinstance(default, str | int | float | bool | None):
            raise ValueError(f"{name} must be text, a number, true or false, not {shorten(default)}")


def check_text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be text, not {shorten(value)}: put it in quotes")
    return value


def check_not_empty(value: str, hint: str = "") -> str:
    if not value.strip():
        raise ValueError(f"is empty{hint}")
    return value


def shorten(value: object) -> str:
    return reprlib.repr(value)


def resolve_folder(path: str, info: ValidationInfo) -> str:
    """Return an absolute path. Relative paths start at the folder of the configuration file."""
    return resolve_path(path, info.context["file"]) if info.context else path


def raise_faults(faults: Iterable[tuple[tuple[str, ...], str]]) -> None:
    """Raise a `ValidationError` if `faults` is not empty. Each fault has the path of a field and the reason."""
    details = [
        InitErrorDetails(type=PydanticCustomError("value_error", "{error}", {"error": reason}), loc=place, input=None)
        for place, reason in faults
    ]
    if details:
        raise ValidationError.from_exception_data("", details)


_AnySource = TypeVar("_AnySource", Source, Pattern)


def resolve_source(source: _AnySource, file: str) -> _AnySource:
    """Return a source or pattern with its path resolved from the folder of `file`. Names and URIs are unchanged."""
    if source.path is None or URI.match(source.path):
        return source
    return replace(source, path=resolve_path(source.path, file))


def _resolve(source: _AnySource, info: ValidationInfo) -> _AnySource:
    return resolve_source(source, info.context["file"]) if info.context else source


def resolve_path(path: str, file: str) -> str:
    return os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(file)), path))


TextValidator = partial(PlainValidator, json_schema_input_type=str)
"""Validator of a text in the file. The type is only for the JSON Schema, also in the next two."""
ListValidator = partial(PlainValidator, json_schema_input_type=list[str])
PairsValidator = partial(PlainValidator, json_schema_input_type=dict[str, str])
DEFAULTS = PlainValidator(check_variables, json_schema_input_type=dict[str, str | int | float | bool])
_SizeText = Annotated[str, Field(pattern="^[0-9]+ *[KMGkmg][Ii][Bb]$")]
Size = Annotated[int, PlainValidator(_parse_size, json_schema_input_type=int | _SizeText)]
"""Size in bytes of files or changes."""
_parse_table_size = partial(_parse_size, largest=2**50, example="32 GiB")
TableSize = Annotated[int, PlainValidator(_parse_table_size, json_schema_input_type=int | _SizeText)]
"""Size in bytes of a table or of a part of a table."""
Seconds = Annotated[float | None, _number_validator("seconds", 0, 86_400)]
Minutes = Annotated[float | None, _number_validator("minutes", 1, 525_600)]
TargetMinutes = Annotated[float | None, _number_validator("minutes", 1, 525_600, math.inf)]
"""Minutes of an optional target. None means that it is omitted, and infinity that it is `never`."""
_VOLUME = "a volume (/Volumes/catalog/schema/volume)"
StagingPath = Annotated[str, _folder_validator("Spark and this process share", _VOLUME)]
StatePath = Annotated[str, _folder_validator("this process can write to", "a folder")]
