"""A YAML file as plain data, with the line of everything in it, so that mistakes can be told where they stand."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from yaml.composer import ComposerError
from yaml.constructor import SafeConstructor
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from mirrorfeed.config.hidden import may_be_secret, shown
from mirrorfeed.errors import Terminal

Place = tuple[str | int, ...]
"""Where something stands in the file: names of fields and positions in lists."""


_MAX_LEVELS = 50
"""Of lists and fields in each other. A configuration has less than ten."""
_MOST_REPEATED, _DEEPEST_REPEATED = 10_000, 20
"""Values that aliases may stand for, and how deep in each other: more than any configuration has."""


_TAG = "tag:yaml.org,2002:"
_TAGS: dict[type[Node], set[str]] = {
    MappingNode: {f"{_TAG}map"},
    SequenceNode: {f"{_TAG}seq"},
    ScalarNode: {f"{_TAG}{kind}" for kind in ("null", "bool", "int", "float", "timestamp", "str")},
}
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, order=True)
class Mistake:
    line: int
    field: str
    reason: str


class _Loader(yaml.SafeLoader):
    """Raises an error with a line where the library would exceed Python's limit on recursion."""

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


class _TooMuch(Exception):
    """Aliases of aliases, without end or nearly so."""

    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


@dataclass
class Document:
    """The plain data of a file, the line of each thing in it, and what was wrong before fields were looked at."""

    data: dict[str, Any] = field(default_factory=dict)
    lines: dict[Place, int] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)
    unusable: set[Place] = field(default_factory=set)
    """Places whose value was refused already."""
    _seen: set[int] = field(default_factory=set)
    _open: list[bool] = field(default_factory=list)
    """The nodes that the one at hand stands in, itself included: whether each comes from an alias."""
    _repeated: int = 0

    @property
    def tables(self) -> list[Any]:
        tables = self.data.get("tables")
        return tables if isinstance(tables, list) else []

    def line(self, place: Place) -> int:
        """Where it stands, or where that stands in which it is missing."""
        while place not in self.lines:
            place = place[:-1]
        return self.lines[place]

    def mistake(self, place: Place, reason: str) -> Mistake:
        return Mistake(self.line(place), shown(place), reason)

    def refuse(self, place: Place, reason: str) -> None:
        self.mistakes.append(self.mistake(place, reason))
        self.unusable.add(place)

    def take(self, node: Node, place: Place) -> Any:
        """The plain value of a node. What is refused is noted, and None stands in for it."""
        self.lines.setdefault(place, node.start_mark.line + 1)
        again = id(node) in self._seen
        self._seen.add(id(node))
        self._repeated += again
        if again and (self._repeated > _MOST_REPEATED or sum(self._open) >= _DEEPEST_REPEATED):
            raise _TooMuch(self.line(place[:1]))
        self._open.append(again)
        try:
            return self._plain(node, place)
        finally:
            self._open.pop()

    def _plain(self, node: Node, place: Place) -> Any:
        if node.tag not in _TAGS[type(node)]:
            tag = "a tag that" if may_be_secret(place) else f"the tag {node.tag}, which"
            self.refuse(place, f"has {tag} is not known here")
            return None
        if isinstance(node, MappingNode):
            return self._mapping(node, place)
        if isinstance(node, SequenceNode):
            return [self.take(item, (*place, i)) for i, item in enumerate(node.value)]
        try:
            value = SafeConstructor().construct_object(node)
        except (ValueError, LookupError, AttributeError, OverflowError):  # looks like a date or a number, and is none
            return node.value
        if isinstance(value, int) and value.bit_length() > 64:
            self.refuse(place, "is a whole number of more than 64 bits")
        elif isinstance(value, str) and _SURROGATE.search(value):
            self.refuse(place, "has a character that cannot be written as UTF-8")
        return None if place in self.unusable else value

    def _mapping(self, node: MappingNode, place: Place) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, ScalarNode):
                self.mistakes.append(Mistake(line, "", "the name of a field must be text"))
                continue
            at = (*place, key.value)
            if at in self.lines:
                self.mistakes.append(Mistake(line, shown(at), f"is there twice, first on line {self.lines[at]}"))
                continue
            self.lines[at] = line
            data[key.value] = self.take(value, at)
            if data[key.value] is None and at not in self.unusable:
                self.refuse(at, "has no value: give it one, or leave the field out")
        return data


def read(path: str) -> Document:
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
        loader = _Loader(text)
        root = loader.get_single_node()
    except FileNotFoundError as error:
        raise ConfigMissing(path) from error
    except OSError as error:
        raise ConfigUnreadable(path, None, error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise ConfigUnreadable(path, error.object[: error.start].count(b"\n") + 1, "it is not UTF-8 text") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        said = error.problem or error.context or "it is not YAML"
        if said.startswith("found undefined"):  # an alias or a tag: a secret may begin as they do
            said = f"{said.split(chr(39))[0].strip()}: what begins with * or ! must be in quotes"
        raise ConfigUnreadable(path, line, said) from error
    except yaml.reader.ReaderError as error:
        reason = f"the character {chr(error.character)!r} cannot stand in YAML"
        raise ConfigUnreadable(path, text[: error.position].count("\n") + 1, reason) from error
    except (ValueError, OverflowError) as error:  # of `chr`
        raise ConfigUnreadable(path, loader.line + 1, "it has an escape that is not a character") from error
    if not isinstance(root, MappingNode) or root.tag not in _TAGS[MappingNode]:
        reason = "it is empty" if root is None else "its top level is not a list of fields and their values"
        raise ConfigUnreadable(path, None, f"{reason}: landing_zone and tables are expected")
    document = Document()
    try:
        document.data = document.take(root, ())
    except _TooMuch as error:
        reason = "its aliases (*name) stand for more than any configuration has, or for themselves: write values out"
        raise ConfigUnreadable(path, error.line, reason) from error
    return document


class ConfigMissing(Terminal):
    """There is no configuration file where the command looks for it."""

    code = "MF1101"

    def __init__(self, path: str) -> None:
        self.path = path

    def what(self) -> str:
        return f"There is no configuration at {self.path}."

    def next(self) -> str:
        return "Run `mirrorfeed init` to write a commented example, or name the file that you mean."


class ConfigUnreadable(Terminal):
    """The configuration is no YAML that can be read, so nothing in it was looked at."""

    code = "MF1102"

    def __init__(self, path: str, line: int | None, reason: str) -> None:
        self.path, self.line, self.reason = path, line, reason

    def what(self) -> str:
        place = self.path if self.line is None else f"{self.path}:{self.line}"
        return f"Cannot read the configuration {place}: {self.reason}."

    def next(self) -> str:
        return "Correct the file, or run `mirrorfeed init` in another folder for an example to compare it with."
