"""The template for `databricks bundle init`: its questions, and the projects that the Databricks CLI creates."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from fixtures.workspace import PERSON, PRINCIPAL, Workspace, workspace
from mirrorfeed.runtime.version import RELEASE
from tests.support.bundle import ZONE, databricks, merged_files, project_files
from tests.support.deployed import build
from tests.test_wheel import uv
from tools.pages import ROOT
from tools.template import FOLDER, copies

SCHEMA: dict[str, Any] = json.loads((ROOT / "template/databricks_template_schema.json").read_text(encoding="utf-8"))
QUESTIONS: dict[str, dict[str, Any]] = SCHEMA["properties"]
OWN_FILES = sorted({path for path in FOLDER.rglob("*") if path.is_file()} - {*copies()})
TEMPLATES = [path for path in (*OWN_FILES, ROOT / "template/template/__skip.tmpl") if path.suffix == ".tmpl"]
WITH_CLI = pytest.mark.skipif(shutil.which("databricks") is None, reason="there is no databricks command on PATH")

LATER = {"service_principal": PRINCIPAL, "operators": "operators", "warehouse_id": "5e7e0f", "landing_zone": ZONE}
"""Answers that can be left blank, and are needed for staging and prod."""
PROJECTS: dict[str, dict[str, str]] = {
    "defaults": {},
    "everything else": {
        "compute": "cluster",
        "cloud": "azure",
        "run": "continuous",
        "alerts": "no",
        "dashboard": "no",
        "more_jobs": "yes",
        "ci": "azure",
        "staging_path": "/Volumes/main/etl/staging",
        "notify": "",
    },
    "aws": {"compute": "cluster", "cloud": "aws", "ci": "none"},
    "gcp": {"compute": "cluster", "cloud": "gcp", "alerts": "no", "more_jobs": "yes"},
}


def test_every_question_has_an_order_a_description_and_a_use() -> None:
    assert [each["order"] for each in QUESTIONS.values()] == [*range(1, len(QUESTIONS) + 1)]
    assert all(each["description"] and "default" in each for each in QUESTIONS.values())
    used = {name for path in TEMPLATES for name in re.findall(r"[ {(]\.(\w+)", path.read_text(encoding="utf-8"))}
    assert used == {*QUESTIONS}


def test_answers_are_kept_for_the_next_upgrade() -> None:
    text = (FOLDER / "answers.json.tmpl").read_text(encoding="utf-8")
    assert json.loads(text) == {name: f"{{{{.{name}}}}}" for name in QUESTIONS}


def test_project_uses_this_release() -> None:
    text = (FOLDER / "requirements.txt.tmpl").read_text(encoding="utf-8")
    assert re.findall(r'\$version := "(.*)"', text) == [RELEASE]


def test_pipelines_of_a_project_pin_the_releases_of_this_repository() -> None:
    known = (ROOT / ".github/workflows/bundle.yml").read_text(encoding="utf-8")
    used = re.findall(r"uses: (.*)", (FOLDER / ".github/workflows/deploy.yml").read_text(encoding="utf-8"))
    assert used
    assert all(f"uses: {each}\n" in known for each in used)


def test_page_lists_every_question() -> None:
    page = (ROOT / "docs/deploy-to-databricks.md").read_text(encoding="utf-8")
    table = page.partition("| Subject | Questions |")[2].partition("\n\n")[0]
    listed = [name for line in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", line.split("|")[2])]
    assert sorted(listed) == sorted(QUESTIONS)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(uv(), tmp_path_factory.mktemp("wheel"))


def create(folder: Path, address: str, wheel: Path, **answers: str) -> Path:
    """Create a project whose requirements name a local wheel."""
    file = folder / "given.json"
    answers = {"dev_host": address, "prod_host": address, **answers}
    file.write_text(json.dumps(answers), encoding="utf-8")
    given = ("--config-file", str(file), "--output-dir", str(folder))
    answer = databricks(folder, address, "init", str(ROOT / "template"), *given)
    assert answer.returncode == 0, answer.stderr
    project = folder / "fabric_mirror"
    (project / "requirements.txt").write_text(f"{wheel}\n", encoding="utf-8")
    return project


def deploy(project: Path, address: str, target: str) -> str:
    answer = databricks(project, address, "deploy", "-t", target)
    assert answer.returncode == 0, answer.stderr
    return answer.stderr + answer.stdout


@WITH_CLI
@pytest.mark.parametrize("given", PROJECTS.values(), ids=PROJECTS)
def test_every_target_of_a_project_is_valid(tmp_path: Path, wheel: Path, given: dict[str, str]) -> None:
    with workspace(PRINCIPAL) as (_, address):
        project = create(tmp_path, address, wheel, **LATER, **given)
        (project / "databricks.yml").write_text(_with_zone_of_staging(project), encoding="utf-8")
        for target in ("dev", "staging", "prod"):
            answer = databricks(project, address, "validate", "--strict", "-t", target)
            assert answer.returncode == 0, answer.stdout + answer.stderr
            assert "Validation OK!" in answer.stdout
    answers = json.loads((project / "answers.json").read_text(encoding="utf-8"))
    assert {**answers, **given} == answers


def _with_zone_of_staging(project: Path) -> str:
    """Return databricks.yml with the landing zone of staging, which is a comment in a new project."""
    text = (project / "databricks.yml").read_text(encoding="utf-8")
    return re.sub(r"# landing_zone: .*", f"landing_zone: {ZONE}", text, count=1)


@WITH_CLI
def test_project_has_the_bundle_of_this_repository(tmp_path: Path, wheel: Path) -> None:
    """Except for the names, the values of the targets, and the command that builds or downloads the wheel."""
    with workspace() as (_, address):
        project = create(tmp_path, address, wheel, more_jobs="yes", run="continuous")
    own, created = deepcopy(merged_files()), project_files(project)
    for document in (own, created):
        del document["artifacts"]["wheel"]["build"], document["bundle"]["name"]
        for target in document["targets"].values():
            del target["variables"]
            target.setdefault("workspace", {}).pop("host", None)
    assert created == own


@WITH_CLI
@pytest.mark.parametrize(
    ("given", "target", "me"), [("everything else", "dev", PERSON), ("defaults", "prod", PRINCIPAL)]
)
def test_second_deployment_of_a_project_changes_nothing(
    tmp_path: Path, wheel: Path, target: str, me: str, given: str
) -> None:
    with workspace(me) as (service, address):
        project = create(tmp_path, address, wheel, **LATER, **PROJECTS[given])
        assert re.search(r"Resources: [1-9]\d* created, 0 changed", deploy(project, address, target))
        assert re.search(r"Resources: 0 created, 0 changed, 0 deleted, [1-9]", deploy(project, address, target))
        assert service.not_known == []
        names = {job["settings"]["name"].partition("mirrorfeed ")[2] for job in service.of_kind("job").values()}
        assert names == _expected_jobs(PROJECTS[given])
        assert any(path.endswith(f"/.internal/{wheel.name}") for path in service.files)
        assert _settings(service)["variables"] == {"catalog": target}
        if target == "dev":
            answer = databricks(project, address, "destroy", "-t", target, "--auto-approve")
            assert answer.returncode == 0, answer.stderr
            assert not service.of_kind("job")


def _expected_jobs(answers: dict[str, str]) -> set[str]:
    jobs = {"publish", "rebuild", "repair", "verify", "verify changes", "check setup", "enable-cdf", "fabric start"}
    jobs |= {"check-alerts"} if answers.get("alerts", "yes") == "yes" else set()
    jobs |= {"follow"} if answers.get("run") == "continuous" else set()
    return jobs | ({"archive", "history", "publish each"} if answers.get("more_jobs") == "yes" else set())


def _settings(service: Workspace) -> dict[str, Any]:
    (file,) = (text for path, text in service.files.items() if path.endswith("/deployed/deployment.json"))
    settings: dict[str, Any] = json.loads(file)
    return settings


@WITH_CLI
def test_production_is_validated_in_its_own_workspace_whatever_the_login_of_the_shell(
    tmp_path: Path, wheel: Path
) -> None:
    with workspace() as (_, dev), workspace(PRINCIPAL) as (_, prod):
        project = create(tmp_path, dev, wheel, **LATER, prod_host=prod)
        for login in (dev, prod):
            answer = databricks(project, login, "validate", "--strict", "-t", "prod", "-o", "json")
            assert answer.returncode == 0, answer.stderr
            found = json.loads(answer.stdout)["workspace"]
            assert (found["host"], found["current_user"]["userName"]) == (prod, PRINCIPAL)


@WITH_CLI
def test_production_names_what_it_needs(tmp_path: Path, wheel: Path) -> None:
    with workspace() as (_, address):
        project = create(tmp_path, address, wheel)
        answer = databricks(project, address, "validate", "-t", "prod")
    assert answer.returncode == 1
    assert re.search(
        r"no value assigned to required variable (service_principal|operators|landing_zone)\.", answer.stderr
    )


@WITH_CLI
def test_tests_of_a_project_find_a_mistake_in_its_configuration(tmp_path: Path, wheel: Path) -> None:
    with workspace() as (_, address):
        project = create(tmp_path, address, wheel)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    passed = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert "3 passed" in passed.stdout, passed.stdout
    text = (project / "mirrorfeed.yml").read_text(encoding="utf-8")
    (project / "mirrorfeed.yml").write_text(text.replace("${catalog}", "${catlog}"), encoding="utf-8")
    failed = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert "mirrorfeed.yml:" in failed.stdout
    assert "--var sets catalog, which" in failed.stdout or "needs the variable catlog" in failed.stdout


@WITH_CLI
def test_other_packages_are_one_line(tmp_path: Path, wheel: Path) -> None:
    lines = {}
    with workspace() as (_, address):
        for package, location in (("index", ""), ("release", "https://host/v"), ("volume", "/Volumes/a/b/c")):
            folder = tmp_path / package
            folder.mkdir()
            given = {"package": package, "package_location": location} if location else {}
            file = folder / "given.json"
            file.write_text(json.dumps({"dev_host": address, "prod_host": address, **given}), encoding="utf-8")
            options = ("--config-file", str(file), "--output-dir", str(folder))
            answer = databricks(folder, address, "init", str(ROOT / "template"), *options)
            assert answer.returncode == 0, answer.stderr
            lines[package] = (folder / "fabric_mirror/requirements.txt").read_text(encoding="utf-8").strip()
    name = f"mirrorfeed-{RELEASE}-py3-none-any.whl"
    assert lines == {
        "index": f"mirrorfeed=={RELEASE}",
        "release": f"mirrorfeed @ https://host/v/{name}",
        "volume": f"/Volumes/a/b/c/{name}",
    }


def test_script_copies_a_wheel_from_a_volume(tmp_path: Path) -> None:
    """The script calls the Databricks CLI with the login of the target."""
    (tmp_path / "requirements.txt").write_text("/Volumes/a/b/c/mirrorfeed-1.2.3-py3-none-any.whl\n", encoding="utf-8")
    cli = tmp_path / "bin/databricks"
    cli.parent.mkdir()
    cli.write_text('#!/bin/sh\necho "$@" > called\n', encoding="utf-8")
    cli.chmod(0o755)
    script, path = FOLDER / ".ci/wheel", f"{cli.parent}:/usr/bin:/bin"
    subprocess.run(["sh", script, "prod"], cwd=tmp_path, env={"PATH": path}, check=True)
    called = (tmp_path / "called").read_text(encoding="utf-8")
    expected = "fs cp --target prod dbfs:/Volumes/a/b/c/mirrorfeed-1.2.3-py3-none-any.whl notebooks/deployed/\n"
    assert called == expected


def test_mirrorfeed_yml_of_the_template_is_yaml_without_its_placeholders() -> None:
    text = (FOLDER / "mirrorfeed.yml.tmpl").read_text(encoding="utf-8")
    text = re.sub(r"{{.*?}}", "x", re.sub(r"(?m){{-.*?}}", "", text))
    assert yaml.safe_load(text)["tables"] == [{"sources": "${catalog}.x.*"}]
