"""Read a YAML file with line numbers, and validate its values with models. A `Mistake` names the line and the field."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from yaml.composer import ComposerError
from yaml.constructor import SafeConstructor
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from mirrorfeed.config.connections import Alerts, Mail, MaxLagMinutes, Webhook
from mirrorfeed.config.errors import Mistake, config_missing, config_unreadable
from mirrorfeed.config.options import Options
from mirrorfeed.runtime.credentials import SECRET_FIELDS, ServicePrincipal

Place = tuple[str | int, ...]
"""Path of a value in the file: names of fields and positions in lists, such as ("tables", 0, "keys")."""
_INHERITED = {*Options.model_fields, "history"}
"""Fields that an entry inherits from the top level."""
_MAX_LEVELS = 50
"""Maximum nesting. A configuration has fewer than ten levels."""
_MAX_VALUES = 100_000
"""Maximum number of values after the expansion of aliases. A configuration has fewer."""
_TAG = "tag:yaml.org,2002:"
_TAGS: dict[type[Node], set[str]] = {
    MappingNode: {f"{_TAG}map"},
    SequenceNode: {f"{_TAG}seq"},
    ScalarNode: {f"{_TAG}{kind}" for kind in ("null", "bool", "int", "float", "timestamp", "str")},
}
_SURROGATE = re.compile("[\ud800-\udfff]")


class _Loader(yaml.SafeLoader):
    """YAML loader that raises an error with a line number before Python's recursion limit is reached."""

    _levels = 0

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        self._levels += 1
        if self._levels > _MAX_LEVELS:
            reason = f"it is nested more than {_MAX_LEVELS} levels deep"
            raise ComposerError(None, None, reason, self.peek_event().start_mark)  # type: ignore[no-untyped-call]
        try:
            return super().compose_node(parent, index)
        finally:
            self._levels -= 1


@dataclass
class Document:
    """Values of a YAML file with their line numbers, and the mistakes that were found when the file was read."""

    path: str
    data: dict[str, Any] = field(default_factory=dict)
    lines: dict[Place, int] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)
    variables: tuple[Any, ...] = ()
    """Variables to which values refer, as `mirrorfeed.config.variables.Variable`."""
    unset: dict[Place, Mistake] = field(default_factory=dict)
    """Mistakes of values that refer to a variable without a text."""
    unusable: set[Place] = field(default_factory=set)
    """Paths of values with an entry in `mistakes`, which must not be reported again."""
    _value_count: int = 0

    @property
    def tables(self) -> list[Any]:
        tables = self.data.get("tables")
        return tables if isinstance(tables, list) else []

    def place(self, number: int, *loc: str | int) -> Place:
        """Convert a field's path inside an entry of `tables` to its path in the file, such as ("tables", 0, "keys").

        `number` is the position of the entry. `loc` is the path of the field inside the entry. If the entry inherits
        the field from the top level of the file, the result is the path of the top-level field.
        """
        entry: Place = ("tables", number)
        inherited = loc and loc[0] in _INHERITED and (*entry, loc[0]) not in self.lines and loc[:1] in self.lines
        return loc if inherited else (*entry, *loc)

    def entry(self, number: int) -> Any:
        """Return entry `number` of `tables` with the options that it inherits from the top level."""
        entry = self.tables[number]
        if not isinstance(entry, dict):
            return entry
        return {name: self.data[name] for name in Options.model_fields if name in self.data} | entry

    def line(self, place: Place) -> int:
        """Return the line of the value at `place`. If `place` has no value, return the line of the nearest parent."""
        while place not in self.lines:
            place = place[:-1]
        return self.lines[place]

    def mistake(self, place: Place, reason: str) -> Mistake:
        return Mistake(self.line(place), field_name(place), reason)

    def add_mistake(self, place: Place, reason: str) -> None:
        self.mistakes.append(self.mistake(place, reason))
        self.unusable.add(place)

    def read_value(self, node: Node, place: Place) -> Any:
        """Return the value of a node. If the value is invalid, record a `Mistake` and return None.

        Adds the line number to `lines`. Raises `config_unreadable` if aliases expand to themselves or too many values.
        """
        self.lines.setdefault(place, node.start_mark.line + 1)
        self._value_count += 1
        if self._value_count > _MAX_VALUES or len(place) > _MAX_LEVELS:  # the loader limits nesting without aliases
            reason = "its aliases (*name) expand to too many values, or to themselves: write the values out"
            raise config_unreadable(path=self.path, line=self.line(place[:1]), reason=reason)
        if node.tag not in _TAGS[type(node)]:
            tag = "an unknown tag" if may_be_secret(place) else f"the unknown tag {node.tag}"
            self.add_mistake(place, f"has {tag}")
            return None
        if isinstance(node, MappingNode):
            return self._read_mapping(node, place)
        if isinstance(node, SequenceNode):
            return [self.read_value(item, (*place, i)) for i, item in enumerate(node.value)]
        try:
            value = SafeConstructor().construct_object(node)
        except (ValueError, LookupError, AttributeError, OverflowError):  # looks like a date or a number, but is text
            return node.value
        if isinstance(value, int) and value.bit_length() > 64:
            self.add_mistake(place, "is a whole number of more than 64 bits")
        elif isinstance(value, str) and _SURROGATE.search(value):
            self.add_mistake(place, "has a character that cannot be written as UTF-8")
        return None if place in self.unusable else value

    def _read_mapping(self, node: MappingNode, place: Place) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, ScalarNode):
                self.mistakes.append(Mistake(line, "", "the name of a field must be text"))
                continue
            field_place = (*place, key.value)
            if field_place in self.lines:
                reason = f"is a duplicate of line {self.lines[field_place]}"
                self.mistakes.append(Mistake(line, field_name(field_place), reason))
                continue
            self.lines[field_place] = line
            data[key.value] = self.read_value(value, field_place)
            if data[key.value] is None and field_place not in self.unusable:
                self.add_mistake(field_place, "has no value: set one, or omit the field")
        return data


