"""Messages for values of the configuration that pydantic rejects."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any, get_args

from pydantic import BaseModel

from mirrorfeed.config.model import Config, Sources, Table
from mirrorfeed.config.options import Options
from mirrorfeed.config.values import shorten


def message(model: type[BaseModel], fault: dict[str, Any], *, is_secret: bool) -> str:
    """Return the message for an error of pydantic. The message does not contain the rejected value if `is_secret`."""
    facts, value = fault.get("ctx", {}), "this value" if is_secret else shorten(fault["input"])
    match fault["type"]:
        case "missing":
            return "is missing"
        case "extra_forbidden" | "unexpected_keyword_argument":
            *place, name = fault["loc"]
            return _unknown_field("" if is_secret else str(name), _model_at(model, place))
        case "value_error":
            return str(facts["error"])
        case "literal_error":
            return f"must be {facts['expected'].replace(chr(39), '')}, not {value}"
        case "bool_type":
            return f"must be true or false, not {value}"
        case "int_type":
            return f"must be a whole number, not {value}"
        case "float_type" | "float_parsing" | "finite_number":
            return f"must be a number, not {value}"
        case "string_type":
            return f"must be text, not {value}: put it in quotes"
        case "greater_than_equal":
            return f"must be at least {facts['ge']:g}, not {value}"
        case "less_than_equal":
            return f"must be at most {facts['le']}, not {value}"
        case "list_type" | "tuple_type":
            return f"must be a list, not {value}"
        case "too_short" | "string_too_short":
            return "is empty"
        case "model_type" | "dataclass_type" if fault["loc"]:
            return f"must be a map of fields and values, not {value}"
        case "model_type":
            return f"must be a table with a source and a target, not {value}"
        case _:
            return str(fault["msg"])


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
