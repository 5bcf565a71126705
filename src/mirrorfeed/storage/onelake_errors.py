"""What OneLake's answers mean, in words and next steps. Pure: status, code and text in, an error out."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mirrorfeed.errors import MirrorfeedError
from mirrorfeed.storage.errors import (
    AlreadyThere,
    CallRefused,
    CapacityPaused,
    DatabaseMissing,
    NoPermission,
    NotThere,
    StillRead,
    StoreUnavailable,
    Throttled,
    TokenRefused,
    WorkspaceMissing,
)

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
        return CapacityPaused(address=address, response=str(answer))
    if status == 401:
        return TokenRefused(address=address, response=str(answer))
    if status == 403:
        return NoPermission(action=action, address=address, response=str(answer))
    if code in _NO_WORKSPACE:
        return WorkspaceMissing(address=address)
    if code in _NO_ITEM:
        return DatabaseMissing(address=address)
    if status == 404:
        return NotThere(address=address)
    if new_address and (code in _TAKEN or (status == 412 and code in _NOT_MET)):
        return AlreadyThere(address=new_address)
    if action == "remove" and _is_being_read(answer):
        return StillRead(action=action, address=address, reason=str(answer))
    if status in (429, 503):
        wait = f"; it asks to wait {answer.retry_after} s" if answer.retry_after else ""
        return Throttled(action=action, address=address, reason=f"{answer}{wait}", retry_after=answer.asked)
    if status in _OF_THE_CALL and code not in _NOT_AS_LEFT:
        return CallRefused(action=action, address=address, response=str(answer))
    return StoreUnavailable(action=action, address=address, reason=str(answer), retry_after=answer.asked)


def _is_being_read(answer: Answer) -> bool:
    if answer.status == 423:
        return True
    return answer.status in (409, 412) and (answer.code in _BEING_READ or bool(_IN_USE.search(answer.message)))
