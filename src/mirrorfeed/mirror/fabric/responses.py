"""What the answers of Fabric's REST API mean, in words and next steps. Pure: an answer in, an error out."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter

from mirrorfeed.display.redact import redact
from mirrorfeed.errors import MirrorfeedError, Terminal
from mirrorfeed.landing.strict_json import validate
from mirrorfeed.mirror.fabric.errors import (
    CallRefused,
    DatabaseMissing,
    FabricUnavailable,
    NameTaken,
    NoPermission,
    NotFound,
    TokenRefused,
    WorkspaceMissing,
)
from mirrorfeed.storage.errors import CapacityPaused
from mirrorfeed.storage.onelake_errors import is_paused
from mirrorfeed.storage.retry_budget import WORTH_REPEATING

_NO_WORKSPACE = {"WorkspaceNotFound"}
_NO_ITEM = {"ItemNotFound", "EntityNotFound", "ArtifactNotFound"}
_NAME_TAKEN = "ItemDisplayNameAlreadyInUse"
_SHOWN, _LONGEST_TEXT = 300, 2000
"""Characters of a text in a response that are shown, and that are searched for secrets."""


T = TypeVar("T")


class Response(BaseModel):
    """Part of a response. Fields that nothing here reads are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class Page(Response, Generic[T]):
    """One page of a listing. Most list their entries under `value`, the status of tables under `data`."""

    value: tuple[T, ...] | None = None
    data: tuple[T, ...] | None = None
    continuationToken: str | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """What a call is about."""

    workspace: str
    database: str | None = None

    def __str__(self) -> str:
        database = f"the mirrored database {self.database} of " if self.database else ""
        return f"{database}the workspace {self.workspace}"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    code: str = ""
    message: str = ""
    retriable: bool = False
    retry_after: str = ""

    def __str__(self) -> str:
        said = ": ".join(part for part in (self.code, self.message.rstrip(".")) if part)
        return f"{self.status} {said}".strip()


def validated(model: TypeAdapter[T], body: Any, action: str, place: Place) -> T:
    """The body of a successful response, or `ResponseInvalid`."""
    try:
        return validate(model, body)
    except ValueError as error:
        raise ResponseInvalid(action=action, place=str(place), reason=str(error)) from error


def answer_in(status: int, retry_after: str, body: Any) -> Answer:
    """From the status, the header and the body of an answer, whatever the body is."""
    spelled = body if isinstance(body, dict) else {}
    return Answer(
        status,
        _one_line(spelled.get("errorCode")),
        _one_line(spelled.get("message")),
        spelled.get("isRetriable") is True,
        retry_after,
    )


def error_in(error: Any) -> str | None:
    """The text of an error in a response, or None."""
    if isinstance(error, dict):
        error = ": ".join(str(error[name]) for name in ("errorCode", "message") if error.get(name))
    return _one_line(error) or None


def _one_line(text: Any) -> str:
    return redact(" ".join(str(text or "")[:_LONGEST_TEXT].split()))[:_SHOWN]


def moment(text: Any) -> datetime | None:
    """A time as the service spells it; None for anything else. Those without a zone are in UTC."""
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def meaning(action: str, place: Place, answer: Answer) -> MirrorfeedError:
    """The error that an answer stands for."""
    status, code = answer.status, answer.code
    if is_paused(code, answer.message):
        return CapacityPaused(address=str(place), response=str(answer))
    if status == 401:
        return TokenRefused(place=str(place), said=str(answer))
    if status == 403:
        return NoPermission(action=action, place=str(place), said=str(answer))
    if status == 404 and code in _NO_WORKSPACE:
        return WorkspaceMissing(workspace=place.workspace, said=str(answer))
    if status == 404 and code in _NO_ITEM and place.database is not None:
        return DatabaseMissing(workspace=place.workspace, database=place.database, said=str(answer))
    if status == 404 and not answer.retriable:
        return NotFound(action=action, place=str(place), said=str(answer))
    if code == _NAME_TAKEN:
        return NameTaken(place=str(place), said=str(answer))
    if answer.retriable or status in WORTH_REPEATING:
        wait = f"; it asks to be left alone for {answer.retry_after} s" if answer.retry_after else ""
        return FabricUnavailable(action=action, place=str(place), reason=f"{answer}{wait}")
    return CallRefused(action=action, place=str(place), said=str(answer))


class ResponseInvalid(Terminal):
    code = "MF4220"
    what = "Fabric's response to the request to {action} ({place}) is not as documented: {reason}."
    fix = "Run the same command again. If it repeats, check whether a proxy on the way to Fabric changes responses."
