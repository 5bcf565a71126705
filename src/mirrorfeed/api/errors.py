"""Errors of calls and commands with invalid or missing arguments."""

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


class NoLandingZone(Terminal):
    code = "MF1004"
    what = "There is no landing zone at {path}."
    fix = "Use the folder or the OneLake address in `landing_zone` of the configuration."


class ReplicaMissing(Terminal):
    code = "MF1005"
    what = "The replica requires the package {module}, which is not installed."
    fix = "Install the extra `replica`, with `uv tool install '.[replica]'` or `make setup` in the project."


class ConditionMissing(Terminal):
    code = "MF1006"
    what = "Without reading the mirror, the rows that differ are unknown."
    fix = "Select the rows to publish again with `where` (--where). To publish all rows again, use `--where true`."
    meaning = "A repair from the source alone (--source-only) needs a condition."


class NoArchiveNamed(Terminal):
    code = "MF1304"
    what = (
        "No table with an archive is named, neither in the notebook field `table` nor in the variable `archive_tables`."
    )
    fix = "Name a table. Run `mirrorfeed archive set` to define the archive of a table."


class NothingToMirror(Terminal):
    code = "MF4216"
    what = "Tables without a file in the landing zone: {tables:list}. Fabric would report errors for them later."
    fix = "Run `mirrorfeed publish` first, or start anyway with --force."
