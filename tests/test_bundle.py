from __future__ import annotations

import json
import re
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

ROOT = Path(__file__).parent.parent
RESOURCES = sorted(ROOT.glob("resources/*.yml"))
NOTEBOOKS = sorted(ROOT.glob("notebooks/*.ipynb"))

bundle: dict[str, Any] = yaml.safe_load((ROOT / "databricks.yml").read_text(encoding="utf-8"))
project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def tasks() -> list[dict[str, Any]]:
    documents = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in RESOURCES]
    jobs = [job for document in documents for job in document["resources"].get("jobs", {}).values()]
    return [task for job in jobs for task in job["tasks"]]


def test_there_are_the_three_targets_and_dev_is_the_default() -> None:
    assert list(bundle["targets"]) == ["dev", "staging", "prod"]
    assert [name for name, target in bundle["targets"].items() if target.get("default")] == ["dev"]


@pytest.mark.parametrize("file", RESOURCES, ids=lambda file: file.name)
def test_a_resource_is_in_a_file_named_after_its_kind_and_in_the_bundle(file: Path) -> None:
    kind = re.fullmatch(r"\w+\.(\w+)\.yml", file.name)
    assert kind
    assert list(yaml.safe_load(file.read_text(encoding="utf-8"))["resources"]) == [f"{kind[1]}s"]
    assert any(file in ROOT.glob(pattern) for pattern in bundle["include"])


@pytest.mark.parametrize("file", [ROOT / "databricks.yml", *RESOURCES], ids=lambda file: file.name)
def test_every_variable_that_is_used_is_declared(file: Path) -> None:
    used = set(re.findall(r"\$\{var\.(\w+)\}", file.read_text(encoding="utf-8")))
    assert used <= set(bundle["variables"])


def test_every_variable_that_is_declared_is_used_and_described() -> None:
    text = "".join(file.read_text(encoding="utf-8") for file in RESOURCES)
    assert set(re.findall(r"\$\{var\.(\w+)\}", text)) == set(bundle["variables"])
    assert all(variable["description"] for variable in bundle["variables"].values())


def test_the_tasks_call_commands_that_the_wheel_has_with_options_that_they_take() -> None:
    for task in (task["python_wheel_task"] for task in tasks() if "python_wheel_task" in task):
        assert task["package_name"] == project["name"]
        name, *arguments = task["parameters"]
        group = EntryPoint(task["entry_point"], project["scripts"][task["entry_point"]], "console_scripts").load()
        command = group.commands[name]
        command.make_context(name, list(arguments))  # raises for what it does not take


def test_a_command_refuses_what_it_does_not_take() -> None:
    """The test above relies on it."""
    group = EntryPoint("mirrorfeed", project["scripts"]["mirrorfeed"], "console_scripts").load()
    with pytest.raises(click.UsageError):
        group.commands["publish"].make_context("publish", ["--no-such-option"])


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.name)
def test_a_notebook_is_kept_without_outputs(file: Path) -> None:
    cells = [cell for cell in json.loads(file.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert cells
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)


def test_the_wheel_brings_no_spark_of_its_own() -> None:
    names = {re.split(r"[^\w-]", dependency)[0] for dependency in project["dependencies"]}
    assert not names & {"pyspark", "delta-spark", "databricks-connect"}
