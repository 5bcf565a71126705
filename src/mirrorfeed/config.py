"""The user's file, `mirrorfeed.yml`, read into frozen, checked values: all of it is right, or nothing is used."""

from __future__ import annotations

import difflib
import os
import re
import reprlib
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, Field, PlainValidator, ValidationError

from mirrorfeed.credential_field import credential_in
from mirrorfeed.credentials import Credential, Default
from mirrorfeed.document import Document, Mistake, Place, read
from mirrorfeed.errors import Terminal
from mirrorfeed.feed.source import BadSource, Source
from mirrorfeed.landing.names import BadTarget, Target, fold
from mirrorfeed.landing.output import COMPRESSION
from mirrorfeed.landing.schema import reserved_names
from mirrorfeed.output_options import OutputOptions, Partner, contradictions

FILE = "mirrorfeed.yml"

EXAMPLE = files("mirrorfeed").joinpath("example.yml").read_text(encoding="utf-8")
"""A commented file to start from."""

_UNITS = {"kib": 2**10, "mib": 2**20, "gib": 2**30}
_SIZE = re.compile(r"([0-9]{1,12}) *(KiB|MiB|GiB)", re.IGNORECASE)
_SMALLEST, _LARGEST = 2**10, 4 * 2**30
_PLACES = "mirrorfeed publishes to OneLake (onelake://…), to folders and to volumes (/Volumes/…)"
ONELAKE = "onelake://"
_ONELAKE_FIELDS = ("endpoint", "fabric_endpoint", "ca_file", "credential")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


def _size(value: object) -> int:
    if isinstance(value, str) and (match := _SIZE.fullmatch(value)):
        size = int(match[1]) * _UNITS[match[2].lower()]
    elif isinstance(value, int) and not isinstance(value, bool):
        size = value
    else:
        raise ValueError(f"{value!r} is not a size: write a whole number and KiB, MiB or GiB, as in 128 MiB")
    if not _SMALLEST <= size <= _LARGEST:
        raise ValueError(f"{value!r} is not between 1 KiB and 4 GiB: write a number with its unit, as in 128 MiB")
    return size


def _source(value: object) -> Source:
    if isinstance(value, Source):
        return value
    try:
        return Source.parse(_text(value))
    except BadSource as error:
        raise ValueError(f"{error.text!r} {error.reason}") from error


def _target(value: object) -> Target:
    if isinstance(value, Target):
        return value
    try:
        return Target.parse(_text(value))
    except BadTarget as error:
        raise ValueError(f"{error.text!r} {error.reason}") from error


def _keys(value: object) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list | tuple):
        raise ValueError(f"must be a list of column names, as in [order_id], not {_short(value)}")
    names = [name for name in value if isinstance(name, str)]
    faults = [f"{_short(name)} is not text: put it in quotes" for name in value if not isinstance(name, str)]
    faults += [f"{name!r} is not the name of a column" for name in names if not name.strip()]
    faults += [f"{name!r} is reserved for the feed and the landing zone" for name in reserved_names(names)]
    faults += [f"{name!r} is there {n} times" for name, n in Counter(map(fold, names)).items() if n > 1]
    if faults:
        raise ValueError("; ".join(faults))
    return tuple(names)


def _landing_zone(value: str) -> str:
    if not value.strip():
        raise ValueError("is empty: name a folder")
    if value.startswith(ONELAKE):
        return _onelake(value)
    if _URI.match(value):
        raise ValueError(f"{value!r} is not a folder: {_PLACES}")
    if value.startswith("~"):
        raise ValueError(f"{value!r} is not expanded: write the folder in full")
    return value


def _onelake(value: str) -> str:
    ids = value.removeprefix(ONELAKE).removesuffix("/").split("/")
    try:
        if len(ids) > 2:
            raise ValueError
        return ONELAKE + "/".join(str(uuid.UUID(each)) for each in ids)
    except ValueError:
        raise ValueError(
            f"{value!r} does not name a workspace and a mirrored database by their ids: write"
            " onelake://<workspace id>/<mirrored database id>, both ids as in the address that Fabric shows,"
            " https://onelake.dfs.fabric.microsoft.com/<workspace id>/<mirrored database id>/Files/LandingZone"
        ) from None


