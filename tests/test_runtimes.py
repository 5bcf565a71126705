"""The wheel installs no other package in the supported Databricks environments."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tools.runtimes import installed, runtimes

PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize("runtime", runtimes())
def test_every_runtime_has_each_dependency_in_a_sufficient_release(runtime: str) -> None:
    packages = runtimes()[runtime]
    needed = [Requirement(line) for line in PROJECT["dependencies"]]
    assert [str(each) for each in needed if not each.specifier.contains(packages.get(each.name, "0"))] == []


@pytest.mark.parametrize("runtime", runtimes())
def test_extras_change_no_installed_release(runtime: str) -> None:
    packages = runtimes()[runtime]
    extras = [Requirement(line) for lines in PROJECT["optional-dependencies"].values() for line in lines]
    assert [
        str(each) for each in extras if each.name in packages and not each.specifier.contains(packages[each.name])
    ] == []


def test_changes_of_an_installer_are_parsed_from_its_dry_run() -> None:
    lines = [
        "Would install 3 packages",
        " - click==8.1.7",
        " + click==8.2.1",
        " + mirrorfeed==0.1.0 (from file:///dist/mirrorfeed-0.1.0-py3-none-any.whl)",
        " ~ rich==14.2.0",
    ]
    assert installed("\n".join(lines)) == ["click", "click", "mirrorfeed", "rich"]
