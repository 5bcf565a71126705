"""Responses of OneLake as errors. Known error codes decide first, otherwise the status code decides."""

from __future__ import annotations

import pickle
import re
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import SimpleNamespace

import pytest
from azure.core.exceptions import HttpResponseError

from mirrorfeed.errors import TerminalError, TransientError
from mirrorfeed.storage.errors import PathExistsError, PathMissingError, StorageUnavailableError
from mirrorfeed.storage.onelake_errors import (
    OneLakeResponse,
    capacity_paused,
    convert_response,
    database_missing,
    file_in_use,
    onelake_permission_missing,
    onelake_request_refused,
    onelake_throttled,
    onelake_token_refused,
    parse_response,
    workspace_missing,
)
from tests.raised import Expected, is_error


@pytest.mark.parametrize(
    ("action", "status", "code", "kind"),
    [
        ("read", 404, "BlobNotFound", PathMissingError),
        ("read", 404, "", PathMissingError),
        ("read", 404, "WorkspaceNotFound", workspace_missing),
        ("list", 404, "FilesystemNotFound", workspace_missing),
        ("read", 404, "ArtifactNotFound", database_missing),
        ("list", 400, "FriendlyNameSupportDisabled", database_missing),
        ("list", 401, "InvalidAuthenticationInfo", onelake_token_refused),
        ("list", 403, "", onelake_permission_missing),
        ("create", 409, "BlobAlreadyExists", PathExistsError),
        ("create", 412, "ConditionNotMet", PathExistsError),
        ("create", 412, "", PathExistsError),
        ("create", 409, "ResourceTypeMismatch", PathExistsError),
        ("rename", 409, "PathAlreadyExists", PathExistsError),
        ("rename", 404, "SourcePathNotFound", PathMissingError),
        # Other codes with the same status say nothing about the name.
        ("create", 409, "", StorageUnavailableError),
        ("create", 409, "LeaseIdMissing", StorageUnavailableError),
        ("create", 412, "LeaseIdMissing", StorageUnavailableError),
        ("rename", 409, "PathConflict", StorageUnavailableError),
        ("rename", 409, "DestinationPathIsBeingDeleted", StorageUnavailableError),
        ("read", 412, "ConditionNotMet", StorageUnavailableError),
        ("remove", 409, "LeaseIdMissing", file_in_use),
        ("remove", 412, "LeaseIdMissing", file_in_use),
        ("remove", 423, "", file_in_use),
        ("remove", 409, "PathConflict", StorageUnavailableError),
        ("remove", 409, "DirectoryNotEmpty", StorageUnavailableError),
        ("remove", 412, "", StorageUnavailableError),
        ("read", 409, "LeaseIdMissing", StorageUnavailableError),
        ("create", 429, "TooManyRequests", onelake_throttled),
        ("create", 503, "ServerBusy", onelake_throttled),
        ("create", 429, "CapacityNotActive", capacity_paused),
        ("create", 404, "CapacityNotActive", capacity_paused),
        ("create", 500, "InternalError", StorageUnavailableError),
        # Requests that the service rejects now and later.
        ("create", 400, "InvalidHeaderValue", onelake_request_refused),
        ("list", 400, "UnsupportedQueryParameter", onelake_request_refused),
        ("write", 400, "InvalidQueryParameterValue", onelake_request_refused),
        ("create", 405, "", onelake_request_refused),
        ("create", 413, "RequestBodyTooLarge", onelake_request_refused),
        ("write", 400, "InvalidFlushPosition", StorageUnavailableError),
        # Responses about the state of the service, not about the call.
        ("list", 408, "", StorageUnavailableError),
        ("list", 425, "", StorageUnavailableError),
        ("list", 430, "", StorageUnavailableError),
        ("list", 0, "", StorageUnavailableError),
    ],
)
def test_response_is_mapped_to_an_error(action: str, status: int, code: str, kind: Expected) -> None:
    new_address = "at/new" if action in ("create", "rename") else None
    error = convert_response(action, "at/x", OneLakeResponse(status, code, "said"), new_address)

    assert is_error(error, kind)
    is_unavailable = isinstance(error, StorageUnavailableError)
    assert isinstance(error, TransientError if is_unavailable else TerminalError)
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

    assert capacity_paused.matches(error) is paused
    assert onelake_throttled.matches(error) is not paused


@pytest.mark.parametrize(
    ("answer", "kind", "response"),
    [
        (
            OneLakeResponse(401, "BadAuth", "the audience is wrong"),
            onelake_token_refused,
            "401 BadAuth: the audience is wrong",
        ),
        (
            OneLakeResponse(403, "Forbidden", "Not authorized"),
            onelake_permission_missing,
            "403 Forbidden: Not authorized",
        ),
        (OneLakeResponse(404, "WorkspaceNotFound", ""), workspace_missing, None),
        (OneLakeResponse(404, "ArtifactNotFound", ""), database_missing, None),
        (
            OneLakeResponse(429, "CapacityNotActive", "It is paused"),
            capacity_paused,
            "429 CapacityNotActive: It is paused",
        ),
        (
            OneLakeResponse(400, "InvalidHeaderValue", "It is wrong", refused="header x-ms-version = 2030-01-01"),
            onelake_request_refused,
            "400 InvalidHeaderValue: It is wrong (header x-ms-version = 2030-01-01)",
        ),
    ],
)
def test_error_quotes_the_response_and_has_a_fix(answer: OneLakeResponse, kind: Expected, response: str | None) -> None:
    error = convert_response("list", "at/x", answer)
    assert is_error(error, kind)
    assert vars(error).get("response") == response
    assert "at/x" in error.problem
    assert error.solution


def test_throttling_error_has_the_time_to_wait() -> None:
    error = convert_response("list", "at/x", OneLakeResponse(429, "TooManyRequests", "", 300))
    assert onelake_throttled.matches(error)
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
    assert file_in_use.matches(convert_response("remove", "at/x", OneLakeResponse(409, "Odd", message))) is read
