"""The checks of the first live day: run those that need no person, and ask a person about the others.

The page "Go-live checklist" has the same titles. A result names no table, place, person or secret, so that the page
with the results can be sent to others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, get_args

from mirrorfeed.display.progress import progress
from mirrorfeed.display.rows import Row, counted, row, shown
from mirrorfeed.errors import MirrorfeedError, error_name, wrap_error
from mirrorfeed.runtime.version import this_build

if TYPE_CHECKING:
    from mirrorfeed.api.feed import Feed

PAGE = "docs/go-live-checklist.md"
Verdict = Literal["ok", "wrong", "not done"]
Answer = tuple[Verdict, str]
"""Result of a check, and what was seen, in words."""


@row
class GoLiveCheck(Row):
    """Result of a check of the first live day."""

    number: int = shown("Check")
    title: str = shown("Title")
    result: Literal["ok", "wrong", "not done"] = shown("Result")
    """`not done` also means that the check does not apply, or that no person answered."""
    seen: str = shown("Seen")

    @property
    def ok(self) -> bool:
        return self.result != "wrong"


@dataclass(frozen=True, slots=True)
class _Check:
    number: int
    title: str
    run: Callable[[Feed], Answer] | None = None
    """Function that makes the check. None if only a person can make it."""


def go_live(
    feed: Feed, ask: Callable[[int, str], Answer] | None, numbers: Collection[int] = ()
) -> tuple[GoLiveCheck, ...]:
    """Make the checks `numbers` in order, or all checks. `ask` returns a person's answer; None answers `not done`."""
    rows = []
    for check in CHECKS:
        if numbers and check.number not in numbers:
            continue
        progress.info("Check %d: %s", check.number, check.title)
        if check.run:
            try:
                result, seen = check.run(feed)
            except Exception as error:
                result, seen = "wrong", _describe(wrap_error(f"Check {check.number}", error))
        else:
            result, seen = ask(check.number, check.title) if ask else ("not done", f"a person makes this check: {PAGE}")
        rows.append(GoLiveCheck(number=check.number, title=check.title, result=result, seen=seen))
    return tuple(rows)


def page_of(rows: Sequence[GoLiveCheck], now: datetime | None = None) -> str:
    """Return the results as a Markdown page."""
    time = (now or datetime.now(UTC)).strftime("%Y-%m-%d %H:%M")
    counts = Counter(each.result for each in rows)
    lines = [f"| {each.number} | {each.title} | {each.result} | {_cell(each.seen)} |" for each in rows]
    total = ", ".join(f"{counts[result]} {result}" for result in get_args(Verdict))
    head = ["# Results of the go-live checklist", "", f"mirrorfeed {this_build()}, {time} UTC: {total}.", ""]
    return "\n".join([*head, "| Check | Title | Result | Seen |", "|---|---|---|---|", *lines, ""])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _describe(error: MirrorfeedError) -> str:
    """Return code and name of an error. The message of an error can contain names of tables."""
    return f"{error.code} ({error_name(error)})"


def _errors(rows: Sequence[Any]) -> str:
    """Return the errors of rows with their number, most frequent first. Empty if there are none."""
    found = Counter(_describe(each.error) for each in rows if each.error)
    return ", ".join(f"{count} {text}" for text, count in found.most_common())


def _check_setup(feed: Feed) -> Answer:
    return _judge_findings(feed.setup.check())


def _check_platform(feed: Feed) -> Answer:
    findings = feed.setup.check_platform()
    _, counts = _judge_findings(findings)
    lines = "; ".join(f"{each.name}: {each.severity.value}, {each.what}" for each in findings)
    return ("ok" if findings.ok else "wrong"), f"{counts}. {lines}"


def _judge_findings(findings: Any) -> Answer:
    counts = Counter(each.severity.value for each in findings)
    codes = sorted({each.code for each in findings if not each.ok and each.code})
    text = ", ".join(f"{count} {severity}" for severity, count in sorted(counts.items()))
    return ("ok" if findings.ok else "wrong"), f"{text}{': ' if codes else ''}{', '.join(codes)}"


def _publish_twice(feed: Feed) -> Answer:
    first, second = feed.publish(), feed.publish()
    errors = _errors([*first, *second])
    again = sum(bool(each.records) for each in second)
    seen = f"{counted(sum(bool(each.records) for each in first), 'table')} published, then {again}"
    if errors:
        return "wrong", f"{seen}; {errors}"
    return "ok", f"{seen} ({'sources changed meanwhile, or the second run repeated work' if again else 'nothing new'})"


def _check_consumed(feed: Feed) -> Answer:
    if not feed.landing_zone.startswith("onelake://"):
        return "not done", "the landing zone is not in OneLake"
    tables = feed.fabric.status()
    states = Counter(each.status for each in tables)
    text = ", ".join(f"{count} {state}" for state, count in states.most_common()) or "no tables"
    empty = sum(not each.rows for each in tables)
    all_replicate = bool(states) and set(states) == {"Replicating"}
    return ("ok" if all_replicate else "wrong"), f"{text}; {counted(empty, 'table')} without rows"


def _verify(feed: Feed) -> Answer:
    rows = feed.verify()
    different = sum(not each.ok and not each.error for each in rows)
    if errors := _errors(rows):
        return "wrong", f"{counted(different, 'table')} with differences; {errors}"
    return ("wrong" if different else "ok"), f"{counted(len(rows), 'table')}, {different} with differences"


def _check_steps(feed: Feed) -> Answer:
    if not feed.landing_zone.startswith("onelake://"):
        return "not done", "the landing zone is not in OneLake"
    rows = feed.status(fabric=True)
    unknown = Counter(str(step) for each in rows if each.freshness for step in each.freshness.unknown)
    waiting = sum(bool(each.lag_versions) for each in rows)
    text = ", ".join(f"{step} unknown for {count}" for step, count in unknown.most_common()) or "every step has a time"
    errors = _errors(rows)
    good = not (unknown or waiting or errors)
    return ("ok" if good else "wrong"), f"{text}; {waiting} waiting{'; ' if errors else ''}{errors}"


CHECKS = (
    _Check(1, "Deployment", _check_setup),
    _Check(2, "Platform", _check_platform),
    _Check(3, "Serverless compute, first and second run", _publish_twice),
    _Check(4, "Standard access mode"),
    _Check(5, "Dedicated access mode"),
    _Check(6, "Service credentials"),
    _Check(7, "Canceled run"),
    _Check(8, "Empty staging area"),
    _Check(9, "Task values"),
    _Check(10, "Consumed files", _check_consumed),
    _Check(11, "Updates and deletes"),
    _Check(12, "Verification", _verify),
    _Check(13, "Computed changes"),
    _Check(14, "The five steps", _check_steps),
    _Check(15, "Alerts"),
    _Check(16, "Patterns"),
    _Check(17, "The database as code"),
    _Check(18, "The dashboard"),
    _Check(19, "Access policies"),
)
