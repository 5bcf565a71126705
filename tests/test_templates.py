"""Every error has complete sentences, and refuses missing and unknown keywords."""

from __future__ import annotations

import pickle
import re
from collections.abc import Collection
from typing import Any

import pytest

from mirrorfeed.errors import Computed, ErrorFunction, TerminalError, choices, problem
from tools import codes
from tools.sample_values import required_keywords, sample_error

_ERRORS = codes.errors()
_WRITTEN_AS_IT_IS = re.compile(r'\{(schema|table|env: NAME|scope, key|scope, key, env|\{secrets/\w+/\w+\}|".*)\}')
"""Braces that are part of a text."""


@pytest.mark.parametrize("kind", _ERRORS, ids=lambda kind: f"{kind.code}-{codes.name_of(kind)}")
def test_every_text_of_an_error_is_a_sentence(kind: codes.Error) -> None:
    error = sample_error(kind)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    for text in (*choices(kind.what), *choices(kind.fix)):
        sentence = error._format(text)
        assert sentence == sentence.strip()
        assert "{" not in _WRITTEN_AS_IT_IS.sub("", sentence)
        assert not sentence or sentence[-1] in ".)…" or text[-1] == "}", sentence
    fields = error.to_dict()
    assert set(fields) == {"code", "what", "next", "facts"}
    assert set(fields["facts"]) == {*required_keywords(kind), *codes.kind_of(kind).optional, *_optional(kind)}


def _optional(kind: codes.Error) -> Collection[str]:
    return kind.function.__kwdefaults__ or () if isinstance(kind, ErrorFunction) else ()


@pytest.mark.parametrize("facts", [{}, {"table": "t"}, {"table": "t", "days": 1, "odd": 2}])
def test_missing_and_unknown_keywords_are_refused(facts: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="missing or unknown keywords"):
        _Example(**facts)


def test_template_formats_lists_and_counts() -> None:
    error = _Example(table="t", days=1, names=("a", "b", "c", "d"))
    assert str(error) == "t waits 1 day: a, b, c and 1 more. Run it."
    assert str(_Example(table="t", days=2)) == "t waits 2 days: none. Run it."


@pytest.mark.parametrize("facts", [{}, {"table": "t"}, {"table": "t", "days": 1, "odd": 2}])
def test_function_refuses_missing_and_unknown_keywords(facts: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="keyword"):
        _waiting(**facts)


def test_function_returns_an_error_of_its_class_with_text_and_facts() -> None:
    error = _waiting(table="t", days=2)
    assert type(error) is TerminalError
    assert _waiting.matches(error)
    assert not _waiting.matches(_Example(table="t", days=2))
    assert str(pickle.loads(pickle.dumps(error))) == str(error) == "t waits 2 days: until now. Run it now and again."
    facts = {"table": "t", "days": 2, "times": 1}
    assert error.to_dict() == {"code": "MF9998", "what": error.problem, "next": error.solution, "facts": facts}


@problem(TerminalError, "MF9998")
def _waiting(*, table: str, days: int, times: int = 1) -> Computed:
    """{table} waits {days:count day}: {shown}.

    Run it now
    and again.
    """
    return {"shown": "until now"}


class _Example(TerminalError):
    code = "MF9999"
    what = "{table} waits {days:count day}: {shown}."
    fix = "Run it."
    table: str
    days: int
    names: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        return self._format("{names:few}") if self.names else "none"
