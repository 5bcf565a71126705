"""Calls to OneLake are repeated until a deadline, as the service asks for it or with growing pauses, and counted.

The storage library's own policies do not repeat a 429 and do not read `Retry-After`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from azure.core.exceptions import AzureError, ServiceRequestError, ServiceResponseError
from azure.storage.blob import ExponentialRetry

from mirrorfeed.stores.answers import is_paused
from mirrorfeed.stores.process import retries

_WORTH_REPEATING = frozenset({408, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a call is repeated; a value, so that it travels with the store."""

    seconds: float = 120.0
    """No try begins later than this after the first."""
    connections: int = 4
    """Tries to reach a server that never answered: a wrong address should not take two minutes to be told."""
    first_pause: float = 0.5
    longest_pause: float = 30.0
    answer_seconds: float = 60.0
    """How long the server may be silent."""


class Retries(ExponentialRetry):
    """In the place of the library's policy. Every call may be repeated, for no caller believes an answer alone."""

    def __init__(
        self,
        patience: Patience,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        super().__init__()
        self._patience, self._clock, self._pause, self._chance = patience, clock, sleep, chance

    def send(self, request: Any) -> Any:
        settings = self.configure_retries(request)  # takes its options out of the request, which the transport refuses
        deadline = self._clock() + self._patience.seconds
        tries, unreached = 0, 0
        while True:
            tries += 1
            response, error = None, None
            asked = None
            try:
                response = self.next.send(request)
                if not _worth_repeating(response.http_response):
                    break
                asked = retry_after(response.http_response.headers, datetime.now(UTC))
            except (ServiceRequestError, ServiceResponseError) as caught:
                error = caught
                unreached += isinstance(caught, ServiceRequestError)
            pause = (asked or 0.0) + self._growing(tries)
            if self._clock() + pause > deadline or unreached >= self._patience.connections:
                break
            retries().add()
            self._pause(pause)
        if response is None:
            raise error or AzureError("no answer")
        response.http_response.location_mode = settings["mode"]
        return response

    def _growing(self, tries: int) -> float:
        """Between half of it and all of it, so that many executors do not come back together."""
        most = min(self._patience.longest_pause, self._patience.first_pause * 2.0 ** min(tries - 1, 30))
        return most * (0.5 + self._chance() / 2)


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


def _worth_repeating(response: Any) -> bool:
    if response.status_code not in _WORTH_REPEATING:
        return False
    code = response.headers.get("x-ms-error-code") or ""
    return not is_paused(code, response.body().decode("utf-8", "replace"))  # it takes a person to resume a capacity
