"""Every build has its own version, and the same sources have the same version."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from mirrorfeed.cli import main
from mirrorfeed.runtime import version as module
from mirrorfeed.runtime.version import this_build, version_of_sources
from tests.test_wheel import uv

COMMITTED, CHANGED, WITHOUT_GIT = (
    rf"{re.escape(module.RELEASE)}\+{local}"
    for local in ("g[0-9a-f]{12}", r"g[0-9a-f]{12}\.d[0-9a-f]{12}", "d[0-9a-f]{12}")
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project that is not in a repository."""
    (tmp_path / "src/mirrorfeed").mkdir(parents=True)
    (tmp_path / "src/mirrorfeed/a.py").write_text("A = 1\n", encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text("[project]\n", encoding="utf-8")
    return tmp_path


def git(project: Path, *arguments: str) -> None:
    author = ["-c", "user.name=A", "-c", "user.email=a@example.com"]
    subprocess.run(["git", *author, *arguments], cwd=project, check=True, capture_output=True)


@pytest.fixture
def committed(project: Path) -> Path:
    git(project, "init")
    git(project, "add", ".")
    git(project, "commit", "-m", "first")
    return project


def test_committed_project_has_the_version_of_its_commit(committed: Path) -> None:
    first = version_of_sources(committed)
    assert re.fullmatch(COMMITTED, first)
    (committed / "mirrorfeed.yml").write_text("tables: []\n", encoding="utf-8")  # no build outputs
    (committed / "src/mirrorfeed/__pycache__").mkdir()
    assert version_of_sources(committed) == first
    (committed / "src/mirrorfeed/a.py").write_text("A = 2\n", encoding="utf-8")
    git(committed, "commit", "-am", "second")
    assert re.fullmatch(COMMITTED, version_of_sources(committed))
    assert version_of_sources(committed) != first


def test_tagged_commit_without_changes_has_the_release_version(
    committed: Path,
) -> None:
    git(committed, "tag", "v0.0.1")
    assert re.fullmatch(COMMITTED, version_of_sources(committed))
    git(committed, "tag", f"v{module.RELEASE}")
    assert version_of_sources(committed) == module.RELEASE
    (committed / "src/mirrorfeed/a.py").write_text("A = 2\n", encoding="utf-8")
    assert re.fullmatch(CHANGED, version_of_sources(committed))


def change(project: Path) -> None:
    (project / "src/mirrorfeed/a.py").write_text("A = 3\n", encoding="utf-8")


def stage(project: Path) -> None:
    change(project)
    git(project, "add", ".")


def add(project: Path) -> None:
    (project / "src/mirrorfeed/b.py").write_text("B = 1\n", encoding="utf-8")


def drop(project: Path) -> None:
    (project / "src/mirrorfeed/a.py").unlink()


def configure(project: Path) -> None:
    (project / "pyproject.toml").write_text("[project]\nname = 'b'\n", encoding="utf-8")


@pytest.mark.parametrize("touch", [change, stage, add, drop, configure], ids=lambda touch: touch.__name__)
def test_uncommitted_changes_have_their_own_version(committed: Path, touch: Callable[[Path], None]) -> None:
    clean = version_of_sources(committed)
    touch(committed)
    changed = version_of_sources(committed)
    assert re.fullmatch(CHANGED, changed)
    assert changed.startswith(f"{clean}.")
    assert version_of_sources(committed) == changed
    add(committed)
    (committed / "src/mirrorfeed/b.py").write_text("B = 2\n", encoding="utf-8")
    assert version_of_sources(committed) not in (clean, changed)


def test_version_without_a_repository_depends_on_the_content(project: Path) -> None:
    first = version_of_sources(project)
    assert re.fullmatch(WITHOUT_GIT, first)
    assert version_of_sources(project) == first
    change(project)
    assert version_of_sources(project) != first


@pytest.mark.parametrize("ignored", ["", "/inside/\n"], ids=["untracked", "ignored"])
def test_repository_that_does_not_track_the_project_is_ignored(
    project: Path, tmp_path_factory: pytest.TempPathFactory, ignored: str
) -> None:
    outer = tmp_path_factory.mktemp("outer")
    project.rename(outer / "inside")
    (outer / ".gitignore").write_text(ignored, encoding="utf-8")
    git(outer, "init")
    git(outer, "add", ".gitignore")
    git(outer, "commit", "-m", "theirs")
    assert re.fullmatch(WITHOUT_GIT, version_of_sources(outer / "inside"))


def test_version_without_git_depends_on_the_content(committed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert re.fullmatch(WITHOUT_GIT, version_of_sources(committed))


def test_version_option_prints_the_build() -> None:
    answer = CliRunner().invoke(main, ["--version"])
    assert answer.output == f"mirrorfeed {this_build()}\n"
    assert this_build() == version_of_sources(module.project())  # the sources run without a build


def test_wheel_has_the_version_of_its_sources(tmp_path: Path) -> None:
    built = [uv(), "build", "--quiet", "--wheel", "--out-dir", tmp_path, "--python", sys.executable, module.project()]
    subprocess.run(built, check=True, env=os.environ)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.split("-")[1] == version_of_sources(module.project())
