"""Replace references such as `${catalog}` in the values of a configuration file.

The text of a variable comes from the caller (`--var`), from an environment variable, or from `variables` in the file.
It replaces the reference as if it were written there, so `max_parallel_tables: ${parallel}` can be a number.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.resolver import Resolver

from mirrorfeed.config.errors import Mistake, option_invalid
from mirrorfeed.config.yaml_document import Document, Place, field_name, may_be_secret
from mirrorfeed.landing.strict_json import parse_json

SECTION = "variables"
"""Field of the file with the default texts of variables."""
PREFIX = "MIRRORFEED_VAR_"
"""Prefix of environment variables. The name of the variable follows, as in `MIRRORFEED_VAR_catalog`."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REFERENCE = re.compile(r"\$(\$?)\{([^{}]*)\}")
_GIVEN = "set for this run"
_STR = "tag:yaml.org,2002:str"


@dataclass(frozen=True, slots=True)
class Variable:
    """Variable that the file uses, with its text and the origin of the text."""

    name: str
    text: str
    origin: str
    is_hidden: bool = False
    """True if the variable is used in a field that may contain a secret. Then its text must not be shown."""

    def __str__(self) -> str:
        return f"{self.name} = {'(not shown)' if self.is_hidden else self.text} ({self.origin})"


def parse_variables(arguments: Sequence[str]) -> dict[str, str]:
    """Return the variables in the values of `--var`: `NAME=VALUE`, or a JSON object. An empty value sets none.

    Raises `option_invalid` if a value has another form.
    """
    variables: dict[str, str] = {}
    for argument in arguments:
        if argument.lstrip().startswith("{"):
            variables |= _parse_object(argument)
        elif argument:
            name, equals, text = argument.partition("=")
            if not equals or not _NAME.fullmatch(name):
                raise option_invalid(option="var", reason=f"must be NAME=VALUE or a JSON object, not {argument!r}")
            variables[name] = text
    return variables


def _parse_object(argument: str) -> dict[str, str]:
    try:
        values = parse_json(argument)
    except ValueError as error:
        raise option_invalid(option="var", reason=f"cannot be read: {error}") from None
    for name, value in values.items():
        if not _NAME.fullmatch(name) or not isinstance(value, str):
            raise option_invalid(
                option="var", reason=f"must be a JSON object of names and texts, which {name!r} is not"
            )
    return dict(values)


def replace_references(root: MappingNode, document: Document, given: Mapping[str, str]) -> None:
    """Replace the references in the values below `root`, and set `document.variables` to the variables in use.

    `given` contains the variables that the caller sets. A value with a variable that is not set is left as it is, and
    gets a mistake in `document.unset`. Raises `option_invalid` if the file neither uses nor declares a variable in
    `given`.
    """
    defaults = _read_defaults(root)
    found: dict[str, tuple[str, str] | None] = {}
    hidden: set[str] = set()
    for node, place in _find_scalars(root, (), set()):
        names = [name for escape, name in _REFERENCE.findall(node.value) if not escape]
        found |= {name: _find_text(name, given, defaults) for name in names if name not in found}
        if may_be_secret(place):
            hidden.update(names)
        if reason := next((_explain(name, place) for name in names if place[0] == SECTION or not found[name]), None):
            document.unset[place] = Mistake(node.start_mark.line + 1, field_name(place), reason)
        elif "${" in node.value:
            _replace(node, {name: each[0] for name, each in found.items() if each})
    for name in given:
        if name not in (known := {*found, *defaults}):
            close = "".join(f": did you mean {each}?" for each in difflib.get_close_matches(name, known, 1))
            raise option_invalid(option="var", reason=f"sets {name}, which {document.path} does not use{close}")
    used = {name: text_and_origin for name, text_and_origin in found.items() if text_and_origin}
    document.variables = tuple(Variable(name, *each, name in hidden) for name, each in used.items())


def given_texts(variables: Sequence[Variable]) -> dict[str, str]:
    """Return the texts of the variables that the caller set, so that printed commands can set them again."""
    return {each.name: each.text for each in variables if each.origin == _GIVEN}


def _read_defaults(root: MappingNode) -> dict[str, str]:
    """Return the texts in the section `variables`. The model reports values that are not text, numbers or booleans."""
    sections = [value for key, value in root.value if isinstance(key, ScalarNode) and key.value == SECTION]
    pairs = [pair for section in sections if isinstance(section, MappingNode) for pair in section.value]
    return {key.value: value.value for key, value in pairs if isinstance(value, ScalarNode)}


def _find_scalars(node: Node, place: Place, visited: set[int]) -> Iterator[tuple[ScalarNode, Place]]:
    """Yield each single value below `node` once, with its first place. An alias (*name) is the same node again."""
    if id(node) in visited:
        return
    visited.add(id(node))
    if isinstance(node, ScalarNode):
        yield node, place
    elif isinstance(node, SequenceNode):
        for i, item in enumerate(node.value):
            yield from _find_scalars(item, (*place, i), visited)
    elif isinstance(node, MappingNode):
        for key, value in node.value:
            if isinstance(key, ScalarNode):
                yield from _find_scalars(value, (*place, key.value), visited)


def _find_text(name: str, given: Mapping[str, str], defaults: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the text of a variable and its origin in words. None if the variable is not set."""
    if not _NAME.fullmatch(name):
        return None
    if name in given:
        return given[name], _GIVEN
    if (text := os.environ.get(f"{PREFIX}{name}")) is not None:
        return text, f"{PREFIX}{name}"
    return (defaults[name], "default") if name in defaults else None


def _explain(name: str, place: Place) -> str:
    """Return why the reference to the variable `name` at `place` cannot be replaced."""
    if place[0] == SECTION:
        return "is the default of a variable and cannot refer to variables"
    if may_be_secret(place):
        return "has a reference to a variable that is not set; write $${ for the text ${"
    if not _NAME.fullmatch(name):
        return f"has ${{{name}}}: a variable has letters, digits and _ in its name; write $${{ for the text ${{"
    return f"needs the variable {name}: set it with --var {name}=VALUE or {PREFIX}{name}, or add it to `{SECTION}`"


def _replace(node: ScalarNode, texts: Mapping[str, str]) -> None:
    """Write the texts of variables into a value. A value without quotes gets the type that YAML gives to the result."""
    node.value = _REFERENCE.sub(lambda match: match[0][1:] if match[1] else texts[match[2]], node.value)
    if node.tag == _STR and node.style is None:
        node.tag = Resolver().resolve(ScalarNode, node.value, (True, False))  # type: ignore[no-untyped-call]
