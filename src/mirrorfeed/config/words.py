"""Data against a model, and what pydantic finds wrong with it in the words of the file."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from mirrorfeed.config.document import Place
from mirrorfeed.config.fields import short
from mirrorfeed.config.hidden import may_be_secret
from mirrorfeed.config.model import Options, Sources, Table, Top

_GONE = {
    "writers": (
        "is no field any more: Spark makes all files, and the driver sends them. Take the line out; for first loads"
        " that are too much for one driver, `send: executors` lets the tasks of a dedicated cluster send them"
    )
}
_M = TypeVar("_M", bound=BaseModel)


def check(model: type[_M], data: Any, place: Place, faults: dict[Place, str]) -> _M | None:
    """The data as a model, or None and what is wrong with it added to the faults."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        for fault in error.errors(include_url=False):
            at = (*place, *fault["loc"])
            faults[at] = _words(model, dict(fault), "what is there" if may_be_secret(at) else short(fault["input"]))
        return None


def _words(model: type[BaseModel], fault: dict[str, Any], value: str) -> str:
    facts = fault.get("ctx", {})
    match fault["type"]:
        case "missing":
            return "is missing"
        case "extra_forbidden":
            return _unknown_field(str(fault["loc"][-1]), _model_at(model, fault["loc"][:-1]))
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
        case "too_short":
            return "is empty: name at least one table" if fault["loc"] == ("tables",) else "is empty"
        case "string_too_short":
            return "is empty"
        case "model_type" if fault["loc"]:
            return f"must hold fields and their values, not {value}"
        case "model_type":
            return f"must hold tables with a source and a target, not {value}"
        case _:
            return str(fault["msg"])


def _model_at(model: type[BaseModel], place: Sequence[Any]) -> type[BaseModel]:
    for part in (each for each in place if isinstance(each, str)):
        kinds = (model.model_fields[part].annotation, *get_args(model.model_fields[part].annotation))
        model = next(kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel))
    return model


def _unknown_field(name: str, model: type[BaseModel]) -> str:
    if model is Top and name in _GONE:
        return _GONE[name]
    own, other = model.model_fields, (Table if model is Top else Top).model_fields
    if issubclass(model, Options) and name in other:
        return "belongs to a table, below tables" if model is Top else "belongs at the top level, not to a table"
    if model is Sources and name == "source":
        return "stands beside sources: an entry names one table, or stands for several"
    known = [field.alias or each for each, field in own.items()]
    if close := difflib.get_close_matches(name, known, 1):
        return f"is not a known field; did you mean {close[0]}?"
    return f"is not a known field; known here: {', '.join(known)}"
