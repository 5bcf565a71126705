"""Calls of Fabric's REST API: authentication, retries, long-running operations and pages."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

import requests
from pydantic import TypeAdapter

from mirrorfeed.display.redact import redact
from mirrorfeed.errors import MirrorfeedError, Transient
from mirrorfeed.landing.strict_json import parse_json
from mirrorfeed.mirror.fabric.errors import FabricUnavailable, OperationFailed, ResponseInvalid
from mirrorfeed.mirror.fabric.responses import FabricItem, Page, answer_in, error_of, validated
from mirrorfeed.runtime.errors import LoginUnavailable
from mirrorfeed.storage.retry_budget import RetryBudget, RetryLimits, retry_after_seconds

T = TypeVar("T")

ENDPOINT = "https://api.fabric.microsoft.com"
AUDIENCE = "https://api.fabric.microsoft.com"
"""Audience of tokens, also at private endpoints."""
POLL_SECONDS = 5.0
_OPERATION_SECONDS = 600.0


@dataclass
class FabricClient:
    """One thread's connection to the API. Calls that change something may be repeated, so callers check the result."""

    token: Callable[[], str]
    endpoint: str = ENDPOINT
    ca_bundle: str | None = None
    retry_limits: RetryLimits = field(default_factory=RetryLimits)
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _session: requests.Session = field(default_factory=requests.Session, init=False, repr=False)

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

    def _finish(self, action: str, item: FabricItem, accepted: requests.Response) -> str:
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
    ) -> requests.Response:
        budget = RetryBudget(self.retry_limits, self.clock)
        while True:
            wait, reached = None, True
            failure: MirrorfeedError
            try:
                response = self._session.request(
                    method,
                    address,
                    params=query,
                    json=body,
                    headers={"Authorization": f"Bearer {self.token()}"},
                    timeout=(self.retry_limits.connect_seconds, self.retry_limits.response_seconds),
                    verify=self.ca_bundle or True,
                    allow_redirects=False,
                )
            except LoginUnavailable as error:
                failure, reached = error, error.reached
            except requests.RequestException as error:  # not chained, because the request in it contains the token
                reached = not isinstance(error, requests.ConnectionError)
                failure = FabricUnavailable(action=action, item=str(item), reason=_reason(error))
            else:
                if response.status_code < 300:
                    return response
                header = response.headers.get("Retry-After", "")
                failure = error_of(action, item, answer_in(response.status_code, header, _content(response)))
                wait = retry_after_seconds(response.headers, datetime.now(UTC))
            pause = budget.next_pause(wait, reached=reached)
            if pause is None or not isinstance(failure, Transient):
                raise failure
            self.sleep(pause)


def _content(response: requests.Response) -> dict[str, Any]:
    """The JSON object of a response, or its list as `value`; empty for anything else."""
    try:
        found = parse_json(response.content)
    except ValueError:
        return {}
    if isinstance(found, list):
        return {"value": found}
    return found if isinstance(found, dict) else {}


def _reason(error: requests.RequestException) -> str:
    """The cause in the first line of an error of the library, without the connection object that it shows."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    cause = re.sub(r"\(<[^>]*>, ", ": ", text.rpartition("(Caused by ")[2])
    return redact(f"{type(error).__name__}: {cause}"[:2000]).rstrip(":. )'").replace(": '", ": ")[:300]
