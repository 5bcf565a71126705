"""The bundle, validated and deployed by the Databricks CLI against a simulated workspace."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
import yaml

from fixtures.workspace import PERSON, PRINCIPAL, Workspace, workspace
from tests.support.bundle import (
    DEV,
    SHARED,
    TARGETS,
    VARIABLES,
    classic,
    compute,
    deployed,
    granted,
    of_the_page,
    rendered,
)
from tests.support.bundle import databricks as call_databricks
from tests.support.deployed import layout
from tests.test_pipelines import STEPS

ROOT = Path(__file__).parent.parent
CLI = shutil.which("databricks")

pytestmark = pytest.mark.skipif(CLI is None, reason="there is no databricks command on PATH")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the deployed files, because the CLI writes its state next to them."""
    for name in ("databricks.yml", "pyproject.toml", "uv.lock", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / name)
    for name in (".ci", "resources", "notebooks", "src", "tests", "fixtures", "tools"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "mirrorfeed.yml").write_text("landing_zone: ./landing\ntables: [{source: a, target: b}]\n")
    return tmp_path


def databricks(project: Path, address: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Call the Databricks CLI in a project whose targets name the workspace at `address`."""
    file = project / "databricks.yml"
    text = re.sub(r"host: https?://\S+", f"host: {address}", file.read_text(encoding="utf-8"))
    file.write_text(text, encoding="utf-8")
    return call_databricks(project, address, *arguments, **variables)


@pytest.mark.parametrize("target", ["staging", "prod"])
def test_target_without_its_workspace_is_refused_whatever_the_login(project: Path, target: str) -> None:
    with workspace(PRINCIPAL) as (service, address):
        answer = call_databricks(project, address, "deploy", "-t", target, **SHARED)
    assert answer.returncode == 1
    assert "lookup set-workspace-host-in-databricks-yml.invalid" in answer.stderr
    assert not service.objects


@pytest.mark.parametrize(("target", "me"), TARGETS.items())
def test_target_validates_without_a_warning(project: Path, target: str, me: str) -> None:
    with workspace(me) as (_, address):
        answer = databricks(project, address, "validate", "--strict", "-t", target, **VARIABLES[target])
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "Validation OK!" in answer.stdout


@pytest.mark.parametrize(("target", "me"), TARGETS.items())
def test_databricks_cli_renders_the_bundle_like_the_tests(project: Path, target: str, me: str) -> None:
    with workspace(me) as (_, address):
        answer = databricks(project, address, "validate", "-t", target, "-o", "json", **VARIABLES[target])
    own = rendered(target)
    schema = own["resources"]["schemas"]["mirrorfeed"]["name"]
    real = json.loads(answer.stdout.replace("${resources.schemas.mirrorfeed.name}", schema))
    assert list(differences(own["resources"], real["resources"])) == []
    assert real["artifacts"]["wheel"]["build"] == own["artifacts"]["wheel"]["build"]
    names = {(kind, name) for kind, resources in real["resources"].items() for name in resources}
    assert names == {(kind, name) for kind, resources in own["resources"].items() for name in resources}


def differences(own: Any, real: Any, path: str = "") -> Iterator[str]:
    """Differences of the second document from the first.

    The CLI omits empty texts, sorts tasks, writes numbers in texts as text, adds prefixes to names and paths, resolves
    relative paths, and adds permissions."""
    if isinstance(own, dict):
        for name, value in own.items():
            if value != "":
                rights = real.get(name) if isinstance(real, dict) else None
                yield from differences(value, rights, f"{path}.{name}")
    elif isinstance(own, list) and isinstance(real, list):
        if path.endswith(".tasks"):
            own, real = (sorted(tasks, key=lambda task: str(task["task_key"])) for tasks in (own, real))
        if path.endswith(".permissions"):
            real = real[: len(own)]  # the permissions of the whole bundle come last
        for at, (value, rights) in enumerate(zip_longest(own, real)):
            yield from differences(value, rights, f"{path}[{at}]")
    elif not (real == own or (isinstance(real, str) and real.endswith(str(own).removeprefix("..")))):
        yield f"{path}: {own} {real}"


def make_classic(project: Path, target: str) -> None:
    """Change the target as the page about Databricks describes it for verify."""
    document = yaml.safe_load((project / "databricks.yml").read_text(encoding="utf-8"))
    document["targets"][target]["variables"] = classic()
    (project / "databricks.yml").write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")


@pytest.mark.parametrize(
    ("target", "me", "prepare"),
    [("dev", PERSON, None), ("prod", PRINCIPAL, make_classic)],
    ids=["dev", "prod with verify on a classic cluster"],
)
def test_second_deployment_changes_nothing(
    project: Path, target: str, me: str, prepare: Callable[[Path, str], None] | None
) -> None:
    if prepare:
        prepare(project, target)
    with workspace(me) as (service, address):
        first = databricks(project, address, "deploy", "-t", target, **VARIABLES[target])
        assert first.returncode == 0, first.stderr
        assert re.search(r"Resources: [1-9]\d* created, 0 changed, 0 deleted, 0 unchanged", first.stderr + first.stdout)
        second = databricks(project, address, "deploy", "-t", target, **VARIABLES[target])
        assert re.search(r"Resources: 0 created, 0 changed, 0 deleted, [1-9]", second.stderr + second.stdout)
        plan = databricks(project, address, "plan", "-t", target, **VARIABLES[target])
        assert "Plan: 0 to add, 0 to change, 0 to delete" in plan.stdout + plan.stderr
        assert service.not_known == []
        (wheel,) = uploaded_wheels(service)
        assert synced_files(service) == layout(wheel)
    jobs = (job["settings"] for job in service.of_kind("job").values())
    assert compute(jobs) == ({"classic", "serverless"} if prepare else {"serverless"})


def synced_files(service: Workspace) -> set[str]:
    """Files in the deployed folder."""
    return {path.split("/files/")[1] for path in service.files if "/files/" in path}


def uploaded_wheels(service: Workspace) -> set[str]:
    """Wheels in the deployed folder."""
    return {path.split("/.internal/")[1] for path in service.files if "/.internal/" in path}


def used_wheels(service: Workspace) -> set[str]:
    """Wheels that the jobs use."""
    wheels = re.findall(r"/\.internal/([^\"]+\.whl)", json.dumps(service.of_kind("job")))
    return set(wheels)


def test_deployment_of_changed_sources_adds_a_wheel(project: Path) -> None:
    with workspace() as (service, address):
        assert databricks(project, address, "deploy", **DEV).returncode == 0
        (first,) = before = used_wheels(service)
        assert uploaded_wheels(service) == before
        with (project / "src/mirrorfeed/errors.py").open("a", encoding="utf-8") as source:
            source.write("# the version is as it was, the content is not\n")
        answer = databricks(project, address, "deploy", **DEV)
        assert re.search(r"Resources: 0 created, [1-9]\d* changed, 0 deleted", answer.stderr + answer.stdout)
        (second,) = used_wheels(service)
        assert first != second
        assert uploaded_wheels(service) == {
            first,
            second,
        }  # a task of a running job may still start with the first wheel
        assert synced_files(service) == layout(second)
        assert databricks(project, address, "deploy", "--var", "keep_old_wheels=false", **DEV).returncode == 0
        assert uploaded_wheels(service) == {second}
        assert service.not_known == []


def test_missing_or_invalid_configuration_fails_the_build(project: Path) -> None:
    with workspace() as (service, address):
        (project / "mirrorfeed.yml").write_text("landing_zone: ./landing\ntables: [{source: a}]\n")
        wrong = databricks(project, address, "deploy", **DEV)
        (project / "mirrorfeed.yml").unlink()
        missing = databricks(project, address, "deploy", **DEV)
    assert (wrong.returncode, missing.returncode) == (1, 1)
    assert "mirrorfeed.yml:2: target: " in wrong.stderr
    assert "There is no configuration file mirrorfeed.yml. Run `mirrorfeed init`" in missing.stderr
    assert not service.of_kind("job")


def overrides(project: Path, target: str, variables: dict[str, Any]) -> None:
    file = project / f".databricks/bundle/{target}/variable-overrides.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(variables), encoding="utf-8")


def test_archive_tables_that_exceed_a_job_parameter_fail_the_build(project: Path) -> None:
    overrides(project, "dev", {"archive_tables": json.dumps([f"main.sales.orders_{n:06}" for n in range(500)])})
    with workspace() as (service, address):
        answer = databricks(project, address, "deploy", **DEV)
    assert answer.returncode == 1
    assert "The bundle variable `archive_tables` has 14,000 characters, but a job accepts only 10,000." in answer.stderr
    assert not service.of_kind("job")


def test_documented_variables_are_valid_and_reach_the_deployment(project: Path) -> None:
    variables = of_the_page()
    trigger = {"pause_status": "UNPAUSED", "table_update": {"table_names": ["main.sales.orders"]}}
    runs = {"publish_trigger": trigger, "max_concurrent_runs": 2, "queue_enabled": False}
    overrides(project, "prod", variables | runs)
    with workspace(PRINCIPAL) as (service, address):
        assert databricks(project, address, "validate", "--strict", "-t", "prod").returncode == 0
        assert databricks(project, address, "deploy", "-t", "prod").returncode == 0
        second = databricks(project, address, "deploy", "-t", "prod")
    assert re.search(r"Resources: 0 created, 0 changed, 0 deleted, [1-9]", second.stderr + second.stdout)
    (publish,) = (job for job in service.of_kind("job").values() if job["settings"]["name"] == "mirrorfeed publish")
    settings = publish["settings"]
    assert settings["email_notifications"]["on_failure"] == variables["notify"]
    assert (settings["trigger"], settings["max_concurrent_runs"]) == (trigger, 2)
    assert settings["queue"] == {"enabled": False}
    (file,) = (text for path, text in service.files.items() if path.endswith("/deployed/deployment.json"))
    assert json.loads(file) == deployed(variables)


def test_both_pipelines_pass_the_variables_correctly(project: Path) -> None:
    wanted = json.dumps(of_the_page())
    for name, step in STEPS.items():
        shutil.rmtree(project / ".databricks", ignore_errors=True)
        environment = os.environ | {"TARGET": "prod", "VARIABLES": wanted}
        subprocess.run(["bash", "-c", step], cwd=project, env=environment, check=True)
        with workspace(PRINCIPAL) as (_, address):
            answer = databricks(project, address, "validate", "--strict", "-t", "prod", service_principal=PRINCIPAL)
        assert answer.returncode == 0, (name, answer.stderr)


@pytest.mark.parametrize("readers", ["analysts", "operators"], ids=["other readers", "the operators alone"])
def test_operators_and_readers_can_read_the_dashboard_and_its_data(project: Path, readers: str) -> None:
    with workspace(PRINCIPAL) as (service, address):
        variables = SHARED | {"readers": readers}
        assert databricks(project, address, "deploy", "-t", "prod", **variables).returncode == 0
        second = databricks(project, address, "deploy", "-t", "prod", **variables)
        assert re.search(r"Resources: 0 created, 0 changed, 0 deleted, [1-9]", second.stderr + second.stdout)
    (dashboard,) = service.of_kind("dashboard")
    opened = service.objects["permissions", f"dashboards/{dashboard}"]["access_control_list"]
    assert {"operators", readers} <= {each.get("group_name") for each in opened}
    for kind, rights in granted(variables).items():
        (assigned,) = (
            each for name, each in service.of_kind("grants").items() if name.startswith(f"{kind.rstrip('s')}/")
        )
        assert {each["principal"]: set(each["privileges"]) for each in assigned["privilege_assignments"]} == rights


def test_bundle_can_be_reinstalled_over_its_ledger(project: Path) -> None:
    with workspace(PRINCIPAL) as (service, address):

        def call(*words: str) -> None:
            answer = databricks(project, address, *words, "-t", "prod", **SHARED)
            assert answer.returncode == 0, answer.stderr

        call("deploy")
        call("deployment", "unbind", "mirrorfeed")
        call("destroy", "--auto-approve")
        assert (service.of_kind("job"), set(service.of_kind("schemas"))) == ({}, {"main.mirrorfeed"})
        assert not service.of_kind("volumes")  # including the staging volume, which stores nothing permanently
        assert databricks(project, address, "deploy", "-t", "prod", **SHARED).returncode == 1  # it already exists
        call("deployment", "bind", "mirrorfeed", "main.mirrorfeed", "--auto-approve")
        call("deploy")
        assert service.of_kind("job")
        assert set(service.of_kind("volumes")) == {"main.mirrorfeed.staging"}
        assert service.not_known == []


def test_staging_and_prod_are_deployed_to_one_workspace(project: Path) -> None:
    with workspace(PRINCIPAL) as (service, address):
        for target in ("staging", "prod"):
            answer = databricks(project, address, "deploy", "-t", target, **SHARED)
            assert answer.returncode == 0, answer.stderr
        assert set(service.of_kind("schemas")) == {"main.mirrorfeed_staging", "main.mirrorfeed"}
        assert len(service.of_kind("scope")) == 2
        names = [job["settings"]["name"] for job in service.of_kind("job").values()]
        assert len(set(names)) == len(names)
        assert {"mirrorfeed publish", "[staging] mirrorfeed publish"} <= set(names)


@pytest.mark.parametrize("missing", sorted(SHARED))
def test_missing_variable_is_named(project: Path, missing: str) -> None:
    variables = {name: value for name, value in VARIABLES["prod"].items() if name != missing}
    with workspace(PRINCIPAL) as (_, address):
        answer = databricks(project, address, "validate", "-t", "prod", **variables)
    assert answer.returncode == 1
    assert f"no value assigned to required variable {missing}." in answer.stderr


def test_outside_dev_the_ledgers_schema_is_not_destroyed_with_the_rest(project: Path) -> None:
    with workspace() as (service, address):
        assert databricks(project, address, "deploy", "-t", "dev", **DEV).returncode == 0
        answer = databricks(project, address, "destroy", "-t", "dev", "--auto-approve", **DEV)
        assert answer.returncode == 0, answer.stderr
        assert {kind for kind, _ in service.objects} <= {"permissions", "grants"}, service.objects
        assert not service.files
    with workspace(PRINCIPAL) as (service, address):
        assert databricks(project, address, "deploy", "-t", "prod", **SHARED).returncode == 0
        answer = databricks(project, address, "destroy", "-t", "prod", "--auto-approve", **SHARED)
    assert answer.returncode == 1
    assert "resources.schemas.mirrorfeed has lifecycle.prevent_destroy set" in answer.stderr
    assert service.of_kind("schemas")
