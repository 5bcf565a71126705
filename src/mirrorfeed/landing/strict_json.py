"""Parse JSON strictly. For any input, functions return a valid value or raise `ValueError` with a short reason."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Annotated, Any, Final, TypeVar

from pydantic import AfterValidator, AwareDatetime, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import from_json

CONFIG: Final = ConfigDict(strict=True, extra="forbid")
"""Pydantic configuration: no conversions between types, and no unknown fields. Nested dataclasses inherit it."""
_LONGEST_REASON = 200

T = TypeVar("T")


def parse_json(data: bytes | str) -> Any:
    """Parse JSON. Raises `ValueError` for invalid text, duplicate names, numbers beyond 64 bits, NaN and infinity."""
    try:
        raw = data.encode() if isinstance(data, str) else data
        text = raw.decode()
        # Python's parser is recursive. This parser stops at 200 levels, and refuses half surrogate pairs.
        from_json(raw, allow_inf_nan=False)
        return json.loads(text, object_pairs_hook=_distinct, parse_int=_int64, parse_float=_finite)
    except UnicodeError as error:
        raise ValueError("it is not UTF-8") from error
    except ValueError as error:
        raise ValueError(f"it is not valid JSON ({_short(str(error))})") from error


def validate(model: TypeAdapter[T], value: Any) -> T:
    """Convert a parsed value to the type of `model`. Raises `ValueError` that names the first invalid field."""
    try:
        # Validate as JSON, because a strict model accepts a list as a tuple, and text as a time, only in JSON.
        return model.validate_json(json.dumps(value, ensure_ascii=False))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place, message = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
        raise ValueError(_short(f"{place}: {message}" if place else message)) from None


def format_of(value: Any) -> int:
    """Return the value of `format` in a parsed document. Raises `ValueError` if it is not a positive integer."""
    number = value.get("format") if isinstance(value, dict) else None
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise ValueError("it has no format number")
    return number


def is_distinct(values: tuple[T, ...]) -> tuple[T, ...]:
    """Return `values` unchanged. Raises `ValueError` if two of them are equal."""
    if len(set(values)) < len(values):
        raise ValueError("has a duplicate entry")
    return values


def _to_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("is a time that cannot be expressed in UTC") from None


def _zoned(text: str) -> str:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("is a time without a zone")
    _to_utc(moment)
    return text


Count = Annotated[int, Field(ge=0)]
UtcTime = Annotated[AwareDatetime, AfterValidator(_to_utc)]
"""Time with any time zone, converted to UTC."""
TimeText = Annotated[str, AfterValidator(_zoned)]
"""Time with its time zone in ISO format, as text."""


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("an object has a duplicate name")
    return value


def _int64(digits: str) -> int:
    # Check the length first: Python refuses thousands of digits, and is slow for hundreds of thousands.
    if len(digits) > 20 or not -(2**63) <= (number := int(digits)) < 2**63:
        raise ValueError("a number has more than 64 bits")
    return number


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError("a number is too large")
    return number


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}…"
