"""Errors of commands and of the Python API, for example about wrong or missing arguments."""

from __future__ import annotations

from collections.abc import Sequence

from mirrorfeed.display.redact import shell_argument
from mirrorfeed.errors import Terminal


class Misused(Terminal):
    code = "MF1001"
    what = "{reason}"
    fix = "Run the command with `--help` to list its arguments and options."
    meaning = "A command was called with wrong or missing arguments or options."


class FileExists(Terminal):
    code = "MF1003"
    what = "The file {path} already exists, and `mirrorfeed init` does not overwrite files."
    fix = "Choose another file: `mirrorfeed init FILE`."


class TaskFailed(Terminal):
    code = "MF1007"
    what = "`{command}` failed with exit code {status}."
    fix = "See the error in the output of the task, above this line."
    meaning = (
        "A task of a Databricks job ran a command that failed. The output of the task contains the error and its code."
    )
    arguments: Sequence[str]

    @property
    def command(self) -> str:
        return " ".join(("mirrorfeed", *map(shell_argument, self.arguments)))


class FileNotWritten(Terminal):
    code = "MF1009"
    what = "{path} cannot be written: {reason:phrase}."
    fix = "Choose another file, in a folder that exists and is writable."


class NotConfirmed(Terminal):
    code = "MF1010"
    what = "Nothing was changed, because you did not confirm."
    fix = "Run the command again and confirm, or use `--yes` to skip the question."


class ArchiveTablesInvalid(Terminal):
    code = "MF1301"
    what = "The bundle variable `archive_tables` {reason:phrase}. Nothing was deployed."
    fix = (
        "Write a list such as '[\"main.sales.orders\"]'. If the list is too long, split the tables over several"
        " bundles."
    )


class NotInATask(Terminal):
    code = "MF1302"
    what = "--task-value works only in a task of a Databricks job."
    fix = "Omit --task-value."


class NoLandingZone(Terminal):
    code = "MF1004"
    what = "There is no landing zone at {path}."
    fix = (
        "Check the path. It is a folder or an address in OneLake. If you have a configuration, use the value of its"
        " `landing_zone`."
    )


class ReplicaMissing(Terminal):
    code = "MF1005"
    what = "The replica requires the Python package {module}, but {module} is not installed."
    fix = "Run `make setup` or `uv tool install '.[replica]'` in the project."


class ConditionMissing(Terminal):
    code = "MF1006"
    what = "--source-only does not read the mirror, so it is unknown which rows differ."
    fix = "Select the rows to publish again with --where (in Python `where`). For all rows, use `--where true`."
    meaning = "A repair with --source-only needs a condition, because it does not read the mirror."


class NoArchiveNamed(Terminal):
    code = "MF1304"
    what = "No table is set: the field `table` of the notebook and the variable `archive_tables` are both empty."
    fix = "Enter a table in the field `table`. If the table has no archive yet, run `mirrorfeed archive set` first."


class NothingToMirror(Terminal):
    code = "MF4216"
    what = (
        "Tables have no file in the landing zone yet: {tables:list}. Fabric would report errors for these tables later."
    )
    fix = "Run `mirrorfeed publish` first, or start mirroring anyway with --force."
