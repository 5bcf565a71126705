"""What notebooks take from their deployment, and results as frames."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession

from mirrorfeed.build import this_build
from mirrorfeed.feed.source import Source
from mirrorfeed.notebook import DEPLOYED, NoArchiveNamed, frame, setting
from mirrorfeed.verify import MirrorNotNamed


@dataclass
class Result:
    name: str
    count: int | None
    seconds: float
    at: datetime
    source: Source | None


@pytest.mark.connect
def test_a_results_fields_are_the_columns_and_what_is_no_plain_value_is_its_text(spark: SparkSession) -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    found = frame(spark, Result, [Result("a", None, 1.5, noon, Source(("main", "t"))), Result("b", 2, 0.5, noon, None)])
    assert found.dtypes == [
        ("name", "string"), ("count", "bigint"), ("seconds", "double"), ("at", "timestamp"), ("source", "string"),
    ]  # fmt: skip
    assert [(row["count"], row.source) for row in found.collect()] == [(None, "main.t"), (2, None)]
    assert frame(spark, Result, []).count() == 0


class Fields:
    """The fields of a notebook, as `dbutils.widgets`, and where it is, as `dbutils.notebook`."""

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


def test_a_notebook_takes_what_its_deployment_says_and_says_so(
    files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")  # the working directory may be any
    found = setting(Fields(files / "notebooks/feed"))
    said = f"mirrorfeed {this_build()}, {files}/mirrorfeed.yml, landing zone /Volumes/main/m/landing\n"
    assert capsys.readouterr().out == said
    assert (found.config.landing_zone, str(found.config.ledger)) == ("/Volumes/main/m/landing", "main.m.ledger")
    assert str(found.table.target) == "sales.a"


def test_what_is_filled_in_goes_before_the_deployment(files: Path) -> None:
    (files / "other.yml").write_text("landing_zone: ./own\ntables: [{source: c, target: c}]\n")
    fields = {"config": str(files / "other.yml"), "landing_zone": "/elsewhere", "mirror": "/mirror", "table": "c"}
    found = setting(Fields(files / "notebooks/feed", **fields))
    assert (found.config.landing_zone, found.mirror, str(found.table.target)) == ("/elsewhere", "/mirror", "c")
    assert str(found.archived) == "c"


def test_without_a_deployment_the_configuration_alone_decides(files: Path) -> None:
    (files / "notebooks" / DEPLOYED).unlink()
    found = setting(Fields(files / "notebooks/feed"))
    assert (found.config.landing_zone, found.config.ledger) == (str(files / "own"), None)


def test_an_empty_mirror_is_the_mirrored_database_in_onelake_or_is_asked_for(files: Path) -> None:
    zone = "onelake://0f8fad5b-d9cb-469f-a165-70867728950e/7c9e6679-7425-40de-944b-e07fc1f90ae7"
    found = setting(Fields(files / "notebooks/verify", landing_zone=zone))
    assert found.mirror == (
        "abfss://0f8fad5b-d9cb-469f-a165-70867728950e@onelake.dfs.fabric.microsoft.com"
        "/7c9e6679-7425-40de-944b-e07fc1f90ae7/Tables"
    )
    with pytest.raises(MirrorNotNamed, match="in a notebook in the field `mirror`, or for a deployment"):
        _ = setting(Fields(files / "notebooks/verify")).mirror


def test_a_table_with_an_archive_is_the_deployments_first_or_is_asked_for(files: Path) -> None:
    with pytest.raises(NoArchiveNamed, match=r"in the variable archive_tables\. Name one\."):
        _ = setting(Fields(files / "notebooks/archive")).archived
    facts = json.loads((files / "notebooks" / DEPLOYED).read_text()) | {"archive_tables": ["main.a.b", "c"]}
    (files / "notebooks" / DEPLOYED).write_text(json.dumps(facts))
    assert str(setting(Fields(files / "notebooks/archive")).archived) == "main.a.b"
