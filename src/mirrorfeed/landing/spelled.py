"""JSON that anybody may have written, whatever it holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def load(data: bytes, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """What the bytes spell, or ValueError with the reason. `pairs` makes the values of objects."""
    try:
        return json.loads(data, object_pairs_hook=pairs)
    except RecursionError as error:
        raise ValueError("values are nested in it deeper than can be followed") from error
