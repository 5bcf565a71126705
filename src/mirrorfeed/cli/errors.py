"""Errors of commands: wrong arguments, missing confirmation, and files that cannot be written."""

from __future__ import annotations

from collections.abc import Sequence

from mirrorfeed.display.redact import shell_argument
from mirrorfeed.errors import Terminal


class Misused(Terminal):
    code = "MF1001"
    what = "{reason}"
    fix = "Run the command with `--help` to see its arguments and options."
    meaning = "A command was called with wrong or missing arguments or options."


class FileExists(Terminal):
    code = "MF1003"
    what = "{path} exists, and `mirrorfeed init` does not overwrite it."
    fix = "Name another file: `mirrorfeed init FILE`."


class TaskFailed(Terminal):
    code = "MF1007"
    what = "{command} ended with exit code {status}."
    fix = "See the error in the output above."
    meaning = "A Databricks job task ran a command that failed. The output of the task has the error with its own code."
    arguments: Sequence[str]

    @property
    def command(self) -> str:
        return " ".join(("mirrorfeed", *map(shell_argument, self.arguments)))


class FileNotWritten(Terminal):
    code = "MF1009"
    what = "{path} cannot be written: {reason:phrase}."
    fix = "Name a file in a folder that exists and that you can write to: `mirrorfeed init FILE`."


class NotConfirmed(Terminal):
    code = "MF1010"
    what = "Nothing was changed, because you did not confirm."
    fix = "To skip the question, pass `--yes`."


class ArchiveTablesInvalid(Terminal):
    code = "MF1301"
    what = "The bundle variable `archive_tables` {reason:phrase}. Nothing was deployed."
    fix = "Write it as '[\"main.sales.orders\"]'. If it is too long, split the tables over several bundles."


class NotInATask(Terminal):
    code = "MF1302"
    what = "Task values cannot be set here, because this is not a Databricks runtime."
    fix = "Omit --task-value."
