"""The definition of the mirrored database: its differences from the configuration, and changing them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fixtures.onelake import DATABASE, WORKSPACE, OneLake
from fixtures.onelake.fabric import SQL_MIRROR
from fixtures.onelake.faults import Fault, How
from mirrorfeed.cli import main
from mirrorfeed.config import loader
from mirrorfeed.config.connections import FabricOptions
from mirrorfeed.config.errors import ConfigInvalidError
from mirrorfeed.config.printed_commands import name_config
from mirrorfeed.mirror.errors import settings_not_applied
from mirrorfeed.mirror.fabric import MirroredDatabase
from mirrorfeed.mirror.fabric.status_and_settings import (
    NOTES,
    Setting,
    change_settings,
    find_differences,
    new_definition,
    target_settings,
)
from tests.mirror.fabric.test_cli import TABLES, Project
from tests.raised import raises

PAID, FIXED = NOTES["change_data_feed"], NOTES["default_schema"]


def content(**target: Any) -> dict[str, Any]:
    """Content of a definition, with an unknown field."""
    properties = {"source": {"type": "GenericMirror"}, "target": {"type": "M", "typeProperties": target}}
    return {"properties": {**properties, "mountedTables": []}, "later": 1}


@pytest.mark.parametrize(
    ("existing", "wanted", "found"),
    [
        ({}, {}, []),
        ({"retentionInDays": 7}, {}, []),
        ({"retentionInDays": 7}, {"retention_days": 7}, []),
        ({"retentionInDays": 7}, {"retention_days": 30}, [Setting("retention_days", 7, 30, True)]),
        ({}, {"retention_days": 1}, [Setting("retention_days", None, 1, True)]),
        ({}, {"change_data_feed": True}, [Setting("change_data_feed", None, True, True, PAID)]),
        ({"enableDeltaChangeDataFeed": "true"}, {"change_data_feed": True}, []),
        (
            {"enableDeltaChangeDataFeed": True}, {"change_data_feed": False},
            [Setting("change_data_feed", True, False, True)],
        ),
        ({}, {"change_data_feed": False}, []),
        ({"defaultSchema": "dbo"}, {"default_schema": "s"}, [Setting("default_schema", "dbo", "s", False, FIXED)]),
    ],
)  # fmt: skip
def test_differences_between_definition_and_configuration_are_found(
    existing: dict[str, Any], wanted: dict[str, Any], found: list[Setting]
) -> None:
    assert find_differences(content(**existing), FabricOptions(**wanted)) == found


def test_default_schema_changes_only_while_mirroring_is_stopped() -> None:
    found = find_differences(content(defaultSchema="dbo"), FabricOptions(default_schema="s"), stopped=True)
    assert found == [Setting("default_schema", "dbo", "s", True)]


def test_change_preserves_all_other_settings() -> None:
    existing = content(defaultSchema="dbo", format="Delta", retentionInDays=7, kept="x")
    found = find_differences(existing, FabricOptions(retention_days=3, default_schema="s"))
    assert change_settings(existing, found) == content(defaultSchema="dbo", format="Delta", retentionInDays=3, kept="x")
    assert existing == content(defaultSchema="dbo", format="Delta", retentionInDays=7, kept="x")


@pytest.mark.parametrize("properties", [{}, {"target": None}, {"target": {}}, {"target": {"typeProperties": None}}])
def test_settings_can_be_added_to_a_definition_without_settings(properties: dict[str, Any]) -> None:
    existing = {"properties": properties}
    changed = change_settings(existing, find_differences(existing, FabricOptions(retention_days=3)))
    assert target_settings(changed) == {"retentionInDays": 3}


def test_new_definition_has_no_differences_from_the_configuration() -> None:
    options = FabricOptions(retention_days=30, change_data_feed=True, default_schema="sales")
    assert find_differences(new_definition(options), options) == []
    assert new_definition(FabricOptions())["properties"]["target"]["typeProperties"] == {
        "defaultSchema": "dbo", "format": "Delta", "retentionInDays": 7,
    }  # fmt: skip


def test_apply_changes_differences_and_reads_the_definition_again(
    onelake: OneLake, database: MirroredDatabase, requests: Callable[[], list[str]]
) -> None:
    onelake.fabric.databases[DATABASE].target["later"] = "kept"
    options = FabricOptions(retention_days=30)
    assert database.apply(options) == [Setting("retention_days", None, 30, True)]
    assert onelake.fabric.databases[DATABASE].target == {
        "defaultSchema": "dbo", "format": "Delta", "later": "kept", "retentionInDays": 30,
    }  # fmt: skip
    assert database.apply(options) == []
    read = ["getDefinition", "getMirroringStatus"]
    assert requests() == [*read, "updateDefinition", "getDefinition", *read]


@pytest.mark.parametrize("how", [How.ANSWER, How.DROP_BEFORE, How.DROP_AFTER])
def test_change_with_one_failed_response_is_made(onelake: OneLake, database: MirroredDatabase, how: How) -> None:
    onelake.server.faults.add(Fault("fabric updateDefinition", how))
    database.apply(FabricOptions(retention_days=30))
    assert database.definition()[0]["properties"]["target"]["typeProperties"]["retentionInDays"] == 30


def test_slow_definition_is_awaited(
    onelake: OneLake, database: MirroredDatabase, requests: Callable[[], list[str]]
) -> None:
    onelake.fabric.slow_definition = 2
    assert database.definition()[0]["properties"]["target"]["typeProperties"]["format"] == "Delta"
    assert requests() == ["getDefinition", *["operation"] * 3]


def test_change_without_effect_is_reported(onelake: OneLake, database: MirroredDatabase) -> None:
    onelake.fabric.databases[DATABASE].ignores_changes = True
    with raises(settings_not_applied) as error:
        database.apply(FabricOptions(retention_days=30))
    assert error.value.left == ("retention_days: not set -> 30",)


# Commands


@pytest.fixture
def project(tmp_path: Path, onelake: OneLake) -> Project:
    return Project(tmp_path, onelake)


def configure(project: Project, fabric: str) -> None:
    zone = f"onelake://{WORKSPACE}/{DATABASE}"
    project.file.write_text(f"{project.onelake.configuration(zone)}fabric: {{{fabric}}}\n{TABLES}", encoding="utf-8")


def test_plan_shows_differences_and_only_apply_changes_them(project: Project) -> None:
    assert project.run("fabric", "plan") == (
        "The settings in Fabric match the configuration. In Fabric: retention_days: not set, change_data_feed: not"
        " set, default_schema: dbo."
    )
    configure(project, "retention_days: 30, change_data_feed: true")
    output = f"retention_days: not set -> 30 change_data_feed: not set -> true ({PAID})"
    found = CliRunner().invoke(main, ["fabric", "plan", "--json", "--config", str(project.file)]).stdout
    assert json.loads(found)["rows"][0] == {
        "field": "retention_days", "current": None, "wanted": 30, "changes": True, "note": "",
    }  # fmt: skip
    assert "retentionInDays" not in project.onelake.fabric.databases[DATABASE].target
    requests = project.run("fabric", "apply", code=1)
    assert (requests.startswith(output), "Continue? [y/N]" in requests) == (True, True)
    assert "retentionInDays" not in project.onelake.fabric.databases[DATABASE].target
    assert project.run("fabric", "apply", "--yes").startswith(f"{output} Fabric now has these settings.")
    assert project.run("fabric", "apply") == "No setting had to change."
    assert "In Fabric: retention_days: 30, change_data_feed: true" in project.run("fabric", "plan")
    assert not any("startMirroring" in verb for verb in project.onelake.verbs())


def test_default_schema_is_changed_only_after_mirroring_is_stopped(project: Project) -> None:
    database = project.onelake.fabric.databases[DATABASE]
    database.status = "Running"
    zone = f"onelake://{WORKSPACE}/{DATABASE}"
    entry = "tables: [{source: ./orders, target: sales.orders}]\n"
    project.file.write_text(f"{project.onelake.configuration(zone)}fabric: {{default_schema: sales}}\n{entry}")
    fixed = name_config(FIXED, str(project.file))
    assert project.run("fabric", "apply") == f"No setting had to change. default_schema: dbo -> sales ({fixed})"
    assert not any("updateDefinition" in verb for verb in project.onelake.verbs())
    database.status = "Stopped"
    assert "Fabric now has these settings." in project.run("fabric", "apply", "--yes")
    assert database.target["defaultSchema"] == "sales"


def test_new_database_gets_the_configured_settings(project: Project) -> None:
    configure(project, "retention_days: 14")
    line = project.run("fabric", "create", "orders").partition("landing_zone: ")[2]
    assert project.onelake.fabric.databases[line.rpartition("/")[2]].target["retentionInDays"] == 14


def test_empty_definition_is_reported(project: Project) -> None:
    nothing = Fault("fabric getDefinition", How.ANSWER, 1, status=200)
    project.onelake.server.faults.add(nothing)
    output = project.run("fabric", "plan", code=1)
    assert output.startswith(f"Error MF4217: The definition of the mirrored database {DATABASE} of the workspace")


def test_resume_restarts_only_a_paused_database(project: Project) -> None:
    fabric = project.onelake.fabric.databases[DATABASE]
    fabric.status = "Paused"
    project.onelake.fabric.starting = ["Running"]
    assert project.run("fabric", "resume") == "The mirrored database is Running."
    assert project.run("fabric", "resume").endswith("The mirrored database is Running.")
    fabric.status = "Stopped"
    refused = project.run("fabric", "resume", code=1)
    assert f"MF4219: Mirroring of the mirrored database {DATABASE} of the workspace {WORKSPACE} is Stopped" in refused
    assert [verb for verb in project.onelake.verbs() if "startMirroring" in verb] == ["fabric startMirroring"]


@pytest.mark.parametrize(
    ("fabric", "words"),
    [
        ("retention_days: 0", "retention_days: must be at least 1, not 0"),
        ("retention_days: 31", "retention_days: must be at most 30, not 31"),
        ("change_data_feed: 'yes'", "change_data_feed: must be true or false, not 'yes'"),
        ("default_schema: a.b", "default_schema: 'a.b' cannot be a schema: the target '`a.b`.t' it has a part"),
        (
            "default_schema: sales",
            "default_schema: applies to targets without a schema, which mirrorfeed expects in dbo: add a sch",
        ),
        ("retention: 7", "retention: is not a known field; did you mean retention_days?"),
    ],
)
def test_invalid_fabric_settings_are_refused_with_other_mistakes(project: Project, fabric: str, words: str) -> None:
    configure(project, fabric)
    with pytest.raises(ConfigInvalidError) as caught:
        loader.load(project.file)
    assert [f"{each.field}: {each.reason}"[: len(words)] for each in caught.value.mistakes] == [words]


def test_fabric_settings_for_a_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "mirrorfeed.yml").write_text(f"landing_zone: ./zone\nfabric: {{retention_days: 7}}\n{TABLES}")
    with pytest.raises(ConfigInvalidError, match="fabric: is only for a landing zone in OneLake"):
        loader.load(tmp_path / "mirrorfeed.yml")


def test_database_of_another_type_is_reported_with_its_type(project: Project) -> None:
    project.configure(f"onelake://{WORKSPACE}/{SQL_MIRROR}")
    assert "mirrors another source (AzureSqlDatabase; " in project.run("fabric", "plan", code=1)
