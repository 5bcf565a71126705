"""Errors of the configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mirrorfeed.display.rows import first_names
from mirrorfeed.errors import Terminal

_RETRY = "and run the same command again. Nothing was done."


class ConfigMissing(Terminal):
    code = "MF1101"
    what = "There is no configuration file {path}."
    fix = "Run `mirrorfeed init` to write an example, or set another file with `--config`."


class ConfigUnreadable(Terminal):
    code = "MF1102"
    what = "Cannot read the configuration {place}: {reason}."
    fix = "Correct the file. `mirrorfeed init FILE` writes an example to compare with."
    path: str
    line: int | None

    @property
    def place(self) -> str:
        return self.path if self.line is None else f"{self.path}:{self.line}"


@dataclass(frozen=True, order=True)
class Mistake:
    """A mistake in the configuration file."""

    line: int
    field: str
    reason: str


class ConfigInvalid(Terminal):
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


class OptionInvalid(Terminal):
    code = "MF1104"
    what = "The option --{option} {reason}."
    fix = f"Correct the option {_RETRY}"


class BadAddress(Terminal):
    code = "MF1105"
    what = "The landing zone {reason}."
    fix = "Correct `landing_zone` or `--landing-zone`. Nothing was done."
    meaning = "The address of the landing zone is neither a folder nor a valid address in OneLake."


class UnknownTable(Terminal):
    code = "MF1106"
    what = "{path} has no target or source {names:quoted}."
    fix = "Use one of the targets in the file ({known:few}), or add the table to the file."


class NothingMatches(Terminal):
    code = "MF1111"
    what = "{pattern} in {path} selects no table{reasons}."
    fix = "Correct the pattern or its `exclude`, or remove the entry. Nothing was done."
    left_out: tuple[str, ...]

    @property
    def reasons(self) -> str:
        return f": {first_names(self.left_out)}" if self.left_out else ""


class TargetsMeet(Terminal):
    code = "MF1112"
    what = "Sources in {path} have the same target, regardless of case: {conflicts:few}."
    fix = (
        "Use another `target`, such as {{schema}}_{{table}}, leave out a source with `exclude`, or give a source a"
        " separate entry. Nothing was done."
    )


class SeveralLandingZones(Terminal):
    code = "MF1113"
    what = "{path} has several landing zones: {zones:list}."
    fix = (
        "Choose one landing zone with `mirrorfeed --landing-zone PLACE publish`, or in Python with `landing_zone`. Use"
        " a separate schedule or deployment for each landing zone."
    )


class HistoriesMeet(Terminal):
    code = "MF1114"
    what = "Tables in {path} have the same history: {conflicts:few}."
    fix = "Set another `history` for one of the tables, or turn its history off with the value false. Nothing was done."


class DatabaseNotNamed(Terminal):
    code = "MF3214"
    what = "The landing zone {landing_zone} has the id of a workspace, but not the id of a mirrored database."
    fix = (
        "Add the id of the database: onelake://<workspace id>/<mirrored database id>. `mirrorfeed fabric create NAME`"
        " creates a database and prints its `landing_zone`."
    )
