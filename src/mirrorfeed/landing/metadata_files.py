"""The files `_metadata.json` (keys and file format of a table) and `_partnerEvents.json` (who publishes). Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, TypeAdapter

from mirrorfeed.landing.errors import DamagedFile, KeysChanged, SettingChanged
from mirrorfeed.landing.strict_json import is_distinct, parse_json, validate

PARTNER_EVENTS = "_partnerEvents.json"
_DEFAULTS: Mapping[str, Any] = {
    "fileDetectionStrategy": None,
    "isUpsertDefaultRowMarker": False,
    "FileFormat": "Parquet",
    "FileExtension": None,
    "FileFormatTypeProperties": None,
    "SchemaDefinition": None,
}
"""The settings besides the keys, which never change once they are published."""


class _Metadata(BaseModel):
    """The types of the settings that a publisher reads."""

    model_config = ConfigDict(strict=True, extra="allow")

    keyColumns: Annotated[tuple[str, ...], AfterValidator(is_distinct)] = ()
    fileDetectionStrategy: str | None = None
    isUpsertDefaultRowMarker: bool = False
    FileFormat: str = ""
    FileExtension: str | None = None
    FileFormatTypeProperties: dict[str, Any] | None = None
    SchemaDefinition: dict[str, Any] | None = None


_METADATA = TypeAdapter(_Metadata)


def to_json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False).encode()


def metadata_content(keys: Sequence[str], settings: Mapping[str, Any]) -> dict[str, Any]:
    return {**({"keyColumns": list(keys)} if keys else {}), **settings}


def parse_metadata(data: bytes, address: str) -> dict[str, Any]:
    """The content of `_metadata.json`, with the keys as `keyColumns`. Raises `DamagedFile`."""
    try:
        value = parse_json(data)
        if isinstance(value, dict) and "KeyColumns" in value:
            value.setdefault("keyColumns", value.pop("KeyColumns"))
        validate(_METADATA, value)
    except ValueError as error:
        raise DamagedFile(address=address, reason=str(error)) from error
    return dict(value)


def is_up_to_date(found: Mapping[str, Any], wanted: Mapping[str, Any], address: str) -> bool:
    """Whether nothing must be added to the published content. Only keys can be added.

    Raises `KeysChanged` or `SettingChanged` for any other difference.
    """
    published, keys = found.get("keyColumns", []), wanted.get("keyColumns", [])
    if published and published != keys:
        raise KeysChanged(address=address, published=published, wanted=keys)
    for name, default in _DEFAULTS.items():
        if found.get(name, default) != wanted.get(name, default):
            raise SettingChanged(address=address, name=name, published=found.get(name), wanted=wanted.get(name))
    return bool(published == keys)


def partner_events(name: str, source_type: str, source_version: str, information: Mapping[str, Any]) -> dict[str, Any]:
    """The content of `_partnerEvents.json`."""
    more = {"additionalInformation": dict(information)} if information else {}
    source = {"sourceType": source_type, "sourceVersion": source_version, **more}
    return {"partnerName": name, "sourceInfo": source}


def has_content(data: bytes, wanted: Mapping[str, Any]) -> bool:
    """Whether a JSON file has this content, in any layout."""
    try:
        return bool(parse_json(data) == wanted)
    except ValueError:
        return False
