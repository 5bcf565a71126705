"""Client for Fabric's REST API: long-running operations, pages, responses and errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar
from urllib.parse import urlencode

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, TypeAdapter

from mirrorfeed.display.redact import redact
from mirrorfeed.errors import MirrorfeedError, Transient
from mirrorfeed.landing.strict_json import parse_json, validate
from mirrorfeed.mirror import errors
from mirrorfeed.storage.onelake_errors import CapacityPaused, is_paused, retry_after_seconds
from mirrorfeed.storage.request_retries import RETRYABLE_STATUS, RetryLimits

if TYPE_CHECKING:
    from azure.core.credentials import TokenCredential
    from azure.core.pipeline.transport import HttpResponse

    from mirrorfeed.storage.http import HttpClient

T = TypeVar("T")
R = TypeVar("R", bound="Response")

ENDPOINT = "https://api.fabric.microsoft.com"
AUDIENCE = "https://api.fabric.microsoft.com"
"""Audience of tokens, also at private endpoints."""
_POLL_SECONDS = 5.0
_OPERATION_SECONDS = 600.0
_NO_WORKSPACE = "WorkspaceNotFound"
_NOT_PUBLIC = "RequestDeniedByInboundPolicy"
_NO_ITEM = ("ItemNotFound", "EntityNotFound", "ArtifactNotFound")
_NAME_TAKEN = "ItemDisplayNameAlreadyInUse"
_SHOWN, _LONGEST_TEXT = 300, 2000
"""Maximum number of characters of a response text to show, and to search for secrets."""


@dataclass
class FabricClient:
    """Connection of one thread to the API. Calls that change something may be repeated, so callers check the result."""

    credential: TokenCredential
    endpoint: str = ENDPOINT
    ca_bundle: str | None = None
    retry_limits: RetryLimits = field(default_factory=RetryLimits)
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def call(self, action: str, item: FabricItem, path: str, body: Any = None) -> None:
        """Send a request that changes something. Waits for a long-running operation. `path` is below the workspace."""
        response = self._send(action, item, "POST", self._address(item, path), body)
        if response.status_code == 202:
            self._finish(action, item, response)

    def read(
        self, action: str, item: FabricItem, path: str, model: type[R], method: str = "POST", body: Any = None
    ) -> R:
        """Return the response, or the result of a long-running operation. Raises `ResponseInvalid`."""
        response = self._send(action, item, method, self._address(item, path), body)
        if response.status_code == 202 and (operation := self._finish(action, item, response)):
            response = self._send(action, item, "GET", f"{self.endpoint}/v1/operations/{operation}/result")
        try:
            return model.of(_content(response))
        except ValueError as error:
            raise errors.ResponseInvalid(action=action, item=str(item), reason=str(error)) from error

    def pages(
        self, action: str, item: FabricItem, path: str, model: type[Page[T]], method: str = "POST"
    ) -> Iterator[T]:
        """Yield all entries of a listing, page by page."""
        query, seen = "", set[str]()
        while True:
            page = self.read(action, item, f"{path}{query}", model, method)
            yield from page.entries or ()
            if not (token := page.continuationToken):
                return
            if token in seen:
                raise errors.ResponseInvalid(action=action, item=str(item), reason="it returns the same page twice")
            seen.add(token)
            query = f"?{urlencode({'continuationToken': token})}"

    def attempts(self, seconds: float) -> Iterator[bool]:
        """Pause between attempts until the time is over. Yields whether the attempt is the last one."""
        deadline, is_last = self.clock() + seconds, False
        while not is_last:
            is_last = self.clock() >= deadline
            yield is_last
            self.sleep(_POLL_SECONDS)

    def _address(self, item: FabricItem, path: str) -> str:
        return f"{self.endpoint}/v1/workspaces/{item.workspace}/{path}"

    def _finish(self, action: str, item: FabricItem, accepted: HttpResponse) -> str:
        """Wait for a long-running operation and return its id, or an empty string if the response has no id.

        The address in the response is not used, because it may be on another host, which must not receive the token.
        """
        location = accepted.headers.get("Location", "")
        operation = accepted.headers.get("x-ms-operation-id") or location.rstrip("/").rpartition("/")[2]
        if not operation:
            return ""
        response, deadline = accepted, self.clock() + _OPERATION_SECONDS
        while self.clock() < deadline:
            self.sleep(retry_after_seconds(response.headers, datetime.now(UTC)) or _POLL_SECONDS)
            response = self._send(action, item, "GET", f"{self.endpoint}/v1/operations/{operation}")
            state = _content(response)
            if state.get("status") == "Succeeded":
                return operation
            if state.get("status") == "Failed":
                error = answer_in(response.status_code, "", state.get("error"))
                raise errors.OperationFailed(action=action, item=str(item), reason=error.message or error.code)
        reason = f"the operation {operation} is not finished after 10 minutes"
        raise errors.FabricUnavailable(action=action, item=str(item), reason=reason)

    def _send(self, action: str, item: FabricItem, method: str, address: str, body: Any = None) -> HttpResponse:
        def failure(response: HttpResponse) -> MirrorfeedError | None:
            if response.status_code < 300:
                return None
            header = response.headers.get("Retry-After", "")
            return error_of(action, item, answer_in(response.status_code, header, _content(response)))

        response = self._http.send(
            method,
            address,
            body,
            lambda reason: errors.FabricUnavailable(action=action, item=str(item), reason=reason),
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
    """Return the JSON object of a response, or its list as `value`. Returns an empty object for anything else."""
    try:
        found = parse_json(response.body())
    except ValueError:
        return {}
    if isinstance(found, list):
        return {"value": found}
    return found if isinstance(found, dict) else {}


class Response(BaseModel):
    """Part of a response. Ignores unknown fields."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    @classmethod
    def of(cls, content: Any) -> Self:
        """Validate a part of a response. Raises `ValueError` with the first invalid field."""
        return validate(TypeAdapter(cls), content)


