from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mirrorfeed.runtime.errors import java_unusable
from mirrorfeed.runtime.local_spark import JAVA_VERSIONS, check_java
from tests.raised import raises

pytestmark = pytest.mark.process

ROOT = Path(__file__).parent.parent
TOOLS = ("sh", "sed", "head", "make")


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder that is the whole PATH: it contains the usual tools, this Python, and Java 17."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for tool in TOOLS:
        found = next(Path(folder, tool) for folder in os.get_exec_path() if Path(folder, tool).exists())
        (bin_folder / tool).symlink_to(found)
    script(bin_folder / "python3", f'exec {sys.executable} "$@"')
    script(bin_folder / "uv", "exit 0")
    java(bin_folder / "java", "17.0.15")
    return bin_folder


def script(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


def java(path: Path, version: str) -> None:
    script(path, f"""echo 'openjdk version "{version}" 2025-04-15' >&2""")


def prerequisites(machine: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / ".ci/prerequisites"],
        cwd=machine.parent,
        env={"PATH": str(machine), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def one_line(answer: subprocess.CompletedProcess[str]) -> str:
    assert answer.returncode == 1
    assert answer.stdout == ""
    (line,) = answer.stderr.splitlines()
    return line


def test_complete_prerequisites_print_the_python_path(machine: Path) -> None:
    answer = prerequisites(machine)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert Path(answer.stdout.strip()).samefile(sys.executable)


def test_missing_python_is_reported_in_one_line(machine: Path) -> None:
    (machine / "python3").unlink()
    assert "Python 3.11 or later is needed. Install it" in one_line(prerequisites(machine))


def test_old_python_is_skipped_for_a_newer_one_or_refused(machine: Path) -> None:
    (machine / "python3").rename(machine / "python3.12")
    script(machine / "python3", "exit 1")
    assert prerequisites(machine).returncode == 0
    (machine / "python3.12").unlink()
    assert "Python 3.11 or later is needed" in one_line(prerequisites(machine))


def test_configured_python_is_the_only_one_tried(machine: Path) -> None:
    assert "Python 3.11 or later is needed" in one_line(prerequisites(machine, PYTHON="/no/such/python"))


def test_python_without_venv_is_reported_without_uv(machine: Path) -> None:
    script(machine / "python3", 'case "$2" in *ensurepip*) exit 1 ;; *) echo "$0" ;; esac')
    assert prerequisites(machine).returncode == 0
    (machine / "uv").unlink()
    assert "Install its venv package (on Debian and Ubuntu: python3-venv), or install uv" in one_line(
        prerequisites(machine)
    )


def test_missing_java_is_reported_in_one_line(machine: Path) -> None:
    (machine / "java").unlink()
    line = one_line(prerequisites(machine))
    assert re.search(r"JDK 17 or 21 is needed, but there is no java on PATH. Install one", line)


def test_java_home_without_java_is_named(machine: Path) -> None:
    assert "JAVA_HOME=/nowhere has no bin/java. Install" in one_line(prerequisites(machine, JAVA_HOME="/nowhere"))


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2", "17", "17.0.15", "21.0.1", "21-ea", "25.0.3"])
def test_package_and_makefile_accept_the_same_java_versions(machine: Path, version: str) -> None:
    java(machine / "java", version)
    answer = prerequisites(machine)
    release = int(version.removeprefix("1.").split(".")[0].split("-")[0])
    if release in JAVA_VERSIONS:
        assert answer.returncode == 0
        check_java(str(machine / "java"))
    else:
        assert f"/java is Java {release}. Install one" in one_line(answer)
        with raises(java_unusable):
            check_java(str(machine / "java"))


def test_java_without_a_version_is_refused(machine: Path) -> None:
    script(machine / "java", "exit 1")
    assert "is Java of an unknown release. Install one" in one_line(prerequisites(machine))


_SETTING_UP = (
    *("setup", "demo", "demo-onelake", "demo-serverless", "test", "quick", "slow", "test-floor"),
    *("check", "fmt", "bench", "soak", "check-runtime", "test-runtime"),
)


@pytest.mark.parametrize("verb", _SETTING_UP)
def test_nothing_runs_without_the_prerequisites(machine: Path, verb: str) -> None:
    (machine / "java").unlink()
    answer = subprocess.run(
        ["make", "-C", ROOT, "--no-print-directory", verb],
        env={"PATH": str(machine)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 2
    assert answer.stdout == ""
    (line,) = answer.stderr.splitlines()
    assert "JDK 17 or 21 is needed, but there is no java on PATH. Install one" in line


def recipe(machine: Path, target: str) -> list[str]:
    script(machine / "uv", 'echo "$@"')
    variables = (f"UV={machine / 'uv'}", f"PYENV_ROOT={machine.parent / 'pyenv'}", "PYTHON=python3")
    command = ["make", "-C", ROOT, "-n", "-B", target, *variables]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def run_line(machine: Path, lines: list[str], words: str) -> subprocess.CompletedProcess[str]:
    line = next(line for line in lines if words in line)
    path = {"PATH": str(machine)}
    return subprocess.run(["sh", "-c", line], cwd=ROOT, env=path, capture_output=True, text=True, check=False)


@pytest.fixture(params=["PATH", "pyenv", None])
def python_3_12(machine: Path, request: pytest.FixtureRequest) -> str | None:
    """Python 3.12 on PATH, only in pyenv, or nowhere. pyenv puts a script on PATH that does not start."""
    script(machine / "python3.12", "echo /of/path" if request.param == "PATH" else "exit 1")
    if request.param == "pyenv":
        of_pyenv = machine.parent / "pyenv/versions/3.12.1/bin"
        of_pyenv.mkdir(parents=True)
        script(of_pyenv / "python3.12", "echo /of/pyenv")
    return f"/of/{request.param.lower()}" if request.param else None


def test_runtime_is_checked_with_python_3_12_or_another_that_starts(machine: Path, python_3_12: str | None) -> None:
    lines = recipe(machine, "check-runtime")
    assert f"--python {python_3_12 or sys.executable}" in run_line(machine, lines, " venv ").stdout
    if python_3_12 is None and sys.version_info[:2] != (3, 12):
        expected = f"No Python 3.12: testing the packages of serverless-4 with {sys.executable}\n"
        assert run_line(machine, lines, "No Python 3.12").stdout == expected


def test_databricks_connect_needs_a_python_3_12_that_starts(machine: Path, python_3_12: str | None) -> None:
    lines = recipe(machine, ".venv-connect/made")
    answer = run_line(machine, lines, "needs Python 3.12")
    if python_3_12:
        assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")
        assert f"--python {python_3_12}" in run_line(machine, lines, " sync ").stdout
    else:
        assert (answer.returncode, answer.stderr) == (
            1,
            "Databricks Connect needs Python 3.12: put python3.12 on PATH.\n",
        )


def test_make_lists_every_target_with_a_line_of_help(machine: Path) -> None:
    answer = subprocess.run(["make", "-C", ROOT, "-s"], capture_output=True, text=True, check=True)
    listed = re.findall(r"^make ([a-z-]+) +\S", answer.stdout, re.MULTILINE)
    rules = re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert listed == rules
    assert {*_SETTING_UP, "clean"} <= set(listed)


@pytest.mark.parametrize(("folder", "files"), [("landing", "tests/landing"), ("wheel", "tests/test_wheel.py")])
def test_single_folder_can_be_tested(folder: str, files: str) -> None:
    command = ["make", "-C", ROOT, "-s", "-n", "test", f"FOLDER={folder}"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines()[-1] == f".venv/bin/python -m pytest --durations=10 {files}"


def test_unknown_folder_is_named() -> None:
    answer = subprocess.run(
        ["make", "-C", ROOT, "-s", "test", "FOLDER=attic"], capture_output=True, text=True, check=False
    )
    assert answer.returncode == 2
    assert "There is no folder or test file 'attic' in tests" in answer.stderr


def test_ci_runs_the_documented_make_targets() -> None:
    verbs = [line for line in (ROOT / ".ci/run").read_text(encoding="utf-8").splitlines() if line.startswith("make ")]
    assert verbs == ["make --jobs=2 --output-sync check docs check-runtime", "make test"]
