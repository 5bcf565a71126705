"""What Fabric's answers mean, in words."""

from __future__ import annotations

import pytest

from mirrorfeed.display.redact import remember
from mirrorfeed.errors import Terminal, Transient
from mirrorfeed.mirror.fabric.responses import Answer, Place, answer_in, error_in, meaning

SPACE, BASE = Place("w1"), Place("w1", "d1")


@pytest.mark.parametrize(
    ("place", "answer", "kind", "words"),
    [
        (
            SPACE,
            Answer(404, "WorkspaceNotFound", "Not found."),
            Terminal,
            "Fabric knows no workspace w1, or not for this identity (404 WorkspaceNotFound: Not found). Compare the"
            " first id in `landing_zone: onelake://<workspace id>/<mirrored database id>` with the one in the address"
            " of the workspace in Fabric (/groups/<workspace id>), and give the identity a role in it.",
        ),
        (
            BASE,
            Answer(404, "ItemNotFound"),
            Terminal,
            "The workspace w1 holds no mirrored database d1 (404 ItemNotFound). Check the second id in `landing_zone`:"
            " it may be that of another kind of item, or the database was deleted. `mirrorfeed fabric create NAME`"
            " prints the line of the one with that name.",
        ),
        (
            BASE,
            Answer(404, "OddNotFound", "Nothing here."),
            Terminal,
            "Fabric was asked to count (the mirrored database d1 of the workspace w1) and answered 404 OddNotFound:"
            " Nothing here. It does not say what it did not find. Check `fabric_endpoint` if the configuration sets"
            " it, then both ids in `landing_zone`, and run the same command again.",
        ),
        (
            SPACE,
            Answer(404),
            Terminal,
            "Fabric was asked to count (the workspace w1) and answered 404. It does not say what it did not find. Check"
            " `fabric_endpoint` if the configuration sets it, then both ids in `landing_zone`, and run the same command"
            " again.",
        ),
        (
            BASE,
            Answer(401, "InvalidToken"),
            Terminal,
            "Fabric does not accept the token for the mirrored database d1 of the workspace w1 (401 InvalidToken)."
            " Check that `credential` names an identity of the tenant to which the workspace belongs, and that its"
            " tokens are for https://api.fabric.microsoft.com: one for Azure Storage is not accepted here.",
        ),
        (
            SPACE,
            Answer(403, "InsufficientPrivileges", "No."),
            Terminal,
            "Fabric does not allow this identity to count (the workspace w1: 403 InsufficientPrivileges: No). Give it"
            " the role Contributor in the workspace. For a service principal, an administrator of Fabric must also"
            " allow service principals to use Fabric APIs, in the tenant settings.",
        ),
        (
            BASE,
            Answer(429, "CapacityNotActive", "The capacity is paused.", retry_after="60"),
            Terminal,
            "The Fabric capacity of the mirrored database d1 of the workspace w1 is paused (429 CapacityNotActive:"
            " The capacity is paused). Resume the capacity in the Azure portal, then run the same command again. No"
            " data is lost.",
        ),
        (
            BASE,
            Answer(429, "RequestBlocked", "Too many.", retry_after="60"),
            Transient,
            "Fabric cannot be asked for now to count (the mirrored database d1 of the workspace w1: 429 RequestBlocked:"
            " Too many; it asks to be left alone for 60 s). Run the same command again later: it looks first at what"
            " has been done already.",
        ),
        (
            SPACE,
            Answer(409, "ItemDisplayNameAlreadyInUse"),
            Terminal,
            "The name is taken in the workspace w1, by something that is not shown to this identity (409"
            " ItemDisplayNameAlreadyInUse). Choose another name, or give the identity a role that may see it.",
        ),
        (
            SPACE,
            Answer(400, "OperationNotSupportedForItem", "Not now."),
            Terminal,
            "Fabric refuses to count (the workspace w1: 400 OperationNotSupportedForItem: Not now). Look at the"
            " mirrored database in Fabric, correct what it names, and run the same command again.",
        ),
    ],
)
def test_an_answer_is_told_with_the_next_step(place: Place, answer: Answer, kind: type, words: str) -> None:
    error = meaning("count", place, answer)
    assert isinstance(error, kind)
    assert str(error) == words


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer(503), Transient),
        (Answer(500, "UnknownError"), Transient),
        (Answer(400, "ItemDisplayNameNotAvailableYet", retriable=True), Transient),
        (Answer(400, "Other"), Terminal),
        (Answer(302), Terminal),
        (Answer(404, "CapacityNotActive"), Terminal),
        (Answer(404, "NotThereYet", retriable=True), Transient),
    ],
)
def test_what_may_pass_is_known_by_status_or_by_what_the_service_says(answer: Answer, kind: type) -> None:
    assert isinstance(meaning("count", BASE, answer), kind)


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ({"errorCode": "X", "message": "Y", "isRetriable": True}, Answer(400, "X", "Y", True, "7")),
        ({"message": None}, Answer(400, retry_after="7")),
        ({}, Answer(400, retry_after="7")),
        (None, Answer(400, retry_after="7")),
        ("text", Answer(400, retry_after="7")),
    ],
)
def test_the_body_of_an_answer_may_be_anything(body: object, answer: Answer) -> None:
    assert answer_in(400, "7", body) == answer


def test_the_words_of_an_answer_are_one_line_of_bounded_length_without_tokens() -> None:
    remember("opaque-token-of-this-process")
    said = answer_in(400, "", {"errorCode": "A", "message": f"opaque-token-of-this-process\nis {'x' * 999}"})
    assert str(said).startswith("400 A: (not shown) is xxx")
    assert len(str(said)) < 350
    assert error_in({"errorCode": "B", "message": "opaque-token-of-this-process"}) == "B: (not shown)"
    assert error_in("opaque-token-of-this-process") == "(not shown)"
    assert error_in(None) is None
