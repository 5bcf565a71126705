"""Facts, rules and findings, which `status`, `doctor` and alerts share.

Facts are the state of a table or of the mirrored database, and errors that occurred while it was read. A rule finds one
kind of problem in facts. A finding describes an error, the result of a setup check, or a problem that a rule found.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from mirrorfeed.config.printed_commands import name_config, name_config_in_command
from mirrorfeed.display.ci_formats import Annotation, Level
from mirrorfeed.display.redact import redact, shell_argument
from mirrorfeed.display.rows import Row, row
from mirrorfeed.errors import (
    MirrorfeedError,
    MirrorfeedWarning,
    TransientError,
    UnexpectedError,
    error_name,
    field_names,
    fill,
)
from mirrorfeed.landing.delivery import UPSERT, Delivery
from mirrorfeed.monitor.freshness import Freshness, Step
from mirrorfeed.orchestration.last_failure import LastRunError

if TYPE_CHECKING:
    from mirrorfeed.landing.load_part import LoadProgress
    from mirrorfeed.mirror.fabric.status_and_settings import TableState
    from mirrorfeed.publish.errors import LastFileMissingWarning, PublishedFilesLostError
    from mirrorfeed.publish.table_log.verification_mark import VerificationMark


KEY_PROBLEMS = ("RowsRefused", "InvalidCondition")
"""Names of errors that are found when the keys of all rows are read."""


@dataclass(frozen=True, slots=True)
class LogFacts:
    """Facts about a table's folder in the landing zone, and about the log in this folder."""

    is_read: bool = field(default=True, kw_only=True)
    exists: bool = False
    data_files: int = 0
    has_consumed: bool = False
    """True if the files in the folder show that Fabric has consumed a file."""
    empty_files: tuple[str, ...] = ()
    """Addresses of data files with 0 bytes in the folder."""
    newest_file_age: float | None = None
    """Seconds since the newest data file was written. None if there is no data file."""
    published: int | None = None
    """Published version of the source. None if nothing is published, or not all parts of a first load."""
    load: LoadProgress | None = None
    """Published share of a first load, if parts of it are missing."""
    is_adopted: bool = False
    """True if the newest record only states that the files of another publisher are continued."""
    mark: VerificationMark | None = None
    """Mark of the last verification."""
    unfinished: int = 0
    """Number of files in the newest record that still have their staged names."""
    orphans: tuple[str, ...] = ()
    """Names of files, such as staged files, that no publication needs, and of folders of logs with other ids."""
    lost: PublishedFilesLostError | LastFileMissingWarning | None = None
    """Error about published files that are missing and that Fabric may not have consumed. None if there are none."""


@dataclass(frozen=True, slots=True)
class SourceFacts:
    feed: str = ""
    """Description of the source's change data feed."""
    is_read: bool = field(default=True, kw_only=True)
    newest_version: int | None = None
    """Newest version of the source. None for a source without versions."""
    lag_seconds: float | None = None
    """Seconds since the oldest unpublished commit. 0 if all commits are published, None if nothing is published."""
    lag_before: tuple[float, float] | None = None
    """Seconds since the oldest publication in the log, and the lag in seconds at that time. None if unknown."""
    longest_wait: float = 0.0
    """Longest time in seconds from a commit to its publication, without the oldest publication. 0 if unknown."""
    retentions: Mapping[str, float | None] = field(default_factory=dict)
    """Maps the name of each table property for a retention to the retention in seconds.

    The retention is None if the value of the property cannot be parsed.
    """
    cloned_from: str | None = None
    longest_text: tuple[str, int] | None = None
    """Column with the longest text, and the length of the text in UTF-8 bytes. None if no text was measured."""
    is_measured: bool = False
    """True if it is known whether the source has a text, and how long it is."""


_IGNORED_SHARE = 0.05
"""A lag is ignored if it is shorter than this share of the shortest retention."""


def is_long_lag(lag: float | None, retentions: Mapping[str, float | None]) -> bool:
    """Return whether a lag is so long that it may exceed a retention of the source. A short lag is ignored."""
    shortest = min((each for each in retentions.values() if each is not None), default=None)
    return lag is not None and shortest is not None and lag >= _IGNORED_SHARE * shortest