def onelake_address(text: str) -> str:
    """A landing zone in OneLake as it is written elsewhere than in the file, or `BadAddress`."""
    try:
        return _onelake(text)
    except ValueError as error:
        raise BadAddress(str(error)) from None


def _endpoint(value: object) -> str:
    if not re.fullmatch(r"https://[^/?#\s]+/?", _text(value)):
        raise ValueError(f"{_short(value)} is not an https address without a path, as in https://host:port")
    return str(value).removesuffix("/")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be text, not {_short(value)}: put it in quotes")
    return value


class Options(OutputOptions):
    """What may be said for all tables and for each."""

    changes: Literal["net", "full"] = "net"
    markers: Literal["upsert", "exact"] = "upsert"
    check_keys: bool = True
    compression: Literal["none", "snappy", "gzip", "zstd"] = COMPRESSION
    file_size: Annotated[int, PlainValidator(_size)] = 128 * 2**20
    """The bytes that a data file aims at."""
    versions_per_range: Annotated[int, Field(ge=1, le=100_000)] = 500
    keep_records: Annotated[int, Field(ge=1)] = 10
    unchanged_rows: Literal["publish", "skip"] = "publish"
    on_gap: Literal["stop", "reseed"] = "stop"
    on_schema_change: Literal["stop", "reseed"] = "stop"


class Table(Options):
    source: Annotated[Source, PlainValidator(_source)]
    target: Annotated[Target, PlainValidator(_target)]
    keys: Annotated[tuple[str, ...] | None, PlainValidator(_keys)] = None
    """None: the primary key constraint decides. Empty: the table has no key."""


class _Top(Options):
    landing_zone: Annotated[str, AfterValidator(_landing_zone)]
    endpoint: Annotated[str | None, PlainValidator(_endpoint)] = None
    """Of OneLake; None: the public one."""
    fabric_endpoint: Annotated[str | None, PlainValidator(_endpoint)] = None
    """Of Fabric's REST API; None: the public one."""
    ca_file: str | None = None
    """Certificates to trust at the endpoint; None: those of the system."""
    credential: Annotated[Credential, PlainValidator(credential_in)] = Default()
    ledger: Annotated[Source | None, PlainValidator(_source)] = None
    """The Delta table that tells of every publication; None: no one is told."""
    partner: Partner | None = None
    """Who publishes, for `_partnerEvents.json`; None: no such file is written."""
    tables: Annotated[list[Any], Field(min_length=1)]


@dataclass(frozen=True)
class Config:
    landing_zone: str
    tables: tuple[Table, ...]
    path: str = FILE
    """The file it came from; relative paths start at its folder."""
    endpoint: str | None = None
    ca_file: str | None = None
    credential: Credential = field(default_factory=Default)
    fabric_endpoint: str | None = None
    ledger: Source | None = None
    partner: Partner | None = None

    @property
    def onelake(self) -> tuple[str, str | None] | None:
        """The ids of the workspace and of the mirrored database, which may be still to be made; None for a folder."""
        if not self.landing_zone.startswith(ONELAKE):
            return None
        workspace, _, database = self.landing_zone.removeprefix(ONELAKE).partition("/")
        return workspace, database or None

    def select(self, names: Sequence[str] = ()) -> tuple[Table, ...]:
        """The tables with these targets or sources, in the order of the file; without names, all. Or `UnknownTable`."""
        chosen = {name: self._named(name) for name in names}
        if unknown := tuple(name for name, tables in chosen.items() if not tables):
            raise UnknownTable(unknown, tuple(str(table.target) for table in self.tables), self.path)
        wanted = {table.target for tables in chosen.values() for table in tables}
        return tuple(table for table in self.tables if not names or table.target in wanted)

    def _named(self, name: str) -> list[Table]:
        try:
            target = Target.parse(name).fold()
        except BadTarget:
            target = None
        if tables := [table for table in self.tables if table.target.fold() == target]:
            return tables
        try:
            source = _located(Source.parse(name), self.path).fold()
        except BadSource:
            return []
        return [table for table in self.tables if table.source.fold() == source]


