"""The CI pipelines for users: they run the commands, deploy existing targets, store no secret and pin versions."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.bundle import merged_files
from tests.test_wheel import uv

ROOT = Path(__file__).parent.parent
GITHUB = (ROOT / ".github/workflows/bundle.yml").read_text(encoding="utf-8")
CHECKS = (ROOT / ".github/workflows/checks.yml").read_text(encoding="utf-8")
THOROUGH = (ROOT / ".github/workflows/thorough.yml").read_text(encoding="utf-8")
DOCS = (ROOT / ".github/workflows/docs.yml").read_text(encoding="utf-8")
AZURE = (ROOT / ".azure/pipelines.yml").read_text(encoding="utf-8")
BOTH = pytest.mark.parametrize("text", [GITHUB, AZURE], ids=["GitHub", "Azure"])
STEPS = {
    "GitHub": next(
        step["run"]
        for step in yaml.safe_load(GITHUB)["jobs"]["deploy"]["steps"]
        if "variable-overrides.json" in step.get("run", "")
    ),
    "Azure": next(
        step["bash"]
        for step in yaml.safe_load(AZURE)["stages"][1]["jobs"][0]["strategy"]["runOnce"]["deploy"]["steps"]
        if "variable-overrides.json" in step.get("bash", "")
    ),
}
"""Pipelines that contain the variables."""
bundle: dict[str, Any] = merged_files()


@pytest.mark.parametrize("text", [CHECKS, AZURE], ids=["GitHub", "Azure"])
def test_every_change_is_checked_with_the_script_of_a_person(text: str) -> None:
    assert ".ci/run" in text
    assert not re.findall(r"make (?:check|test)\b(?!-)", text)


def test_deployment_waits_for_the_checks() -> None:
    checks = yaml.safe_load(CHECKS)
    jobs = yaml.safe_load(GITHUB)["jobs"]
    assert set(checks[True]) == {"pull_request", "workflow_call"}
    assert (ROOT / jobs["check"]["uses"]).read_text(encoding="utf-8") == CHECKS


@BOTH
def test_pipeline_validates_and_deploys(text: str) -> None:
    verbs = [f"databricks bundle {each}" for each in ("validate --strict", "deploy", "run")]
    assert [text.index(verb) for verb in verbs] == sorted(text.index(verb) for verb in verbs)
    assert "databricks bundle run check_setup --no-wait" in text
    assert set(re.findall(r"\b(dev|staging|prod)\b", yaml.safe_dump(yaml.safe_load(text)))) == {"staging", "prod"}


@BOTH
def test_pipeline_logs_in_with_its_run_token_and_stores_no_secret(text: str) -> None:
    assert re.search(r"DATABRICKS_AUTH_TYPE: (github|azure-devops)-oidc", text)
    assert not re.search(r"secrets\.|DATABRICKS_TOKEN|CLIENT_SECRET", text)


@BOTH
def test_pipeline_writes_complex_variables_to_the_overrides_file(text: str) -> None:
    """Only one is passed through the environment, because the command line reads no complex variables from it."""
    assert re.findall(r"BUNDLE_VAR_(\w+):", text) == ["service_principal"]
    assert set(bundle["variables"]["notify"]) >= {"type"}
    assert text.index(".databricks/bundle/") < text.index("databricks bundle validate")


def test_tags_are_deployed_after_tests_on_the_oldest_spark() -> None:
    jobs = yaml.safe_load(GITHUB)["jobs"]
    assert jobs["floor"]["if"] == "startsWith(github.ref, 'refs/tags/')"
    assert (ROOT / jobs["floor"]["uses"]).read_text(encoding="utf-8") == THOROUGH
    assert jobs["deploy"]["needs"] == ["check", "floor"]
    assert "!failure() && !cancelled()" in jobs["deploy"]["if"]  # otherwise it would be omitted if floor is set
    check, deploy = yaml.safe_load(AZURE)["stages"]
    ((when, (floor,)),) = check["jobs"][-1].items()
    assert when == "${{ if startsWith(variables['Build.SourceBranch'], 'refs/tags/') }}"
    assert [step["bash"] for step in floor["steps"] if "make" in step.get("bash", "")] == ["make test-floor"]
    assert (deploy["dependsOn"], "succeeded()" in deploy["condition"]) == ("check", True)


def test_configuration_of_a_user_is_ignored_by_git_and_deployed() -> None:
    """A fork commits it with `git add --force`, as the page about pipelines says."""
    assert "/mirrorfeed.yml" in (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    assert "mirrorfeed.yml" in bundle["sync"]["include"]  # overrides .gitignore
    assert "git add --force mirrorfeed.yml" in (ROOT / "docs/upgrade-and-uninstall.md").read_text(encoding="utf-8")


def test_no_test_starts_in_a_folder_with_a_configuration() -> None:
    assert Path.cwd() != ROOT
    assert not Path("mirrorfeed.yml").exists()


def test_processes_that_tests_start_can_import_the_tests() -> None:
    """Without it, the fork server of `test_crash_points_volume` imports nothing in advance, and each of its processes
    takes seconds."""
    subprocess.run([sys.executable, "-c", "import fixtures, tests, tools"], check=True)


@pytest.mark.slow
@pytest.mark.process
def test_tests_pass_in_a_folder_with_the_configuration_of_a_user(tmp_path: Path) -> None:
    """The pipelines run the tests in a fork that has one."""
    (tmp_path / "mirrorfeed.yml").write_text("landing_zone: ./user\nledger: a.b.c.d\ntables: []\n", encoding="utf-8")
    places = ("tests/cli", "tests/config", "tests/e2e/test_archive_cli.py")
    chosen = ["-m", "not spark and not process and not slow and not soak", "-p", "no:cacheprovider"]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        ROOT / "pyproject.toml",
        *chosen,
        *(ROOT / each for each in places),
    ]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout
    assert [each.name for each in tmp_path.iterdir()] == ["mirrorfeed.yml"]


def verbs() -> set[str]:
    return set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def test_weekly_run_tests_the_oldest_versions_and_the_soak() -> None:
    workflow = yaml.safe_load(THOROUGH)
    on = workflow[True]  # as YAML 1.1 reads the word
    assert [len(each["cron"].split()) for each in on["schedule"]] == [5]
    assert on["schedule"][0]["cron"].split()[2:] == ["*", "*", "6"]
    (job,) = workflow["jobs"].values()
    of_a_push, of_the_schedule = re.findall(r"'(\[.*?\])'", job["strategy"]["matrix"]["verb"])
    assert (json.loads(of_a_push), json.loads(of_the_schedule)) == (
        ["test-floor"],
        ["test-floor", "test-runtime", "coverage", "soak"],
    )
    run, coverage, upload = job["steps"][-3:]
    assert "coverage report" in coverage["run"]
    assert run["run"] == "make ${{ matrix.verb }}"
    file = "${{ runner.temp }}/${{ matrix.verb }}.xml"
    assert (run["env"]["PYTEST_ADDOPTS"], upload["with"]["path"]) == (f"--junitxml={file}", file)
    assert {"test-floor", "test-runtime", "coverage", "soak"} <= verbs()


def test_site_is_built_for_every_change_and_published_after_the_merge() -> None:
    workflow = yaml.safe_load(DOCS)
    assert set(workflow[True]) == {"pull_request", "push"}
    assert workflow["permissions"] == {"contents": "read"}
    build, publish = workflow["jobs"]["build"], workflow["jobs"]["publish"]
    assert build["permissions"] == {"contents": "read", "actions": "read"}
    assert {"run": "make docs"} in build["steps"]
    (results,) = (each["run"] for each in build["steps"] if "tools.test_results" in each.get("run", ""))
    assert "--workflow thorough.yml" in results
    assert build["steps"][-1]["with"] == {"path": "docs/.site"}
    assert (publish["needs"], publish["permissions"]) == ("build", {"pages": "write", "id-token": "write"})
    assert publish["if"] == build["steps"][-1]["if"] == "github.event_name == 'push'"
    assert "secrets." not in DOCS


def test_release_is_tested_built_signed_and_published_without_secrets() -> None:
    text = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
    workflow, bundle = yaml.safe_load(text), yaml.safe_load(GITHUB)
    assert workflow[True] == {"push": {"tags": ["v*"]}}
    assert bundle[True].keys() == {"push", "workflow_call"}
    assert workflow["permissions"] == {"contents": "read"}
    jobs = workflow["jobs"]
    assert (ROOT / jobs["bundle"]["uses"]).read_text(encoding="utf-8") == GITHUB
    needs = {name: job.get("needs") for name, job in jobs.items()}
    assert needs == {"bundle": None, "build": "bundle", "publish": "build", "release": "publish"}
    writes = {
        name: sorted(right for right, level in job["permissions"].items() if level == "write")
        for name, job in jobs.items()
    }
    assert jobs["build"]["if"] == "vars.PUBLISH_RELEASE == 'true'"  # a fork only deploys; later jobs need this one
    assert writes == {
        "bundle": ["id-token"],
        "build": ["attestations", "id-token"],
        "publish": ["id-token"],
        "release": ["contents"],
    }
    steps = jobs["build"]["steps"]
    signed = [step["with"] for step in steps if "actions/attest@" in step.get("uses", "")]
    assert [each.get("sbom-path") for each in signed] == [None, "dist/sbom.cdx.json"]
    assert all(each["subject-path"] == "dist/mirrorfeed-*" for each in signed)
    assert next(step for step in steps if "run" in step) == {"run": "make dist"}
    assert "dist" in verbs()
    assert not re.search(r"secrets\.|password", text)


def test_hooks_call_the_make_targets_of_ci() -> None:
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    called = [hook["entry"] for hook in local["hooks"]]
    assert local["repo"] == "local"
    assert called == ["make check", "make docs", "make quick"]
    assert {entry.removeprefix("make ") for entry in called} <= verbs()


@pytest.mark.parametrize("path", sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.stem)
def test_issue_form_requests_the_doctor_output(path: Path) -> None:
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    if path.stem == "config":
        assert form == {"blank_issues_enabled": False}
        return
    assert form.keys() == {"name", "description", "body"}
    fields = {each["id"]: each for each in form["body"] if each["type"] != "markdown"}
    assert "`mirrorfeed doctor --json`" in fields["doctor"]["attributes"]["description"]
    assert len(fields) == len([each for each in form["body"] if "id" in each])


def test_changelog_has_valid_headings() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    releases = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert releases[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", each) for each in releases[1:])
    kinds = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
    for release in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        found = re.findall(r"^### (.*)$", release, re.MULTILINE)
        assert found == [kind for kind in kinds if kind in found]


WORKFLOWS = {path.stem: path.read_text(encoding="utf-8") for path in sorted((ROOT / ".github/workflows").glob("*.yml"))}


@pytest.mark.parametrize("text", WORKFLOWS.values(), ids=WORKFLOWS)
def test_actions_are_pinned_to_a_commit_with_a_release_comment(text: str) -> None:
    used = re.findall(r"uses: ([^.].*)", text)
    assert used
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", each) for each in used)


def test_workflows_pin_the_same_releases() -> None:
    used = dict.fromkeys(re.findall(r"uses: ([^.].*)", "\n".join(WORKFLOWS.values())))
    assert len({each.split("@")[0] for each in used}) == len(used)


@BOTH
def test_databricks_cli_is_new_enough_and_verified(text: str) -> None:
    floor = tuple(map(int, re.findall(r"\d+", bundle["bundle"]["databricks_cli_version"])))
    (version,) = re.findall(r"^version=(.*)$", CLI.read_text(encoding="utf-8"), re.MULTILINE)
    assert tuple(map(int, version.split("."))) >= floor
    assert ".ci/databricks " in text
    assert not re.search("curl|setup-cli", text)


def test_pip_installs_only_files_whose_hashes_are_pinned() -> None:
    texts = [*WORKFLOWS.values(), AZURE, (ROOT / "Makefile").read_text(encoding="utf-8")]
    installs = re.findall(r"pip\S* install [^\n]*", "\n".join(each for each in texts).replace('"$(UV)" pip', ""))
    wanted = [each for each in installs if "--constraint" not in each]
    assert len(wanted) == 5
    assert all("--require-hashes --requirement .ci/uv.txt" in each for each in wanted)


@pytest.mark.parametrize(("path", "count"), [("databricks.yml", 1), ("Makefile", 2)])
def test_wheel_is_built_with_tools_whose_hashes_are_pinned(path: str, count: int) -> None:
    builds = re.findall(r"build --quiet --wheel[^&@]*", (ROOT / path).read_text(encoding="utf-8"))
    assert len(builds) == count
    assert all("--build-constraints .ci/build.txt --require-hashes" in build for build in builds)


def test_build_tools_with_another_hash_are_refused(tmp_path: Path) -> None:
    tools = (ROOT / ".ci/build.txt").read_text(encoding="utf-8")
    (tmp_path / "other.txt").write_text(re.sub(r"sha256:\w+", f"sha256:{'0' * 64}", tools), encoding="utf-8")
    built = subprocess.run(
        [
            *[uv(), "build", "--wheel", "--out-dir", tmp_path, "--python", sys.executable, ROOT],
            *["--build-constraints", tmp_path / "other.txt", "--require-hashes"],
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (built.returncode, "Hash mismatch for `" in built.stderr) == (2, True), built.stderr
    assert not list(tmp_path.glob("*.whl"))


CLI = ROOT / ".ci/databricks"


class Release:
    """A release of the Databricks CLI, and a `curl` that downloads from it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.target = folder / "release", folder / "bin"
        (folder / "path").mkdir()
        self.folder.mkdir()
        (version,) = re.findall(r"^version=(.*)$", CLI.read_text(encoding="utf-8"), re.MULTILINE)
        self.archive = self.folder / f"databricks_cli_{version}_linux_amd64.zip"
        self.sums = self.folder / f"databricks_cli_{version}_SHA256SUMS"
        with zipfile.ZipFile(self.archive, "w") as archive:
            archive.writestr("databricks", "#!/bin/sh\n")
            archive.writestr("../README.md", "")
        digest = hashlib.sha256(self.archive.read_bytes()).hexdigest()
        self.sums.write_text(f"{'0' * 64}  other.zip\n{digest}  {self.archive.name}\n", encoding="utf-8")
        curl = folder / "path/curl"
        curl.write_text(f"""#!/bin/sh
while [ "$1" != --output ]; do shift; done
case "$3" in https://github.com/databricks/cli/releases/download/v{version}/*) ;; *) exit 3 ;; esac
cp "{self.folder}/${{3##*/}}" "$2"
""")
        curl.chmod(0o755)

    def install(self) -> int:
        path = os.pathsep.join([str(self.target.parent / "path"), os.environ["PATH"]])
        return subprocess.run([CLI, self.target], env={"PATH": path}, capture_output=True, check=False).returncode


@pytest.fixture
def release(tmp_path: Path) -> Release:
    if not shutil.which("unzip"):
        pytest.skip("there is no unzip on PATH")
    return Release(tmp_path)


def test_databricks_cli_with_the_released_checksum_is_installed(release: Release) -> None:
    assert release.install() == 0
    assert [path.name for path in release.target.iterdir()] == ["databricks"]


@pytest.mark.parametrize("harm", ["other archive", "no checksum", "no checksums", "no archive"])
def test_databricks_cli_with_another_checksum_is_not_installed(harm: str, release: Release) -> None:
    match harm:
        case "other archive":
            release.archive.write_bytes(release.archive.read_bytes() + b"\0")
        case "no checksum":
            release.sums.write_text(f"{'0' * 64}  other.zip\n", encoding="utf-8")
        case "no checksums":
            release.sums.unlink()
        case _:
            release.archive.unlink()
    assert release.install() != 0
    assert not list(release.target.iterdir())
