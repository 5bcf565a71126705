"""What the Databricks CLI itself says of the bundle, against a stand-in for a workspace."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from fixtures.deployed import layout
from fixtures.workspace import PERSON, PRINCIPAL, Workspace, workspace
from tests.test_pipelines import STEPS
from tests.test_wheel import uv

ROOT = Path(__file__).parent.parent
CLI = shutil.which("databricks")
ZONE = "onelake://0f8fad5b-d9cb-469f-a165-70867728950e/7c9e6679-7425-40de-944b-e07fc1f90ae7"

pytestmark = pytest.mark.skipif(CLI is None, reason="there is no databricks command on PATH")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of what a deployment sends: the CLI writes its state beside it."""
    for name in ("databricks.yml", "pyproject.toml", "uv.lock", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / name)
    for name in ("resources", "notebooks", "src", "tests", "fixtures"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "mirrorfeed.yml").write_text("landing_zone: ./landing\ntables: [{source: a, target: b}]\n")
    return tmp_path


def bundle(project: Path, address: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("DATABRICKS_", "BUNDLE_"))}
    environment |= {"DATABRICKS_HOST": address, "DATABRICKS_TOKEN": "none", "DATABRICKS_CONFIG_FILE": os.devnull}
    environment |= {f"BUNDLE_VAR_{name}": value for name, value in variables.items()}
    environment["PATH"] = os.pathsep.join([str(uv().parent), os.environ["PATH"]])
    return subprocess.run(
        [CLI or "databricks", "bundle", *arguments],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


DEV = {"catalog": "main", "warehouse_id": "5e7e0f"}
SHARED = {**DEV, "service_principal": PRINCIPAL, "landing_zone": ZONE, "operators": "operators", "readers": "analysts"}
VARIABLES = {"dev": DEV, "staging": SHARED, "prod": SHARED}
TARGETS = [("dev", PERSON), ("staging", PRINCIPAL), ("prod", PRINCIPAL)]


@pytest.mark.parametrize(("target", "me"), TARGETS)
def test_a_target_is_valid_without_a_warning(project: Path, target: str, me: str) -> None:
    with workspace(me) as (_, address):
        answer = bundle(project, address, "validate", "--strict", "-t", target, **VARIABLES[target])
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "Validation OK!" in answer.stdout


def classic(project: Path, target: str) -> None:
    """Takes the README at its word: its variables for a classic cluster, in the target."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = (text for text in re.findall(r"```yaml\n(.*?)```", readme, re.DOTALL) if "cluster_key: classic" in text)
    document = yaml.safe_load((project / "databricks.yml").read_text(encoding="utf-8"))
    document["targets"][target]["variables"] = yaml.safe_load(block)["variables"]
    (project / "databricks.yml").write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")


@pytest.mark.parametrize(
    ("target", "me", "prepare"),
    [("dev", PERSON, None), ("prod", PRINCIPAL, classic)],
    ids=["dev", "prod on a classic cluster"],
)
def test_a_second_deployment_changes_nothing(
    project: Path, target: str, me: str, prepare: Callable[[Path, str], None] | None
) -> None:
    if prepare:
        prepare(project, target)
    with workspace(me) as (made, address):
        first = bundle(project, address, "deploy", "-t", target, **VARIABLES[target])
        assert first.returncode == 0, first.stderr
        assert re.search(r"Resources: [1-9]\d* created, 0 changed, 0 deleted, 0 unchanged", first.stderr + first.stdout)
        second = bundle(project, address, "deploy", "-t", target, **VARIABLES[target])
        assert re.search(r"Resources: 0 created, 0 changed, 0 deleted, [1-9]", second.stderr + second.stdout)
        plan = bundle(project, address, "plan", "-t", target, **VARIABLES[target])
        assert "Plan: 0 to add, 0 to change, 0 to delete" in plan.stdout + plan.stderr
        assert made.not_known == []
        (wheel,) = wheels(made)
        assert synced(made) == layout(wheel)
    assert compute(made) == ({"classic"} if prepare else {"serverless"})


def synced(made: Workspace) -> set[str]:
    """What is in the deployed folder."""
    return {path.split("/files/")[1] for path in made.files if "/files/" in path}


def wheels(made: Workspace) -> set[str]:
    """Those that tasks find."""
    return {path.split("/.internal/")[1] for path in made.files if "/.internal/" in path}


def used(made: Workspace) -> set[str]:
    """The wheels that the jobs name."""
    named = re.findall(r"/\.internal/([^\"]+\.whl)", json.dumps(made.of_kind("job")))
    return set(named)


def test_what_is_deployed_again_with_another_source_is_another_wheel_and_the_one_before_stays(project: Path) -> None:
    with workspace() as (made, address):
        assert bundle(project, address, "deploy", **DEV).returncode == 0
        (first,) = before = used(made)
        assert wheels(made) == before
        with (project / "src/mirrorfeed/errors.py").open("a", encoding="utf-8") as source:
            source.write("# the version is as it was, the content is not\n")
        answer = bundle(project, address, "deploy", **DEV)
        assert re.search(r"Resources: 0 created, [1-9]\d* changed, 0 deleted", answer.stderr + answer.stdout)
        (second,) = used(made)
        assert first != second
        assert wheels(made) == {first, second}  # a task of a run that goes on may still start with the first
        assert synced(made) == layout(second)
        assert bundle(project, address, "deploy", "--var", "keep_wheels=false", **DEV).returncode == 0
        assert wheels(made) == {second}
        assert made.not_known == []


def test_a_deployment_without_a_configuration_or_with_a_wrong_one_fails_when_it_is_built(project: Path) -> None:
    with workspace() as (made, address):
        (project / "mirrorfeed.yml").write_text("landing_zone: ./landing\ntables: [{source: a}]\n")
        wrong = bundle(project, address, "deploy", **DEV)
        (project / "mirrorfeed.yml").unlink()
        missing = bundle(project, address, "deploy", **DEV)
    assert (wrong.returncode, missing.returncode) == (1, 1)
    assert "mirrorfeed.yml:2: target: " in wrong.stderr
    assert "There is no configuration at mirrorfeed.yml. Run `mirrorfeed init`" in missing.stderr
    assert not made.of_kind("job")


def overrides(project: Path, target: str, variables: dict[str, Any]) -> None:
    file = project / f".databricks/bundle/{target}/variable-overrides.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(variables), encoding="utf-8")


def test_more_tables_with_an_archive_than_a_job_takes_are_refused_when_it_is_built(project: Path) -> None:
    overrides(project, "dev", {"archive_tables": json.dumps([f"main.sales.orders_{n:06}" for n in range(500)])})
    with workspace() as (made, address):
        answer = bundle(project, address, "deploy", **DEV)
    assert answer.returncode == 1
    assert "The variable archive_tables has 14,000 characters, and a job takes 10,000." in answer.stderr
    assert not made.of_kind("job")


def readme_variables() -> dict[str, Any]:
    """Those that the README writes into variable-overrides.json."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = (text for text in re.findall(r"```json\n(.*?)```", readme, re.DOTALL) if '"catalog"' in text)
    found: dict[str, Any] = json.loads(block)
    return found | {"service_principal": PRINCIPAL, "landing_zone": ZONE}


def test_the_variables_of_the_readme_are_taken_and_reach_what_is_deployed(project: Path) -> None:
    variables = readme_variables()
    overrides(project, "prod", variables)
    with workspace(PRINCIPAL) as (made, address):
        assert bundle(project, address, "validate", "--strict", "-t", "prod").returncode == 0
        assert bundle(project, address, "deploy", "-t", "prod").returncode == 0
        again = bundle(project, address, "deploy", "-t", "prod")
    assert re.search(r"Resources: 0 created, 0 changed, 0 deleted, [1-9]", again.stderr + again.stdout)
    (publish,) = (job for job in made.of_kind("job").values() if job["settings"]["name"] == "mirrorfeed publish")
    assert publish["settings"]["email_notifications"]["on_failure"] == variables["notify"]
    (file,) = (text for path, text in made.files.items() if path.endswith("/deployed/deployment.json"))
    assert json.loads(file) == {
        "landing_zone": ZONE,
        "ledger": f"{variables['catalog']}.mirrorfeed.ledger",
        "mirror": "",
        "archive_tables": json.loads(variables["archive_tables"]),
    }


def test_the_steps_of_both_pipelines_give_the_variables_so_that_they_are_taken(project: Path) -> None:
    wanted = json.dumps(readme_variables())
    for name, step in STEPS.items():
        shutil.rmtree(project / ".databricks", ignore_errors=True)
        environment = os.environ | {"TARGET": "prod", "VARIABLES": wanted}
        subprocess.run(["bash", "-c", step], cwd=project, env=environment, check=True)
        with workspace(PRINCIPAL) as (_, address):
            answer = bundle(project, address, "validate", "--strict", "-t", "prod", service_principal=PRINCIPAL)
        assert answer.returncode == 0, (name, answer.stderr)


@pytest.mark.parametrize("readers", ["analysts", "operators"], ids=["other readers", "the operators alone"])
def test_operators_and_readers_may_open_the_dashboard_and_read_its_figures(project: Path, readers: str) -> None:
    with workspace(PRINCIPAL) as (made, address):
        variables = SHARED | {"readers": readers}
        assert bundle(project, address, "deploy", "-t", "prod", **variables).returncode == 0
        again = bundle(project, address, "deploy", "-t", "prod", **variables)
        assert re.search(r"Resources: 0 created, 0 changed, 0 deleted, [1-9]", again.stderr + again.stdout)
    (dashboard,) = made.of_kind("dashboard")
    opened = made.things["permissions", f"dashboards/{dashboard}"]["access_control_list"]
    assert {"operators", readers} <= {each.get("group_name") for each in opened}
    (granted,) = made.of_kind("grants").values()
    privileges = {each["principal"]: set(each["privileges"]) for each in granted["privilege_assignments"]}
    assert privileges == {
        PRINCIPAL: {"USE_SCHEMA", "CREATE_TABLE", "SELECT", "MODIFY"},
        "operators": {"USE_SCHEMA", "SELECT"},
        readers: {"USE_SCHEMA", "SELECT"},
    }


def test_what_was_uninstalled_is_installed_again_over_its_ledger(project: Path) -> None:
    with workspace(PRINCIPAL) as (made, address):

        def call(*words: str) -> None:
            answer = bundle(project, address, *words, "-t", "prod", **SHARED)
            assert answer.returncode == 0, answer.stderr

        call("deploy")
        call("deployment", "unbind", "mirrorfeed")
        call("destroy", "--auto-approve")
        assert (made.of_kind("job"), set(made.of_kind("schemas"))) == ({}, {"main.mirrorfeed"})
        assert bundle(project, address, "deploy", "-t", "prod", **SHARED).returncode == 1  # it is there already
        call("deployment", "bind", "mirrorfeed", "main.mirrorfeed", "--auto-approve")
        call("deploy")
        assert made.of_kind("job")
        assert made.not_known == []


def compute(made: Workspace) -> set[str]:
    """On what the deployed tasks run; each has the wheel there."""
    found: set[str] = set()
    for job in made.of_kind("job").values():
        settings = job["settings"]
        for task in settings["tasks"]:
            task = task.get("for_each_task", {}).get("task", task)
            if "environment_key" in task:
                (environment,) = settings["environments"]
                assert environment["environment_key"] == task["environment_key"]
                assert [path.endswith(".whl") for path in environment["spec"]["dependencies"]] == [True]
                assert "libraries" not in task
                found.add("serverless")
            if "job_cluster_key" in task:
                (cluster,) = settings["job_clusters"]
                assert cluster["job_cluster_key"] == task["job_cluster_key"]
                assert [library["whl"].endswith(".whl") for library in task["libraries"]] == [True]
                found.add("classic")
    return found


@pytest.mark.parametrize("missing", sorted(SHARED))
def test_a_missing_variable_is_named(project: Path, missing: str) -> None:
    variables = {name: value for name, value in VARIABLES["prod"].items() if name != missing}
    with workspace(PRINCIPAL) as (_, address):
        answer = bundle(project, address, "validate", "-t", "prod", **variables)
    assert answer.returncode == 1
    assert f"no value assigned to required variable {missing}." in answer.stderr


def test_the_ledgers_schema_is_not_destroyed_with_the_rest(project: Path) -> None:
    with workspace() as (made, address):
        assert bundle(project, address, "deploy", "-t", "dev", **DEV).returncode == 0
        answer = bundle(project, address, "destroy", "-t", "dev", "--auto-approve", **DEV)
    assert answer.returncode == 1
    assert "resources.schemas.mirrorfeed has lifecycle.prevent_destroy set" in answer.stderr
    assert made.of_kind("schemas")
