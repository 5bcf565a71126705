"""The JSON of all commands: each one accepts --json and reports failures in one format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from mirrorfeed.cli import main
from mirrorfeed.config import loader
from tests.support import json_output as json_output


def _commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, each in group.commands.items():
        if isinstance(each, click.Group):
            yield from _commands(each, (*path, name))
        else:
            yield (*path, name), each


def run_json(*arguments: str, code: int = 0) -> Any:
    return json_output.run_json(*arguments, code=code).value


COMMANDS = [pytest.param(path, each, id=" ".join(path)) for path, each in _commands(main)]


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A configuration with a landing zone that does not exist yet."""
    path = tmp_path / "mirrorfeed.yml"
    lines = [
        "landing_zone: ./zone",
        "partner: {name: us, source_type: files, source_version: '1'}",
        "tables: [{source: ./orders, target: sales.orders, keys: [id]}]",
    ]
    path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(("path", "command"), COMMANDS)
def test_every_command_has_json_output_and_reports_unknown_options(
    path: tuple[str, ...], command: click.Command
) -> None:
    assert [each.opts for each in command.params].count(["--json"]) == 1
    error = run_json(*path, "--1", code=2)["error"]
    assert error["what"] == error["facts"]["reason"] in ("No such option '--1'.", "No such option: --1")  # click 8.1
    assert error["code"] == "MF1001"
    assert error["next"] == "Run the command with `--help` to list its arguments and options."


@pytest.mark.parametrize("arguments", [["nothing"], ["archive", "nothing"], ["archive", "plan", "t"]], ids=" ".join)
def test_usage_errors_are_printed_as_json(arguments: list[str]) -> None:
    error = run_json(*arguments, code=2)["error"]
    assert (error["code"], error["what"] == error["facts"]["reason"]) == ("MF1001", True)


@pytest.mark.parametrize(
    "arguments",
    [
        *(
            ["publish"],
            ["status"],
            ["enable-cdf"],
            ["rebuild", "t"],
            ["drop", "t"],
            ["doctor"],
            ["check-alerts"],
            ["verify"],
        ),
        *(["fabric", "status"], ["history", "append"], ["archive", "report"], ["archive", "plan", "t", "--to", "x"]),
    ],
    ids=" ".join,
)
def test_failures_have_one_json_format(arguments: list[str]) -> None:
    assert run_json(*arguments, "--config", "/not/there.yml", code=1) == {
        "error": {
            "code": "MF1101",
            "what": "There is no configuration file /not/there.yml.",
            "next": "Run `mirrorfeed init` to write an example, or set another file with `--config`.",
            "facts": {"path": "/not/there.yml"},
        }
    }


def test_unexpected_error_is_printed_as_json_and_its_traceback_logged(
    file: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("somewhere")

    monkeypatch.setattr(loader, "load", fails)
    error = run_json("tables", "--config", file, code=1)["error"]
    assert (error["code"], error["what"]) == (
        "MF1000",
        "mirrorfeed tables failed with ZeroDivisionError: somewhere",
    )
    assert [each.exc_info[0] for each in caplog.records if each.exc_info] == [ZeroDivisionError]
    plain_result = CliRunner().invoke(main, ["tables", "--config", file])
    assert (plain_result.exit_code, plain_result.stderr.splitlines()[-1]) == (1, "  ZeroDivisionError: somewhere")


def test_unencodable_names_are_escaped_in_the_output(tmp_path: Path) -> None:
    file = tmp_path / "mirrorfeed.yml"
    file.write_text("landing_zone: zone\ntables: [{source: größe, target: größe, keys: [id]}]", encoding="utf-8")

    def output(*arguments: str) -> str:
        found = CliRunner(charset="ascii").invoke(main, ["tables", "--config", str(file), *arguments])
        assert found.exit_code == 0, found.output
        return found.stdout

    assert r"gr\xf6\xdfe" in output()
    assert json.loads(output("--json"))["rows"][0]["table"] == "größe"


def test_unanswered_confirmation_is_printed_as_json(file: str) -> None:
    result = CliRunner().invoke(main, ["rebuild", "sales.orders", "--config", file, "--json"])
    assert result.exit_code == 1
    assert json.loads(result.stdout)["error"] == {
        "code": "MF1010",
        "what": "Nothing was changed, because you did not confirm.",
        "next": "Run the command again and confirm, or use `--yes` to skip the question.",
        "facts": {},
    }
    assert "Continue? [y/N]" in result.stderr
