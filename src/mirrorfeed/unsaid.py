"""What others answer, before it is told to anybody: an answer may repeat the secret that it was asked with."""

from __future__ import annotations

import html
import re
from urllib.parse import unquote, unquote_plus

_BETWEEN = re.compile(r"[/?&=]")
"""The parts of an address."""
_RUN = re.compile(r"[0-9A-Za-z]{6,}")
_TELLING = 6
"""Characters of a part that may be a secret of its own."""


def unless_repeated(said: str, *secrets: str) -> str:
    """What was said, or `(not shown)` where a secret or a telling part of one is in it, however it is spelled."""
    parts = {part for secret in secrets for part in _BETWEEN.split(secret) if len(part) >= _TELLING}
    hidden = {form for part in parts.union(secrets) for form in _decoded(part)}
    hidden |= {run for form in hidden for run in _RUN.findall(form)}
    heard = {*_decoded(said), html.unescape(said)}
    return "(not shown)" if any(part and part in each for part in hidden for each in heard) else said


def _decoded(text: str) -> set[str]:
    return {text, unquote(text), unquote_plus(text)}
