"""Parse single values. Each mistake is a `ValueError` with a message that callers append to the field name.

Relative paths start at the folder of the configuration file, if the validation context contains `file`.
"""

from __future__ import annotations

import os
import re
import reprlib
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, PlainValidator, ValidationError, ValidationInfo
from pydantic_core import InitErrorDetails, PydanticCustomError

from mirrorfeed.config.errors import BadAddress
from mirrorfeed.landing.errors import BadTarget
from mirrorfeed.landing.names import Target, fold, split_name
from mirrorfeed.landing.schema import reserved_names
from mirrorfeed.runtime.addresses import HttpsAddress, is_host_pattern
from mirrorfeed.source.errors import BadSource
from mirrorfeed.source.identifier import URI, Pattern, Source, hide_query

_UNITS = {"kib": 2**10, "mib": 2**20, "gib": 2**30}
_SIZE = re.compile(r"([0-9]{1,12}) *(KiB|MiB|GiB)", re.IGNORECASE)
_SMALLEST, _LARGEST = 2**10, 4 * 2**30
_PLACES = "mirrorfeed publishes to OneLake (onelake://…), to folders and to volumes (/Volumes/…)"
ONELAKE = "onelake://"
_FABRIC_ADDRESS = re.compile(r"https://onelake\.dfs\.fabric\.microsoft\.com/([^/]+/[^/]+)/Files/LandingZone/?")
"""Address of a landing zone, as Fabric shows it."""


