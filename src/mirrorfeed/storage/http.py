"""HTTP client and retry policy for requests to storage, Fabric and webhooks."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from azure.core.exceptions import AzureError, IncompleteReadError, ServiceRequestError, ServiceResponseError
from azure.core.pipeline import Pipeline
from azure.core.pipeline.policies import BearerTokenCredentialPolicy, HTTPPolicy
from azure.core.pipeline.transport import HttpRequest, HttpResponse, RequestsTransport

from mirrorfeed.errors import first_line
from mirrorfeed.runtime.credentials import Credential
from mirrorfeed.runtime.errors import LoginUnavailableError
from mirrorfeed.runtime.login import token_credential
from mirrorfeed.storage.onelake_errors import is_paused, retry_after_seconds
from mirrorfeed.storage.request_retries import NO_RETRIES, RETRYABLE_STATUS, RetryBudget, RetryLimits

if TYPE_CHECKING:
    from azure.core.credentials import TokenCredential

_log = logging.getLogger(__name__)

API_VERSION = "2023-11-03"
"""Version of the Azure storage API. Versions before 2023-08-03 delete only a part of a large folder."""
_CONNECTION = re.compile(r"^\(?(?:<[^>]*>|\w+\(host=[^)]*\))(?:, '|: )(.*?)(?:'\))?$", re.DOTALL)
"""Matches an error message that starts with the text of a Python object. The group is the cause after this text."""


class RetryPolicy(HTTPPolicy[Any, Any]):
    """Retries a request that fails temporarily, until a limit in `RetryLimits` is reached.

    Never retries a request with `retry_total=0`. Retrying a write is safe: the caller then reads the storage again.
    """

    def __init__(self, limits: RetryLimits) -> None:
        super().__init__()
        self._limits = limits

    def send(self, request: Any) -> Any:
        options = request.context.options  # without arguments that the transport does not accept
        budget = RetryBudget(NO_RETRIES if options.pop("retry_total", None) == 0 else self._limits)
        is_retryable = options.pop("is_retryable", _is_retryable)
        location_mode, *_ = [options.pop(name, None) for name in ("location_mode", "hosts", "retry_to_secondary")]
        while True:
            try:
                response = self.next.send(request)
                if not is_retryable(response.http_response):
                    break
                if not budget.wait(retry_after_seconds(response.http_response.headers, datetime.now(UTC))):
                    break
            except (ServiceRequestError, ServiceResponseError, IncompleteReadError, LoginUnavailableError) as error:
                if not budget.wait(reached=getattr(error, "reached", not isinstance(error, ServiceRequestError))):
                    raise
        response.http_response.location_mode = location_mode  # the storage libraries read this attribute
        return response


def _is_retryable(response: Any) -> bool:
    if response.status_code not in RETRYABLE_STATUS:
        return False
    code = response.headers.get("x-ms-error-code") or ""
    return not is_paused(code, response.body().decode("utf-8", "replace"))  # a person must resume the capacity


class FramedTransport(RequestsTransport):  # type: ignore[misc]  # the library loads it lazily
    """Transport that raises `ServiceResponseError` for an incomplete response.
    Python's HTTP library accepts a response that ends in its headers. Without this class, a folder could seem empty."""

    def send(self, request: Any, **options: Any) -> Any:
        response: Any = super().send(request, **options)
        headers, status = response.headers, response.status_code
        _log.debug("%s %s: %d", request.method, request.url.partition("?")[0], status)
        has_end = "Content-Length" in headers or "Transfer-Encoding" in headers
        has_end = has_end or headers.get("Connection", "").lower() == "close"
        has_no_body = status in (204, 304) or request.method == "HEAD"
        if not (has_end or has_no_body) or (status == 206 and "Content-Range" not in headers):
            raise ServiceResponseError("the response is incomplete")
        return response


def transport_options(ca_bundle: str | None, limits: RetryLimits) -> dict[str, Any]:
    """Return the options of an HTTP transport: certificates and timeouts. Makes two Azure loggers log only errors."""
    for name in ("transport", "policies.http_logging_policy"):
        log = logging.getLogger(f"azure.core.pipeline.{name}")
        if log.level == logging.NOTSET:  # the loggers write all headers, and each download that is then retried
            log.setLevel(logging.ERROR)
    return {
        "connection_verify": ca_bundle or True,
        "connection_timeout": limits.connect_seconds,
        "read_timeout": limits.response_seconds,
    }


def client_options(credential: Credential, ca_bundle: str | None, limits: RetryLimits) -> dict[str, Any]:
    """Return keyword arguments for creating any Azure storage client. Raises the errors of `token_credential`."""
    return {
        "credential": token_credential(credential, ca_bundle),
        "retry_policy": RetryPolicy(limits),
        "transport": FramedTransport(**transport_options(ca_bundle, limits)),
        "api_version": API_VERSION,
        "headers": {"x-ms-version": API_VERSION},  # the library does not pass the policy to renames
    }


class HttpClient:
    """HTTP client for JSON requests. With a `credential`, each request has a token for the service `audience`."""

    def __init__(
        self,
        limits: RetryLimits,
        ca_bundle: str | None = None,
        credential: TokenCredential | None = None,
        audience: str = "",
    ) -> None:
        login = [BearerTokenCredentialPolicy(credential, f"{audience}/.default")] if credential else []
        kind = FramedTransport if credential else RequestsTransport  # any server may receive webhooks
        transport = kind(**transport_options(ca_bundle, limits))
        self._pipeline: Pipeline[Any, Any] = Pipeline(transport, [RetryPolicy(limits), *login])

    def send(
        self,
        method: str,
        address: str,
        body: Any,
        unavailable: Callable[[str], Exception],
        is_retryable: Callable[[HttpResponse], bool] = _is_retryable,
    ) -> HttpResponse:
        """Send a request and return the response, even if its status is an error. A `body` is sent as JSON.

        The request is sent again if `is_retryable` returns True for the response. If there is no response, the method
        passes the reason to `unavailable` and raises the error that `unavailable` returns. Raises
        `CredentialRefusedError` if the login is refused, and `LoginUnavailableError` if the login fails temporarily.
        """
        request = HttpRequest(method, address)
        if body is not None:
            request.set_json_body(body)
        try:
            response: HttpResponse = self._pipeline.run(request, is_retryable=is_retryable).http_response
            return response
        except AzureError as error:  # not chained, because the request in the error contains the token
            failure = unavailable(shorten_reason(error))
        raise failure


def shorten_reason(error: AzureError) -> str:
    """Return the first line of an error message. Removes the description of a Python object at the start of the line.

    An example of a description is `<urllib3.connection.HTTPSConnection object at 0x7f2c>`.
    """
    return first_line(_CONNECTION.sub(r"\1", str(error.message)))
