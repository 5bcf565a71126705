"""Errors of OneLake, and functions that convert error responses to these errors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import ceil
from typing import Any

from mirrorfeed.errors import CredentialsError, MirrorfeedError, StorageError, first_line, problem
from mirrorfeed.storage.errors import PathExistsError, PathMissingError, StorageUnavailableError


@problem(CredentialsError, "MF4101")
def onelake_token_refused(*, address: str, response: str) -> None:
    """OneLake does not accept the token for {address} ({response}).

    Check that `credential` names an identity of the tenant of the Fabric workspace, and that its tokens are for
    https://storage.azure.com. OneLake does not accept tokens for the Fabric API.
    """


@problem(StorageError, "MF4102")
def onelake_permission_missing(*, action: str, address: str, response: str) -> None:
    """OneLake does not allow this identity to {action} {address} ({response}).

    Give the identity the role Contributor in the workspace. For a service principal, a Fabric administrator must also
    allow service principals, and access to OneLake from apps outside Fabric, in the tenant settings.
    """


@problem(StorageError, "MF4103")
def workspace_missing(*, address: str) -> None:
    """OneLake has no workspace with the first id in {address}, or this identity has no access to the workspace.

    Compare `landing_zone: onelake://<workspace id>/<mirrored database id>` with the address that Fabric shows on the
    page of the mirrored database, and check that the identity has a role in the workspace.
    """


@problem(StorageError, "MF4104")
def database_missing(*, address: str) -> None:
    """The workspace has no item with the second id in {address}.

    Compare `landing_zone: onelake://<workspace id>/<mirrored database id>` with the address that Fabric shows on the
    page of the mirrored database. The database may have been deleted, or the ids may be swapped.
    """


@problem(StorageError, "MF4105")
def no_landing_zone_in_item(*, address: str) -> None:
    """The item with the second id in `landing_zone` has no landing zone: {address} does not exist.

    Check that the second id in `landing_zone` belongs to an open mirrored database. A lakehouse, a warehouse or another
    kind of mirror does not accept files.
    """


@problem(StorageError, "MF4106")
def onelake_request_refused(*, action: str, address: str, response: str) -> None:
    """OneLake refuses to {action} {address} ({response}).

    Check `endpoint` in the configuration, and whether a proxy changes requests to OneLake. If both are correct, install
    a newer release of mirrorfeed. Retries do not help.
    """


@problem(StorageError, "MF4107")
def capacity_paused(*, address: str, response: str) -> None:
    """The Fabric capacity of {address} is paused ({response}).

    Resume the capacity in the Azure portal, then run the same command again. No data is lost.
    """


@problem(
    StorageUnavailableError,
    "MF4108",
    meaning="OneLake throttles requests of this capacity, and all retries of this run failed.",
)
def onelake_throttled(*, action: str, address: str, reason: str, retry_after: float = 0.0) -> None:
    """Cannot {action} {address}: {reason}.

    Run the same command again later. If this happens often, the Fabric capacity is too small: publish fewer tables at a
    time (`max_parallel_tables`), or use a larger capacity.
    """


@problem(
    StorageUnavailableError,
    "MF4109",
    meaning="A file cannot be deleted while another process reads it.",
)
def file_in_use(*, action: str, address: str, reason: str, retry_after: float = 0.0) -> None:
    """Cannot {action} {address}: {reason}.

    Fabric may still be reading the file. Run the same command again in a few minutes.
    """


# The service's codes are not documented in one place. So a known code selects a more exact error, and for an unknown
# code the status decides. Any other status is `StorageUnavailableError`: the request may have taken effect.
_NAME_EXISTS = {"PathAlreadyExists", "BlobAlreadyExists", "ResourceAlreadyExists", "ResourceTypeMismatch"}
_CONDITION_FAILED = {"ConditionNotMet", "TargetConditionNotMet", ""}
_NO_WORKSPACE = {"WorkspaceNotFound", "FilesystemNotFound", "ContainerNotFound"}
_NO_ITEM = {"ArtifactNotFound", "ItemNotFound", "FriendlyNameSupportDisabled"}
_IN_USE = {"LeaseIdMissing", "LeaseLost", "SharingViolation", "SourcePathIsBeingDeleted"}
_IN_USE_TEXT = re.compile(r"\b(in use|being (read|used|processed)|locked|lease)\b", re.IGNORECASE)
_CONTENT_DIFFERS = {"InvalidFlushPosition"}
"""Error codes which mean that the file does not have the data that was sent. Writing the data again can help."""
_REFUSED_STATUS = {400, 405, 406, 411, 413, 414, 415, 416, 417, 422, 431}
"""HTTP statuses for invalid requests, so retries do not help."""
_PAUSED = re.compile(r"capacity\s*(is\s+)?(currently\s+)?(paused|suspended|not\s*active|inactive)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class OneLakeResponse:
    status: int
    code: str
    """Error code of the service, such as `PathAlreadyExists`, or an empty string."""
    message: str
    retry_after: float = 0.0
    """Seconds that the service asks clients to wait. 0 if unknown."""
    refused: str = ""
    """Header or query parameter that the service does not accept, with its value. Empty if the response names none."""

    def __str__(self) -> str:
        text = ": ".join(part for part in (self.code, self.message) if part)
        refused = f" ({self.refused})" if self.refused else ""
        return f"{self.status or ''} {text}{refused}".strip()


def parse_response(error: Any) -> OneLakeResponse:
    """Return the error response in an exception of the Azure libraries."""
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
    retry_after = retry_after_seconds(headers, datetime.now(UTC)) or 0.0
    return OneLakeResponse(error.status_code or 0, code, message, retry_after, refused)


def retry_after_seconds(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the wait in the header `Retry-After` as seconds from `now`, or None if it is missing or invalid."""
    text = headers.get("Retry-After") or ""
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(text) - now).total_seconds())
    except (ValueError, TypeError):
        return None


