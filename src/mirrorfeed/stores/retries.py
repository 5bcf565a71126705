"""Calls to OneLake are repeated until a deadline, as the service asks for it or with growing pauses, and counted.

The storage library's own policies do not repeat a 429 and do not read `Retry-After`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from azure.core.exceptions import AzureError, ServiceRequestError, ServiceResponseError
from azure.storage.blob import ExponentialRetry

from mirrorfeed.stores.answers import is_paused
from mirrorfeed.stores.patience import WORTH_REPEATING, Patience, retry_after
from mirrorfeed.stores.process import retries


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
            pause = (asked or 0.0) + self._patience.pause(tries, self._chance())
            if self._clock() + pause > deadline or unreached >= self._patience.connections:
                break
            retries().add()
            self._pause(pause)
        if response is None:
            raise error or AzureError("no answer")
        response.http_response.location_mode = settings["mode"]
        return response


def _worth_repeating(response: Any) -> bool:
    if response.status_code not in WORTH_REPEATING:
        return False
    code = response.headers.get("x-ms-error-code") or ""
    return not is_paused(code, response.body().decode("utf-8", "replace"))  # it takes a person to resume a capacity
