"""How long calls over the network are repeated, and with which pauses. Pure, and a value that travels with a store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime

WORTH_REPEATING = frozenset({408, 429, 500, 502, 503, 504})
"""The answers that say nothing about the call itself."""


@dataclass(frozen=True, slots=True)
class Patience:
    seconds: float = 120.0
    """No try begins later than this after the first."""
    connections: int = 4
    """Tries to reach a server that never answered: a wrong address should not take two minutes to be told."""
    first_pause: float = 0.5
    longest_pause: float = 30.0
    answer_seconds: float = 60.0
    """How long the server may be silent."""

    def pause(self, tries: int, chance: float) -> float:
        """After so many tries. Between half of what it may be and all of it, so that many do not come back together;
        `chance` is from 0 to 1."""
        most = min(self.longest_pause, self.first_pause * 2.0 ** min(tries - 1, 30))
        return most * (0.5 + chance / 2)


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """The seconds for which the service asks; None if it does not, or not in a form that is known."""
    text = headers.get("Retry-After")
    if not text:
        return None
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(text) - now).total_seconds())
    except (ValueError, TypeError):
        return None
