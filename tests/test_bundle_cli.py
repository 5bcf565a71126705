"""What the Databricks CLI itself says of the bundle, against a stand-in for a workspace."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from fixtures.workspace import PERSON, PRINCIPAL, Workspace, workspace
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
    there = {path.split("/files/")[1] for path in made.files if "/files/" in path}
    assert {"mirrorfeed.yml", "notebooks/publish.ipynb", "src/mirrorfeed/cli/task.py"} <= there
    assert not any(path.startswith(("tests/", "fixtures/")) for path in there)
    assert compute(made) == ({"classic"} if prepare else {"serverless"})


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


@pytest.mark.parametrize("missing", ["catalog", "landing_zone", "service_principal"])
def test_a_missing_variable_is_named(project: Path, missing: str) -> None:
    variables = {name: value for name, value in VARIABLES["prod"].items() if name != missing}
    with workspace(PRINCIPAL) as (_, address):
        answer = bundle(project, address, "validate", "-t", "prod", **variables)
    assert answer.returncode == 1
    assert missing in answer.stderr


def test_the_ledgers_schema_is_not_destroyed_with_the_rest(project: Path) -> None:
    with workspace() as (made, address):
        assert bundle(project, address, "deploy", "-t", "dev", catalog="main").returncode == 0
        answer = bundle(project, address, "destroy", "-t", "dev", "--auto-approve", catalog="main")
    assert answer.returncode == 1
    assert "resources.schemas.mirrorfeed has lifecycle.prevent_destroy set" in answer.stderr
    assert made.of_kind("schemas")