def read_document(path: str, edit: Callable[[str, MappingNode, Document], None]) -> Document:
    """Read a YAML file, and return its values with their line numbers, and the mistakes in the file.

    `edit` can change the parsed file before its values are read: it gets the text, the top level of the file, and the
    document. Raises `config_missing` if the file does not exist. Raises `config_unreadable` if the file cannot be read,
    or if the file is not YAML with a map of fields at the top level.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
        loader = _Loader(text)
        root = loader.get_single_node()
    except FileNotFoundError as error:
        raise config_missing(path=path) from error
    except (OSError, yaml.YAMLError, ValueError, OverflowError) as error:
        from mirrorfeed.config.yaml_errors import explain  # imported late: most files can be read

        line, reason = explain(error, path)
        raise config_unreadable(path=path, line=line, reason=reason) from error
    if not isinstance(root, MappingNode) or root.tag not in _TAGS[MappingNode]:
        reason = "it is empty" if root is None else "its top level is not a map of fields and values"
        raise config_unreadable(path=path, line=None, reason=f"{reason}: landing_zone and tables are expected")
    document = Document(path)
    edit(text, root, document)
    document.unusable.update(document.unset)
    document.data = document.read_value(root, ())
    return document


_OF_CREDENTIAL = {"service_principal", "service_credential", *(each.name for each in fields(ServicePrincipal))}
_OF_ALERTS = {name for model in (Alerts, MaxLagMinutes, Mail, Webhook) for name in model.model_fields}
_FIELDS_WITH_SECRETS = {"credential": _OF_CREDENTIAL | {*SECRET_FIELDS}, "alerts": _OF_ALERTS | {*SECRET_FIELDS}}
"""Top-level fields whose content may be a secret, with the names of the fields below them that may be shown."""


def may_be_secret(place: tuple[str | int, ...]) -> bool:
    """Return whether the value at this path may be a secret, so that messages must not contain it."""
    return bool(place) and place[0] in _FIELDS_WITH_SECRETS


def field_name(place: tuple[str | int, ...]) -> str:
    """Return the name of the field at this path for messages, or "(not shown)" if the name may be a secret."""
    name = next((part for part in reversed(place) if isinstance(part, str)), "")
    is_known = len(place) < 2 or not may_be_secret(place) or name in _FIELDS_WITH_SECRETS[str(place[0])]
    return name if is_known else "(not shown)"


_M = TypeVar("_M", bound=BaseModel)


def validate(
    model: type[_M],
    data: Any,
    file: str,
    faults: dict[Place, str],
    place: Callable[..., Place] = lambda *loc: loc,
    **context: Any,
) -> _M | None:
    """Return `data` as a value of `model`, or None if the data is invalid.

    Adds a message to `faults` for each invalid field. The key of the message is the field's position in the file.
    `place` converts a position in `data` to a position in the file. Relative file paths start at the folder of `file`.
    `context` contains values that the validators read: `secret_scope`, the Databricks secret scope of all secrets that
    have a `key` but no `scope`, and `variables`.
    """
    try:
        return model.model_validate(data, context={"file": file, **context})
    except ValidationError as error:
        from mirrorfeed.config.error_messages import message  # imported late: most configurations are valid

        for fault in error.errors(include_url=False):
            fault_place = place(*fault["loc"])
            faults[fault_place] = message(model, dict(fault), is_secret=may_be_secret(fault_place))
        return None
