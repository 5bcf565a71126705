"""The entry point of Databricks' wheel tasks: there any status is a failure, even 0, so this returns or raises."""

from __future__ import annotations

import sys

from mirrorfeed.cli import main as command
from mirrorfeed.display.printable import shell_argument
from mirrorfeed.errors import Terminal


def main() -> None:
    """Runs the command that the task's parameters name; or `TaskFailed`."""
    try:
        command(prog_name="mirrorfeed")
    except SystemExit as ended:
        if ended.code:
            raise TaskFailed(tuple(sys.argv[1:]), ended.code) from None


class TaskFailed(Terminal):
    """A task of a Databricks job ran a command of mirrorfeed, and the command failed. The reason is in the task's
    output, with a code of its own."""

    code = "MF1007"

    def __init__(self, arguments: tuple[str, ...], status: object) -> None:
        self.arguments, self.status = arguments, status

    def what(self) -> str:
        return f"mirrorfeed {' '.join(map(shell_argument, self.arguments))} ended with status {self.status}."

    def next(self) -> str:
        return "What it printed above says why."
