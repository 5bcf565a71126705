"""The wheel in an empty environment that has only the packages of a Databricks runtime."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fixtures.connect import Driver, connect_server
from tests.conftest import INTERPRETED
from tests.support.delta import DeltaTable

pytestmark = pytest.mark.process

ROOT = Path(__file__).parent.parent
RUNTIME = ("pyspark", "py4j", "pandas", "numpy", "pytz", "dateutil", "six.py", "tzdata")
"""pyspark and its dependencies, which a runtime includes."""
BY_EXTRA = ("mirrorfeed.mirror.local_replica", "mirrorfeed.orchestration.lineage", "mirrorfeed.orchestration.telemetry")
"""Modules that need an extra."""


def uv() -> Path:
    found = shutil.which("uv") or ROOT / ".uv/bin/uv"
    assert Path(found).exists(), "make setup brings uv"
    return Path(found).resolve()


def run(*command: str | Path, **environment: str) -> str:
    answer = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and its dependencies."""
    folder = tmp_path_factory.mktemp("wheel")
    run(uv(), "build", "--quiet", "--wheel", "--out-dir", folder / "dist", "--python", sys.executable, ROOT)
    (wheel,) = (folder / "dist").glob("*.whl")
    run(uv(), "venv", "--quiet", "--python", sys.executable, folder / "env")
    # The locked releases, because they are installed where the tests run.
    wanted = run(
        *(uv(), "export", "--quiet", "--frozen", "--no-dev", "--no-emit-project", "--no-hashes", "--project", ROOT)
    )
    (folder / "locked.txt").write_text(wanted, encoding="utf-8")
    run(
        *(uv(), "pip", "install", "--quiet", "--python", folder / "env/bin/python"),
        *("--constraint", folder / "locked.txt", wheel),
    )
    return folder / "env/bin"


def test_commands_of_the_wheel_start_without_spark(place: Path, tmp_path: Path) -> None:
    assert importlib.util.find_spec("pyspark")  # installed here, but not there
    assert "doctor" in run(place / "mirrorfeed", "--help")
    config = tmp_path / "mirrorfeed.yml"
    config.write_text("landing_zone: ./landing\ntables: [{source: a, target: sales.orders}]\n")
    assert "inserts only" in run(place / "mirrorfeed-task", "tables", "--config", config)


def test_every_module_of_the_wheel_can_be_imported_in_a_runtime(place: Path, tmp_path: Path) -> None:
    site_packages = Path(importlib.util.find_spec("pyspark").origin or "").parent.parent  # type: ignore[union-attr]
    for name in RUNTIME:
        if (site_packages / name).exists():
            (tmp_path / name).symlink_to(site_packages / name)
    code = (
        "import importlib, pkgutil, mirrorfeed\n"
        "for found in pkgutil.walk_packages(mirrorfeed.__path__, 'mirrorfeed.'):\n"
        f"    if not found.name.startswith({BY_EXTRA!r}) and not found.name.endswith('__main__'):\n"
        "        importlib.import_module(found.name)\n"
        "        print(found.name)\n"
    )
    output = run(place / "python", "-c", code, PYTHONPATH=str(tmp_path))
    assert {"mirrorfeed.orchestration.publish_run", "mirrorfeed.storage.onelake", "mirrorfeed.cli.main"} <= set(
        output.split()
    )


def test_wheel_has_the_entry_points_of_the_jobs(place: Path) -> None:
    code = (
        "from importlib.metadata import distribution\n"
        "print(*sorted(entry.name for entry in distribution('mirrorfeed').entry_points))"
    )
    assert re.findall(r"[\w-]+", run(place / "python", "-c", code)) == ["mirrorfeed", "mirrorfeed-task"]


@pytest.fixture(scope="module")
def without_python(spark: SparkSession) -> Iterator[str]:
    """Spark behind Connect whose executors cannot run Python."""
    options = INTERPRETED | {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}
    with connect_server(options, "/bin/false") as address:
        yield address


@pytest.mark.slow
def test_wheel_publishes_over_connect_to_executors_without_python(
    place: Path, spark: SparkSession, without_python: str, tmp_path: Path
) -> None:
    """A small batch, files that Spark writes, and delimited text of both.

    Slow, because this Spark has executors without Python, and commands run in a process with only the wheel."""
    brought = str(Path(importlib.util.find_spec("pyspark").origin or "").parent.parent)  # type: ignore[union-attr]
    (tmp_path / "mirrorfeed.yml").write_text(
        "landing_zone: ./landing\nstaging_path: ./staging\ntables:\n"
        "  - {source: ./orders, target: orders, keys: [id]}\n"
        "  - {source: ./orders, target: text, keys: [id], format: delimited, changes: full}\n"
    )
    table = DeltaTable(spark, tmp_path / "orders")
    values = dict.fromkeys(range(100), "v") | {7: "large" * 1000}
    table.sql("INSERT INTO {} VALUES " + ", ".join(map(str, values.items())))
    location = run(place / "python", "-c", "import mirrorfeed; print(mirrorfeed.__file__)", PYTHONPATH=brought)
    assert Path(location.strip()).is_relative_to(place.parent)
    with Driver(without_python, tmp_path, place / "python", PYTHONPATH=brought) as driver:
        assert "failed" not in driver.run("publish")
        table.sql("UPDATE {} SET v = 'small' WHERE id < 5")
        output = driver.run("publish", "replicate landing mirror", "verify --mirror mirror")
    assert "failed" not in output
    assert output.count("equal at version 2, 100 rows") == 2
