"""The Fabric commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from fixtures.onelake import DATABASE, SECRET, WORKSPACE, OneLake
from fixtures.onelake.fabric import SQL_MIRROR
from fixtures.onelake.faults import Fault, How
from mirrorfeed.cli import main
from tests.support.json_output import run_json

OTHER = "99999999-9999-4999-8999-999999999999"
TABLES = "tables:\n  - {source: ./orders, target: sales.orders, keys: [id]}\n  - {source: ./lines, target: lines}\n"


class Project:
    def __init__(self, folder: Path, onelake: OneLake) -> None:
        self.file, self.onelake = folder / "mirrorfeed.yml", onelake
        self.configure()

    def configure(self, zone: str = f"onelake://{WORKSPACE}/{DATABASE}") -> None:
        self.file.write_text(self.onelake.configuration(zone) + TABLES, encoding="utf-8")

    def run(self, *arguments: str, code: int = 0) -> str:
        """Return the output of a command in one line."""
        result = CliRunner().invoke(main, [*arguments, "--config", str(self.file)])
        assert result.exit_code == code, result.output
        return " ".join(result.output.split())

    def publish(self, folder: str) -> None:
        self.onelake.store().create(f"{folder}/{1:020d}.parquet", b"")


@pytest.fixture
def project(tmp_path: Path, onelake: OneLake) -> Project:
    return Project(tmp_path, onelake)


def test_create_makes_a_database_and_prints_its_landing_zone(project: Project) -> None:
    project.configure(f"onelake://{WORKSPACE}")
    needed = project.run("fabric", "status", code=1)
    assert "is not in a mirrored database of Fabric. Set `landing_zone: onelake://<workspace id>/<mirrored" in needed

    response = project.run("fabric", "create", "orders")
    line = response.partition("landing_zone: ")[2]
    assert "The mirrored database 'orders' was created. Set in the configuration: landing_zone: " in response
    project.configure(line)
    assert project.onelake.fabric.databases[line.rpartition("/")[2]].name == "orders"
    again = run_json("fabric", "create", "orders", "--config", str(project.file))
    assert again.rows == [{"name": "orders", "created": False, "landing_zone": line}]
    assert project.run("fabric", "create", "orders").startswith("The mirrored database 'orders' already exists. ")
    assert "The mirrored database is Initializ" in project.run("fabric", "status")


def test_missing_database_is_reported_before_a_missing_secret(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.configure(f"onelake://{WORKSPACE}")
    monkeypatch.delenv(SECRET)
    assert "is not in a mirrored database of Fabric." in project.run("fabric", "status", code=1)


def test_mirroring_starts_once_every_table_has_a_file(project: Project) -> None:
    project.publish("sales.schema/orders")
    project.onelake.store().create("lines/_metadata.json", b"{}")
    refused = project.run("fabric", "start", code=1)
    assert refused.startswith("Error MF4216: ")
    assert "lines" in refused
    assert "sales.orders" not in refused
    assert not any(verb.startswith("fabric") for verb in project.onelake.verbs())

    project.publish("lines")
    project.onelake.fabric.starting = ["Running"]
    assert project.run("fabric", "start") == "The mirrored database is Running."
    output = project.run("fabric", "status")
    assert "│ dbo.lines │ Replicating │ 0 │ │ sales.orders │ Replicating │ 0 │" in output
    found = run_json("fabric", "status", "--config", str(project.file))
    assert found.value["notes"] == ["The mirrored database is Running."]
    assert [each["status"] for each in found.rows] == ["Replicating"] * 2


def test_mirroring_starts_without_files_by_force_and_stops(project: Project) -> None:
    project.onelake.fabric.databases[DATABASE].status = "Running"
    assert run_json("fabric", "start", "--force", "--config", str(project.file)).value == {
        "ok": True,
        "rows": [{"status": "Running"}],
        "notes": [],
    }
    project.onelake.fabric.databases[DATABASE].status = "Stopped"
    assert run_json("fabric", "stop", "--config", str(project.file)).rows == [{"status": "Stopped"}]


@pytest.mark.parametrize("command", ["start", "stop", "status"])
def test_folder_landing_zone_has_no_fabric_commands(project: Project, command: str) -> None:
    project.file.write_text(f"landing_zone: ./landing\n{TABLES}")
    assert "/landing is not in a mirrored database of Fabric." in project.run("fabric", command, code=1)


def test_database_of_another_type_has_no_landing_zone(project: Project) -> None:
    project.configure(f"onelake://{WORKSPACE}/{SQL_MIRROR}")
    project.onelake.files.add_item(SQL_MIRROR, lands=False)
    refused = project.run("fabric", "start", code=1)
    assert "MF4105: The item with the second id in `landing_zone` has no landing zone" in refused


def test_wrong_ids_secrets_and_capacities_are_reported_with_a_fix(project: Project) -> None:
    project.configure(f"onelake://{OTHER}/{DATABASE}")
    assert f"The workspace {OTHER} does not exist in Fabric" in project.run("fabric", "create", "orders", code=1)
    project.configure(f"onelake://{WORKSPACE}/{OTHER}")
    assert f"has no mirrored database {OTHER}" in project.run("fabric", "status", code=1)
    project.configure()
    response = {"status": 429, "code": "CapacityNotActive", "message": "The capacity is paused."}
    project.onelake.server.faults.add(Fault("fabric getMirroringStatus", How.ANSWER, 9, **response))  # type: ignore[arg-type]
    assert "is paused (429 CapacityNotActive: The capacity is paused). Resume" in project.run("fabric", "stop", code=1)
    project.onelake.server.faults.clear()
    project.onelake.server.forbidden = True
    assert "Give the identity the role Contributor" in project.run("fabric", "stop", code=1)
    project.onelake.authority.expired = True
    expired = project.run("fabric", "stop", code=1)
    assert (
        "has expired (AADSTS7000222). Create a new secret in Entra ID, and store its value in the environment"
        in expired
    )
    assert SECRET in expired


@pytest.mark.parametrize("arguments", [("rebuild", "sales.orders", "--yes"), ("status", "--fabric")])
def test_fabric_call_problem_is_reported_before_any_change(
    project: Project, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    project.publish("sales.schema/orders")
    project.onelake.authority.audience = "https://storage.azure.com"
    monkeypatch.setattr("mirrorfeed.runtime.spark_session.get_session", lambda: None)
    assert "Fabric does not accept the token for the mirrored database" in project.run(*arguments, code=1)
    assert project.onelake.store().list("sales.schema/orders")
