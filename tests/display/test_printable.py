"""Untrusted text in terminals, pages, logs and messages."""

from __future__ import annotations

import io
import json
import logging
import re
import shlex
import unicodedata
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import mirrorfeed
from fixtures.onelake import DATABASE, WORKSPACE, OneLake
from mirrorfeed.api.results import Changes, Difference, Result, VersionChanges
from mirrorfeed.cli import main, output
from mirrorfeed.cli.main import fail
from mirrorfeed.display import terminal
from mirrorfeed.display.grid import Grid
from mirrorfeed.display.redact import escape_html, printable, printable_block, shell_argument
from mirrorfeed.errors import UnexpectedError

ESCAPE = "\x1b]0;title\x07\x1b[2J"
LINE = "Error MF9999: forged line"
HOSTILE = f"id{ESCAPE}\r\n{LINE}\u2028{LINE}\x9b2J\u202etxt.exe\u2066\u200b"
SHOWN = (
    r"id\x1b]0;title\x07\x1b[2J\r\nError MF9999: forged line\u2028Error MF9999: forged line\x9b2J\u202etxt.exe"
    r"\u2066\u200b"
)


def hostile(text: str, *, lines: str = "\n") -> list[str]:
    """Texts with control characters, characters that change the text direction, and line breaks inside values."""
    odd = {char for char in text if char not in lines and unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp")}
    return sorted(odd) + [line for line in text.splitlines() if line.strip().startswith("Error MF9999")]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("läger.bestände_東京 'it''s' \\n 🙂", "läger.bestände_東京 'it''s' \\n 🙂"),
        ("no\u00a0break, \u05d0\u05d1", "no\u00a0break, \u05d0\u05d1"),
        ("a\nb\r\nc\td", r"a\nb\r\nc\td"),
        ("\x00\x1b[31m\x7f\x85\x9b", r"\x00\x1b[31m\x7f\x85\x9b"),
        ("\u2028\u2029", r"\u2028\u2029"),
        ("\u202a\u202b\u202c\u202d\u202e", r"\u202a\u202b\u202c\u202d\u202e"),
        ("\u2066\u2069\u200e\u200f\u061c", r"\u2066\u2069\u200e\u200f\u061c"),
        ("\u00ad\u200b\ufeff\U000e0041", r"\xad\u200b\ufeff\U000e0041"),
        ("\ud800", r"\ud800"),
        (HOSTILE, SHOWN),
    ],
)
def test_control_and_invisible_characters_are_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text(st.characters() | st.characters(categories=("Cc", "Cf", "Zl", "Zp"))), st.none() | st.integers(1, 40))
def test_any_text_becomes_one_line_of_harmless_characters(text: str, longest: int | None) -> None:
    shown = printable(text, longest)
    assert not hostile(shown, lines="")
    assert len(shown.splitlines()) <= 1
    assert longest is None or len(shown) <= longest
    assert printable(shown, longest) == shown
    shown.encode()


def test_long_text_is_truncated_after_escaping() -> None:
    assert printable("\x1b" * 10, 9) == r"\x1b\x1b…"
    assert printable("abc", 3) == "abc"


def test_third_party_lines_are_indented() -> None:
    assert printable_block(f"a\n{LINE}\x1b\u2029{LINE}") == f"  a\n  {LINE}\\x1b\n  {LINE}"


def test_html_shows_escapes_and_no_markup() -> None:
    assert escape_html("<b>\u202e&") == r"&lt;b&gt;\u202e&amp;"


@pytest.mark.parametrize(
    ("argument", "shown"),
    [
        ("sales.orders", "sales.orders"),
        ("s.`x;touch PWNED`", "'s.`x;touch PWNED`'"),
        ("day = '2026-01-01'", "\"day = '2026-01-01'\""),
        ("it's $(reboot)", "'it'\"'\"'s $(reboot)'"),
        ("it's !!", "'it'\"'\"'s !!'"),
        ("", "''"),
        ("a\n'b'\\\u202e", r"$'a\n\'b\'\\\u202e'"),
    ],
)
def test_command_argument_is_quoted_for_a_shell(argument: str, shown: str) -> None:
    assert shell_argument(argument) == shown


@given(st.text(st.characters(exclude_categories=("Cc", "Cf", "Cs", "Zl", "Zp"))))
def test_shell_parses_a_quoted_argument_unchanged(argument: str) -> None:
    assert shlex.split(shell_argument(argument)) == [argument]


def test_every_suggested_command_quotes_its_arguments() -> None:
    """A command such as `mirrorfeed rebuild {self.table}` would run code in a table name after copy and paste."""
    command = re.compile(
        r"`mirrorfeed [^`\n]*?\{(?!shell_argument\(|[\w.]+:argument\}|wanted\}|self\.requested\})[^`\n]*"
    )
    package = Path(mirrorfeed.__file__).parent
    assert [found for path in package.rglob("*.py") for found in command.findall(path.read_text())] == []


# Commands


def test_only_two_modules_print() -> None:
    prints = re.compile(r"click\.echo\(|\bText\(|rich import print")
    package = Path(mirrorfeed.__file__).parent
    found = {path.relative_to(package).as_posix() for path in package.rglob("*.py") if prints.search(path.read_text())}
    assert found == {"cli/main.py", "display/terminal.py"}