class Page(Response, Generic[T]):
    """One page of a listing. Most listings are in `value`. The status of tables is in `data`."""

    entries: tuple[T, ...] | None = Field(None, validation_alias=AliasChoices("value", "data"))
    continuationToken: str | None = None


@dataclass(frozen=True, slots=True)
class FabricItem:
    """A workspace, or a mirrored database in it."""

    workspace: str
    database: str | None = None

    @property
    def path(self) -> str:
        """Path of the database below the workspace, or of all databases."""
        return f"mirroredDatabases/{self.database}" if self.database else "mirroredDatabases"

    def __str__(self) -> str:
        database = f"the mirrored database {self.database} of " if self.database else ""
        return f"{database}the workspace {self.workspace}"


@dataclass(frozen=True, slots=True)
class Answer:
    """Parts of a response that explain why a call failed."""

    status: int
    code: str = ""
    message: str = ""
    retriable: bool = False
    retry_after: str = ""

    def __str__(self) -> str:
        reason = ": ".join(part for part in (self.code, self.message.rstrip(".")) if part)
        return f"{self.status} {reason}".strip()


def answer_in(status: int, retry_after: str, body: Any) -> Answer:
    """Return the parts of a response. `body` can be any JSON value, or None if there is none."""
    fields = body if isinstance(body, dict) else {}
    code, message = _one_line(fields.get("errorCode")), _one_line(fields.get("message"))
    return Answer(status, code, message, fields.get("isRetriable") is True, retry_after)


def error_in(error: Any) -> str | None:
    """Return the text of an error in a response, or None."""
    if isinstance(error, dict):
        error = ": ".join(str(error[name]) for name in ("errorCode", "message") if error.get(name))
    return _one_line(error) or None


def _one_line(text: Any) -> str:
    return redact(" ".join(str(text or "")[:_LONGEST_TEXT].split()))[:_SHOWN]


def time_in(text: Any) -> datetime | None:
    """Parse a time in a response, by default in UTC. Returns None for any other text."""
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def error_of(action: str, item: FabricItem, answer: Answer) -> MirrorfeedError:
    """Return the error for a response with a status of 300 or more."""
    if is_paused(answer.code, answer.message):
        return CapacityPaused(address=str(item), response=str(answer))
    wait = f"; retry after {answer.retry_after} s" if answer.retry_after else ""
    facts = {
        "action": action,
        "item": str(item),
        "workspace": item.workspace,
        "database": item.database,
        "response": str(answer),
        "reason": f"{answer}{wait}",
    }
    kind = _kind_of(item, answer)
    return kind(**{name: value for name, value in facts.items() if name in kind.required})


def _kind_of(item: FabricItem, answer: Answer) -> type[MirrorfeedError]:
    match answer:
        case Answer(status=401):
            return errors.TokenRefused
        case Answer(status=403, code=code) if code == _NOT_PUBLIC:
            return errors.PublicNetworkDenied
        case Answer(status=403):
            return errors.NoPermission
        case Answer(status=404, code=code) if code == _NO_WORKSPACE:
            return errors.WorkspaceMissing
        case Answer(status=404, code=code) if code in _NO_ITEM and item.database is not None:
            return errors.DatabaseMissing
        case Answer(status=404, retriable=False):
            return errors.NotFound
        case Answer(code=code) if code == _NAME_TAKEN:
            return errors.NameTaken
    is_transient = answer.retriable or answer.status in RETRYABLE_STATUS
    return errors.FabricUnavailable if is_transient else errors.CallRefused