def load(path: str | Path = FILE, *, landing_zone: str | None = None, ledger: str | None = None) -> Config:
    """The file as values; or `ConfigMissing`, `ConfigUnreadable`, or `ConfigInvalid` with every mistake in it.

    A landing zone and a ledger that are given here take the place of the file's, so that one file does for several
    deployments; or `OptionInvalid`.
    """
    shown = str(path)
    document = read(shown)
    options = {"landing_zone": landing_zone, "ledger": ledger}
    given = {name: value for name, value in options.items() if value is not None}
    faults: dict[Place, str] = {}
    top = _check(_Top, {**document.data, **given}, (), faults)
    for name in given:
        if reason := faults.get((name,)):
            raise OptionInvalid(name, reason)
    tables = [_check(Table, table, ("tables", i), faults) for i, table in enumerate(document.tables)]
    mistakes = [document.mistake(place, words) for place, words in faults.items() if place not in document.unusable]
    mistakes += document.mistakes
    mistakes += _shared_targets(document)
    if top is not None:
        mistakes += dict.fromkeys(_contradictions(document, top, tables))
    if top is not None and landing_zone is None and not top.landing_zone.startswith(ONELAKE):
        words = "is for a landing zone in OneLake alone (onelake://…)"
        mistakes += [document.mistake((name,), words) for name in _ONELAKE_FIELDS if name in top.model_fields_set]
    if mistakes or top is None:
        raise ConfigInvalid(shown, tuple(sorted(mistakes)))
    resolved = tuple(_resolved(table, top, shown) for table in tables if table is not None)
    zone = top.landing_zone if top.landing_zone.startswith(ONELAKE) else _absolute(top.landing_zone, shown)
    ca_file = None if top.ca_file is None else _absolute(top.ca_file, shown)
    told = None if top.ledger is None else _located(top.ledger, shown)
    return Config(zone, resolved, shown, top.endpoint, ca_file, top.credential, top.fabric_endpoint, told, top.partner)


def _resolved(table: Table, top: _Top, file: str) -> Table:
    """The table with the options that it takes from the top level, and its path made absolute."""
    return table.model_copy(update={**_inherited(table, top), "source": _located(table.source, file)})


def _inherited(table: Table, top: _Top) -> dict[str, Any]:
    names = (Options.model_fields.keys() & top.model_fields_set) - table.model_fields_set
    return {name: getattr(top, name) for name in names}


def _contradictions(document: Document, top: _Top, tables: Sequence[Table | None]) -> Iterable[Mistake]:
    """Each where it is said: at the table, or once at the top."""
    for i, table in enumerate(tables):
        if table is None:
            continue
        whole = table.model_copy(update=_inherited(table, top))
        for place, words in contradictions(whole, whole.changes, whole.markers, whole.keys):
            own = place[0] in table.model_fields_set or place[0] not in top.model_fields_set
            yield document.mistake(("tables", i, *place) if own else place, words)
        if whole.format == "parquet" and "delimited" in table.model_fields_set:
            yield document.mistake(("tables", i, "delimited"), "is for format: delimited alone")
    if "delimited" in top.model_fields_set and "format" not in top.model_fields_set:
        yield document.mistake(("delimited",), "is for format: delimited alone")


def _located(source: Source, file: str) -> Source:
    if source.path is None or _URI.match(source.path):
        return source
    return replace(source, path=_absolute(source.path, file))


def _absolute(path: str, file: str) -> str:
    return os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(file)), path))


def _shared_targets(document: Document) -> Iterable[Mistake]:
    first: dict[tuple[str, str], tuple[int, Target]] = {}
    for i, table in enumerate(document.tables):
        place: Place = ("tables", i, "target")
        try:
            target = Target.parse(table["target"])
        except (BadTarget, TypeError, KeyError):
            continue  # a mistake of its own
        if target.fold() not in first:
            first[target.fold()] = document.line(place), target
            continue
        line, other = first[target.fold()]
        differs = "" if other == target else f" as '{other}', and names that differ only in case are one table"
        yield document.mistake(place, f"'{target}' is the target of another table too, on line {line}{differs}")


