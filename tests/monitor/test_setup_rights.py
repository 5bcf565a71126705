"""The rights that a configuration needs, and what effective grants say of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import pytest
from databricks.sdk.errors import Unauthenticated
from databricks.sdk.service.catalog import EffectivePermissionsList

from fixtures.fakes import RecordingGrants
from mirrorfeed.config import Config, load
from mirrorfeed.monitor.rules import Finding, Weight
from mirrorfeed.monitor.setup_rights import Right, check_rights, needed

ZONE = "onelake://0f8fad5b-d9cb-469f-a165-70867728950e/7c9e6679-7425-40de-944b-e07fc1f90ae7"
ORDERS = ("main", "sales", "orders")


def config(folder: Path, *sources: str, zone: str = "./zone", more: str = "") -> Config:
    tables = "".join(f"  - {{source: {source}, target: t{n}, keys: [id]}}\n" for n, source in enumerate(sources))
    (folder / "mirrorfeed.yml").write_text(f"landing_zone: {zone}\n{more}tables:\n{tables}")
    return load(folder / "mirrorfeed.yml")


def test_reading_a_table_needs_its_catalog_and_its_schema_each_once(tmp_path: Path) -> None:
    assert needed(config(tmp_path, "main.sales.orders", "main.sales.lines")) == (
        Right("CATALOG", ("main",), "USE_CATALOG"),
        Right("SCHEMA", ("main", "sales"), "USE_SCHEMA"),
        Right("TABLE", ORDERS, "SELECT"),
        Right("TABLE", ("main", "sales", "lines"), "SELECT"),
    )


@pytest.mark.parametrize(
    ("zone", "more", "expected"),
    [
        ("./zone", "", set()),
        ("./zone", "ledger: ./ledger\n", set()),
        ("./zone", "ledger: main.ours.ledger\n", {"CREATE_TABLE on schema", "SELECT on schema", "MODIFY on schema"}),
        ("/Volumes/main/ours/landing/here", "", {"READ_VOLUME on volume", "WRITE_VOLUME on volume"}),
        (ZONE, "credential: {service_credential: fabric}\n", {"ACCESS on credential"}),
        (ZONE, "handover: /Volumes/main/ours/handover\n", {"READ_VOLUME on volume", "WRITE_VOLUME on volume"}),
        (ZONE, "", set()),
    ],
)
def test_what_else_is_needed_depends_on_where_things_are(
    tmp_path: Path, zone: str, more: str, expected: set[str]
) -> None:
    found = needed(config(tmp_path, "./orders", zone=zone, more=more))
    assert {f"{right.privilege} on {right.kind.lower()}" for right in found if "USE" not in right.privilege} == expected


def checked(workspace: RecordingGrants, *rights: Right) -> list[Finding]:
    return list(check_rights(workspace, rights))  # type: ignore[arg-type]


SELECT = Right("TABLE", ORDERS, "SELECT")


@pytest.mark.parametrize(
    ("held", "owners", "state"),
    [
        ({"publisher": ["SELECT"]}, {}, Weight.OK),
        ({"someone": ["MODIFY"], "engineers": ["SELECT"]}, {}, Weight.OK),
        ({"account users": ["ALL_PRIVILEGES"]}, {}, Weight.OK),
        ({}, {"main.sales.orders": "engineers"}, Weight.OK),
        ({"publisher": ["MODIFY"], "someone": ["SELECT"]}, {}, Weight.WRONG),
    ],
)
def test_a_right_is_held_by_oneself_a_group_everybody_or_as_the_owner(
    held: dict[str, list[str]], owners: dict[str, str], state: Weight
) -> None:
    workspace = RecordingGrants("publisher", ["engineers"], {("TABLE", "main.sales.orders"): held}, owners)
    _, found = checked(workspace, SELECT)
    assert (found.name, found.weight) == ("SELECT on table main.sales.orders", state)


def test_a_missing_right_comes_with_the_statement_that_grants_it() -> None:
    workspace = RecordingGrants("publisher", [], {("CATALOG", "my%23main"): {}})
    _, found = checked(workspace, Right("CATALOG", ("my#main",), "USE_CATALOG"))
    assert found.what == "not granted, unless to a group within a group"
    assert found.fix == "GRANT USE CATALOG ON CATALOG `my#main` TO `publisher`"


def test_one_thing_is_asked_about_once_for_all_its_rights() -> None:
    workspace = RecordingGrants("publisher", [], {("SCHEMA", "main.ours"): {"publisher": ["MODIFY"]}})
    rights = [Right("SCHEMA", ("main", "ours"), privilege) for privilege in ("CREATE_TABLE", "MODIFY")]
    assert [check.weight for check in checked(workspace, *rights)] == [Weight.OK, Weight.WRONG, Weight.OK]
    assert workspace.asked == [("SCHEMA", "main.ours")]


def test_what_may_not_be_asked_is_missing_and_says_so_in_one_line() -> None:
    _, found = checked(RecordingGrants("publisher", [], {}), SELECT)
    assert (found.weight, found.what) == (
        Weight.WRONG,
        "cannot be read: main.sales.orders is not yours to ask about",
    )


def test_a_workspace_that_does_not_let_one_in_is_missing_once() -> None:
    class Closed(RecordingGrants):
        def me(self) -> NoReturn:
            raise Unauthenticated("Invalid access token")

    (found,) = checked(Closed("publisher", [], {}), SELECT)
    assert (found.name, found.weight, found.what) == ("workspace", Weight.WRONG, "Invalid access token")


def test_a_right_that_no_answer_came_about_is_missing_and_the_next_is_asked_about() -> None:
    class Slow(RecordingGrants):
        def get_effective(self, securable_type: str, full_name: str, **more: Any) -> EffectivePermissionsList:
            if securable_type == "SCHEMA":
                raise TimeoutError("Timed out after 0:05:00")
            return super().get_effective(securable_type, full_name, **more)

    workspace = Slow("publisher", [], {("TABLE", "main.sales.orders"): {"publisher": ["SELECT"]}})
    _, schema, table = checked(workspace, Right("SCHEMA", ("main", "sales"), "USE_SCHEMA"), SELECT)
    assert (schema.weight, schema.what) == (Weight.WRONG, "cannot be read: Timed out after 0:05:00")
    assert table.weight is Weight.OK
