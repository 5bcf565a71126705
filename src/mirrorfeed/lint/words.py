"""A report for people and for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from itertools import groupby
from typing import Any

from mirrorfeed.display.humanize import counted
from mirrorfeed.errors import visible
from mirrorfeed.lint.findings import Severity
from mirrorfeed.lint.linter import Report


def as_dict(report: Report) -> dict[str, Any]:
    """`{"findings": […]}`, each with code, severity, file, what and next."""
    return {"findings": [asdict(finding) for finding in report.findings]}


def lines(report: Report) -> Iterator[str]:
    """Findings under their files, and a last line that counts them."""
    for file, found in groupby(report.findings, key=lambda finding: finding.file):
        yield visible(file)
        for finding in found:
            yield f"  {finding.code} {finding.severity}: {visible(finding.what)}"
            yield f"        {finding.next}"
    counts = Counter(finding.severity for finding in report.findings)
    spoken = [_spoken(counts[one], one) for one in Severity if counts[one]] or ["no findings"]
    yield f"{counted(report.tables, 'table')}: {', '.join(spoken)}"


def _spoken(number: int, severity: Severity) -> str:
    return f"{number:,} advice" if severity is Severity.ADVICE else counted(number, severity)