# Mistakes in words

_M = TypeVar("_M", bound=BaseModel)


def _check(model: type[_M], data: Any, place: Place, faults: dict[Place, str]) -> _M | None:
    """The data as a model, or None and what is wrong with it added to the faults."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        for fault in error.errors(include_url=False):
            faults[(*place, *fault["loc"])] = _words(model, dict(fault))
        return None


def _words(model: type[BaseModel], fault: dict[str, Any]) -> str:
    value, facts = _short(fault["input"]), fault.get("ctx", {})
    match fault["type"]:
        case "missing":
            return "is missing"
        case "extra_forbidden":
            return _unknown_field(str(fault["loc"][-1]), _model_at(model, fault["loc"][:-1]))
        case "value_error":
            return str(facts["error"])
        case "literal_error":
            return f"must be {facts['expected'].replace(chr(39), '')}, not {value}"
        case "bool_type":
            return f"must be true or false, not {value}"
        case "int_type":
            return f"must be a whole number, not {value}"
        case "string_type":
            return f"must be text, not {value}: put it in quotes"
        case "greater_than_equal":
            return f"must be at least {facts['ge']}, not {value}"
        case "less_than_equal":
            return f"must be at most {facts['le']}, not {value}"
        case "list_type":
            return f"must be a list, not {value}"
        case "too_short":
            return "is empty: name at least one table"
        case "string_too_short":
            return "is empty"
        case "model_type" if fault["loc"]:
            return f"must hold fields and their values, not {value}"
        case "model_type":
            return f"must hold tables with a source and a target, not {value}"
        case _:
            return str(fault["msg"])


def _model_at(model: type[BaseModel], place: Sequence[Any]) -> type[BaseModel]:
    for part in place:
        kinds = (model.model_fields[part].annotation, *get_args(model.model_fields[part].annotation))
        model = next(kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel))
    return model


def _unknown_field(name: str, model: type[BaseModel]) -> str:
    own, other = model.model_fields, (Table if model is _Top else _Top).model_fields
    if issubclass(model, Options) and name in other:
        return "belongs to a table, below tables" if model is _Top else "belongs at the top level, not to a table"
    if close := difflib.get_close_matches(name, own, 1):
        return f"is not a known field; did you mean {close[0]}?"
    return f"is not a known field; known here: {', '.join(own)}"


def _short(value: object) -> str:
    return reprlib.repr(value)


class ConfigInvalid(Terminal):
    def __init__(self, path: str, mistakes: tuple[Mistake, ...]) -> None:
        self.path, self.mistakes = path, mistakes

    def what(self) -> str:
        count = "a mistake" if len(self.mistakes) == 1 else f"{len(self.mistakes)} mistakes"
        lines = [f"{self.path}:{m.line}: {m.field}: {m.reason}" for m in self.mistakes]
        return "\n".join([f"The configuration has {count}:", *lines])

    def next(self) -> str:
        return "Correct the file and run the same command again; nothing was done."

    def __str__(self) -> str:
        return f"{self.what()}\n{self.next()}"


class BadAddress(Terminal):
    def __init__(self, reason: str) -> None:
        self.reason = reason

    def what(self) -> str:
        return f"The landing zone {self.reason}."

    def next(self) -> str:
        return "Nothing was done."


class OptionInvalid(Terminal):
    """A value that takes the place of one in the file."""

    def __init__(self, name: str, reason: str) -> None:
        self.name, self.reason = name, reason

    def what(self) -> str:
        return f"The option --{self.name.replace('_', '-')} {self.reason}."

    def next(self) -> str:
        return "Correct the option and run the same command again; nothing was done."


class UnknownTable(Terminal):
    def __init__(self, names: tuple[str, ...], known: tuple[str, ...], path: str) -> None:
        self.names, self.known, self.path = names, known, path

    def what(self) -> str:
        return f"{self.path} has no table {', '.join(map(repr, self.names))}."

    def next(self) -> str:
        return f"Name one of its targets ({', '.join(self.known)}), or add the table to the file."
