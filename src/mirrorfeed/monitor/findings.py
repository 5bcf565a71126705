"""Findings: problems of tables and of the mirrored database, and results of the checks of a setup."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field
from datetime import datetime
from enum import Enum

from mirrorfeed.display.printable import shell_argument
from mirrorfeed.display.redact import redact
from mirrorfeed.display.rows import Row, row
from mirrorfeed.errors import MirrorfeedError, Transient, Unexpected


class Severity(Enum):
    WRONG = "wrong"
    """Publishing has stopped, or published changes do not arrive."""
    SOON = "soon"
    """Will become wrong if nothing changes."""
    NOTE = "note"
    UNKNOWN = "unknown"
    """A check that does not apply here, or that only a person can make."""
    OK = "ok"
    """A check that found no problem."""


@row
class Finding(Row):
    """A problem of a table or of the mirrored database, or the result of one check of the setup."""

    severity: Severity
    code: str
    """Empty for a check without an error."""
    name: str
    """The name of the rule, of the error, or of the check."""
    table: str
    """Empty for the mirrored database as a whole, and for a check of the setup."""
    what: str
    fix: str = ""
    """The command or the change that helps."""
    command: str = ""
    """The command of the fix, as a shell runs it; empty if a person must do something else."""
    since: datetime | None = field(default=None, repr=False)
    """When the problem began; None if that is unknown."""
    passing: bool = field(default=False, repr=False)
    """Whether a healthy run or service also shows the problem for a while."""

    @property
    def ok(self) -> bool:
        return self.severity not in (Severity.WRONG, Severity.SOON)

    @property
    def key(self) -> tuple[str, str]:
        """The table and the name, which identify the problem in alerts."""
        return self.table, self.name

    def remarks(self) -> Sequence[str]:
        subject = " ".join(filter(None, (self.severity.value.ljust(8) + self.code, self.name)))
        about = f"{subject}: {self.table}: {self.what}" if self.table else f"{subject}: {self.what}"
        fix = [f"        Fix: {self.fix}"] if self.fix else []
        run = [f"        Run: {self.command}"] if self.command not in ("", self.fix) else []
        return (about.rstrip(": "), *fix, *run)


def error_finding(table: str, error: MirrorfeedError, severity: Severity = Severity.WRONG) -> Finding:
    found, passing = error.to_dict(), severity is Severity.WRONG and isinstance(error, Transient | Unexpected)
    fix = name_table(found["next"], table)
    name, command = type(error).__name__, _command_in(fix)
    return Finding(severity, error.code, name, table, found["what"], fix, command, passing=passing)


def name_table(fix: str, table: str) -> str:
    """Add the table to each command in `fix` that would otherwise run for all tables."""
    if not table:
        return fix
    commands = "publish|rebuild|enable-cdf|verify|log"
    return re.sub(rf"`(mirrorfeed (?:{commands}))`", lambda m: f"`{m[1]} {shell_argument(table)}`", fix)


def _command_in(fix: str) -> str:
    """The commands of the last sentence that has any, if a person must not complete them."""
    commands, end = list[str](), 0
    for each in re.finditer(r"`(mirrorfeed [^`]+)`", fix):
        if ". " in fix[end : each.start()]:
            commands.clear()
        commands.append(each[1])
        end = each.end()
    return "" if any("X days" in each or "NAME" in each for each in commands) else " && ".join(commands)


def passed(check: str, found: str = "") -> Finding:
    return Finding(Severity.OK, "", check, "", found)


def not_checked(check: str, reason: str) -> Finding:
    return Finding(Severity.UNKNOWN, "", check, "", reason)


def failed(check: str, problem: str, fix: str = "", code: str = "") -> Finding:
    return Finding(Severity.WRONG, code, check, "", problem, fix)


def failed_with(check: str, error: Exception) -> Finding:
    """A check that raised `error`. For an error of a Spark task, the problem is the last line of its Python process."""
    if isinstance(error, MirrorfeedError):
        words = error.to_dict()
        return failed(check, words["what"], words["next"], error.code)
    lines = [line.strip() for line in redact(str(error)).splitlines() if line.strip()]
    own = [line.partition(": ")[2] for line in lines if line.startswith("mirrorfeed.")]
    return failed(check, (own or lines or [type(error).__name__])[0][:500])
