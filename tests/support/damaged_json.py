"""Damaged documents: valid JSON documents with one typical change by a foreign program, a bug or an editor."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

_PLACE = "\ue000"
_VALUES = (
    *("null", "true", "false", "0", "-1", "1.5", "-0.0", "1e999", "NaN", "-Infinity", "01", "1_0", "", "[]", "{}"),
    *(str(2**63 - 1), str(2**63), str(-(2**64)), "9" * 5_000, f"1.{'3' * 5_000}", "[" * 100_000, "[" * 150 + "]" * 150),
    *('{"a":' * 300 + "1" + "}" * 300, '""', '"x"', '"\\ud800"', '"\\ud83d\\ude00"', '"\\u0000"', '"a\\nb"', '"../x"'),
    *('"2026-01-01T00:00:00"', '"0001-01-01T00:00:00+14:00"', '"9999-12-31T23:59:59-14:00"', '"1700000000"'),
    *('{"type": "struct"}', '"{"', '["x", "x"]', '[["x"]]', '[1, "x"]', '{"a": 1, "a": 2}', "'x'", "/* */ 1"),
)
_ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-32", "latin-1", "cp037")


def damaged(documents: list[bytes]) -> st.SearchStrategy[bytes]:
    """Documents that differ from one of these in one value, one name, their encoding or some bytes."""
    return st.sampled_from(documents).flatmap(_damaged)


def _damaged(document: bytes) -> st.SearchStrategy[bytes]:
    value = json.loads(document)
    places = list(_places(value))
    texts = st.one_of(
        st.builds(_replaced, st.just(value), st.sampled_from(places), st.sampled_from(_VALUES)),
        st.builds(_without, st.just(value), st.sampled_from(places)),
        st.builds(_doubled, st.just(value), st.sampled_from(places)),
        st.builds(_copied, st.just(value), st.sampled_from(places), st.sampled_from(places)),
    )
    encoded = st.builds(lambda text, name: text.encode(name, "replace"), texts, st.just("utf-8"))
    others = st.builds(lambda name: document.decode().encode(name, "replace"), st.sampled_from(_ENCODINGS))
    cuts = st.builds(lambda end: document[:end], st.integers(0, len(document)))
    flips = st.builds(
        lambda at, new: document[:at] + new + document[at + 1 :], st.integers(0, len(document)), st.binary(max_size=3)
    )
    return st.one_of(encoded, encoded, encoded, others, cuts, flips)


def _places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inner:
        yield from _places(each, (*place, name))


def _replaced(value: Any, place: tuple[Any, ...], text: str) -> str:
    return json.dumps(_with(value, place, _PLACE), ensure_ascii=False).replace(f'"{_PLACE}"', text)


def _copied(value: Any, place: tuple[Any, ...], other: tuple[Any, ...]) -> str:
    """Replace a value with the value of another place."""
    found = value
    for name in other:
        found = found[name]
    return _replaced(value, place, json.dumps(found, ensure_ascii=False))


def _with(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    if not place:
        return new
    changed = dict(value) if isinstance(value, dict) else list(value)
    changed[place[0]] = _with(changed[place[0]], place[1:], new)
    return changed


def _without(value: Any, place: tuple[Any, ...]) -> str:
    text = _replaced(value, place, _PLACE)
    for name in (json.dumps(place[-1], ensure_ascii=False) + ": " if place else "", ""):
        for cut in (f", {name}{_PLACE}", f"{name}{_PLACE}, ", f"{name}{_PLACE}"):
            if cut in text:
                return text.replace(cut, "")
    return text


def _doubled(value: Any, place: tuple[Any, ...]) -> str:
    """Duplicate a name, or an entry of a list."""
    found = value
    for name in place:
        found = found[name]
    text = json.dumps(found, ensure_ascii=False)
    name = f"{json.dumps(place[-1])}: " if place and isinstance(place[-1], str) else ""
    return _replaced(value, place, f"{text}, {name}{text}")
