"""Client for Fabric's REST API: requests, long-running operations, listings in pages, and error responses."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar
from urllib.parse import urlencode

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, TypeAdapter

from mirrorfeed.display.redact import redact
from mirrorfeed.errors import MirrorfeedError, TransientError
from mirrorfeed.landing.strict_json import parse_json, validate
from mirrorfeed.mirror import errors
from mirrorfeed.storage.onelake_errors import capacity_paused, is_paused, retry_after_seconds
from mirrorfeed.storage.request_retries import RETRYABLE_STATUS, RetryLimits

if TYPE_CHECKING:
    from azure.core.credentials import TokenCredential
    from azure.core.pipeline.transport import HttpResponse

    from mirrorfeed.storage.http import HttpClient

T = TypeVar("T")
R = TypeVar("R", bound="Response")

ENDPOINT = "https://api.fabric.microsoft.com"
AUDIENCE = "https://api.fabric.microsoft.com"
"""Audience of access tokens, also for private endpoints."""
_POLL_SECONDS = 5.0
_OPERATION_SECONDS = 600.0
_MAX_SHOWN, _MAX_SEARCHED = 300, 2000
"""An error text is cut to `_MAX_SEARCHED` characters, then secrets are removed, then it is cut to `_MAX_SHOWN`."""


@dataclass
class FabricClient:
    """Client of Fabric's REST API, for one thread. Retries all requests, so Fabric may receive a request twice.

    `item` has the ids of a workspace and of a database in it. In all methods, `path` is relative to this workspace.
    `action` describes the request in errors, such as "read the status". A failed request raises an error such as
    `fabric_permission_missing`, or `fabric_unavailable` if Fabric does not respond.
    """

    item: FabricItem
    credential: TokenCredential
    endpoint: str = ENDPOINT
    ca_bundle: str | None = None
    retry_limits: RetryLimits = field(default_factory=RetryLimits)
    audience: str = AUDIENCE

    def call(self, action: str, path: str, body: Any = None) -> None:
        """Send a POST request, and wait for its long-running operation if Fabric starts one.

        Raises `fabric_request_failed` if the operation fails, and `fabric_unavailable` if it takes more than 10
        minutes.
        """
        response = self._send(action, "POST", self._address(path), body)
        if response.status_code == 202:
            self._wait_for_operation(action, response)

    def read(self, action: str, path: str, model: type[R], method: str = "POST", body: Any = None) -> R:
        """Send a request and return its response, or the result of its long-running operation, as a `model`.

        Raises `fabric_response_invalid` if the response does not match `model`, and the errors of `call`.
        """
        response = self._send(action, method, self._address(path), body)
        if response.status_code == 202 and (operation := self._wait_for_operation(action, response)):
            response = self._send(action, "GET", f"{self.endpoint}/v1/operations/{operation}/result")
        return self._parse(action, response, model)

    def query(self, action: str, path: str, model: type[R], body: Any) -> R:
        """Send a query to a service at `endpoint`, and return its response as a `model`. `path` is complete here.

        Raises `fabric_response_invalid` if the response does not match `model`, and the errors of `call`.
        """
        return self._parse(action, self._send(action, "POST", f"{self.endpoint}{path}", body), model)

    def _parse(self, action: str, response: HttpResponse, model: type[R]) -> R:
        try:
            return model.of(_content(response))
        except ValueError as error:
            raise errors.fabric_response_invalid(action=action, item=str(self.item), reason=str(error)) from error

    def pages(self, action: str, path: str, model: type[Page[T]], method: str = "POST") -> Iterator[T]:
        """Yield the entries of all pages of a listing.
        Raises `fabric_response_invalid` if Fabric returns a page twice."""
        query, seen = "", set[str]()
        while True:
            page = self.read(action, f"{path}{query}", model, method)
            yield from page.entries or ()
            if not (token := page.continuationToken):
                return
            if token in seen:
                raise errors.fabric_response_invalid(
                    action=action, item=str(self.item), reason="it returns the same page twice"
                )
            seen.add(token)
            query = f"?{urlencode({'continuationToken': token})}"

    def attempts(self, seconds: float) -> Iterator[None]:
        """Yield once for each attempt, with pauses in between, until `seconds` have passed. Then yield once more."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            yield
            time.sleep(_POLL_SECONDS)
        yield

    def _address(self, path: str) -> str:
        return f"{self.endpoint}/v1/workspaces/{self.item.workspace}/{path}"

    def _wait_for_operation(self, action: str, accepted: HttpResponse) -> str:
        """Wait for the operation that `accepted` started. Return its id, or an empty string if `accepted` has no id.

        Never calls the host in the header Location of `accepted`, because another host must not receive the token.
        """
        location = accepted.headers.get("Location", "")
        operation = accepted.headers.get("x-ms-operation-id") or location.rstrip("/").rpartition("/")[2]
        if not operation:
            return ""
        response, deadline = accepted, time.monotonic() + _OPERATION_SECONDS
        while time.monotonic() < deadline:
            time.sleep(retry_after_seconds(response.headers, datetime.now(UTC)) or _POLL_SECONDS)
            response = self._send(action, "GET", f"{self.endpoint}/v1/operations/{operation}")
            state = _content(response)
            if state.get("status") == "Succeeded":
                return operation
            if state.get("status") == "Failed":
                reason = error_text(state.get("error")) or "Fabric gives no reason"
                raise errors.fabric_request_failed(action=action, item=str(self.item), response=reason)
        reason = f"the operation {operation} is not finished after 10 minutes"
        raise errors.fabric_unavailable(action=action, item=str(self.item), reason=reason)

    def _send(self, action: str, method: str, address: str, body: Any = None) -> HttpResponse:
        def failure(response: HttpResponse) -> MirrorfeedError | None:
            if response.status_code < 300:
                return None
            seconds = retry_after_seconds(response.headers, datetime.now(UTC)) or 0.0
            return error_for(action, self.item, parse_error(response.status_code, seconds, _content(response)))

        response = self._http.send(
            method,
            address,
            body,
            lambda reason: errors.fabric_unavailable(action=action, item=str(self.item), reason=reason),
            lambda response: isinstance(failure(response), TransientError),
        )
        if error := failure(response):
            raise error
        return response

    @cached_property
    def _http(self) -> HttpClient:
        from mirrorfeed.storage.http import HttpClient  # imported late: most commands do not need Azure's libraries

        return HttpClient(self.retry_limits, self.ca_bundle, self.credential, self.audience)


