"""Output and errors of commands that do not start Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import deltalake
import pyarrow as pa
import pytest
from click.testing import CliRunner

from mirrorfeed.api import archive_table
from mirrorfeed.api.archive_table import ArchiveAwareTable
from mirrorfeed.api.feed import Feed
from mirrorfeed.api.results import DataRow, Enabled, Result, Row
from mirrorfeed.cli import main
from mirrorfeed.cli.main import show
from mirrorfeed.config.errors import UnknownTableError
from mirrorfeed.config.loader import load
from mirrorfeed.config.model import shard_of
from mirrorfeed.landing.names import Target
from mirrorfeed.monitor.report import Report
from mirrorfeed.monitor.report_sections import QUERIES
from mirrorfeed.runtime import spark_session
from mirrorfeed.source.identifier import Source


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration of a missing table, for which Spark would start on this machine."""
    file = tmp_path / "mirrorfeed.yml"
    file.write_text("landing_zone: ./zone\ntables: [{source: ./orders, target: sales.orders, keys: [id]}]\n")
    monkeypatch.setattr(spark_session, "kind", lambda: spark_session.Kind.LOCAL)
    return file


def output(config: Path, *arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, [*arguments, "--config", str(config)])
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


@pytest.mark.parametrize(
    "arguments",
    [
        ["publish"],
        ["publish", "--dry-run"],
        ["enable-cdf"],
        ["changes", "sales.orders", "--from", "0"],
    ],
    ids=" ".join,
)
def test_path_without_a_table_is_reported_before_spark_starts(
    config: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setattr(spark_session, "get_session", lambda: pytest.fail("Spark was started"))
    assert f"MF2002: There is no Delta table at {config.parent}/orders." in output(config, *arguments, code=1)


def test_feed_of_a_path_is_found_off_and_enabled_without_spark(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_session, "get_session", lambda: pytest.fail("Spark was started"))
    deltalake.write_deltalake(config.parent / "orders", pa.table({"id": [1]}))
    assert "MF2101 FeedOff" in output(config, "doctor", code=1)
    assert "switched on" in output(config, "enable-cdf")
    assert "on already" in output(config, "enable-cdf")
    assert "NOT_PUBLISHED" in output(config, "doctor", code=0)


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("arguments", [["report"], ["report", "a.b"], ["step", "a.b"]], ids=" ".join)
def test_relative_ledger_of_archive_commands_starts_at_the_folder_of_the_configuration(
    config: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], given: bool
) -> None:
    def ended(ledger: Source | None) -> Result[Any]:
        print(f"Ledger: {ledger}")
        return Result(())

    monkeypatch.setattr(archive_table, "report_shares", lambda spark, sources, rates, ledger, **_: ended(ledger))
    monkeypatch.setattr(ArchiveAwareTable, "step", lambda table: ended(table._ledger))
    monkeypatch.setattr(spark_session, "get_session", lambda: None)
    config.write_text(f"{config.read_text()}ledger: ./configured\n")
    option, name = (["--ledger", "./given"], "given") if given else ([], "configured")
    assert f"Ledger: {config.parent}/{name}" in output(config, *option, "archive", *arguments)
    if given:
        monkeypatch.chdir(config.parent.parent)
        result = CliRunner().invoke(main, [*option, "archive", *arguments[:1], "a.b"])
        assert f"Ledger: {config.parent.parent}/given" in result.output  # without a configuration


def commands(group: click.Group, *path: str) -> Iterator[list[str]]:
    """Yield the words of the group and of each of its commands."""
    yield [*path]
    for name, command in group.commands.items():
        yield from commands(command, *path, name) if isinstance(command, click.Group) else [[*path, name]]


