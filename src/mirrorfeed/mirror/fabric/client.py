"""Calls of Fabric's REST API: authentication, retries, long-running operations and pages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode

from pydantic import TypeAdapter

from mirrorfeed.errors import MirrorfeedError, Transient
from mirrorfeed.landing.strict_json import parse_json
from mirrorfeed.mirror.fabric.errors import FabricUnavailable, OperationFailed, ResponseInvalid
from mirrorfeed.mirror.fabric.responses import FabricItem, Page, answer_in, error_of, validated
from mirrorfeed.storage.retry import RetryLimits, retry_after_seconds

if TYPE_CHECKING:
    from azure.core.credentials import TokenCredential
    from azure.core.pipeline.transport import HttpResponse

    from mirrorfeed.storage.http import HttpClient

T = TypeVar("T")

ENDPOINT = "https://api.fabric.microsoft.com"
AUDIENCE = "https://api.fabric.microsoft.com"
"""Audience of tokens, also at private endpoints."""
POLL_SECONDS = 5.0
_OPERATION_SECONDS = 600.0


@dataclass
class FabricClient:
    """One thread's connection to the API. Calls that change something may be repeated, so callers check the result."""

    credential: TokenCredential
    endpoint: str = ENDPOINT
    ca_bundle: str | None = None
    retry_limits: RetryLimits = field(default_factory=RetryLimits)
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def get(self, action: str, item: FabricItem, path: str = "", **query: str) -> dict[str, Any]:
        return _content(self._send(action, item, "GET", self._address(item, path), query=query))

    def post(self, action: str, item: FabricItem, path: str = "", body: Any = None, **query: str) -> dict[str, Any]:
        """The content of the response; empty if the call was a long-running operation, which has then finished."""
        response = self._send(action, item, "POST", self._address(item, path), body, query)
        if response.status_code == 202:
            self._finish(action, item, response)
            return {}
        return _content(response)

    def result(self, action: str, item: FabricItem, path: str, body: Any = None) -> dict[str, Any]:
        """The result of a POST to an item of the workspace, also if it is a long-running operation."""
        address = f"{self.endpoint}/v1/workspaces/{item.workspace}/{path}"
        response = self._send(action, item, "POST", address, body)
        if response.status_code == 202 and (operation := self._finish(action, item, response)):
            response = self._send(action, item, "GET", f"{self.endpoint}/v1/operations/{operation}/result")
        return _content(response)

    def pages(
        self, send: Callable[..., dict[str, Any]], action: str, item: FabricItem, path: str, model: TypeAdapter[Page[T]]
    ) -> Iterator[T]:
        """All entries of a listing, page by page."""
        query: dict[str, str] = {}
        seen: set[str] = set()
        while True:
            page = validated(model, send(action, item, path, **query), action, item)
            yield from page.value or page.data or ()
            if not (token := page.continuationToken):
                return
            if token in seen:
                raise ResponseInvalid(action=action, item=str(item), reason="it returns the same page twice")
            seen.add(token)
            query = {"continuationToken": token}

    def _address(self, item: FabricItem, path: str) -> str:
        parts = [self.endpoint, "v1", "workspaces", item.workspace, "mirroredDatabases", item.database, path]
        return "/".join(part for part in parts if part)

    def _finish(self, action: str, item: FabricItem, accepted: HttpResponse) -> str:
        """Wait for a long-running operation and return its id; empty if the response has none.

        The address in the response is not used, because it may be on another host, which must not get the token.
        """
        location = accepted.headers.get("Location", "")
        operation = accepted.headers.get("x-ms-operation-id") or location.rstrip("/").rpartition("/")[2]
        if not operation:
            return ""
        response, deadline = accepted, self.clock() + _OPERATION_SECONDS
        while self.clock() < deadline:
            self.sleep(retry_after_seconds(response.headers, datetime.now(UTC)) or POLL_SECONDS)
            response = self._send(action, item, "GET", f"{self.endpoint}/v1/operations/{operation}")
            state = _content(response)
            if state.get("status") == "Succeeded":
                return operation
            if state.get("status") == "Failed":
                error = answer_in(response.status_code, "", state.get("error"))
                raise OperationFailed(action=action, item=str(item), reason=error.message or error.code)
        reason = f"the operation {operation} is not finished after 10 minutes"
        raise FabricUnavailable(action=action, item=str(item), reason=reason)

    def _send(
        self, action: str, item: FabricItem, method: str, address: str, body: Any = None, query: Any = None
    ) -> HttpResponse:
        def failure(response: HttpResponse) -> MirrorfeedError | None:
            if response.status_code < 300:
                return None
            header = response.headers.get("Retry-After", "")
            return error_of(action, item, answer_in(response.status_code, header, _content(response)))

        response = self._http.send(
            method,
            f"{address}?{urlencode(query)}" if query else address,
            body,
            lambda reason: FabricUnavailable(action=action, item=str(item), reason=reason),
            lambda response: isinstance(failure(response), Transient),
        )
        if error := failure(response):
            raise error
        return response

    @cached_property
    def _http(self) -> HttpClient:
        from mirrorfeed.storage.http import HttpClient  # Azure's libraries, which most commands do not need

        return HttpClient(self.retry_limits, self.ca_bundle, self.credential, AUDIENCE, self.clock, self.sleep)


def _content(response: HttpResponse) -> dict[str, Any]:
    """The JSON object of a response, or its list as `value`; empty for anything else."""
    try:
        found = parse_json(response.body())
    except ValueError:
        return {}
    if isinstance(found, list):
        return {"value": found}
    return found if isinstance(found, dict) else {}
