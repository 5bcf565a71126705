"""Messages for values of the configuration that pydantic rejects."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any, get_args

from pydantic import BaseModel

from mirrorfeed.config.model import Config, Sources, Table
from mirrorfeed.config.options import Options
from mirrorfeed.config.validators import shorten

_MESSAGES = {
    "value_error": "{error}",
    "missing": "is missing",
    "literal_error": "must be {expected}, not {value}",
    "bool_type": "must be true or false, not {value}",
    "int_type": "must be a whole number, not {value}",
    **dict.fromkeys(["float_type", "float_parsing", "finite_number"], "must be a number, not {value}"),
    "string_type": "must be text, not {value}: put it in quotes",
    "greater_than_equal": "must be at least {ge:g}, not {value}",
    "less_than_equal": "must be at most {le}, not {value}",
    **dict.fromkeys(["list_type", "tuple_type"], "must be a list, not {value}"),
    **dict.fromkeys(["too_short", "string_too_short"], "is empty"),
    **dict.fromkeys(["model_type", "dataclass_type"], "must be a map of fields and values, not {value}"),
}
"""Message for each error type of pydantic, with placeholders for details of the error and for the rejected value."""


def message(model: type[BaseModel], fault: dict[str, Any], *, is_secret: bool) -> str:
    """Return the message for `fault`, a pydantic error of `model`. With `is_secret`, it omits the rejected value."""
    kind, place, facts = fault["type"], fault["loc"], dict(fault.get("ctx", {}))
    value = "this value" if is_secret else shorten(fault["input"])
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return _unknown_field("" if is_secret else str(place[-1]), _model_at(model, place[:-1]))
    if kind == "model_type" and not place:
        return f"must be a table with a source and a target, not {value}"
    if kind == "literal_error":
        facts["expected"] = facts["expected"].replace("'", "")
    return _MESSAGES[kind].format(**facts, value=value) if kind in _MESSAGES else str(fault["msg"])


def _model_at(model: Any, place: Sequence[Any]) -> Any:
    for part in place:
        # Positions in lists, and `service_principal`, are not fields of a model.
        if field := getattr(model, "model_fields", {}).get(part):
            model = next(each for each in (field.annotation, *get_args(field.annotation)) if _names(each))
    return model


def _names(model: Any) -> list[str]:
    """Return the field names of a model or a dataclass. Empty for other types."""
    if isinstance(model, type) and issubclass(model, BaseModel):
        return [each.alias or name for name, each in model.model_fields.items()]
    return [each.name for each in fields(model)] if is_dataclass(model) else []


def _unknown_field(name: str, model: Any) -> str:
    if issubclass(model, Options) and name in _names(Table if model is Config else Config):
        return "belongs to a table, below tables" if model is Config else "belongs at the top level, not to a table"
    if model is Sources and name == "source":
        return "excludes sources: an entry names one table or a pattern"
    known = _names(model)
    if close := difflib.get_close_matches(name, known, 1):
        return f"is not a known field; did you mean {close[0]}?"
    return f"is not a known field; allowed are {', '.join(known)}"