@dataclass(frozen=True, slots=True)
class TableFacts:
    table: str
    source: str
    """Name of the source in SQL."""
    source_name: str = ""
    """Name of the source for display, without SQL quoting."""
    zone: str = "the landing zone"
    delivery: Delivery = UPSERT
    paused: str | None = None
    """End and reason of the pause. None if the table is not paused."""
    log_facts: LogFacts = LogFacts(is_read=False)
    source_facts: SourceFacts = SourceFacts(is_read=False)
    errors: tuple[MirrorfeedError, ...] = ()
    """Errors that prevent the next publication, or that occurred while facts were read."""
    last_failure: LastRunError | None = None
    """Error that stopped the last run. None if there is none, or if everything was published since then."""
    special_step: str | None = None
    """Next step in words, if the next run reloads the table or does not read all changes from the feed."""
    are_keys_checked: bool = False
    """True if the keys of the next publication were checked, or if nothing is to be published."""
    freshness: Freshness | None = None
    service: TableState | None = None
    read_service: bool = False
    """True if Fabric was read. Then `service` is None if the table does not exist in Fabric."""
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    limits: Mapping[Step, float | None] = field(default_factory=dict)
    """Maximum seconds for which changes can wait to reach a step. A longer wait is a problem. None means no limit."""
    max_verification_age: float | None = None
    """Maximum seconds since the last verification that found no difference. None means no limit."""

    @property
    def has_consumed(self) -> bool:
        """True if files, the mirror or Fabric's row count show that Fabric has consumed a file of the table."""
        is_mirrored = self.freshness is not None and Step.MIRRORED in self.freshness.times
        return self.log_facts.has_consumed or is_mirrored or bool(self.service and self.service.rows)

    @property
    def unchecked(self) -> Collection[str]:
        """Names of problems that only a deep check finds, and that were not checked."""
        text = () if self.source_facts.is_measured else ("TEXT_TOO_LONG",)
        return (*text, *(() if self.are_keys_checked else KEY_PROBLEMS))

    @property
    def is_complete(self) -> bool:
        """True if the table's log and source were read, and `errors` has only terminal errors."""
        temporary = TransientError | UnexpectedError | MirrorfeedWarning
        is_read = self.log_facts.is_read and self.source_facts.is_read
        return is_read and not any(isinstance(error, temporary) for error in self.errors)


@dataclass(frozen=True, slots=True)
class DatabaseFacts:
    table: ClassVar = ""
    status: str | None = None
    """Status of mirroring as Fabric returns it. None if the landing zone is not in Fabric or Fabric cannot be read."""
    error: MirrorfeedError | None = None
    states: Sequence[TableState] | None = None


class Severity(Enum):
    WRONG = "wrong"
    """Publishing has stopped, or published changes do not reach Fabric."""
    SOON = "soon"
    """The problem will become `WRONG` if nobody acts."""
    NOTE = "note"
    UNKNOWN = "unknown"
    """Neither passed nor failed, for example because only a person can make the check."""
    NOT_APPLICABLE = "not applicable"
    OK = "ok"


_LEVELS: Mapping[Severity, Level] = {
    Severity.WRONG: "error",
    Severity.SOON: "warning",
    Severity.NOTE: "notice",
    Severity.UNKNOWN: "notice",
    Severity.NOT_APPLICABLE: "",
    Severity.OK: "",
}


@row
class Finding(Row):
    """Problem of a table or of the mirrored database, or the result of one setup check."""

    severity: Severity
    code: str
    """Code of the rule or error, such as MF804. Empty if a setup check has no code."""
    name: str
    """Name of the rule, error or check."""
    table: str
    """Target of the table. Empty for the mirrored database as a whole, and for a setup check."""
    what: str
    fix: str = ""
    """Command or instruction that solves the problem. Empty if there is none."""
    command: str = ""
    """Shell command of the fix. Empty if the fix is not a command."""
    since: datetime | None = field(default=None, repr=False)
    """Time when the problem started. None if unknown."""
    is_temporary: bool = field(default=False, repr=False)
    """True if the problem can also occur for a short time while everything works."""

    @property
    def ok(self) -> bool:
        return self.severity not in (Severity.WRONG, Severity.SOON)

    @property
    def key(self) -> tuple[str, str]:
        """Table and name, which identify a problem in alerts."""
        return self.table, self.name

    def remarks(self) -> Sequence[str]:
        subject = " ".join(filter(None, (self.severity.value.ljust(8) + self.code, self.name)))
        about = f"{subject}: {self.table}: {self.what}" if self.table else f"{subject}: {self.what}"
        fix = [f"        Fix: {self.fix}"] if self.fix else []
        run = [f"        Run: {self.command}"] if self.command not in ("", self.fix) else []
        return (about.rstrip(": "), *fix, *run)

    def annotation(self) -> Annotation:
        title = f"{self.code} {self.name}".strip() + (f": {self.table}" if self.table else "")
        fix = f"\nFix: {self.fix}" if self.fix else ""
        return Annotation(_LEVELS[self.severity], title, self.what + fix)


