"""Responses of Fabric's REST API as values and as errors. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter

from mirrorfeed.display.redact import redact
from mirrorfeed.errors import MirrorfeedError
from mirrorfeed.landing.strict_json import validate
from mirrorfeed.mirror.fabric import errors
from mirrorfeed.storage.errors import CapacityPaused
from mirrorfeed.storage.onelake_errors import is_paused
from mirrorfeed.storage.retry import RETRYABLE_STATUS

_NO_WORKSPACE = "WorkspaceNotFound"
_NO_ITEM = ("ItemNotFound", "EntityNotFound", "ArtifactNotFound")
_NAME_TAKEN = "ItemDisplayNameAlreadyInUse"
_SHOWN, _LONGEST_TEXT = 300, 2000
"""Characters of a text in a response that are shown, and that are searched for secrets."""


T = TypeVar("T")


class Response(BaseModel):
    """Part of a response. Unknown fields are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class Page(Response, Generic[T]):
    """One page of a listing. Most listings are in `value`, the status of tables is in `data`."""

    value: tuple[T, ...] | None = None
    data: tuple[T, ...] | None = None
    continuationToken: str | None = None


@dataclass(frozen=True, slots=True)
class FabricItem:
    """A workspace, or a mirrored database in it."""

    workspace: str
    database: str | None = None

    def __str__(self) -> str:
        database = f"the mirrored database {self.database} of " if self.database else ""
        return f"{database}the workspace {self.workspace}"


@dataclass(frozen=True, slots=True)
class Answer:
    """The parts of a response that say why a call failed."""

    status: int
    code: str = ""
    message: str = ""
    retriable: bool = False
    retry_after: str = ""

    def __str__(self) -> str:
        reason = ": ".join(part for part in (self.code, self.message.rstrip(".")) if part)
        return f"{self.status} {reason}".strip()


def validated(model: TypeAdapter[T], body: Any, action: str, item: FabricItem) -> T:
    """The body of a successful response, or `ResponseInvalid`."""
    try:
        return validate(model, body)
    except ValueError as error:
        raise errors.ResponseInvalid(action=action, item=str(item), reason=str(error)) from error


def answer_in(status: int, retry_after: str, body: Any) -> Answer:
    """`body` can be any JSON value, or None if there is none."""
    fields = body if isinstance(body, dict) else {}
    code, message = _one_line(fields.get("errorCode")), _one_line(fields.get("message"))
    return Answer(status, code, message, fields.get("isRetriable") is True, retry_after)


def error_in(error: Any) -> str | None:
    """The text of an error in a response, or None."""
    if isinstance(error, dict):
        error = ": ".join(str(error[name]) for name in ("errorCode", "message") if error.get(name))
    return _one_line(error) or None


def _one_line(text: Any) -> str:
    return redact(" ".join(str(text or "")[:_LONGEST_TEXT].split()))[:_SHOWN]


def time_in(text: Any) -> datetime | None:
    """A time in a response, by default in UTC; None for any other text."""
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def error_of(action: str, item: FabricItem, answer: Answer) -> MirrorfeedError:
    """The error for a response with a status of 300 or more."""
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
