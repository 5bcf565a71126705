"""What an answer of OneLake means. Codes make it more exact; without one that is known, the status decides."""

from __future__ import annotations

import pickle

import pytest

from mirrorfeed.errors import MirrorfeedError, Terminal, Transient
from mirrorfeed.storage import AlreadyThere, NotThere, StoreUnavailable
from mirrorfeed.storage.onelake_errors import (
    Answer,
    CallRefused,
    CapacityPaused,
    DatabaseMissing,
    NoPermission,
    StillRead,
    Throttled,
    TokenRefused,
    WorkspaceMissing,
    meaning,
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
        # Others with the same status say nothing about the name.
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
        # What the service does not take now it does not take later.
        ("create", 400, "InvalidHeaderValue", CallRefused),
        ("list", 400, "UnsupportedQueryParameter", CallRefused),
        ("write", 400, "InvalidQueryParameterValue", CallRefused),
        ("create", 405, "", CallRefused),
        ("create", 413, "RequestBodyTooLarge", CallRefused),
        ("write", 400, "InvalidFlushPosition", StoreUnavailable),
        # Where the service says more of itself than of the call.
        ("list", 408, "", StoreUnavailable),
        ("list", 425, "", StoreUnavailable),
        ("list", 430, "", StoreUnavailable),
        ("list", 0, "", StoreUnavailable),
    ],
)
def test_an_answer_means(action: str, status: int, code: str, kind: type[MirrorfeedError]) -> None:
    new_address = "at/new" if action in ("create", "rename") else None
    error = meaning(action, "at/x", Answer(status, code, "said"), new_address)

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
def test_a_paused_capacity_is_not_a_busy_one(message: str, paused: bool) -> None:
    error = meaning("list", "at/x", Answer(429, "", message))

    assert isinstance(error, CapacityPaused) is paused
    assert isinstance(error, Throttled) is not paused


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            Answer(401, "InvalidAuthenticationInfo", "the audience is wrong"),
            "OneLake does not accept the token for at/x (401 InvalidAuthenticationInfo: the audience is wrong). Check"
            " that `credential` names an identity of the tenant to which the Fabric workspace belongs, and that its"
            " tokens are for https://storage.azure.com: one for the Fabric API is not accepted for files.",
        ),
        (
            Answer(403, "Forbidden", "User is not authorized"),
            "OneLake does not allow this identity to list at/x (403 Forbidden: User is not authorized). Give it the"
            " role Contributor in the workspace. For a service principal, an administrator of Fabric must also allow"
            " service principals, and apps outside Fabric to reach OneLake, in the tenant settings.",
        ),
        (
            Answer(404, "WorkspaceNotFound", ""),
            "OneLake knows no workspace with the first id in at/x, or not for this identity. Compare `landing_zone:"
            " onelake://<workspace id>/<mirrored database id>` with the address that Fabric shows on the page of the"
            " mirrored database, and check that the identity has a role in the workspace.",
        ),
        (
            Answer(404, "ArtifactNotFound", ""),
            "The workspace holds no item with the second id in at/x. Compare `landing_zone: onelake://<workspace"
            " id>/<mirrored database id>` with the address that Fabric shows on the page of the mirrored database: the"
            " database may have been deleted, or the ids be swapped.",
        ),
        (
            Answer(429, "CapacityNotActive", "The capacity is paused"),
            "The Fabric capacity behind at/x is paused (429 CapacityNotActive: The capacity is paused). Resume the"
            " capacity in the Azure portal, then run the same command again; nothing is lost.",
        ),
        (
            Answer(400, "InvalidHeaderValue", "The value is wrong", refused="header x-ms-version = 2030-01-01"),
            "OneLake refuses to list at/x (400 InvalidHeaderValue: The value is wrong (header x-ms-version ="
            " 2030-01-01)). The same call would be refused again. Check `endpoint` in the configuration, and whether"
            " something between here and OneLake changes what is sent; otherwise install a newer mirrorfeed.",
        ),
        (
            Answer(429, "TooManyRequests", "", "300"),
            "Cannot list at/x: 429 TooManyRequests; it asks to be left alone for 300 s. Run the same command again"
            " later. If it repeats, the Fabric capacity is too small or too busy: publish fewer tables at a time, or"
            " scale it up.",
        ),
    ],
)
def test_an_error_says_what_to_do_next(answer: Answer, words: str) -> None:
    assert str(meaning("list", "at/x", answer)) == words


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
def test_a_removal_is_to_be_tried_later_where_words_say_that_the_thing_is_read(message: str, read: bool) -> None:
    assert isinstance(meaning("remove", "at/x", Answer(409, "Odd", message)), StillRead) is read


def test_a_folder_that_is_in_use_is_tried_again_later() -> None:
    assert str(meaning("remove", "at/x", Answer(409, "PathConflict", "in use"))) == (
        "Cannot remove at/x: 409 PathConflict: in use. The service may still be reading it. Run the same command again"
        " in a few minutes."
    )
