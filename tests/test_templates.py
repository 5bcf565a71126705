"""All errors format, and every `raise` passes the keywords of its class."""

from __future__ import annotations

import ast
import importlib
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mirrorfeed
from mirrorfeed.errors import MirrorfeedError, Terminal, choices
from tools import codes
from tools.sample_values import sample_error

_SOURCE = Path(mirrorfeed.__file__).parent
_ERRORS = codes.errors()
_WRITTEN_AS_IT_IS = re.compile(r'\{(schema|table|env: NAME|scope, key|scope, key, env|\{secrets/\w+/\w+\}|".*)\}')
"""Braces that are part of a text."""


@pytest.mark.parametrize("kind", _ERRORS, ids=lambda kind: f"{kind.code}-{kind.__name__}")
def test_every_text_of_an_error_is_a_sentence(kind: type[MirrorfeedError]) -> None:
    error = sample_error(kind)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    for text in (*choices(kind.what), *choices(kind.fix)):
        sentence = error._format(text)
        assert sentence == sentence.strip()
        assert "{" not in _WRITTEN_AS_IT_IS.sub("", sentence)
        assert not sentence or sentence[-1] in ".)…" or text[-1] == "}", sentence
    fields = error.to_dict()
    assert set(fields) == {"code", "what", "next", "facts"}
    assert set(fields["facts"]) == kind.required | kind.optional.keys()


def test_every_raised_error_has_the_keywords_of_its_class() -> None:
    wrong = [
        f"{path.relative_to(_SOURCE)}:{call.lineno} {kind.__name__}"
        for path in _SOURCE.rglob("*.py")
        for call, kind in _calls(path)
        if call.args or (kind.required ^ {each.arg for each in call.keywords}) - kind.optional.keys()
    ]
    assert not wrong


def _calls(path: Path) -> Iterator[tuple[ast.Call, type[MirrorfeedError]]]:
    """Calls of error classes in a module, including imports inside functions."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    name = ".".join(("mirrorfeed", *path.relative_to(_SOURCE).with_suffix("").parts)).removesuffix(".__init__")
    if name.endswith("__main__"):
        return
    known = dict(vars(importlib.import_module(name)))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("mirrorfeed"):
            imported = importlib.import_module(node.module)
            known |= {each.asname or each.name: getattr(imported, each.name, None) for each in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            kind = known.get(node.func.id)
            if isinstance(kind, type) and kind in _ERRORS:
                yield node, kind


@pytest.mark.parametrize("facts", [{}, {"table": "t"}, {"table": "t", "days": 1, "odd": 2}])
def test_missing_and_unknown_keywords_are_refused(facts: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="missing or unknown keywords"):
        _Example(**facts)


def test_template_formats_lists_and_counts() -> None:
    error = _Example(table="t", days=1, names=("a", "b", "c", "d"))
    assert str(error) == "t waits 1 day: a, b, c and 1 more. Run it."
    assert str(_Example(table="t", days=2)) == "t waits 2 days: none. Run it."


class _Example(Terminal):
    code = "MF9999"
    what = "{table} waits {days:count day}: {shown}."
    fix = "Run it."
    names: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        return self._format("{names:few}") if self.names else "none"