def ran(*arguments: str) -> str:
    result = CliRunner().invoke(main, list(arguments), env={"COLUMNS": "400"})
    assert result.exit_code == 1 or result.exception is None, result.exception
    return result.output


def test_value_in_an_error_cannot_start_a_new_line(tmp_path: Path) -> None:
    printed = ran("status", "--config", f"{tmp_path}/{HOSTILE}.yml")
    assert SHOWN in printed
    assert hostile(printed) == []


def test_reason_in_an_error_cannot_start_a_new_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        fail(UnexpectedError(doing="Reading", kind="ValueError", reason=HOSTILE))
    printed = capsys.readouterr().err
    assert hostile(printed) == []
    assert len(printed.splitlines()) == 1


def test_foreign_landing_zone_names_and_values_cannot_start_a_new_line(tmp_path: Path) -> None:
    folder = tmp_path / f"orders{HOSTILE}"
    folder.mkdir()
    (folder / "_metadata.json").write_text(json.dumps({HOSTILE: 1, "keyColumns": [HOSTILE, HOSTILE]}))
    printed = ran("lint", str(tmp_path))
    assert printed.count(SHOWN) > 3
    assert hostile(printed) == []
    assert any(HOSTILE in each["file"] for each in json.loads(ran("lint", str(tmp_path), "--json"))["rows"])


def test_json_output_is_exact_and_printable(tmp_path: Path) -> None:
    printed = ran("status", "--json", "--config", f"{tmp_path}/ö\x9b{HOSTILE}.yml")
    assert hostile(printed) == []
    assert "ö" in printed
    assert json.loads(printed)["error"]["facts"]["path"] == f"{tmp_path}/ö\x9b{HOSTILE}.yml"


def test_service_response_cannot_start_a_new_line(tmp_path: Path, onelake: OneLake) -> None:
    file = tmp_path / "mirrorfeed.yml"
    tables = "tables: [{source: ./orders, target: sales.orders, keys: [id]}]\n"
    file.write_text(onelake.configuration(f"onelake://{WORKSPACE}/{DATABASE}") + tables, encoding="utf-8")
    broken = {"status": f"Failed{HOSTILE}", "error": HOSTILE}
    onelake.fabric.databases[DATABASE].tables = {("sales", f"orders{HOSTILE}"): broken}
    printed = ran("fabric", "status", "--config", str(file))
    assert f"sales.orders{SHOWN}: id" in printed
    assert f"Failed{SHOWN}" in printed
    assert hostile(printed) == []


def test_change_feed_columns_and_values_cannot_start_a_new_line(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: Any = SimpleNamespace(limit=lambda _: None)
    monkeypatch.setattr(Changes, "_read_errors", nullcontext)
    monkeypatch.setattr(Changes, "counts", lambda _: Result((VersionChanges(1, 1, 0, 0),)))
    monkeypatch.setattr("mirrorfeed.api.changes.to_json_rows", lambda _: [{HOSTILE: HOSTILE, "id": 1}])
    monkeypatch.setattr("mirrorfeed.api.feed.Feed.changes", lambda *_: Changes(HOSTILE, 0, 1, rows))
    printed = ran("changes", "main.sales.orders", "--from", "1")
    assert SHOWN in printed
    assert hostile(printed) == []


@pytest.mark.parametrize("width", [40, 400])
def test_table_cell_cannot_start_a_new_line(width: int) -> None:
    out = Console(file=io.StringIO(), width=width, highlight=False)
    terminal.print_table(out, Grid(("table", HOSTILE), [(f"sales.{HOSTILE}", HOSTILE)], frozenset()))
    with output.show_steps(out) as steps:
        steps(HOSTILE, SimpleNamespace(decision=HOSTILE))  # type: ignore[arg-type]
    printed = out.file.getvalue()  # type: ignore[attr-defined]
    assert {char for char in printed if unicodedata.category(char) in ("Cc", "Cf")} == {"\n"}
    assert not any(line.startswith("Error") for line in printed.splitlines()) or width == 40


def test_notebook_shows_no_control_characters() -> None:
    found = Result((Difference(HOSTILE, HOSTILE, HOSTILE, None),), (HOSTILE,), HOSTILE)
    assert hostile(repr(found)) == []
    assert hostile(html := found._repr_html_()) == []
    assert html.count(SHOWN) == 5


def test_log_record_cannot_start_a_new_line(caplog: pytest.LogCaptureFixture) -> None:
    from mirrorfeed.display import redact

    redact.filter_logs()
    try:
        raise ValueError(HOSTILE)
    except ValueError as error:
        logging.getLogger("mirrorfeed.test").error("%s failed", HOSTILE, exc_info=error)
    (record,) = caplog.records
    assert record.getMessage() == f"{SHOWN} failed"
    shown = logging.Formatter().format(record)
    assert [line for line in shown.splitlines() if line.startswith("Error")] == []
    assert hostile(shown.replace(LINE, "")) == []


def test_unexpected_error_of_a_command_is_shown_with_its_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError(HOSTILE)

    monkeypatch.setattr("mirrorfeed.config.loader.load", fails)
    result = CliRunner().invoke(main, ["tables"])
    assert result.exit_code == 1
    lines: Iterable[str] = result.stderr.splitlines()
    assert [line for line in lines if not line.startswith("  ")] == []
    assert "ZeroDivisionError: id\\x1b" in result.stderr
