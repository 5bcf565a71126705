"""Runs commands and records their output: as tables of 80 and 120 columns, piped, and as JSON."""

from __future__ import annotations

import io
import json
import shlex
import shutil
import sys
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
from rich.console import Console

from mirrorfeed.cli import main
from mirrorfeed.display import progress, rows, terminal
from tests.golden.normalize import ROOT, normalize_json, normalize_text
from tools.results_page import commands

PIPED, WIDTHS = "piped", {"120 columns": 120, "80 columns": 80}


class Screens(Console):
    """A terminal for each width, and a pipe. All show the same run; progress is shown as in the pipe."""

    current: ClassVar[Screens]

    def __init__(self) -> None:
        super().__init__(file=io.StringIO(), force_terminal=False)
        self.files = {name: io.StringIO() for name in (*WIDTHS, PIPED)}
        plain: dict[str, Any] = {"highlight": False, "color_system": None}
        self.consoles = [
            Console(file=self.files[name], width=width, height=25, force_terminal=True, **plain)
            for name, width in WIDTHS.items()
        ]
        self.consoles.append(Console(file=self.files[PIPED], width=1 << 16, height=25, force_terminal=False, **plain))

    def print(self, *objects: Any, soft_wrap: bool | None = None, **options: Any) -> None:
        for console in self.consoles:
            console.print(*objects, soft_wrap=soft_wrap, **options)

    def echo(self) -> io.TextIOBase:
        """Standard output for text that is printed without a console."""
        return _Tee(list(self.files.values()))


class _Tee(io.TextIOBase):
    def __init__(self, files: list[io.StringIO]) -> None:
        self._files = files

    def write(self, text: str) -> int:
        for file in self._files:
            file.write(text)
        return len(text)


class Recorder:
    """Holds the recorded cases of each command, in the order in which they ran.

    Commands run in a new folder, whose path always has the same length.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cases: dict[str, list[str]] = defaultdict(list)

    def case(self, title: str, *arguments: str) -> None:
        """Record the text, and the JSON of the same result.

        If the command does not end with a result or an error, record the JSON of a second run.
        """
        values: list[Any] = []
        code = self.text(title, *arguments, values=values)
        if values:
            self._record_json(title, arguments, code, values[-1])
        else:
            self.json(title, *arguments)

    def text(self, title: str, *arguments: str, answer: str = "", values: list[Any] | None = None) -> int:
        """Record the text. Append to `values` what --json would print. Return the exit code."""
        screens, errors = Screens(), io.StringIO()
        with _results(values if values is not None else []):
            code = _run(arguments, screens, screens.echo(), errors, answer)
        shown = {name: file.getvalue() for name, file in screens.files.items()}
        if len({*shown.values()}) == 1:
            shown = {"standard output": shown[PIPED]}
        elif shown["120 columns"] == shown[PIPED]:
            shown = {"120 columns and piped": shown[PIPED], "80 columns": shown["80 columns"]}
        parts = {name: self._normal(text) for name, text in {**shown, "standard error": errors.getvalue()}.items()}
        self._record(title, arguments, code, parts)
        return code

    def json(self, title: str, *arguments: str) -> None:
        out = io.StringIO()
        code = _run((*arguments, "--json"), Screens(), out, io.StringIO())
        self._record_json(title, arguments, code, json.loads(out.getvalue()))

    def _record_json(self, title: str, arguments: tuple[str, ...], code: int, value: Any) -> None:
        found = json.dumps(normalize_json(value), indent=2, ensure_ascii=False)
        self._record(title, (*arguments, "--json"), code, {"standard output": self._normal(found)})

    def _normal(self, text: str) -> str:
        return normalize_text(text.replace(str(self.folder), ROOT))

    def _record(self, title: str, arguments: tuple[str, ...], code: int, parts: dict[str, str]) -> None:
        typed = f" {' '.join(arguments)} "
        command = max((name for name in COMMANDS if f" {name} " in typed), key=len)
        lines = [f"## {title}", "", f"$ mirrorfeed {self._normal(shlex.join(arguments))}", f"exit code {code}"]
        for name, shown in parts.items():
            if shown.strip():
                lines += ["", f"{name}:", shown.rstrip("\n")]
        self.cases[command].append("\n".join(lines))

    def recorded(self, command: str) -> str:
        return "\n\n\n".join([f"# mirrorfeed {command}", *self.cases[command]]) + "\n"


@contextmanager
def _results(values: list[Any]) -> Iterator[None]:
    """Append what a command would print as JSON, if it ends with a result or an error."""
    module: Any = sys.modules[main.commands["lint"].__class__.__module__]

    def recorded(original: Callable[..., Any], to_value: Callable[[Any], Any]) -> Callable[..., Any]:
        def show(found: Any, *more: Any) -> Any:
            with redirect_stdout(io.StringIO()) as out:
                module.print_json(to_value(found))
            values.append(json.loads(out.getvalue()))
            return original(found, *more)

        return show

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "show", recorded(module.show, lambda result: result.to_dict()))
        patch.setattr(module, "fail", recorded(module.fail, lambda error: {"error": error.to_dict()}))
        yield


def _run(
    arguments: tuple[str, ...], screens: Screens, out: io.TextIOBase, errors: io.StringIO, answer: str = ""
) -> int:
    """Return the exit code."""
    Screens.current = screens
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(errors):
        patch.setattr(sys, "stdin", io.StringIO(answer))
        with pytest.raises(SystemExit) as ended:
            main.main([*arguments], prog_name="mirrorfeed")
    return int(ended.value.code or 0)


COMMANDS = sorted(name for name, _ in commands())


def _console(*, stderr: bool = False) -> Any:
    from tests.golden.recorder import Screens

    return Screens.current


def _print_table(print_table: Callable[..., None], out: Any, grid: Any) -> None:
    for console in out.consoles if isinstance(out, Screens) else [out]:  # the width determines the layout
        print_table(console, grid)


def _size(count: int) -> str:
    return "1.0 KiB" if count else "0 B"


def _duration(seconds: float) -> str:
    return "0 s" if seconds < 600 else f"{seconds / 86_400:.1f} d"


@contextmanager
def recording() -> Iterator[Recorder]:
    """A recorder whose commands run in an empty folder, where sizes and short durations are always the same."""
    parent = Path("/tmp").resolve()
    folder = parent / uuid.uuid4().hex[: len(ROOT) - len(str(parent)) - 1]
    folder.mkdir()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            patch.setenv("COLUMNS", "80")  # of usage messages
            # Modules import these functions by name, so the function itself changes, not the name.
            patch.setattr(terminal.console, "__code__", _console.__code__)
            patch.setattr(terminal, "print_table", partial(_print_table, terminal.print_table))
            patch.setattr(rows.size, "__code__", _size.__code__)
            patch.setattr(rows.duration, "__code__", _duration.__code__)
            patch.setattr(progress, "_DELAY_SECONDS", 3600.0)  # no "Starting Spark …" if a machine is slow
            yield Recorder(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
