"""`_metadata.json`: the key columns of a table, which never change once they are set."""

from __future__ import annotations

import json
from collections.abc import Sequence

from mirrorfeed.errors import Terminal


class MetadataUnreadable(Terminal):
    def __init__(self, address: str, reason: str) -> None:
        self.address, self.reason = address, reason

    def what(self) -> str:
        return f"{self.address} cannot be read: {self.reason}."

    def next(self) -> str:
        return "Restore the file, or start the table again with `mirrorfeed rebuild`."


class KeysChanged(Terminal):
    def __init__(self, address: str, published: Sequence[str], wanted: Sequence[str]) -> None:
        self.address, self.published, self.wanted = address, tuple(published), tuple(wanted)

    def what(self) -> str:
        wanted = f"the keys {list(self.wanted)}" if self.wanted else "no keys"
        return f"{self.address} sets the keys {list(self.published)}, and the table now has {wanted}."

    def next(self) -> str:
        return (
            "Keys never change once they are set: put the old ones back into the configuration, or start the"
            " table again with `mirrorfeed rebuild`."
        )


def to_json(keys: Sequence[str]) -> bytes:
    return json.dumps({"keyColumns": list(keys)} if keys else {}, ensure_ascii=False).encode()


def keys_in(data: bytes, address: str) -> tuple[str, ...]:
    try:
        spelled = json.loads(data)
        keys = spelled.get("keyColumns", spelled.get("KeyColumns", []))
    except (ValueError, AttributeError) as error:
        raise MetadataUnreadable(address, f"it is not a JSON object ({error})") from error
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise MetadataUnreadable(address, "keyColumns is not a list of names")
    return tuple(keys)
