"""What a deployed bundle uses: the task's entry point, the tables as a task value, options instead of the file."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mirrorfeed.api.errors import not_in_a_task, task_failed
from mirrorfeed.cli import main
from mirrorfeed.cli.__main__ import task
from mirrorfeed.cli.publish import set_task_value
from mirrorfeed.config.errors import UnknownTableError
from mirrorfeed.config.loader import load
from mirrorfeed.config.model import Config
from tests.raised import raises

OLD_CLICK = version("click").startswith("8.1.")


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "mirrorfeed.yml"
    path.write_text("landing_zone: ./zone\ntables: [{source: a, target: sales.orders}, {source: b, target: lines}]\n")
    return str(path)


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["task", *arguments])
    task()


def test_successful_task_returns_instead_of_exiting(
    monkeypatch: pytest.MonkeyPatch, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    call(monkeypatch, "tables", "--config", file)
    printed = capsys.readouterr().out
    assert [word for word in printed.split() if word in ("sales.orders", "lines")] == ["sales.orders", "lines"]


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["tables", "--config", "/nowhere.yml"], 1, "There is no configuration"),
        (["tables", "--no-such-option"], 2, "No such option"),
        pytest.param([], 2, "Usage:", marks=pytest.mark.skipif(OLD_CLICK, reason="click 8.1 exits with 0")),
    ],
)
def test_failed_task_raises_after_printing_the_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], status: int, words: str
) -> None:
    with raises(task_failed) as failed:
        call(monkeypatch, *arguments)
    assert (failed.value.arguments, failed.value.status) == (arguments, status)  # type: ignore[attr-defined]
    assert words in capsys.readouterr().err


class TaskValues:
    def __init__(self) -> None:
        self.given: dict[str, Any] = {}

    def set(self, key: str, value: Any) -> None:
        self.given[key] = value


def test_tables_are_set_as_a_task_value() -> None:
    values = TaskValues()
    set_task_value("targets", ["sales.orders", "lines"], lambda: values)
    assert values.given == {"targets": ["sales.orders", "lines"]}


def names_of(size: int) -> list[str]:
    """Targets whose JSON has the given number of bytes in total."""
    names = [f"sales.{n:04d}{'t' * 40}" for n in range(900)]
    return [*names[:-1], names[-1] + "t" * (size - len(json.dumps(names)))]


def test_shards_replace_table_names_that_exceed_a_task_value() -> None:
    values = TaskValues()
    assert set_task_value("targets", names_of(49_152), lambda: values) == names_of(49_152)
    assert len(json.dumps(values.given["targets"])) == 49_152
    shards = [f"--shard={n}/90" for n in range(1, 91)]
    assert set_task_value("targets", names_of(49_153), lambda: values) == shards
    assert values.given == {"targets": shards}


def test_every_table_has_one_stable_shard(tmp_path: Path) -> None:
    def configured(count: int) -> Config:
        entries = [{"source": f"s.t{n}", "target": f"sales.t{n}"} for n in range(count)]
        (tmp_path / "many.yml").write_text(json.dumps({"landing_zone": "./zone", "tables": entries}))
        return load(tmp_path / "many.yml")

    found = [table.target for n in range(1, 8) for table in configured(100).select([f"shard:{n}/7"])]
    assert sorted(map(str, found)) == sorted(str(table.target) for table in configured(100).tables)
    of_shard = [{str(each.target) for each in configured(count).select(["shard:3/7"])} for count in (100, 60)]
    assert of_shard[1] < of_shard[0]
    assert configured(1).select(["shard:1/50", "shard:2/50"]) == ()
    for name in ("shard:0/7", "shard:a/7", "shard:1"):
        with pytest.raises(UnknownTableError):
            configured(1).select([name])


def test_task_values_are_refused_outside_a_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATABRICKS_RUNTIME_VERSION", raising=False)
    with raises(not_in_a_task):
        set_task_value("targets", ["orders"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--landing-zone", ""], "The option --landing-zone is empty: name a folder."),
        (["--landing-zone", "s3://bucket/x"], "The option --landing-zone 's3://bucket/x' is not a folder"),
        (["--ledger", "a.b.c.d"], "The option --ledger 'a.b.c.d' has 4 parts"),
    ],
)
def test_override_option_is_validated_like_the_file(file: str, options: list[str], words: str) -> None:
    result = CliRunner().invoke(main, [*options, "tables", "--config", file])
    assert (result.exit_code, result.output.split("\n")[0].startswith(f"Error MF1104: {words}")) == (1, True)


def test_empty_mirror_option_is_refused_before_spark_starts(file: str) -> None:
    """The job passes it for a landing zone in OneLake, where the mirror is known."""
    result = CliRunner().invoke(main, ["verify", "--mirror", "", "--config", file])
    assert result.exit_code == 1
    assert "MF7105" in result.output


def test_rebuild_of_an_empty_name_is_refused_before_spark_starts(file: str) -> None:
    result = CliRunner().invoke(main, ["rebuild", "", "--yes", "--config", file])
    assert result.exit_code == 1
    assert "has no target or source ''. Use one of the targets in the file (sales.orders, lines)" in result.output


def deployment(file: str, *options: str, tables: str = "[]") -> tuple[int, str]:
    written = str(Path(file).with_name("deployment.json"))
    result = CliRunner().invoke(main, [*options, "deployment", written, "--archive-tables", tables, "--config", file])
    return result.exit_code, result.output


def test_deployment_settings_for_notebooks_are_written_at_build_time(file: str) -> None:
    zone, staging = "/Volumes/main/m/landing", "/Volumes/main/m/staging"
    options = ["--landing-zone", zone, "--ledger", "main.m.ledger", "--staging-path", staging, "--secret-scope", "ours"]
    assert deployment(file, *options, tables='["main.`my.schema`.orders"]') == (0, "")
    assert json.loads(Path(file).with_name("deployment.json").read_text()) == {
        "landing_zone": zone,
        "ledger": "main.m.ledger",
        "staging_path": staging,
        "secret_scope": "ours",
        "mirror": "",
        "archive_tables": ["main.`my.schema`.orders"],
        "variables": {},
    }


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        (json.dumps(["t" * 9_997]), "has 10,001 characters, but a job accepts only 10,000. Nothing was deployed"),
        (json.dumps(["t" * 50] * 200), "has 10,800 characters, but a job accepts only 10,000. Nothing was deployed"),
        ("main.sales.orders", "cannot be read: it is not valid JSON (expected value"),
        ('{"a": 1}', 'is not a list of names: {"a": 1}. Nothing'),
        ("[1]", "is not a list of names: [1]. Nothing"),
        ("[" * 10_000, "cannot be read: it is not valid JSON (recursion limit exceeded"),
    ],
)
def test_archive_tables_that_exceed_a_job_parameter_are_refused(file: str, tables: str, words: str) -> None:
    status, printed = deployment(file, tables=tables)
    assert (status, printed.startswith(f"Error MF1301: The bundle variable `archive_tables` {words}")) == (1, True), (
        printed
    )
    assert not Path(file).with_name("deployment.json").exists()


def test_archive_tables_up_to_the_parameter_limit_are_accepted(file: str) -> None:
    assert deployment(file, tables=json.dumps(["t" * 9_996])) == (0, "")


def test_deployment_without_a_configuration_is_refused(tmp_path: Path) -> None:
    assert deployment(str(tmp_path / "mirrorfeed.yml"))[1].startswith("Error MF1101: There is no configuration file")