def _content(response: HttpResponse) -> dict[str, Any]:
    """Return the JSON object in a response. A list is returned as `{"value": list}`, and any other content as `{}`."""
    try:
        content = parse_json(response.body())
    except ValueError:
        return {}
    if isinstance(content, list):
        return {"value": content}
    return content if isinstance(content, dict) else {}


class Response(BaseModel):
    """Base class of models that validate a JSON object in a response. Ignores unknown properties."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    @classmethod
    def of(cls, content: Any) -> Self:
        """Return an instance with the values of `content`. Raises `ValueError` if a property is invalid."""
        return validate(TypeAdapter(cls), content)


class Page(Response, Generic[T]):
    """One page of a listing. Fabric returns the entries as `value`, or as `data` for the status of tables."""

    entries: tuple[T, ...] | None = Field(None, validation_alias=AliasChoices("value", "data"))
    continuationToken: str | None = None


@dataclass(frozen=True, slots=True)
class FabricItem:
    """Ids of a workspace and of a mirrored database in it. `database` is None for the workspace itself."""

    workspace: str
    database: str | None = None

    @property
    def path(self) -> str:
        """Path of the database in the REST API of the workspace. If `database` is None, the path of all databases."""
        return f"mirroredDatabases/{self.database}" if self.database else "mirroredDatabases"

    def __str__(self) -> str:
        database = f"the mirrored database {self.database} of " if self.database else ""
        return f"{database}the workspace {self.workspace}"


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    status: int
    code: str = ""
    message: str = ""
    retriable: bool = False
    retry_after: float = 0.0
    """Seconds after which Fabric asks to send the request again, or 0."""

    def __str__(self) -> str:
        reason = ": ".join(part for part in (self.code, self.message.rstrip(".")) if part)
        return f"{self.status} {reason}".strip()


def parse_error(status: int, retry_after: float, body: Any) -> ErrorResponse:
    """Return the error response with this status, `retry_after` and JSON body. Removes secrets from its texts."""
    fields = body if isinstance(body, dict) else {}
    code, message = _one_line(fields.get("errorCode")), _one_line(fields.get("message"))
    return ErrorResponse(status, code, message, fields.get("isRetriable") is True, retry_after)


def error_text(error: Any) -> str | None:
    """Return the error in a JSON value as one line of text without secrets, or None if there is no error."""
    if isinstance(error, dict):
        error = ": ".join(str(error[name]) for name in ("errorCode", "message") if error.get(name))
    return _one_line(error) or None


def _one_line(text: Any) -> str:
    return redact(" ".join(str(text or "")[:_MAX_SEARCHED].split()))[:_MAX_SHOWN]


def parse_time(text: Any) -> datetime | None:
    """Return the time in an ISO 8601 text, in UTC if the text has no time zone. Returns None for any other value."""
    try:
        parsed = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def error_for(action: str, item: FabricItem, response: ErrorResponse) -> MirrorfeedError:
    """Return the error that reports a failed response. `action` and `item` are parts of its text."""
    name, text = str(item), str(response)
    if is_paused(response.code, response.message):
        return capacity_paused(address=name, response=text)
    match response:
        case ErrorResponse(status=401):
            return errors.fabric_token_refused(item=name, response=text)
        case ErrorResponse(status=403, code="RequestDeniedByInboundPolicy"):
            return errors.public_network_denied(item=name, response=text)
        case ErrorResponse(status=403):
            return errors.fabric_permission_missing(action=action, item=name, response=text)
        case ErrorResponse(status=404, code="WorkspaceNotFound"):
            return errors.fabric_workspace_missing(workspace=item.workspace, response=text)
        case ErrorResponse(status=404, code="ItemNotFound" | "EntityNotFound" | "ArtifactNotFound") if item.database:
            return errors.mirrored_database_missing(workspace=item.workspace, database=item.database, response=text)
        case ErrorResponse(status=404, retriable=False):
            return errors.fabric_object_missing(action=action, item=name, response=text)
        case ErrorResponse(code="ItemDisplayNameAlreadyInUse"):
            return errors.DatabaseNameTakenError(item=name, response=text)
    if response.retriable or response.status in RETRYABLE_STATUS:
        wait = f"; retry after {ceil(response.retry_after)} s" if response.retry_after else ""
        return errors.fabric_unavailable(action=action, item=name, reason=f"{text}{wait}")
    return errors.fabric_request_failed(action=action, item=name, response=text)
