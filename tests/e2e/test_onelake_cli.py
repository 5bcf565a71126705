"""Whole journeys through the commands, with a landing zone in a simulated OneLake and the replica as Fabric."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from fixtures.onelake import DATABASE, WORKSPACE, OneLake
from fixtures.onelake.faults import Fault, How
from mirrorfeed.cli import main
from mirrorfeed.landing.names import data_name
from tests.support.delta import DeltaTable
from tests.support.json_output import JsonResult, run_json

ADDRESS = f"onelake://{WORKSPACE}/{DATABASE}"


class Project:
    def __init__(self, folder: Path, onelake: OneLake) -> None:
        self.folder, self.mirror, self.onelake = folder, str(folder / "mirror"), onelake
        table = "tables:\n  - {source: ./orders, target: sales.orders, keys: [id]}\n"
        (folder / "mirrorfeed.yml").write_text(onelake.configuration() + table, encoding="utf-8")

    def run(self, *arguments: str, code: int = 0, answer: str = "") -> str:
        command = [*arguments, "--config", str(self.folder / "mirrorfeed.yml")]
        result = CliRunner().invoke(main, command, env={"COLUMNS": "400"}, input=answer)
        assert result.exit_code == code, result.output
        return " ".join(result.output.split())

    def run_json(self, *arguments: str) -> JsonResult:
        return run_json(*arguments, "--config", str(self.folder / "mirrorfeed.yml"))

    def files(self) -> list[str]:
        return [entry.name for entry in self.onelake.store().list("sales.schema/orders") if entry.name[0] != "_"]


@pytest.fixture
def project(spark: SparkSession, tmp_path: Path, onelake: OneLake) -> Project:
    return Project(tmp_path, onelake)


def test_onelake_journey_from_publish_to_rebuild(spark: SparkSession, project: Project, onelake: OneLake) -> None:
    table = DeltaTable(spark, project.folder / "orders")
    table.insert(1)
    throttled = Fault("put blob", How.ANSWER, 2, status=429, code="TooManyRequests", retry_after="0", after=2)
    onelake.server.faults.add(throttled)  # in an executor: the log and the metadata are created before its file
    onelake.server.faults.add(Fault("rename", How.ANSWER, 1))
    published = project.run("publish")
    assert "snapshot to 1" in published
    assert published.endswith("3 requests had to be repeated.")

    onelake.fabric.starting = ["Running"]
    assert project.run("fabric", "start").endswith("The mirrored database is Running.")
    where = f"abfss://{WORKSPACE}@{onelake.address}/{DATABASE}/Tables/sales/orders"
    assert f"Spark cannot read the mirror of {project.folder}/orders at {where}: " in project.run("verify", code=1)
    (row,) = project.run_json("status", "--fabric").value["rows"]
    assert (row["published_version"], row["newest_version"], row["not_consumed"]) == (1, 1, 1)
    assert row["service"] == "Replicating, 0 rows"
    assert "in Fabric" in project.run("status", "--fabric")
    assert "in Fabric" not in project.run("status")
    assert "1 table: no findings The landing zone has no _partnerEvents.json" in project.run("lint", ADDRESS)

    table.sql("UPDATE {} SET v = 'new'")
    project.run("replicate", ADDRESS, project.mirror)
    project.run("publish")
    behind = "equal at version 1, 1 row; published up to version 2, 1 file not consumed"
    assert behind in project.run("verify", "--mirror", project.mirror)
    project.run("replicate", ADDRESS, project.mirror)

    assert "Error MF1010" in project.run("rebuild", "sales.orders", answer="n\n", code=1)
    assert project.files() == [data_name(2)]
    rebuilt = project.run("rebuild", "sales.orders", answer="y\n")
    assert f"/{DATABASE}/Files/LandingZone/sales.schema/orders is deleted with all its contents" in rebuilt
    assert "snapshot to 2" in rebuilt
    assert project.files() == [data_name(1)]
    project.run("replicate", ADDRESS, project.mirror)
    assert project.run("verify", "--mirror", project.mirror).count("equal at version 2, 1 row") == 1


def test_rebuild_waits_for_fabric_and_resumes(spark: SparkSession, project: Project, onelake: OneLake) -> None:
    DeltaTable(spark, project.folder / "orders").insert(1)
    project.run("publish")
    onelake.fabric.databases[DATABASE].status = "Running"
    onelake.fabric.databases[DATABASE].tables = {("sales", "orders"): {"status": "Replicating"}}
    onelake.fabric.drop_looks = 2
    failed = project.run("rebuild", "sales.orders", "--yes", "--wait", "0", code=1)
    assert "sales.orders: waiting until Fabric has dropped the table; current status: Replicating" in failed
    assert "Error MF4214: The folder of sales.orders was deleted, but after 0 s" in failed
    assert project.files() == []

    onelake.fabric.databases[DATABASE].tables = {}
    (rebuilt,) = project.run_json("rebuild", "sales.orders", "--yes", "--wait", "0").rows
    assert (rebuilt["what"], rebuilt["from_version_exclusive"], rebuilt["to_version_inclusive"]) == (
        "snapshot to 1",
        None,
        1,
    )
    assert project.files() == [data_name(1)]


def test_go_live_checks_run_against_the_simulator_and_ask_about_the_others(
    spark: SparkSession, project: Project, onelake: OneLake
) -> None:
    DeltaTable(spark, project.folder / "orders").insert(1)
    onelake.fabric.databases[DATABASE].status = "Running"
    onelake.fabric.databases[DATABASE].tables = {("sales", "orders"): {"status": "Replicating"}}
    page = project.folder / "results.md"
    numbers = [word for number in (3, 9, 10, 18) for word in ("--check", str(number))]
    output = project.run("setup", "go-live", *numbers, "--to", str(page), answer="ok\none task\n")
    assert f"The results were written to {page}." in output
    results = page.read_text(encoding="utf-8")
    assert "| 3 | Serverless compute, first and second run | ok | 1 table published, then 0 (nothing new) |" in results
    assert "| 9 | Task values | ok | one task |" in results
    assert "| 10 | Consumed files | ok | 1 Replicating; 1 table without rows |" in results
    assert "| 18 | The dashboard | not done | no answer |" in results
    assert "sales" not in results
