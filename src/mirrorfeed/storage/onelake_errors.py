"""What OneLake's answers mean, in words and next steps. Pure: status, code and text in, an error out."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mirrorfeed.errors import MirrorfeedError, Terminal
from mirrorfeed.storage.base import AlreadyThere, NotThere, StoreUnavailable

# Which codes the service uses is not documented in one place. So a code only ever makes an answer more exact; without
# a known one its status decides, and in doubt it is taken as "not known whether it took effect".
_TAKEN = {"PathAlreadyExists", "BlobAlreadyExists", "ResourceAlreadyExists", "ResourceTypeMismatch"}
_NOT_MET = {"ConditionNotMet", "TargetConditionNotMet", ""}
_NO_WORKSPACE = {"WorkspaceNotFound", "FilesystemNotFound", "ContainerNotFound"}
_NO_ITEM = {"ArtifactNotFound", "ItemNotFound", "FriendlyNameSupportDisabled"}
_BEING_READ = {"LeaseIdMissing", "LeaseLost", "SharingViolation", "SourcePathIsBeingDeleted"}
"""Of a removal: another holds the thing for now. In words, the answer says so beside other codes."""
_IN_USE = re.compile(r"\b(in use|being (read|used|processed)|locked|lease)\b", re.IGNORECASE)
_NOT_AS_LEFT = {"InvalidFlushPosition"}
"""Of a file that is being written: it does not hold what was sent, so to write it anew can help."""
_OF_THE_CALL = {400, 405, 406, 411, 413, 414, 415, 416, 417, 422, 431}
"""The refusals that are about the call itself, and not about how things stand."""
_PAUSED = re.compile(r"capacity\s*(is\s+)?(currently\s+)?(paused|suspended|not\s*active|inactive)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    code: str
    """The service's name for the error, empty if it gives none."""
    message: str
    retry_after: str = ""
    asked: float = 0.0
    """The seconds that `retry_after` is from when it was said."""
    refused: str = ""
    """The header or query parameter that is refused, with its value, if the service names one."""

    def __str__(self) -> str:
        said = ": ".join(part for part in (self.code, self.message) if part)
        where = f" ({self.refused})" if self.refused else ""
        return f"{self.status or ''} {said}{where}".strip()


def is_paused(code: str, message: str) -> bool:
    """Whether an error says that the capacity was paused, which no waiting ends; a busy capacity is another matter."""
    return bool(_PAUSED.search(code) or _PAUSED.search(message))


def meaning(action: str, address: str, answer: Answer, new_address: str | None = None) -> MirrorfeedError:
    """The error that an answer stands for. `new_address` is the name that the call would have given."""
    status, code = answer.status, answer.code
    if is_paused(code, answer.message):
        return CapacityPaused(address, str(answer))
    if status == 401:
        return TokenRefused(address, str(answer))
    if status == 403:
        return NoPermission(action, address, str(answer))
    if code in _NO_WORKSPACE:
        return WorkspaceMissing(address)
    if code in _NO_ITEM:
        return DatabaseMissing(address)
    if status == 404:
        return NotThere(address)
    if new_address and (code in _TAKEN or (status == 412 and code in _NOT_MET)):
        return AlreadyThere(new_address)
    if action == "remove" and _is_being_read(answer):
        return StillRead(action, address, str(answer))
    if status in (429, 503):
        wait = f"; it asks to be left alone for {answer.retry_after} s" if answer.retry_after else ""
        return Throttled(action, address, f"{answer}{wait}", answer.asked)
    if status in _OF_THE_CALL and code not in _NOT_AS_LEFT:
        return CallRefused(action, address, str(answer))
    return StoreUnavailable(action, address, str(answer), answer.asked)


def _is_being_read(answer: Answer) -> bool:
    if answer.status == 423:
        return True
    return answer.status in (409, 412) and (answer.code in _BEING_READ or bool(_IN_USE.search(answer.message)))


