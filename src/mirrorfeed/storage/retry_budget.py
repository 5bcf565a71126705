"""How long and how often calls over the network are retried."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime

RETRYABLE_STATUS = frozenset({408, 429, 500, 502, 503, 504})
"""Status codes that do not depend on the request itself."""


@dataclass(frozen=True, slots=True)
class RetryLimits:
    """Limits of retries. A value that travels with a store."""

    seconds: float = 120.0
    """No attempt starts later than this after the first one."""
    connections: int = 4
    """Attempts to reach a server that never responded, so that a wrong address fails quickly."""
    first_pause: float = 0.5
    longest_pause: float = 30.0
    response_seconds: float = 60.0
    """How long to wait for a response."""
    connect_seconds: float = 10.0
    """How long to wait for a connection. Where a firewall drops packets, each attempt takes this long."""


NO_RETRIES = RetryLimits(seconds=0.0)


class RetryBudget:
    """The remaining attempts of one call. The time starts when it is created."""

    def __init__(
        self,
        limits: RetryLimits,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._limits, self._clock, self._chance = limits, clock, chance
        self._deadline = clock() + limits.seconds
        self._attempts, self._unreached = 0, 0

    def next_pause(self, retry_after: float | None = None, *, reached: bool = True) -> float | None:
        """Seconds to wait after a failed attempt, or None if it was the last one.

        `retry_after` is the time for which the server asks, `reached` is False if no server responded. Pauses double,
        and vary from half to all of their length, so that many clients do not return at the same time.
        """
        self._attempts += 1
        self._unreached += not reached
        longest = min(self._limits.longest_pause, self._limits.first_pause * 2.0 ** min(self._attempts - 1, 30))
        pause = (retry_after or 0.0) + longest * (0.5 + self._chance() / 2)
        if self._clock() + pause > self._deadline or self._unreached >= self._limits.connections:
            return None
        return pause


def retry_after_seconds(headers: Mapping[str, str], now: datetime) -> float | None:
    """The seconds in the header `Retry-After`. None if it is missing or invalid."""
    text = headers.get("Retry-After") or ""
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(text) - now).total_seconds())
    except (ValueError, TypeError):
        return None
