"""The definition of the mirrored database: reads it, compares it with the configuration, and changes it."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from mirrorfeed.config.connections import DEFAULT_SCHEMA, FabricOptions
from mirrorfeed.landing.strict_json import parse_json, validate
from mirrorfeed.mirror.errors import DefinitionUnreadable, NotApplied, OtherMirror
from mirrorfeed.mirror.fabric.client import FabricClient, FabricItem, Response
from mirrorfeed.mirror.fabric.rows import Setting, setting_text

MIRRORING = "mirroring.json"
OPEN_MIRROR = "GenericMirror"
_ITEM = ".platform"
"""The part with the name and kind of an item, which is changed elsewhere."""
_RETENTION = 7
_FIELDS = {
    "retention_days": "retentionInDays",
    "change_data_feed": "enableDeltaChangeDataFeed",
    "default_schema": "defaultSchema",
}
NOTES = {
    "change_data_feed": "the feed uses capacity, and is read through a shortcut in a Lakehouse",
    "default_schema": "needs `mirrorfeed fabric stop` first, and the next start loads every table again",
}


def new_definition(options: FabricOptions) -> dict[str, Any]:
    """The content of `mirroring.json` for a new database."""
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


def differences(there: Mapping[str, Any], options: FabricOptions, stopped: bool = False) -> list[Setting]:
    """The configured settings that differ from the definition. Only a stopped database takes all changes."""
    target, settings = _target(there), []
    for field, name in _FIELDS.items():
        found, wanted = target.get(name), getattr(options, field)
        if field == "change_data_feed":
            found = None if found is None else str(found).lower() == "true"
        if wanted is not None and found != wanted and (wanted is not False or found is not None):
            changes = stopped or field != "default_schema"
            note = NOTES.get(field, "") if wanted is not False and not (field == "default_schema" and stopped) else ""
            settings.append(Setting(field, found, wanted, changes, note))
    return settings


def changed(there: Mapping[str, Any], found: list[Setting]) -> dict[str, Any]:
    """The definition with the changed settings. Everything else stays, also what is not known here."""
    content = copy.deepcopy(dict(there))
    target = content.setdefault("properties", {}).setdefault("target", {}).setdefault("typeProperties", {})
    target.update({_FIELDS[each.field]: each.wanted for each in found if each.changes})
    return content


def in_words(there: Mapping[str, Any]) -> str:
    """The settings of the definition, by their names in the configuration."""
    target = _target(there)
    return ", ".join(f"{field}: {setting_text(target.get(name))}" for field, name in _FIELDS.items())


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


class _Result(Response):
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


_RESULT: TypeAdapter[_Result] = TypeAdapter(_Result)
_CONTENT: TypeAdapter[_Content] = TypeAdapter(_Content)


@dataclass(frozen=True)
class Definition:
    content: Mapping[str, Any]
    """The content of `mirroring.json`."""
    others: tuple[Mapping[str, Any], ...] = ()
    """The other parts, without the one that every item has."""


def read(client: FabricClient, item: FabricItem, name: str | None = None) -> Definition:
    """The definition of an open mirrored database; or `OtherMirror`, which shows `name`, or `DefinitionUnreadable`."""
    parts = client.read("read its definition", item, f"{item.path}/getDefinition", _RESULT).definition.parts
    own = [each for each in parts if each.path == MIRRORING]
    try:
        content = parse_json(base64.b64decode(own[0].payload, validate=True))
        kind = validate(_CONTENT, content).properties.source.type
    except (LookupError, ValueError) as error:
        raise DefinitionUnreadable(item=str(item)) from error
    if kind != OPEN_MIRROR:
        raise OtherMirror(name=name or str(item.database), item=str(item), kind=kind)
    return Definition(content, tuple(each.model_dump() for each in parts if each.path not in (MIRRORING, _ITEM)))


def apply(
    client: FabricClient,
    item: FabricItem,
    options: FabricOptions,
    stopped: bool = False,
    confirm: Callable[..., None] | None = None,
) -> list[Setting]:
    """Change the settings that differ and can be changed, after `confirm` was called with all that differ, and read the
    definition again. Returns all that differed."""
    there = read(client, item)
    found = differences(there.content, options, stopped)
    if not any(each.changes for each in found):
        return found
    if confirm:
        confirm(*(each.in_words for each in found))
    body = {"definition": {"parts": [part(changed(there.content, found)), *there.others]}}
    client.call("change its definition", item, f"{item.path}/updateDefinition", body)
    if left := [each for each in differences(read(client, item).content, options, stopped) if each.changes]:
        raise NotApplied(item=str(item), left=tuple(each.in_words for each in left))
    return found
