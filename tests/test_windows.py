"""Commands on a machine without what Windows lacks, and without Spark: they run, or say what they need."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

LACKING = ("fcntl", "grp", "pwd", "pyspark", "resource", "termios")
RUN = f"""
import json, sys
for name in {LACKING!r}:
    sys.modules[name] = None  # an import of it fails as if it were not there
from click.testing import CliRunner
from mirrorfeed.cli import main
answer = CliRunner().invoke(main, json.loads(sys.argv[1]))
if answer.exception and not isinstance(answer.exception, SystemExit):
    raise answer.exception
print(answer.output)
sys.exit(answer.exit_code)
"""
NOWHERE = "onelake://0f8fad5b-d9cb-469f-a165-70867728950e"


def call(folder: Path, *arguments: str) -> tuple[int, str]:
    (folder / "landing").mkdir(exist_ok=True)
    (folder / "mirrorfeed.yml").write_text("landing_zone: ./landing\ntables: [{source: a, target: sales.orders}]\n")
    (folder / "plan.json").write_text("{}")
    command = [sys.executable, "-c", RUN, json.dumps(arguments)]
    answer = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert "Traceback" not in answer.stderr, answer.stderr
    return answer.returncode, answer.stdout


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--version"], 0, "mirrorfeed 0."),
        (["init", "new.yml"], 0, "Wrote new.yml."),
        (["tables"], 0, "sales.orders"),
        (["lint", "landing"], 0, "no findings"),
        (["partner"], 0, "nothing was done"),
        (["drop", "sales.gone"], 1, "is not there"),
        (["fabric", "status"], 1, "names no mirrored database of Fabric"),
        (["fabric", "start"], 1, "names no mirrored database of Fabric"),
        (["--landing-zone", NOWHERE, "fabric", "status"], 1, "mirrored database"),
        (["replicate", "landing", "mirror"], 0, ""),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_command_that_needs_no_spark_runs(tmp_path: Path, arguments: list[str], status: int, words: str) -> None:
    found = call(tmp_path, *arguments)
    assert (found[0], words in found[1]) == (status, True), found


@pytest.mark.parametrize(
    "arguments",
    [["status"], ["publish"], ["enable"], ["preflight"], ["verify", "--mirror", "x"], ["archive", "show", "a"]],
    ids=" ".join,
)
def test_a_command_that_needs_spark_says_so(tmp_path: Path, arguments: list[str]) -> None:
    status, said = call(tmp_path, *arguments)
    assert status == 1
    assert said.startswith(
        "Error MF1201: This needs Spark, and there is none here: pyspark and delta-spark are not installed"
    )
