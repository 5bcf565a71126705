"""Transformations of column values before they are published: hashed, masked or truncated."""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from typing import Literal

_FORM = re.compile(r"hash|mask(?:\('(?P<text>[^']*)'\))?|truncate\((?P<unit>month|year)\)")
EXAMPLES = "hash, mask, mask('***'), truncate(month)"


@dataclass(frozen=True, slots=True)
class Transformation:
    """Transformation of the values of a column. NULL stays NULL, except with a text in `mask`."""

    kind: Literal["hash", "mask", "truncate"]
    text: str | None = None
    """Text that replaces all values. None means NULL. Only for `mask`."""
    unit: Literal["month", "year"] = "month"
    """Dates become the first day of this unit. Only for `truncate`."""

    @classmethod
    def parse(cls, text: str) -> Transformation:
        """Parse a transformation such as `truncate(month)`. Raises `ValueError` for any other text."""
        match = _FORM.fullmatch(text.strip())
        if match is None:
            hint = "; to cut a text, use `cast: string(20)`" if text.strip().startswith("truncate") else ""
            raise ValueError(f"{text!r} is not a transformation; use one such as {EXAMPLES}{hint}")
        if match["unit"]:
            return cls("truncate", unit="year" if match["unit"] == "year" else "month")
        return cls("mask", match["text"]) if text.strip().startswith("mask") else cls("hash")

    def fault(self, type_: str) -> str | None:
        """Return the reason why values of the type `type_` cannot be transformed, or None if they can."""
        if self.kind == "truncate" and type_ != "date":
            return "only dates can be truncated"
        if self.kind == "mask" and self.text is not None and type_ != "string":
            return "only texts can be replaced by a text; use `mask` without a text"
        return None


def digest_of_key(key: str) -> str:
    """Return a text that differs for different secrets, and from which nobody can compute the secret or a hash."""
    return hmac.new(key.encode(), b"mirrorfeed: the secret for hashes", hashlib.sha256).hexdigest()[:16]


_BLOCK = 64
"""Size in bytes of a block of SHA-256."""


def hmac_pads(key: str) -> tuple[bytes, bytes]:
    """Return the two texts that HMAC-SHA-256 (RFC 2104) derives from a key: one to put before the value, and one to put
    before the hash of both."""
    data = key.encode()
    block = (hashlib.sha256(data).digest() if len(data) > _BLOCK else data).ljust(_BLOCK, b"\0")
    return bytes(each ^ 0x36 for each in block), bytes(each ^ 0x5C for each in block)