def is_paused(code: str, message: str) -> bool:
    """Return whether an error response means that the Fabric capacity is paused. A busy capacity is not paused."""
    return bool(_PAUSED.search(code) or _PAUSED.search(message))


def convert_response(
    action: str, address: str, response: OneLakeResponse, new_address: str | None = None
) -> MirrorfeedError:
    """Return the error to raise for `response`. Its message has the verb `action` and the `address` of the file.

    `new_address` is the address of the file that the request creates, or None if the request creates no file.
    """
    status, code, text = response.status, response.code, str(response)
    if is_paused(code, response.message):
        return capacity_paused(address=address, response=text)
    if status == 401:
        return onelake_token_refused(address=address, response=text)
    if status == 403:
        return onelake_permission_missing(action=action, address=address, response=text)
    if code in _NO_WORKSPACE:
        return workspace_missing(address=address)
    if code in _NO_ITEM:
        return database_missing(address=address)
    if status == 404:
        return PathMissingError(address=address)
    if new_address and (code in _NAME_EXISTS or (status == 412 and code in _CONDITION_FAILED)):
        return PathExistsError(address=new_address)
    in_use = status in (409, 412) and (code in _IN_USE or _IN_USE_TEXT.search(response.message))
    if action == "remove" and (in_use or status == 423):
        return file_in_use(action=action, address=address, reason=text)
    if status in (429, 503):
        wait = f"; it asks to wait {ceil(response.retry_after)} s" if response.retry_after else ""
        return onelake_throttled(
            action=action, address=address, reason=f"{text}{wait}", retry_after=response.retry_after
        )
    if status in _REFUSED_STATUS and code not in _CONTENT_DIFFERS:
        return onelake_request_refused(action=action, address=address, response=text)
    return StorageUnavailableError(action=action, address=address, reason=text, retry_after=response.retry_after)
