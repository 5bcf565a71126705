"""The error for each response of OneLake, from status, code and text. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from mirrorfeed.errors import MirrorfeedError, first_line
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
from mirrorfeed.storage.retry import retry_after_seconds

# The codes of the service are not documented in one place. So a known code only makes a response more exact. Without
# one the status decides, and in doubt it is unknown whether the request took effect.
_NAME_EXISTS = {"PathAlreadyExists", "BlobAlreadyExists", "ResourceAlreadyExists", "ResourceTypeMismatch"}
_CONDITION_FAILED = {"ConditionNotMet", "TargetConditionNotMet", ""}
_NO_WORKSPACE = {"WorkspaceNotFound", "FilesystemNotFound", "ContainerNotFound"}
_NO_ITEM = {"ArtifactNotFound", "ItemNotFound", "FriendlyNameSupportDisabled"}
_IN_USE = {"LeaseIdMissing", "LeaseLost", "SharingViolation", "SourcePathIsBeingDeleted"}
_IN_USE_TEXT = re.compile(r"\b(in use|being (read|used|processed)|locked|lease)\b", re.IGNORECASE)
_CONTENT_DIFFERS = {"InvalidFlushPosition"}
"""The file does not contain what was sent, so writing it again can help."""
_REFUSED_STATUS = {400, 405, 406, 411, 413, 414, 415, 416, 417, 422, 431}
"""Status codes that depend on the request only."""
_PAUSED = re.compile(r"capacity\s*(is\s+)?(currently\s+)?(paused|suspended|not\s*active|inactive)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Response:
    """An error response."""

    status: int
    code: str
    """The service's name of the error, or an empty string."""
    message: str
    retry_after: str = ""
    """The header as it was sent."""
    retry_seconds: float = 0.0
    """Seconds from the response to the end of `retry_after`."""
    refused: str = ""
    """The header or query parameter that was refused, with its value, if the service names one."""

    def __str__(self) -> str:
        text = ": ".join(part for part in (self.code, self.message) if part)
        refused = f" ({self.refused})" if self.refused else ""
        return f"{self.status or ''} {text}{refused}".strip()


def response_of(error: Any) -> Response:
    """The response in an error of the library."""
    headers = getattr(error.response, "headers", {})
    code = getattr(error, "error_code", None) or headers.get("x-ms-error-code") or ""
    code = getattr(code, "value", str(code))
    message = first_line(str(error.message)).removeprefix(f"({code})").strip()
    details = {str(name).lower(): value for name, value in (getattr(error, "additional_info", None) or {}).items()}
    refused = ", ".join(
        f"{what} {details[f'{part}name']} = {details.get(f'{part}value') or ''}".removesuffix(" = ")
        for part, what in (("header", "header"), ("queryparameter", "query parameter"))
        if details.get(f"{part}name")
    )
    seconds = retry_after_seconds(headers, datetime.now(UTC)) or 0.0
    return Response(error.status_code or 0, code, message, headers.get("Retry-After") or "", seconds, refused)


def is_paused(code: str, message: str) -> bool:
    """Whether the capacity is paused, so that retries cannot help. A busy capacity is not paused."""
    return bool(_PAUSED.search(code) or _PAUSED.search(message))


def error_of(action: str, address: str, response: Response, new_address: str | None = None) -> MirrorfeedError:
    """The error for a response. `new_address` is the name that the request would have created."""
    status, code, text = response.status, response.code, str(response)
    if is_paused(code, response.message):
        return CapacityPaused(address=address, response=text)
    if status == 401:
        return TokenRefused(address=address, response=text)
    if status == 403:
        return NoPermission(action=action, address=address, response=text)
    if code in _NO_WORKSPACE:
        return WorkspaceMissing(address=address)
    if code in _NO_ITEM:
        return DatabaseMissing(address=address)
    if status == 404:
        return NotThere(address=address)
    if new_address and (code in _NAME_EXISTS or (status == 412 and code in _CONDITION_FAILED)):
        return AlreadyThere(address=new_address)
    in_use = status in (409, 412) and (code in _IN_USE or _IN_USE_TEXT.search(response.message))
    if action == "remove" and (in_use or status == 423):
        return StillRead(action=action, address=address, reason=text)
    if status in (429, 503):
        wait = f"; it asks to wait {response.retry_after} s" if response.retry_after else ""
        return Throttled(action=action, address=address, reason=f"{text}{wait}", retry_after=response.retry_seconds)
    if status in _REFUSED_STATUS and code not in _CONTENT_DIFFERS:
        return CallRefused(action=action, address=address, response=text)
    return StoreUnavailable(action=action, address=address, reason=text, retry_after=response.retry_seconds)
