"""What others answer, before it is told to anybody: an answer may repeat the secret that it was asked with."""

from __future__ import annotations

import html
import re
from urllib.parse import unquote_plus

_TELLING = re.compile(r"[0-9A-Za-z]{6,}")


def unless_repeated(said: str, *secrets: str) -> str:
    """What was said, or `(not shown)` where a secret or a telling part of one is in it, however it is spelled."""
    hidden = {form for secret in secrets if secret for form in (secret, unquote_plus(secret))}
    hidden |= {part for form in hidden for part in _TELLING.findall(form)}
    heard = (said, unquote_plus(said), html.unescape(said))
    return "(not shown)" if any(part in each for part in hidden for each in heard) else said
