"""The results of the checks of a setup, as findings."""

from __future__ import annotations

from mirrorfeed.display.redact import redact
from mirrorfeed.errors import MirrorfeedError
from mirrorfeed.monitor.rules import Finding, Weight


def passed(check: str, found: str = "") -> Finding:
    return Finding(Weight.OK, "", check, "", found)


def not_checked(check: str, reason: str, by_hand: str = "") -> Finding:
    """A check that does not apply here, or that only a person can make."""
    return Finding(Weight.UNKNOWN, "", check, "", reason, by_hand)


def failed(check: str, problem: str, fix: str = "", code: str = "") -> Finding:
    return Finding(Weight.WRONG, code, check, "", problem, fix)


def failed_with(check: str, error: Exception) -> Finding:
    """For an error of a Spark task, the problem is the last line of its Python process."""
    if isinstance(error, MirrorfeedError):
        told = error.to_dict()
        return failed(check, told["what"], told["next"], error.code)
    lines = [line.strip() for line in redact(str(error)).splitlines() if line.strip()]
    own = [line.partition(": ")[2] for line in lines if line.startswith("mirrorfeed.")]
    return failed(check, (own or lines or [type(error).__name__])[0][:500])
