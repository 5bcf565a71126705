"""Real publishers on a local folder, with faults at numbered system calls."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from fixtures.system_call_faults import MISSING, build, preloading

pytestmark = [pytest.mark.proof, pytest.mark.process, pytest.mark.skipif(bool(MISSING), reason=MISSING)]

ROOT = Path(__file__).parent.parent.parent
CALLS = {
    "open",
    "read",
    "write",
    "fsync",
    "close",
    "stat",
    "list",
    "next",
    "link",
    "rename",
    "renameat2",
    "unlink",
    "mkdir",
}
"""Calls that publishers make."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("library"))


def test_mirror_is_equal_after_faults_at_system_calls(library: Path, tmp_path: Path, counted: Counter[str]) -> None:
    faults = _play(library, tmp_path, 0, 30, counted)
    assert faults > 75


@pytest.mark.soak
def test_mirror_is_equal_after_many_faults_at_system_calls(
    library: Path, tmp_path: Path, counted: Counter[str]
) -> None:
    _play(library, tmp_path, 1_000, 3_000, counted)


def _play(library: Path, folder: Path, first: int, count: int, counted: Counter[str]) -> int:
    """Play histories, and return the number of faults."""
    command = [sys.executable, "-m", "tests.publish.system_call_histories", folder, str(first), str(count)]
    played = subprocess.run(command, cwd=ROOT, env=preloading(library), capture_output=True, text=True, check=False)
    assert played.returncode == 0, played.stderr
    result = json.loads(played.stdout)
    assert not result["failed"], "\n".join(f"seed {seed}: {error}" for seed, error in result["failed"].items())
    missing = CALLS - set(result["calls"])
    assert not missing, f"the library does not intercept {missing} of this Python"
    for name, number in result["faults"].items():
        counted[f"publishers with a fault at a system call, {name}"] += number
    return sum(result["faults"].values())