class TokenRefused(Terminal):
    """OneLake does not accept who the configuration says you are."""

    code = "MF4101"

    def __init__(self, address: str, said: str) -> None:
        self.address, self.said = address, said

    def what(self) -> str:
        return f"OneLake does not accept the token for {self.address} ({self.said})."

    def next(self) -> str:
        return (
            "Check that `credential` names an identity of the tenant to which the Fabric workspace belongs, and that"
            " its tokens are for https://storage.azure.com: one for the Fabric API is not accepted for files."
        )


class NoPermission(Terminal):
    """OneLake knows who you are, and does not allow that."""

    code = "MF4102"

    def __init__(self, action: str, address: str, said: str) -> None:
        self.action, self.address, self.said = action, address, said

    def what(self) -> str:
        return f"OneLake does not allow this identity to {self.action} {self.address} ({self.said})."

    def next(self) -> str:
        return (
            "Give it the role Contributor in the workspace. For a service principal, an administrator of Fabric must"
            " also allow service principals, and apps outside Fabric to reach OneLake, in the tenant settings."
        )


class WorkspaceMissing(Terminal):
    """OneLake does not find the workspace of the landing zone, or hides it from this identity."""

    code = "MF4103"

    def __init__(self, address: str) -> None:
        self.address = address

    def what(self) -> str:
        return f"OneLake knows no workspace with the first id in {self.address}, or not for this identity."

    def next(self) -> str:
        return (
            "Compare `landing_zone: onelake://<workspace id>/<mirrored database id>` with the address that Fabric"
            " shows on the page of the mirrored database, and check that the identity has a role in the workspace."
        )


class DatabaseMissing(Terminal):
    """The workspace is there, and the mirrored database of the landing zone is not in it."""

    code = "MF4104"

    def __init__(self, address: str) -> None:
        self.address = address

    def what(self) -> str:
        return f"The workspace holds no item with the second id in {self.address}."

    def next(self) -> str:
        return (
            "Compare `landing_zone: onelake://<workspace id>/<mirrored database id>` with the address that Fabric"
            " shows on the page of the mirrored database: the database may have been deleted, or the ids be swapped."
        )


class NotAnOpenMirror(Terminal):
    """The item of the landing zone is there and takes no files: it is no open mirrored database."""

    code = "MF4105"

    def __init__(self, address: str) -> None:
        self.address = address

    def what(self) -> str:
        return f"The item has no landing zone: {self.address} is not there."

    def next(self) -> str:
        return (
            "Check that the second id in `landing_zone` is that of an open mirrored database; a lakehouse, a warehouse"
            " or a mirror of another kind does not take files."
        )


class CallRefused(Terminal):
    """OneLake does not take the call as it is made, and will not later."""

    code = "MF4106"

    def __init__(self, action: str, address: str, said: str) -> None:
        self.action, self.address, self.said = action, address, said

    def what(self) -> str:
        return f"OneLake refuses to {self.action} {self.address} ({self.said})."

    def next(self) -> str:
        return (
            "The same call would be refused again. Check `endpoint` in the configuration, and whether something between"
            " here and OneLake changes what is sent; otherwise install a newer mirrorfeed."
        )


class CapacityPaused(Terminal):
    """The Fabric capacity is paused, so nothing can be written to OneLake. What was published stays."""

    code = "MF4107"

    def __init__(self, address: str, said: str) -> None:
        self.address, self.said = address, said

    def what(self) -> str:
        return f"The Fabric capacity behind {self.address} is paused ({self.said})."

    def next(self) -> str:
        return "Resume the capacity in the Azure portal, then run the same command again; nothing is lost."


class Throttled(StoreUnavailable):
    """OneLake limits how much this capacity may do, and the retries of this run are used up."""

    code = "MF4108"

    def next(self) -> str:
        return (
            "Run the same command again later. If it repeats, the Fabric capacity is too small or too busy: publish"
            " fewer tables at a time, or scale it up."
        )


class StillRead(StoreUnavailable):
    """A file cannot be removed while somebody reads it."""

    code = "MF4109"

    def next(self) -> str:
        return "The service may still be reading it. Run the same command again in a few minutes."
