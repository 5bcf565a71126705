"""Configuration values that notebooks read from their deployment."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import mirrorfeed
from mirrorfeed.api.errors import no_archive_named
from mirrorfeed.api.notebook import DEPLOYED
from mirrorfeed.mirror.errors import mirror_not_named
from mirrorfeed.mirror.verify import mirrors_folder
from mirrorfeed.runtime.version import this_build
from tests.raised import raises

SPARK: Any = object()
"""A workspace that must not be used."""


class Fields:
    """The widgets of a notebook (`dbutils.widgets`) and its path (`dbutils.notebook`)."""

    def __init__(self, path: Path, **values: str) -> None:
        context = SimpleNamespace(notebookPath=lambda: SimpleNamespace(get=lambda: str(path)))
        inner = SimpleNamespace(notebook=lambda: SimpleNamespace(getContext=lambda: context))
        self.notebook = SimpleNamespace(entry_point=SimpleNamespace(getDbutils=lambda: inner))
        self.widgets = SimpleNamespace(get={"config": "../mirrorfeed.yml", **values}.__getitem__)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A deployed folder with two tables."""
    (tmp_path / "notebooks/deployed").mkdir(parents=True)
    (tmp_path / "mirrorfeed.yml").write_text(
        "landing_zone: ./own\ntables: [{source: a, target: sales.a}, {source: b, target: sales.b}]\n"
    )
    facts = {"landing_zone": "/Volumes/main/m/landing", "ledger": "main.m.ledger", "mirror": "", "archive_tables": []}
    (tmp_path / "notebooks" / DEPLOYED).write_text(json.dumps(facts))
    return tmp_path


def test_notebook_loads_and_prints_the_settings_of_its_deployment(
    files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")  # the working directory can be any folder
    found = mirrorfeed.deployed(Fields(files / "notebooks/feed"), SPARK)
    output = f"mirrorfeed {this_build()}, {files}/mirrorfeed.yml, landing zone /Volumes/main/m/landing\n"
    assert capsys.readouterr().out == output
    assert (found.landing_zone, str(found._config.ledger)) == ("/Volumes/main/m/landing", "main.m.ledger")
    assert found.tables[0] == "sales.a"


def test_working_directory_is_used_if_the_environment_does_not_report_the_path(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files / "notebooks")
    fields = Fields(files / "elsewhere/feed")
    fields.notebook = SimpleNamespace()  # without `entry_point`
    assert mirrorfeed.deployed(fields, SPARK).landing_zone == "/Volumes/main/m/landing"


def test_widget_values_override_the_deployment(files: Path) -> None:
    (files / "other.yml").write_text("landing_zone: ./own\ntables: [{source: c, target: c}]\n")
    fields = {"config": str(files / "other.yml"), "landing_zone": "/elsewhere", "mirror": "/mirror", "table": "c"}
    found = mirrorfeed.deployed(Fields(files / "notebooks/feed", **fields), SPARK)
    assert (found.landing_zone, found._mirror, found.tables[0]) == (
        "/elsewhere",
        "/mirror",
        "c",
    )
    assert (found.tables, found.archive.table().name) == (("c",), "c")


def test_configuration_file_is_used_without_a_deployment(files: Path) -> None:
    (files / "notebooks" / DEPLOYED).unlink()
    found = mirrorfeed.deployed(Fields(files / "notebooks/feed"), SPARK)
    assert (found.landing_zone, found._config.ledger) == (str(files / "own"), None)


def test_empty_mirror_means_the_onelake_database_or_is_required(files: Path) -> None:
    zone = "onelake://0f8fad5b-d9cb-469f-a165-70867728950e/7c9e6679-7425-40de-944b-e07fc1f90ae7"
    found = mirrorfeed.deployed(Fields(files / "notebooks/verify", landing_zone=zone), SPARK)
    assert mirrors_folder(found._config, found._mirror) == (
        "abfss://0f8fad5b-d9cb-469f-a165-70867728950e@onelake.dfs.fabric.microsoft.com"
        "/7c9e6679-7425-40de-944b-e07fc1f90ae7/Tables"
    )
    with raises(mirror_not_named, match="in Python with the argument `mirror`, in the field `mirror` of a notebook"):
        mirrorfeed.deployed(Fields(files / "notebooks/verify"), SPARK).verify()


def test_first_archive_table_of_the_deployment_is_used_or_required(files: Path) -> None:
    with raises(no_archive_named):
        mirrorfeed.deployed(Fields(files / "notebooks/archive"), SPARK).archive.table()
    facts = json.loads((files / "notebooks" / DEPLOYED).read_text()) | {"archive_tables": ["main.a.b", "c"]}
    (files / "notebooks" / DEPLOYED).write_text(json.dumps(facts))
    assert mirrorfeed.deployed(Fields(files / "notebooks/archive"), SPARK).archive.table().name == "main.a.b"
