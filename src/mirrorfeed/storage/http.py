"""Retries, timeouts and API version of the Azure storage clients.

The policies of the client library do not retry status 429 and ignore `Retry-After`.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from azure.core.exceptions import AzureError, IncompleteReadError, ServiceRequestError, ServiceResponseError
from azure.core.pipeline.transport import RequestsTransport
from azure.storage.blob import ExponentialRetry

from mirrorfeed.runtime.credentials import Credential, token_credential
from mirrorfeed.storage.onelake_errors import is_paused
from mirrorfeed.storage.process_cache import retry_counter
from mirrorfeed.storage.retry_budget import RETRYABLE_STATUS, RetryBudget, RetryLimits, retry_after_seconds

API_VERSION = "2023-11-03"
"""All supported libraries know it. With versions before 2023-08-03 they delete only a part of a large folder."""


def client_options(credential: Credential, ca_bundle: str | None, limits: RetryLimits) -> dict[str, Any]:
    """Options of every Azure storage client."""
    return {
        "credential": token_credential(credential, ca_bundle),
        "retry_policy": AzureRetryPolicy(limits),
        "transport": transport(ca_bundle, limits),
        "api_version": API_VERSION,
    }


def transport(ca_bundle: str | None, limits: RetryLimits) -> RequestsTransport:
    log = logging.getLogger("azure.core.pipeline.transport")
    if log.level == logging.NOTSET:  # it logs "Incomplete download." for each download that is then retried
        log.setLevel(logging.ERROR)
    return RequestsTransport(
        connection_verify=ca_bundle or True,
        connection_timeout=limits.connect_seconds,
        read_timeout=limits.response_seconds,
    )


class AzureRetryPolicy(ExponentialRetry):
    """Replaces the retry policy of the library. A call with `retry_total=0` is sent exactly once.

    All other calls can be repeated, because every caller checks the state after a write.
    """

    def __init__(
        self,
        limits: RetryLimits,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        super().__init__()
        self._limits, self._clock, self._pause, self._chance = limits, clock, sleep, chance

    def send(self, request: Any) -> Any:
        settings = self.configure_retries(request)  # also removes its options, which the transport does not accept
        request.http_request.headers["x-ms-version"] = API_VERSION  # the library forgets it for renames
        budget = RetryBudget(self._limits, self._clock, self._chance)
        while True:
            response, error, retry_after, reached = None, None, None, True
            try:
                response = self.next.send(request)
                _check_complete(response.http_response)
                if not _is_retryable(response.http_response):
                    break
                retry_after = retry_after_seconds(response.http_response.headers, datetime.now(UTC))
            except (ServiceRequestError, ServiceResponseError, IncompleteReadError) as caught:
                response, error = None, caught
                reached = not isinstance(caught, ServiceRequestError)
            pause = None if settings["total"] == 0 else budget.next_pause(retry_after, reached=reached)
            if pause is None:
                break
            retry_counter().add()
            self._pause(pause)
        if response is None:
            raise error or AzureError("no answer")
        response.http_response.location_mode = settings["mode"]
        return response


def _check_complete(response: Any) -> None:
    """Raise an error for a response that ends among its headers.

    Python's HTTP library takes it for a response without a body, so a folder would seem empty.
    """
    headers, status = response.headers, response.status_code
    has_end = "Content-Length" in headers or "Transfer-Encoding" in headers
    has_end = has_end or headers.get("Connection", "").lower() == "close"
    has_no_body = status in (204, 304) or response.request.method == "HEAD"
    if not (has_end or has_no_body) or (status == 206 and "Content-Range" not in headers):
        raise ServiceResponseError("the response is incomplete")


def _is_retryable(response: Any) -> bool:
    if response.status_code not in RETRYABLE_STATUS:
        return False
    code = response.headers.get("x-ms-error-code") or ""
    return not is_paused(code, response.body().decode("utf-8", "replace"))  # a person must resume the capacity
