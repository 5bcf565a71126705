"""How Azure's storage is called: with which version of its API, for how long a silence, and how often.

Calls are repeated until a deadline, as the service asks for it or with growing pauses, and counted.

The storage library's own policies do not repeat a 429 and do not read `Retry-After`.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from azure.core.exceptions import AzureError, IncompleteReadError, ServiceRequestError, ServiceResponseError
from azure.core.pipeline.transport import RequestsTransport
from azure.storage.blob import ExponentialRetry

from mirrorfeed.storage.onelake_errors import is_paused
from mirrorfeed.storage.process_cache import retries
from mirrorfeed.storage.retry_budget import WORTH_REPEATING, Patience, Tries, retry_after

API_VERSION = "2023-11-03"
"""Whatever libraries are installed: every one that is supported knows it. Before 2023-08-03 the libraries do not go on
with the deletion of a large folder."""


def transport(patience: Patience, ca_bundle: str | None) -> RequestsTransport:
    log = logging.getLogger("azure.core.pipeline.transport")
    if log.level == logging.NOTSET:  # it prints "Incomplete download." for each download that is then repeated
        log.setLevel(logging.ERROR)
    return RequestsTransport(
        connection_verify=ca_bundle or True,
        connection_timeout=patience.connect_seconds,
        read_timeout=patience.answer_seconds,
    )


class Retries(ExponentialRetry):
    """In the place of the library's policy. Calls are repeated, for no caller believes an answer alone; one with
    `retry_total=0` is sent once, whatever becomes of it."""

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
        request.http_request.headers["x-ms-version"] = API_VERSION  # for a rename the library forgets what it was told
        once = settings["total"] == 0  # the library's own way to say it, call by call
        tries = Tries(self._patience, self._clock, self._chance)
        while True:
            response, error = None, None
            asked, reached = None, True
            try:
                response = self.next.send(request)
                _expect_whole(response.http_response)
                if not _worth_repeating(response.http_response):
                    break
                asked = retry_after(response.http_response.headers, datetime.now(UTC))
            except (ServiceRequestError, ServiceResponseError, IncompleteReadError) as caught:
                response, error = None, caught
                reached = not isinstance(caught, ServiceRequestError)
            pause = None if once else tries.pause(asked, reached=reached)
            if pause is None:
                break
            retries().add()
            self._pause(pause)
        if response is None:
            raise error or AzureError("no answer")
        response.http_response.location_mode = settings["mode"]
        return response


def _expect_whole(response: Any) -> None:
    """An answer that ends among its headers is taken by Python's library for one without a body. It would say that a
    folder is empty; what tells it is that no header says where its body ends."""
    headers, status = response.headers, response.status_code
    framed = "Content-Length" in headers or "Transfer-Encoding" in headers or _closes(headers)
    bodiless = status in (204, 304) or response.request.method == "HEAD"
    if not (framed or bodiless) or (status == 206 and "Content-Range" not in headers):
        raise ServiceResponseError("the answer ends in its middle")


def _closes(headers: Mapping[str, str]) -> bool:
    """Whether the body ends with the connection."""
    return headers.get("Connection", "").lower() == "close"


def _worth_repeating(response: Any) -> bool:
    if response.status_code not in WORTH_REPEATING:
        return False
    code = response.headers.get("x-ms-error-code") or ""
    return not is_paused(code, response.body().decode("utf-8", "replace"))  # it takes a person to resume a capacity
