"""How long calls over the network are repeated, and with which pauses: a value that travels with a store."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
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
    connect_seconds: float = 10.0
    """How long a connection may take to come about. Where packets are dropped nobody says that none will: this, times
    the tries, is the time until it is told."""

    def pause(self, tries: int, chance: float) -> float:
        """After so many tries. Between half of what it may be and all of it, so that many do not come back together;
        `chance` is from 0 to 1."""
        most = min(self.longest_pause, self.first_pause * 2.0 ** min(tries - 1, 30))
        return most * (0.5 + chance / 2)


NONE = Patience(seconds=0.0)
"""Of a place where what fails is told at once."""


class Tries:
    """Those of one call. Its time begins when this is made."""

    def __init__(
        self,
        patience: Patience,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._patience, self._clock, self._chance = patience, clock, chance
        self._deadline = clock() + patience.seconds
        self._made, self._unreached = 0, 0

    def pause(self, asked: float | None = None, *, reached: bool = True) -> float | None:
        """For how long to wait after a try that failed; None: it was the last. `asked` is for how long the server
        wants to be left alone; `reached` is False where none was there."""
        self._made += 1
        self._unreached += not reached
        pause = (asked or 0.0) + self._patience.pause(self._made, self._chance())
        if self._clock() + pause > self._deadline or self._unreached >= self._patience.connections:
            return None
        return pause


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
