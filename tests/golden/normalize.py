"""Replaces values that differ between runs. In tables, the new values have the same width."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

ROOT = "/home/ada/golden/project"
"""Replaces the folder in which the commands run."""
_TIME = "2026-01-01T00:00:00.000000"


def _same_width(pattern: str) -> Callable[[re.Match[str]], str]:
    """Replace the digits with `pattern`, shortened to the same width."""

    def replace(found: re.Match[str]) -> str:
        return "".join(new if old.isdigit() else old for old, new in zip(found[0], pattern, strict=False))

    return replace


def _zeros(found: re.Match[str]) -> str:
    return re.sub(r"[0-9a-f]", "0", found[0])


_RULES: dict[str, tuple[str, str | Callable[[re.Match[str]], str]]] = {
    "identifier": (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b[0-9a-f]{32}(?![0-9a-f])", _zeros),
    "fraction of a second in a table": (r"(?<=\d\d:\d\d:\d\d)\.\d{3}(?=Z │)", ".000"),
    "fraction of a second": (r"(?<=\d\d:\d\d:\d\d)\.\d{3,6}(?!\d|Z │)", ""),
    "date or time": (r"\b20\d\d-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?)?", _same_width(_TIME)),
    "age": (r"\b\d (s|min) ago", r"0 \1 ago"),
    "duration of a run": (r"(?<=The run took )\d+(\.\d)? \w+(, of which Spark took \d+ s to start)?", "0 s"),
    "time and age on two lines of a cell": (r"\b\d\d:\d\d \(\d(?= +│)", "00:00 (0"),
    "bytes": (r"\b[\d,]+ bytes", "1,024 bytes"),
    "recorded bytes": (r"(?<=the record says )[\d,]+", "1,024"),
    "build": (r"\b\d+\.\d+\.\d+\+[\w.]+", "0.0.0"),
    "name of a test": (r"\btests/[\w/]+\.py::\w+", "tests/test_module.py::test_name"),
    "port": (r"(?<=localhost:)\d+", "8443"),
}


def normalize_text(text: str) -> str:
    for pattern, new in _RULES.values():
        text = re.sub(pattern, new, text, flags=re.MULTILINE)
    return "\n".join(line.rstrip() for line in text.splitlines())


_NUMBERS: dict[str, float] = {
    r"lag_seconds$": 1.0,
    r"seconds$|_minutes$|_behind$": 0.0,
    r"bytes|\bsize$": 1024,
    r"share$": 0.5,
}
"""Replacements by the end of the JSON path. A number that is 0 is not replaced."""


def normalize_json(value: Any, path: str = "") -> Any:
    if isinstance(value, dict):
        return {key: normalize_json(each, f"{path}.{key}") for key, each in value.items()}
    if isinstance(value, list):
        return [normalize_json(each, path) for each in value]
    if isinstance(value, int | float) and not isinstance(value, bool) and value:
        return next((new for end, new in _NUMBERS.items() if re.search(end, path)), value)
    return value
