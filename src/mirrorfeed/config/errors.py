"""Errors of the configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mirrorfeed.display.rows import first_names
from mirrorfeed.errors import Computed, ConfigurationError, problem

_RETRY = "and run the same command again. Nothing was done."


@problem(ConfigurationError, "MF1101")
def config_missing(*, path: str) -> None:
    """There is no configuration file {path}.

    Run `mirrorfeed init` to write an example, or set another file with `--config`.
    """


@problem(ConfigurationError, "MF1102")
def config_unreadable(*, reason: str, path: str, line: int | None) -> Computed:
    """Cannot read the configuration {place}: {reason}.

    Correct the file. `mirrorfeed init FILE` writes an example to compare with.
    """
    return {"place": path if line is None else f"{path}:{line}"}


@dataclass(frozen=True, order=True)
class Mistake:
    """A mistake in the configuration file."""

    line: int
    field: str
    reason: str


class ConfigInvalidError(ConfigurationError):
    code = "MF1103"
    what = "{lines:lines}"
    fix = f"Correct the file {_RETRY}"
    meaning = "The configuration has unknown fields or invalid values. All of them are listed, each with its line."
    path: str
    mistakes: tuple[Mistake, ...]

    def message_lines(self) -> Sequence[str]:
        return [*self.lines, self.solution]

    @property
    def lines(self) -> list[str]:
        count = "a mistake" if len(self.mistakes) == 1 else f"{len(self.mistakes)} mistakes"
        lines = [f"{self.path}:{each.line}: {each.field}: {each.reason}" for each in self.mistakes]
        return [f"The configuration has {count}:", *lines]


@problem(ConfigurationError, "MF1104")
def option_invalid(*, option: str, reason: str) -> None:
    """The option --{option} {reason}.

    Correct the option and run the same command again. Nothing was done.
    """


@problem(
    ConfigurationError,
    "MF1105",
    meaning="The address of the landing zone is neither a folder nor a valid address in OneLake.",
)
def invalid_landing_zone(*, reason: str) -> None:
    """The landing zone {reason}.

    Correct `landing_zone` or `--landing-zone`. Nothing was done.
    """


class UnknownTableError(ConfigurationError):
    code = "MF1106"
    what = "{path} has no target or source {names:quoted}."
    fix = "Use one of the targets in the file ({known:few}), or add the table to the file."
    path: str
    names: Sequence[str]
    known: Sequence[str]


@problem(ConfigurationError, "MF1111")
def nothing_matches(*, pattern: str, path: str, left_out: tuple[str, ...]) -> Computed:
    """{pattern} in {path} selects no table{reasons}.

    Correct the pattern, its `exclude` or its `tags`, or remove the entry. Nothing was done.
    """
    return {"reasons": f": {first_names(left_out)}" if left_out else ""}


@problem(ConfigurationError, "MF1112")
def duplicate_targets(*, path: str, conflicts: Sequence[str]) -> None:
    """Sources in {path} have the same target, regardless of case: {conflicts:few}.

    Use another `target`, such as {{schema}}_{{table}}, leave out a source with `exclude`, or give a source a separate
    entry. Nothing was done.
    """


@problem(ConfigurationError, "MF1113")
def several_landing_zones(*, path: str, zones: Sequence[str]) -> None:
    """{path} has several landing zones: {zones:list}.

    Choose one landing zone with `mirrorfeed --landing-zone PLACE publish`, or in Python with `landing_zone`. Use a
    separate schedule or deployment for each landing zone.
    """


@problem(ConfigurationError, "MF1114")
def duplicate_histories(*, path: str, conflicts: Sequence[str]) -> None:
    """Tables in {path} have the same history: {conflicts:few}.

    Set another `history` for one of the tables, or turn its history off with the value false. Nothing was done.
    """


@problem(ConfigurationError, "MF3214")
def database_not_named(*, landing_zone: str) -> None:
    """The landing zone {landing_zone} has the id of a workspace, but not the id of a mirrored database.

    Add the id of the database: onelake://<workspace id>/<mirrored database id>. `mirrorfeed fabric create NAME` creates
    a database and prints its `landing_zone`.
    """
