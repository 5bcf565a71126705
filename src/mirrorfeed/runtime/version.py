"""Compute the version of mirrorfeed from the release number, the Git commit, and the content of the source code.

The version changes if the source code changes. Imports nothing of mirrorfeed: the build backend loads only this file.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import subprocess
from functools import cache
from pathlib import Path

RELEASE = "0.1.0"

_BUILT = ("src/mirrorfeed", "pyproject.toml")
"""Files that determine the behavior of a build."""
_DIGITS = 12


@cache
def this_build() -> str:
    """Return the version of mirrorfeed: of its source code in a project folder, otherwise of the installed wheel."""
    sources = project()
    if (sources / "pyproject.toml").exists():
        return version_of_sources(sources)
    return importlib.metadata.version("mirrorfeed")


def project() -> Path:
    """Return the project folder that contains this file. For an installed wheel, the returned folder is no project."""
    return Path(__file__).resolve().parents[3]


def version_of_sources(project: Path) -> str:
    """Return the version of a project's source code, such as `0.1.0` or `0.1.0+g1a2b3c4d5e6f.d0f9e8d7c6b5`.

    If no file has changed and the checked-out commit has the tag of the release, the version is the release number.
    Otherwise, one or two parts follow the release number. The part `g…` is the commit, and is missing if Git does not
    track the project. The part `d…` is a hash of the files, and is missing if all files are committed.
    """
    commit = _git(project, "rev-parse", f"--short={_DIGITS}", "HEAD")
    # A project may also be in a folder of another repository, which does not track its files.
    is_tracked = commit is not None and _git(project, "cat-file", "-e", "HEAD:./pyproject.toml") is not None
    is_clean = is_tracked and _git(project, "status", "--porcelain", "--", *_BUILT) == ""
    if is_clean and f"v{RELEASE}" in (_git(project, "tag", "--points-at", "HEAD") or "").split():
        return RELEASE
    parts = [f"g{commit}"] if is_tracked else []
    parts += [] if is_clean else [f"d{_hash(project)}"]
    return f"{RELEASE}+{'.'.join(parts)}"


def _git(project: Path, *arguments: str) -> str | None:
    """Return the output of git, or None if git is missing or fails."""
    command = ["git", "--no-optional-locks", "-C", str(project), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _hash(project: Path) -> str:
    digest = hashlib.sha256()
    for name in _BUILT:
        top = project / name
        for file in sorted([top] if top.is_file() else top.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                content = file.read_bytes()
                digest.update(f"{file.relative_to(project).as_posix()}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:_DIGITS]
