"""The output of `make slow` for a small test run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).parent.parent
BUSY = "import time\nwhile time.process_time() < 1: pass"
TESTS = f"""
import subprocess, sys

def test_busy():
    subprocess.run([sys.executable, "-c", {BUSY!r}])

def test_quiet():
    pass
"""


def test_cpu_of_child_processes_is_reported_by_test_file_and_cause(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS, encoding="utf-8")
    alone = ["-c", os.devnull, f"--rootdir={tmp_path}", "-p", "no:cacheprovider", "-p", "tests.time_report"]
    answer = subprocess.run(
        [sys.executable, "-m", "pytest", *alone, tmp_path / "test_it.py"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2 passed" in answer.stdout, answer.stdout + answer.stderr
    cpu_by_name = {
        name: float(cpu) for cpu, name in re.findall(r"^ +[\d.]+ +([\d.]+) .* \d+  (.+)$", answer.stdout, re.M)
    }
    for name in ("test_it.py::test_busy", "test_it.py", "commands and other processes"):
        assert cpu_by_name[name] > 0.3  # it samples ten times a second
    assert cpu_by_name["test_it.py::test_quiet"] < cpu_by_name["test_it.py::test_busy"] / 2
