"""Errors of commands and of the Python API, for example about wrong or missing arguments."""

from __future__ import annotations

from collections.abc import Sequence

from mirrorfeed.display.redact import shell_argument
from mirrorfeed.errors import Computed, ConfigurationError, FabricError, TerminalError, problem


@problem(
    ConfigurationError,
    "MF1001",
    meaning="A command was called with wrong or missing arguments or options.",
)
def usage_error(*, reason: str) -> None:
    """{reason}

    Run the command with `--help` to list its arguments and options.
    """


@problem(ConfigurationError, "MF1003")
def config_file_exists(*, path: str) -> None:
    """The file {path} already exists, and `mirrorfeed init` does not overwrite files.

    Choose another file: `mirrorfeed init FILE`.
    """


@problem(
    TerminalError,
    "MF1007",
    meaning=(
        "A task of a Databricks job ran a command that failed. The output of the task contains the error and its code."
    ),
)
def task_failed(*, status: str | int, arguments: Sequence[str]) -> Computed:
    """`{command}` failed with exit code {status}.

    See the error in the output of the task, above this line.
    """
    return {"command": " ".join(("mirrorfeed", *map(shell_argument, arguments)))}


@problem(ConfigurationError, "MF1009")
def file_not_written(*, path: str, reason: str) -> None:
    """{path} cannot be written: {reason:phrase}.

    Choose another file, in a folder that exists and is writable.
    """


@problem(ConfigurationError, "MF1010")
def not_confirmed() -> None:
    """Nothing was changed, because you did not confirm.

    Run the command again and confirm, or use `--yes` to skip the question.
    """


@problem(ConfigurationError, "MF1301")
def archive_tables_invalid(*, reason: str) -> None:
    """The bundle variable `archive_tables` {reason:phrase}. Nothing was deployed.

    Write a list such as '["main.sales.orders"]'. If the list is too long, split the tables over several bundles.
    """


@problem(ConfigurationError, "MF1302")
def not_in_a_task() -> None:
    """--task-value works only in a task of a Databricks job.

    Omit --task-value.
    """


@problem(ConfigurationError, "MF1004")
def landing_zone_missing(*, path: str) -> None:
    """There is no landing zone at {path}.

    Check the path. It is a folder or an address in OneLake. If you have a configuration, use the value of its
    `landing_zone`.
    """


@problem(ConfigurationError, "MF1005")
def replica_missing(*, module: str) -> None:
    """The replica requires the Python package {module}, but {module} is not installed.

    Run `make setup` or `uv tool install '.[replica]'` in the project.
    """


@problem(
    ConfigurationError,
    "MF1006",
    meaning="A repair with --source-only needs a condition, because it does not read the mirror.",
)
def condition_missing() -> None:
    """--source-only does not read the mirror, so it is unknown which rows differ.

    Select the rows to publish again with --where (in Python `where`). For all rows, use `--where true`.
    """


@problem(ConfigurationError, "MF1304")
def no_archive_named() -> None:
    """No table is set: the field `table` of the notebook and the variable `archive_tables` are both empty.

    Enter a table in the field `table`. If the table has no archive yet, run `mirrorfeed archive set` first.
    """


@problem(FabricError, "MF4216")
def nothing_to_mirror(*, tables: Sequence[str]) -> None:
    """Tables have no file in the landing zone yet: {tables:list}. Fabric would report errors for these tables later.

    Run `mirrorfeed publish` first, or start mirroring anyway with --force.
    """