Values = Mapping[str, Any]
F = TypeVar("F", TableFacts, DatabaseFacts)


@dataclass(frozen=True, slots=True)
class Rule(Generic[F]):
    code: str
    name: str
    test: Callable[[F], Values | None]
    """Function of the facts. Returns the values for the template `text`, or None if there is no problem."""
    text: str
    """Text of the finding, as a template with the names of values in braces, such as "{files:count file}"."""
    fix: str
    """Shell command, SQL statement or instruction, as a template that is filled with attributes of the facts."""
    severity: Severity = Severity.WRONG
    is_temporary: bool = False

    def find(self, facts: F) -> Finding | None:
        values = self.test(facts)
        if values is None:
            return None
        fix = fill(self.fix, {name: getattr(facts, name) for name in field_names(self.fix)})
        what, since = fill(self.text, values), values.get("since")
        return Finding(
            self.severity, self.code, self.name, facts.table, what, fix, runnable(fix), since, self.is_temporary
        )


def error_finding(table: str, error: MirrorfeedError) -> Finding:
    shown, name, since = error.to_dict(), error_name(error), None
    is_temporary = not error.is_warning and isinstance(error, TransientError | UnexpectedError)
    if isinstance(error, LastRunError):
        since, is_temporary = error.failure.since, error.is_temporary
    fix: str = shown["next"]
    if table:  # otherwise the commands would run for all tables
        commands = "publish|rebuild|enable-cdf|verify|log"
        fix = re.sub(rf"`(mirrorfeed (?:{commands}))`", lambda m: f"`{m[1]} {shell_argument(table)}`", fix)
    severity = Severity.SOON if error.is_warning else Severity.WRONG
    command = _find_command(fix)
    return Finding(severity, error.code, name, table, shown["what"], fix, command, since, is_temporary)


def with_config(finding: Finding, path: str, variables: Mapping[str, str] = MappingProxyType({})) -> Finding:
    """Return the finding with commands that read the configuration file `path` with `variables`."""
    is_text = finding.fix.endswith(".")
    name = name_config if is_text else name_config_in_command
    command = name_config_in_command(finding.command, path, variables)
    return replace(finding, fix=name(finding.fix, path, variables), command=command)


def _find_command(fix: str) -> str:
    """Return the shell commands in `fix`, the instruction that solves a problem. Several commands are joined with `&&`.

    `fix` has commands in backticks. If several sentences have commands, only the last of these sentences counts.
    Returns an empty string if there is no command, or if a shell cannot run the commands unchanged.
    """
    commands, end = list[str](), 0
    for each in re.finditer(r"`(mirrorfeed [^`]+)`", fix):
        if ". " in fix[end : each.start()]:
            commands.clear()
        commands.append(each[1])
        end = each.end()
    return runnable(" && ".join(commands))


def runnable(fix: str) -> str:
    """Return `fix` if a shell can run it unchanged, otherwise an empty string."""
    return fix if fix.startswith("mirrorfeed ") and not re.search(r"\bNAME\b|X days", fix) else ""


def passed(check: str, result: str = "") -> Finding:
    return Finding(Severity.OK, "", check, "", result)


def not_checked(check: str, reason: str) -> Finding:
    return Finding(Severity.UNKNOWN, "", check, "", reason)


def not_applicable(check: str, reason: str) -> Finding:
    return Finding(Severity.NOT_APPLICABLE, "", check, "", reason)


def failed(check: str, problem: str, fix: str = "", code: str = "") -> Finding:
    return Finding(Severity.WRONG, code, check, "", problem, fix)


def failed_with(check: str, error: Exception) -> Finding:
    """Return the finding of a failed check. If Spark's `error` quotes an error of mirrorfeed, uses only the quote."""
    if isinstance(error, MirrorfeedError):
        shown = error.to_dict()
        return failed(check, shown["what"], shown["next"], error.code)
    lines = [line.strip() for line in redact(str(error)).splitlines() if line.strip()]
    own_lines = [line.partition(": ")[2] for line in lines if line.startswith("mirrorfeed.")]
    return failed(check, (own_lines or lines or [type(error).__name__])[0][:500])


def attempt(check: str, action: Callable[[], str | None]) -> Finding:
    """Return a finding: passed, with the text that `action` returns, or failed, with the error that `action` raises."""
    try:
        return passed(check, action() or "")
    except Exception as error:
        return failed_with(check, error)
