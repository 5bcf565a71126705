"""What the answers of Fabric's REST API mean, in words and next steps. Pure: an answer in, an error out."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter

from mirrorfeed.display.redact import redact
from mirrorfeed.errors import MirrorfeedError, Terminal, Transient
from mirrorfeed.landing.strict_json import validate
from mirrorfeed.stores.answers import CapacityPaused, is_paused
from mirrorfeed.stores.patience import WORTH_REPEATING

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
        return CapacityPaused(str(place), str(answer))
    if status == 401:
        return TokenRefused(str(place), str(answer))
    if status == 403:
        return NoPermission(action, str(place), str(answer))
    if status == 404 and code in _NO_WORKSPACE:
        return WorkspaceMissing(place.workspace, str(answer))
    if status == 404 and code in _NO_ITEM and place.database is not None:
        return DatabaseMissing(place.workspace, place.database, str(answer))
    if status == 404 and not answer.retriable:
        return NotFound(action, str(place), str(answer))
    if code == _NAME_TAKEN:
        return NameTaken(str(place), str(answer))
    if answer.retriable or status in WORTH_REPEATING:
        wait = f"; it asks to be left alone for {answer.retry_after} s" if answer.retry_after else ""
        return FabricUnavailable(action, str(place), f"{answer}{wait}")
    return CallRefused(action, str(place), str(answer))


class ResponseInvalid(Terminal):
    code = "MF4220"
    what = "Fabric's response to the request to {action} ({place}) is not as documented: {reason}."
    fix = "Run the same command again. If it repeats, check whether a proxy on the way to Fabric changes responses."


class TokenRefused(Terminal):
    """Fabric does not accept who the configuration says you are."""

    code = "MF4201"

    def __init__(self, place: str, said: str) -> None:
        self.place, self.said = place, said

    def what(self) -> str:
        return f"Fabric does not accept the token for {self.place} ({self.said})."

    def next(self) -> str:
        return (
            "Check that `credential` names an identity of the tenant to which the workspace belongs, and that its"
            " tokens are for https://api.fabric.microsoft.com: one for Azure Storage is not accepted here."
        )


class NoPermission(Terminal):
    """Fabric knows who you are, and does not allow that."""

    code = "MF4202"

    def __init__(self, action: str, place: str, said: str) -> None:
        self.action, self.place, self.said = action, place, said

    def what(self) -> str:
        return f"Fabric does not allow this identity to {self.action} ({self.place}: {self.said})."

    def next(self) -> str:
        return (
            "Give it the role Contributor in the workspace. For a service principal, an administrator of Fabric must"
            " also allow service principals to use Fabric APIs, in the tenant settings."
        )


class WorkspaceMissing(Terminal):
    """Fabric does not find the workspace, or hides it from this identity."""

    code = "MF4203"

    def __init__(self, workspace: str, said: str) -> None:
        self.workspace, self.said = workspace, said

    def what(self) -> str:
        return f"Fabric knows no workspace {self.workspace}, or not for this identity ({self.said})."

    def next(self) -> str:
        return (
            "Compare the first id in `landing_zone: onelake://<workspace id>/<mirrored database id>` with the one in"
            " the address of the workspace in Fabric (/groups/<workspace id>), and give the identity a role in it."
        )


class DatabaseMissing(Terminal):
    """The workspace is there, and the mirrored database is not in it."""

    code = "MF4204"

    def __init__(self, workspace: str, database: str, said: str) -> None:
        self.workspace, self.database, self.said = workspace, database, said

    def what(self) -> str:
        return f"The workspace {self.workspace} holds no mirrored database {self.database} ({self.said})."

    def next(self) -> str:
        return (
            "Check the second id in `landing_zone`: it may be that of another kind of item, or the database was"
            " deleted. `mirrorfeed fabric create NAME` prints the line of the one with that name."
        )


class NotFound(Terminal):
    """Fabric, or something between here and Fabric, answered that something is not there, without saying what."""

    code = "MF4205"

    def __init__(self, action: str, place: str, said: str) -> None:
        self.action, self.place, self.said = action, place, said

    def what(self) -> str:
        return f"Fabric was asked to {self.action} ({self.place}) and answered {self.said}."

    def next(self) -> str:
        return (
            "It does not say what it did not find. Check `fabric_endpoint` if the configuration sets it, then both ids"
            " in `landing_zone`, and run the same command again."
        )


class NameTaken(Terminal):
    """An item of that name is in the workspace, and this identity may not see it."""

    code = "MF4206"

    def __init__(self, place: str, said: str) -> None:
        self.place, self.said = place, said

    def what(self) -> str:
        return f"The name is taken in {self.place}, by something that is not shown to this identity ({self.said})."

    def next(self) -> str:
        return "Choose another name, or give the identity a role that may see it."


class FabricUnavailable(Transient):
    """Fabric did not answer, or answered that it cannot for now. Whether the call took effect is not known; the next
    run looks."""

    code = "MF4207"

    def __init__(self, action: str, place: str, reason: str) -> None:
        self.action, self.place, self.reason = action, place, reason

    def what(self) -> str:
        return f"Fabric cannot be asked for now to {self.action} ({self.place}: {self.reason})."

    def next(self) -> str:
        return "Run the same command again later: it looks first at what has been done already."


class CallRefused(Terminal):
    """Fabric does not do what it was asked to, and says why."""

    code = "MF4208"

    def __init__(self, action: str, place: str, said: str) -> None:
        self.action, self.place, self.said = action, place, said

    def what(self) -> str:
        return f"Fabric refuses to {self.action} ({self.place}: {self.said})."

    def next(self) -> str:
        return "Look at the mirrored database in Fabric, correct what it names, and run the same command again."
