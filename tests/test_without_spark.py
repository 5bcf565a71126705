"""Commands on a machine without Spark: they run, or report that Spark is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

LACKING = ("pyspark",)
RUN = f"""
import json, os, sys
for name in {LACKING!r}:
    sys.modules[name] = None  # an import of it fails as if it were not there
from click.testing import CliRunner
from mirrorfeed.cli import main
for folder, arguments in json.load(sys.stdin):
    os.chdir(folder)
    answer = CliRunner().invoke(main, arguments)
    if answer.exception and not isinstance(answer.exception, SystemExit):
        raise answer.exception
    print(json.dumps([answer.exit_code, answer.output]))
"""
NOWHERE = "onelake://0f8fad5b-d9cb-469f-a165-70867728950e"
WITHOUT_SPARK = {
    "--version": (0, "mirrorfeed 0."),
    "init new.yml": (0, "new.yml was written."),
    "tables": (0, "sales.orders"),
    "lint landing": (0, "no findings"),
    "setup partner": (0, "The configuration does not set `partner`, so there is nothing to write."),
    "drop sales.gone": (1, "does not exist"),
    "fabric status": (1, "is not in a mirrored database of Fabric"),
    "fabric start": (1, "is not in a mirrored database of Fabric"),
    f"--landing-zone {NOWHERE} fabric status": (1, "mirrored database"),
    "replicate landing mirror": (0, ""),
}
"""Exit code of each command, and words of its output."""
WITH_SPARK = ("status", "publish", "enable-cdf", "setup check", "verify --mirror x", "archive show a")


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """How each command ended, in its own folder, and its output. One process runs all commands."""
    commands = (*WITHOUT_SPARK, *WITH_SPARK)
    folders = [_prepared(tmp_path_factory.mktemp("without_spark")) for _ in commands]
    commands_by_folder = [(str(folder), command.split()) for folder, command in zip(folders, commands, strict=True)]
    answer = subprocess.run(
        [sys.executable, "-c", RUN], input=json.dumps(commands_by_folder), capture_output=True, text=True, check=False
    )
    assert (answer.returncode, "Traceback" in answer.stderr) == (0, False), answer.stderr
    return dict(zip(commands, map(tuple, map(json.loads, answer.stdout.splitlines())), strict=True))


def _prepared(folder: Path) -> Path:
    (folder / "landing").mkdir()
    (folder / "mirrorfeed.yml").write_text("landing_zone: ./landing\ntables: [{source: a, target: sales.orders}]\n")
    (folder / "plan.json").write_text("{}")
    return folder


@pytest.mark.parametrize("command", WITHOUT_SPARK)
def test_command_without_spark_runs(ended: dict[str, tuple[int, str]], command: str) -> None:
    status, words = WITHOUT_SPARK[command]
    assert (ended[command][0], words in ended[command][1]) == (status, True), ended[command]


@pytest.mark.parametrize("command", WITH_SPARK)
def test_command_that_needs_spark_reports_that_it_is_missing(ended: dict[str, tuple[int, str]], command: str) -> None:
    status, output = ended[command]
    assert status == 1
    assert output.startswith("Error MF1201: This command needs Spark, but pyspark and delta-spark are not installed")
