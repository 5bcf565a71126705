"""`_metadata.json`: the key columns of a table and the form of its files, which never change once they are set."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, TypeAdapter

from mirrorfeed.errors import Terminal
from mirrorfeed.landing.strict_json import DamagedFile, is_distinct, parse_json, validate

_START_AGAIN = "put the old ones back into the configuration, or start the table again with `mirrorfeed rebuild`."
_SETTINGS: Mapping[str, Any] = {
    "fileDetectionStrategy": None,
    "isUpsertDefaultRowMarker": False,
    "FileFormat": "Parquet",
    "FileExtension": None,
    "FileFormatTypeProperties": None,
    "SchemaDefinition": None,
}
"""What is set beside the keys, and what holds where it is not."""


class _File(BaseModel):
    """The types of the settings that a publisher reads."""

    model_config = ConfigDict(strict=True, extra="allow")

    keyColumns: Annotated[tuple[str, ...], AfterValidator(is_distinct)] = ()
    fileDetectionStrategy: str | None = None
    isUpsertDefaultRowMarker: bool = False
    FileFormat: str = ""
    FileExtension: str | None = None
    FileFormatTypeProperties: dict[str, Any] | None = None
    SchemaDefinition: dict[str, Any] | None = None


_FILE = TypeAdapter(_File)


class KeysChanged(Terminal):
    """The table is published under other keys than it has now, and Fabric cannot change the keys of a table."""

    code = "MF3006"

    def __init__(self, address: str, published: Sequence[str], wanted: Sequence[str]) -> None:
        self.address, self.published, self.wanted = address, tuple(published), tuple(wanted)

    def what(self) -> str:
        wanted = f"the keys {list(self.wanted)}" if self.wanted else "no keys"
        return f"{self.address} sets the keys {list(self.published)}, and the table now has {wanted}."

    def next(self) -> str:
        return f"Keys never change once they are set: {_START_AGAIN}"


class SettingChanged(Terminal):
    """The form of the files was changed in the configuration after the table was published. A table in Fabric has one
    form."""

    code = "MF3007"

    def __init__(self, address: str, name: str, published: Any, wanted: Any) -> None:
        self.address, self.name, self.published, self.wanted = address, name, published, wanted

    def what(self) -> str:
        old, new = (json.dumps(value, ensure_ascii=False) for value in (self.published, self.wanted))
        found = f"does not set {self.name}" if self.published is None else f"sets {self.name} to {old}"
        wanted = "is without it" if self.wanted is None else f"needs {new}"
        return f"{self.address} {found}, and the table now {wanted}."

    def next(self) -> str:
        return f"Files that are there were written under the old settings: {_START_AGAIN}"


def to_json(spelled: Mapping[str, Any]) -> bytes:
    return json.dumps(spelled, ensure_ascii=False).encode()


def spell(keys: Sequence[str], settings: Mapping[str, Any]) -> dict[str, Any]:
    return {**({"keyColumns": list(keys)} if keys else {}), **settings}


def parse(data: bytes, address: str) -> dict[str, Any]:
    """What the file spells, the keys under their first spelling; or `DamagedFile`."""
    try:
        value = parse_json(data)
        if isinstance(value, dict) and "KeyColumns" in value:
            value.setdefault("keyColumns", value.pop("KeyColumns"))
        validate(_FILE, value)
    except ValueError as error:
        raise DamagedFile(address=address, reason=str(error)) from error
    return dict(value)


def goes_on_from(found: Mapping[str, Any], wanted: Mapping[str, Any], address: str) -> bool:
    """Whether the file says all that is wanted; otherwise keys are to be added to it. Other changes are refused."""
    published, keys = found.get("keyColumns", []), wanted.get("keyColumns", [])
    if published and published != keys:
        raise KeysChanged(address, published, keys)
    for name, default in _SETTINGS.items():
        if found.get(name, default) != wanted.get(name, default):
            raise SettingChanged(address, name, found.get(name), wanted.get(name))
    return bool(published == keys)
