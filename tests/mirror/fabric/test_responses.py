"""Responses of Fabric as errors."""

from __future__ import annotations

import pytest

from mirrorfeed.display.redact import remember
from mirrorfeed.errors import MirrorfeedError, TerminalError, TransientError
from mirrorfeed.mirror.errors import (
    DatabaseNameTakenError,
    fabric_object_missing,
    fabric_permission_missing,
    fabric_request_failed,
    fabric_token_refused,
    fabric_unavailable,
    fabric_workspace_missing,
    mirrored_database_missing,
    public_network_denied,
)
from mirrorfeed.mirror.fabric.client import ErrorResponse, FabricItem, error_for, error_text, parse_error
from mirrorfeed.storage.onelake_errors import capacity_paused

SPACE, BASE = FabricItem("w1"), FabricItem("w1", "d1")


@pytest.mark.parametrize(
    ("item", "answer", "expected"),
    [
        (
            SPACE, ErrorResponse(404, "WorkspaceNotFound", "Not found."),
            fabric_workspace_missing(workspace="w1", response="404 WorkspaceNotFound: Not found"),
        ),
        (
            BASE, ErrorResponse(404, "ItemNotFound"),
            mirrored_database_missing(workspace="w1", database="d1", response="404 ItemNotFound"),
        ),
        (
            BASE, ErrorResponse(404, "OddNotFound", "Nothing here."),
            fabric_object_missing(action="count", item=str(BASE), response="404 OddNotFound: Nothing here"),
        ),
        (SPACE, ErrorResponse(404), fabric_object_missing(action="count", item=str(SPACE), response="404")),
        (BASE, ErrorResponse(401, "InvalidToken"), fabric_token_refused(item=str(BASE), response="401 InvalidToken")),
        (
            SPACE, ErrorResponse(403, "InsufficientPrivileges", "No."),
            fabric_permission_missing(action="count", item=str(SPACE), response="403 InsufficientPrivileges: No"),
        ),
        (
            BASE, ErrorResponse(429, "CapacityNotActive", "The capacity is paused.", retry_after=60.0),
            capacity_paused(address=str(BASE), response="429 CapacityNotActive: The capacity is paused"),
        ),
        (
            BASE, ErrorResponse(429, "RequestBlocked", "Too many.", retry_after=60.0),
            fabric_unavailable(
                action="count", item=str(BASE), reason="429 RequestBlocked: Too many; retry after 60 s"
            ),
        ),
        (
            SPACE, ErrorResponse(409, "ItemDisplayNameAlreadyInUse"),
            DatabaseNameTakenError(item=str(SPACE), response="409 ItemDisplayNameAlreadyInUse"),
        ),
        (
            SPACE, ErrorResponse(400, "OperationNotSupportedForItem", "Not now."),
            fabric_request_failed(
                action="count", item=str(SPACE), response="400 OperationNotSupportedForItem: Not now"
            ),
        ),
    ],
)  # fmt: skip
def test_failure_response_is_mapped_to_an_error(
    item: FabricItem, answer: ErrorResponse, expected: MirrorfeedError
) -> None:
    error = error_for("count", item, answer)
    assert (type(error), vars(error)) == (type(expected), vars(expected))


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (ErrorResponse(503), TransientError),
        (ErrorResponse(500, "UnknownError"), TransientError),
        (ErrorResponse(400, "ItemDisplayNameNotAvailableYet", retriable=True), TransientError),
        (ErrorResponse(400, "Other"), TerminalError),
        (ErrorResponse(302), TerminalError),
        (ErrorResponse(404, "CapacityNotActive"), TerminalError),
        (ErrorResponse(404, "NotThereYet", retriable=True), TransientError),
    ],
)
def test_transient_responses_are_recognized_by_status_or_content(answer: ErrorResponse, kind: type) -> None:
    assert isinstance(error_for("count", BASE, answer), kind)


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ({"errorCode": "X", "message": "Y", "isRetriable": True}, ErrorResponse(400, "X", "Y", True, 7.0)),
        ({"message": None}, ErrorResponse(400, retry_after=7.0)),
        ({}, ErrorResponse(400, retry_after=7.0)),
        (None, ErrorResponse(400, retry_after=7.0)),
        ("text", ErrorResponse(400, retry_after=7.0)),
    ],
)
def test_response_body_may_have_any_form(body: object, answer: ErrorResponse) -> None:
    assert parse_error(400, 7.0, body) == answer


def test_response_text_is_one_bounded_line_without_tokens() -> None:
    remember("opaque-token-of-this-process")
    response = parse_error(400, 0.0, {"errorCode": "A", "message": f"opaque-token-of-this-process\nis {'x' * 999}"})
    assert str(response).startswith("400 A: (not shown) is xxx")
    assert len(str(response)) < 350
    assert error_text({"errorCode": "B", "message": "opaque-token-of-this-process"}) == "B: (not shown)"
    assert error_text("opaque-token-of-this-process") == "(not shown)"
    assert error_text(None) is None


def test_private_link_of_a_workspace_is_reported_with_its_setting() -> None:
    workspace = "0f8fad5b-d9cb-469f-a165-70867728950e"
    answer = ErrorResponse(403, "RequestDeniedByInboundPolicy", "Request is denied due to inbound communication policy")
    error = error_for("read the status", FabricItem(workspace), answer)
    assert public_network_denied.matches(error)
    assert "`private_link: true`" in str(error)