class Form(BaseModel):
    """Base class of all models of the configuration."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


def _size(value: object) -> int:
    if isinstance(value, str) and (match := _SIZE.fullmatch(value)):
        count = int(match[1]) * _UNITS[match[2].lower()]
    elif isinstance(value, int) and not isinstance(value, bool):
        count = value
    else:
        raise ValueError(f"{value!r} is not a size: write a whole number with KiB, MiB or GiB, such as 128 MiB")
    if not _SMALLEST <= count <= _LARGEST:
        raise ValueError(f"{value!r} is not between 1 KiB and 4 GiB: write a number with its unit, such as 128 MiB")
    return count


def source(value: object, info: ValidationInfo) -> Source:
    if isinstance(value, Source):
        return value
    try:
        return _located(Source.parse(text(value)), info)
    except BadSource as error:
        raise ValueError(f"{error.text!r} {error.reason}") from error


def target(value: object) -> Target:
    if isinstance(value, Target):
        return value
    try:
        return Target.parse(text(value))
    except BadTarget as error:
        raise ValueError(f"{error.text!r} {error.reason}") from error


def sources(value: object, info: ValidationInfo) -> Pattern:
    return value if isinstance(value, Pattern) else _located(Pattern.parse(text(value)), info)


def endings(value: object) -> tuple[tuple[str, ...], ...]:
    """Parse names of excluded tables. They are compared from the end."""
    if not isinstance(value, list | tuple):
        raise ValueError(f"must be a list of names, such as [tmp_*, staging.*], not {short(value)}")
    return tuple(map(_ending, value))


def _ending(value: object) -> tuple[str, ...]:
    try:
        parts = tuple(text(value).strip("/").split("/")) if "/" in text(value) else split_name(text(value))
    except ValueError as error:
        raise ValueError(f"{short(value)} {error}") from None
    if not all(parts):
        raise ValueError(f"{short(value)} has an empty part")
    return parts


_FILLED = re.compile(r"\{([^{}]*)\}")
_PARTS = ("catalog", "schema", "table")


def template(value: object) -> str:
    """Check a target template with {catalog}, {schema} and {table}."""
    known = ", ".join(f"{{{name}}}" for name in _PARTS)
    if unknown := [name for name in _FILLED.findall(text(value)) if name not in _PARTS]:
        raise ValueError(f"{value!r} contains {{{unknown[0]}}}; allowed are {known}")
    if "{table}" not in text(value):
        raise ValueError(f"{value!r} has no {{table}}, so all tables would have the same target")
    target(_FILLED.sub("x", text(value)))
    return text(value)


def fill_target(template: str, parts: Mapping[str, str]) -> Target:
    """Fill in a target template. Raises `BadTarget`."""
    names = [_FILLED.sub(lambda match: parts[match[1]], part) for part in split_name(template)]
    return Target(names[0] if len(names) > 1 else None, names[-1])


def filled_in(template: str) -> set[str]:
    return set(_FILLED.findall(template))


def keys(value: object) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list | tuple):
        raise ValueError(f"must be a list of column names, such as [order_id], not {short(value)}")
    names = [name for name in value if isinstance(name, str)]
    faults = [f"{short(name)} is not text: put it in quotes" for name in value if not isinstance(name, str)]
    faults += [f"{name!r} is not the name of a column" for name in names if not name.strip()]
    faults += [f"{name!r} is a reserved name" for name in reserved_names(names)]
    faults += [f"{name!r} is listed {n} times" for name, n in Counter(map(fold, names)).items() if n > 1]
    if faults:
        raise ValueError("; ".join(faults))
    return tuple(names)


def landing_zone(value: str, info: ValidationInfo) -> str:
    not_empty(value, ": name a folder")
    if is_onelake(value):
        return _onelake(value)
    if URI.match(value):
        raise ValueError(f"{hide_query(value)!r} is not a folder: {_PLACES}")
    if value.startswith("~"):
        raise ValueError(f"{value!r} is not expanded: write the full path")
    return folder(value, info)


def _folder_of(use: str, hint: str) -> AfterValidator:
    """Return the validator of a folder that this process uses. Addresses of cloud storage are refused."""

    def check(value: str, info: ValidationInfo) -> str:
        not_empty(value, f": name {hint}, or omit the field")
        if URI.match(value) or value.startswith("~"):
            raise ValueError(f"{hide_query(value)!r} is not a folder that {use}: name a volume (/Volumes/…)")
        return folder(value, info)

    return AfterValidator(check)


def is_onelake(address: str) -> bool:
    """Return whether the address is in OneLake, in the form of the configuration or as Fabric shows it."""
    return address.startswith(ONELAKE) or _FABRIC_ADDRESS.fullmatch(address) is not None


def _onelake(value: str) -> str:
    found = _FABRIC_ADDRESS.fullmatch(value)
    ids = (found[1] if found else value.removeprefix(ONELAKE).removesuffix("/")).split("/")
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


def onelake_address(text: str) -> str:
    """Parse a OneLake address from outside the configuration. Raises `BadAddress`."""
    try:
        return _onelake(text)
    except ValueError as error:
        raise BadAddress(reason=str(error)) from None


def endpoint(value: object) -> str:
    if "@" in text(value):  # the message does not repeat the value, because it may be a password
        raise ValueError("has user info before @: remove it")
    try:
        return str(HttpsAddress.parse(text(value)))
    except ValueError as error:
        raise ValueError(f"{short(hide_query(text(value)))} {error}, as in https://host:port") from None


def trusted_hosts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"must be a list of hosts, such as [fabric.example.com, '*.example.com'], not {short(value)}")
    if wrong := [each for each in value if not isinstance(each, str) or not is_host_pattern(each)]:
        raise ValueError(f"{short(wrong[0])} is not a host, such as fabric.example.com or *.example.com")
    return tuple(value)


def _number_of(unit: str, lowest: int, highest: int) -> PlainValidator:
    """Return the validator of a number with a unit. `never` becomes None."""

    def check(value: object) -> float | None:
        if value is None or value == "never":
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not lowest <= value <= highest:
            raise ValueError(f"must be a number of {unit} from {lowest} to {highest}, or never, not {short(value)}")
        return float(value)

    return PlainValidator(check)


def text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be text, not {short(value)}: put it in quotes")
    return value


def not_empty(value: str, hint: str = "") -> str:
    if not value.strip():
        raise ValueError(f"is empty{hint}")
    return value


def short(value: object) -> str:
    return reprlib.repr(value)


def folder(path: str, info: ValidationInfo) -> str:
    """Make the path absolute."""
    return absolute(path, info.context["file"]) if info.context else path


def refused(faults: Iterable[tuple[tuple[str, ...], str]]) -> None:
    """Raise an error with place and reason of each fault, if there are any."""
    details = [
        InitErrorDetails(type=PydanticCustomError("value_error", "{error}", {"error": reason}), loc=place, input=None)
        for place, reason in faults
    ]
    if details:
        raise ValidationError.from_exception_data("", details)


_Of = TypeVar("_Of", Source, Pattern)


def located(source: _Of, file: str) -> _Of:
    if source.path is None or URI.match(source.path):
        return source
    return replace(source, path=absolute(source.path, file))


def _located(source: _Of, info: ValidationInfo) -> _Of:
    return located(source, info.context["file"]) if info.context else source


def absolute(path: str, file: str) -> str:
    return os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(file)), path))


Size = Annotated[int, PlainValidator(_size)]
"""Size in bytes."""
Seconds = Annotated[float | None, _number_of("seconds", 0, 86_400)]
Minutes = Annotated[float | None, _number_of("minutes", 1, 525_600)]
StagingPath = Annotated[str, _folder_of("Spark and this process share", "a volume (/Volumes/catalog/schema/volume)")]
StatePath = Annotated[str, _folder_of("this process can write to", "a folder")]