@pytest.mark.parametrize("words", list(commands(main)), ids=" ".join)
def test_help_fits_into_80_columns(words: list[str]) -> None:
    shown = CliRunner().invoke(main, [*words, "--help"], prog_name="mirrorfeed", terminal_width=80).output
    assert [line for line in shown.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["status", "--secret-scope", "kv"],
            "--secret-scope goes before the command: mirrorfeed --secret-scope … status",
        ),
        (["archive", "report", "--ledger=a"], "--ledger goes before the command: mirrorfeed --ledger … archive report"),
        (["fabric", "--verbose", "status"], "--verbose goes before the command: mirrorfeed --verbose fabric"),
        (["--config", "x.yml", "status"], "--config goes after the command: mirrorfeed COMMAND --config …"),
        (["--behind", "status"], "--behind goes after the command: mirrorfeed COMMAND --behind"),
        (["fabric", "--config", "x", "status"], "--config goes after the command: mirrorfeed fabric COMMAND --config"),
        (["status", "--wrong"], "No such option"),
    ],
)
def test_option_in_the_wrong_place_is_explained(arguments: list[str], message: str) -> None:
    found = CliRunner().invoke(main, arguments, prog_name="mirrorfeed")
    assert found.exit_code == 2
    assert message in found.output
    as_json = CliRunner().invoke(main, [*arguments, "--json"], prog_name="mirrorfeed")
    assert (as_json.exit_code, json.loads(as_json.output)["error"]["what"][:14]) == (2, message[:14])


def test_empty_shard_succeeds_without_starting_spark(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_session, "get_session", lambda: pytest.fail("Spark was started"))
    of_orders = shard_of(Target("sales", "orders"), 2)
    found = [output(config, "publish", "--shard", f"{n}/2", code=int(n == of_orders)) for n in (1, 2)]
    assert f"No table is in shard:{3 - of_orders}/2." in found
    assert any("There is no Delta table at" in each for each in found)


@pytest.mark.parametrize("shard", ["9/8", "3/2", "0/2", "2", "a/b"])
def test_nonexistent_shard_is_refused(tmp_path: Path, shard: str) -> None:
    result = CliRunner().invoke(main, ["publish", "--shard", shard, "--config", str(tmp_path / "mirrorfeed.yml")])
    assert result.exit_code == 2
    assert f"'{shard}' is not a shard" in result.output


@pytest.mark.parametrize("name", ["shard:9/8", "shard:3/2", "shard:0/2"])
def test_nonexistent_shard_name_is_an_unknown_table(tmp_path: Path, name: str) -> None:
    (tmp_path / "mirrorfeed.yml").write_text("landing_zone: ./z\ntables: [{source: ./t, target: orders}]\n")
    with pytest.raises(UnknownTableError):
        load(tmp_path / "mirrorfeed.yml").select([name])


def test_storage_calls_are_logged_to_standard_error_only_at_debug_level(tmp_path: Path) -> None:
    (tmp_path / "mirrorfeed.yml").write_text("landing_zone: ./zone\ntables: [{source: ./t, target: t, keys: [id]}]\n")
    script = "from mirrorfeed.cli import main; import sys; main(sys.argv[1:])"
    listed = []
    for options in ([], ["--verbose"], ["--log-level", "debug"]):
        words = [*options, "log", "t", "--config", str(tmp_path / "mirrorfeed.yml")]
        ended = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=False)
        calls = [line for line in ended.stderr.splitlines() if " DEBUG mirrorfeed.storage.local_folder: " in line]
        listed.append(calls)
    assert (listed[0], listed[1]) == ([], [])
    assert f": read {tmp_path}/zone/t/" in listed[2][0]


def test_report_that_cannot_be_written_is_an_error(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Feed, "report", lambda _: Report(datetime.now(UTC), dict.fromkeys(QUERIES, ())))
    monkeypatch.setattr(Report, "page", lambda _: "")
    missing = config.parent / "no/such.html"
    shown = output(config, "report", "--html", str(missing), code=1)
    assert shown.startswith(f"Error MF1009: {missing} cannot be written: No such file or directory.")


@pytest.mark.parametrize(
    ("row", "printed"),
    [
        (DataRow({"text": "Run `mirrorfeed publish`."}), "Run `mirrorfeed publish`."),
        (Enabled("t", "Run `mirrorfeed publish`.", None), "Run `mirrorfeed publish --config shop.yml`."),
    ],
    ids=["data", "message"],
)
def test_only_commands_in_messages_name_the_configuration(
    row: Row, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with click.Context(main) as context:
        context.meta.update({"mirrorfeed.config": "shop.yml", "mirrorfeed.json": True})
        with pytest.raises(SystemExit):
            show(Result((row,)))
    assert printed in json.loads(capsys.readouterr().out)["rows"][0].values()
