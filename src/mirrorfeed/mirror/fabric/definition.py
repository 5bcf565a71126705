"""What a mirrored database is, as its definition in Fabric says, and what of that the configuration wants otherwise."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from mirrorfeed.config.destination import DEFAULT_SCHEMA, FabricOptions
from mirrorfeed.display.rows import Row, row, shown
from mirrorfeed.landing.strict_json import parse_json, validate
from mirrorfeed.mirror.fabric.client import Api
from mirrorfeed.mirror.fabric.errors import DefinitionUnreadable, NotApplied, OtherMirror
from mirrorfeed.mirror.fabric.responses import Place, Response, validated

MIRRORING = "mirroring.json"
OPEN_MIRROR = "GenericMirror"
_ITEM = ".platform"
"""Of any item: its name and kind, which are changed elsewhere."""
_RETENTION = 7
_FIELDS = {
    "retention_days": "retentionInDays",
    "change_data_feed": "enableDeltaChangeDataFeed",
    "default_schema": "defaultSchema",
}
_FIXED = (
    "it is set when the database is made, and left as it is: what becomes of tables that are there is not documented"
)
_NOTES = {
    "change_data_feed": "the feed of mirrored tables is paid for, and read through a shortcut in a Lakehouse",
    "default_schema": _FIXED,
}

Value = int | bool | str | None


def _spell(value: Value) -> str:
    return json.dumps(value) if not isinstance(value, str) else value


@row
class Setting(Row):
    """A setting of the mirrored database that differs from the configuration."""

    field: str = shown("field")
    """Its name in the configuration."""
    there: Value = shown("in Fabric", _spell)
    """None if the definition does not have it."""
    wanted: Value = shown("configured", _spell)
    changes: bool
    """Whether `apply` changes it."""
    note: str = shown("note", default="")

    @property
    def in_words(self) -> str:
        """The change, in one line."""
        there = "not set" if self.there is None else _spell(self.there)
        return f"{self.field}: {there} -> {_spell(self.wanted)}{f' ({self.note})' if self.note else ''}"


def spelled(options: FabricOptions) -> dict[str, Any]:
    """The content of `mirroring.json` for a database that is made."""
    target: dict[str, Any] = {
        "defaultSchema": options.default_schema or DEFAULT_SCHEMA,
        "format": "Delta",
        "retentionInDays": options.retention_days or _RETENTION,
    }
    if options.change_data_feed is not None:
        target["enableDeltaChangeDataFeed"] = options.change_data_feed
    return {
        "properties": {
            "source": {"type": OPEN_MIRROR, "typeProperties": {}},
            "target": {"type": "MountedRelationalDatabase", "typeProperties": target},
        }
    }


def differences(there: Mapping[str, Any], options: FabricOptions) -> list[Setting]:
    """What the configuration says and the definition does not. What it does not say is no difference."""
    return list(_differences(_target(there), options))


def _differences(target: Mapping[str, Any], options: FabricOptions) -> Iterator[Setting]:
    for field, name in _FIELDS.items():
        found, wanted = target.get(name), getattr(options, field)
        if field == "change_data_feed":
            found = None if found is None else str(found).lower() == "true"
        if wanted is None or found == wanted or (wanted is False and found is None):
            continue
        note = _NOTES.get(field, "") if wanted is not False else ""
        yield Setting(field, found, wanted, field != "default_schema", note)


def changed(there: Mapping[str, Any], found: list[Setting]) -> dict[str, Any]:
    """The definition with what is to be changed, and all else as it is, known here or not."""
    content = copy.deepcopy(dict(there))
    target = content.setdefault("properties", {}).setdefault("target", {}).setdefault("typeProperties", {})
    target.update({_FIELDS[each.field]: each.wanted for each in found if each.changes})
    return content


def in_words(there: Mapping[str, Any]) -> str:
    """The settings of the definition, by their names in the configuration."""
    target = _target(there)
    values = {field: target.get(name) for field, name in _FIELDS.items()}
    return ", ".join(f"{field}: {'not set' if value is None else _spell(value)}" for field, value in values.items())


def _target(there: Mapping[str, Any]) -> Mapping[str, Any]:
    return ((there.get("properties") or {}).get("target") or {}).get("typeProperties") or {}


def part(content: Mapping[str, Any]) -> dict[str, str]:
    payload = base64.b64encode(json.dumps(content).encode()).decode()
    return {"path": MIRRORING, "payload": payload, "payloadType": "InlineBase64"}


class _Part(Response):
    model_config = ConfigDict(extra="allow")

    path: str
    payload: str


class _Parts(Response):
    parts: tuple[_Part, ...] = ()


class _Answer(Response):
    definition: _Parts = _Parts()


class _Source(Response):
    type: str


class _Target(Response):
    typeProperties: dict[str, Any] | None = None


class _Properties(Response):
    source: _Source
    target: _Target | None = None


class _Content(Response):
    properties: _Properties


_PARTS: TypeAdapter[_Answer] = TypeAdapter(_Answer)
_CONTENT: TypeAdapter[_Content] = TypeAdapter(_Content)


@dataclass(frozen=True)
class Definition:
    """As Fabric gives it."""

    content: Mapping[str, Any]
    """Of `mirroring.json`."""
    others: tuple[Mapping[str, Any], ...] = ()
    """Parts beside it, without the one that every item has."""


def read(api: Api, place: Place, name: str | None = None) -> Definition:
    """Of a database that takes files, under the name by which it was asked for; or `OtherMirror`,
    `DefinitionUnreadable`."""
    action, path = "tell its definition", f"mirroredDatabases/{place.database}/getDefinition"
    parts = validated(_PARTS, api.outcome(action, place, path), action, place).definition.parts
    own = [each for each in parts if each.path == MIRRORING]
    try:
        content = parse_json(base64.b64decode(own[0].payload, validate=True))
        kind = validate(_CONTENT, content).properties.source.type
    except (LookupError, ValueError) as error:
        raise DefinitionUnreadable(place=str(place)) from error
    if kind != OPEN_MIRROR:
        raise OtherMirror(name=name or str(place.database), place=str(place), kind=kind)
    return Definition(content, tuple(each.model_dump() for each in parts if each.path not in (MIRRORING, _ITEM)))


def apply(api: Api, place: Place, options: FabricOptions) -> list[Setting]:
    """Changes what differs and can be changed, looks again, and gives back what was different; or `NotApplied`."""
    there = read(api, place)
    found = differences(there.content, options)
    if not any(each.changes for each in found):
        return found
    body = {"definition": {"parts": [part(changed(there.content, found)), *there.others]}}
    api.post("change its definition", place, "updateDefinition", body)
    if left := [each for each in differences(read(api, place).content, options) if each.changes]:
        raise NotApplied(place=str(place), left=tuple(each.in_words for each in left))
    return found
