"""Responses of OneLake as errors. Known error codes decide first, otherwise the status code decides."""

from __future__ import annotations

import pickle
import re
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import SimpleNamespace

import pytest
from azure.core.exceptions import HttpResponseError

from mirrorfeed.errors import MirrorfeedError, Terminal, Transient
from mirrorfeed.storage.errors import AlreadyThere, NotThere, StoreUnavailable
from mirrorfeed.storage.onelake_errors import (
    CallRefused,
    CapacityPaused,
    DatabaseMissing,
    NoPermission,
    OneLakeResponse,
    StillRead,
    Throttled,
    TokenRefused,
    WorkspaceMissing,
    convert_response,
    parse_response,
)


@pytest.mark.parametrize(
    ("action", "status", "code", "kind"),
    [
        ("read", 404, "BlobNotFound", NotThere),
        ("read", 404, "", NotThere),
        ("read", 404, "WorkspaceNotFound", WorkspaceMissing),
        ("list", 404, "FilesystemNotFound", WorkspaceMissing),
        ("read", 404, "ArtifactNotFound", DatabaseMissing),
        ("list", 400, "FriendlyNameSupportDisabled", DatabaseMissing),
        ("list", 401, "InvalidAuthenticationInfo", TokenRefused),
        ("list", 403, "", NoPermission),
        ("create", 409, "BlobAlreadyExists", AlreadyThere),
        ("create", 412, "ConditionNotMet", AlreadyThere),
        ("create", 412, "", AlreadyThere),
        ("create", 409, "ResourceTypeMismatch", AlreadyThere),
        ("rename", 409, "PathAlreadyExists", AlreadyThere),
        ("rename", 404, "SourcePathNotFound", NotThere),
        # Other codes with the same status say nothing about the name.
        ("create", 409, "", StoreUnavailable),
        ("create", 409, "LeaseIdMissing", StoreUnavailable),
        ("create", 412, "LeaseIdMissing", StoreUnavailable),
        ("rename", 409, "PathConflict", StoreUnavailable),
        ("rename", 409, "DestinationPathIsBeingDeleted", StoreUnavailable),
        ("read", 412, "ConditionNotMet", StoreUnavailable),
        ("remove", 409, "LeaseIdMissing", StillRead),
        ("remove", 412, "LeaseIdMissing", StillRead),
        ("remove", 423, "", StillRead),
        ("remove", 409, "PathConflict", StoreUnavailable),
        ("remove", 409, "DirectoryNotEmpty", StoreUnavailable),
        ("remove", 412, "", StoreUnavailable),
        ("read", 409, "LeaseIdMissing", StoreUnavailable),
        ("create", 429, "TooManyRequests", Throttled),
        ("create", 503, "ServerBusy", Throttled),
        ("create", 429, "CapacityNotActive", CapacityPaused),
        ("create", 404, "CapacityNotActive", CapacityPaused),
        ("create", 500, "InternalError", StoreUnavailable),
        # Requests that the service rejects now and later.
        ("create", 400, "InvalidHeaderValue", CallRefused),
        ("list", 400, "UnsupportedQueryParameter", CallRefused),
        ("write", 400, "InvalidQueryParameterValue", CallRefused),
        ("create", 405, "", CallRefused),
        ("create", 413, "RequestBodyTooLarge", CallRefused),
        ("write", 400, "InvalidFlushPosition", StoreUnavailable),
        # Responses about the state of the service, not about the call.
        ("list", 408, "", StoreUnavailable),
        ("list", 425, "", StoreUnavailable),
        ("list", 430, "", StoreUnavailable),
        ("list", 0, "", StoreUnavailable),
    ],
)
def test_response_is_mapped_to_an_error(action: str, status: int, code: str, kind: type[MirrorfeedError]) -> None:
    new_address = "at/new" if action in ("create", "rename") else None
    error = convert_response(action, "at/x", OneLakeResponse(status, code, "said"), new_address)

    assert type(error) is kind
    assert isinstance(error, Transient if issubclass(kind, StoreUnavailable) else Terminal)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize(
    ("message", "paused"),
    [
        ("Unable to complete the action because this Fabric capacity is currently paused.", True),
        ("The capacity is not active.", True),
        ("capacity suspended", True),
        ("Your capacity has reached its limits.", False),
        ("The operation was paused.", False),
    ],
)
def test_paused_capacity_differs_from_a_busy_one(message: str, paused: bool) -> None:
    error = convert_response("list", "at/x", OneLakeResponse(429, "", message))

    assert isinstance(error, CapacityPaused) is paused
    assert isinstance(error, Throttled) is not paused


@pytest.mark.parametrize(
    ("answer", "kind", "response"),
    [
        (OneLakeResponse(401, "BadAuth", "the audience is wrong"), TokenRefused, "401 BadAuth: the audience is wrong"),
        (OneLakeResponse(403, "Forbidden", "Not authorized"), NoPermission, "403 Forbidden: Not authorized"),
        (OneLakeResponse(404, "WorkspaceNotFound", ""), WorkspaceMissing, None),
        (OneLakeResponse(404, "ArtifactNotFound", ""), DatabaseMissing, None),
        (
            OneLakeResponse(429, "CapacityNotActive", "It is paused"),
            CapacityPaused,
            "429 CapacityNotActive: It is paused",
        ),
        (
            OneLakeResponse(400, "InvalidHeaderValue", "It is wrong", refused="header x-ms-version = 2030-01-01"),
            CallRefused,
            "400 InvalidHeaderValue: It is wrong (header x-ms-version = 2030-01-01)",
        ),
    ],
)
def test_error_quotes_the_response_and_has_a_fix(
    answer: OneLakeResponse, kind: type[MirrorfeedError], response: str | None
) -> None:
    error = convert_response("list", "at/x", answer)
    assert type(error) is kind
    assert vars(error).get("response") == response
    assert "at/x" in error.problem
    assert error.solution


def test_throttling_error_has_the_time_to_wait() -> None:
    error = convert_response("list", "at/x", OneLakeResponse(429, "TooManyRequests", "", 300))
    assert isinstance(error, Throttled)
    assert vars(error)["reason"] == "429 TooManyRequests; it asks to wait 300 s"
    assert error.retry_after == 300


def test_wait_until_a_date_is_reported_in_seconds() -> None:
    until = format_datetime(datetime.now(UTC) + timedelta(minutes=5), usegmt=True)
    refusal = HttpResponseError("busy", SimpleNamespace(status_code=429, reason="", headers={"Retry-After": until}))
    error = convert_response("list", "at/x", parse_response(refusal))
    assert re.fullmatch(r"429 busy; it asks to wait (29\d|300) s", vars(error)["reason"])


@pytest.mark.parametrize(
    ("message", "read"),
    [
        ("The path is in use.", True),
        ("The folder is being read by another process.", True),
        ("There is currently a lease on the blob.", True),
        ("The directory is not empty.", False),
        ("The name is already used.", False),
    ],
)
def test_removal_error_is_transient_if_the_message_says_in_use(message: str, read: bool) -> None:
    assert isinstance(convert_response("remove", "at/x", OneLakeResponse(409, "Odd", message)), StillRead) is read
