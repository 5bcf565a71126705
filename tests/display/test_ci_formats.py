"""Annotations of GitHub Actions and JUnit reports."""

from __future__ import annotations

import pytest
from junitparser import Error, Failure, JUnitXml

from mirrorfeed.display.ci_formats import Annotation, to_github, to_junit
from mirrorfeed.errors import with_code
from mirrorfeed.lint.specification import LintFinding, LintSeverity
from mirrorfeed.mirror.verify.row_comparison import Difference
from mirrorfeed.monitor.findings import Finding, Severity
from mirrorfeed.orchestration.verify_and_repair import Comparison, nothing_published

NEVER = nothing_published(table="a")
HOSTILE = "100%\r\n::error::forged\x1b[31m \ufffe \ud800 <b>&"


def test_annotation_is_one_escaped_line_as_github_documents() -> None:
    annotation = Annotation("error", "MF302 a,b: c", "50% lost\nFix: publish, then: verify", "x:y,z.parquet")
    assert to_github([annotation], ["1 table"], "mirrorfeed.yml").splitlines() == [
        "1 table",
        "::error file=x%3Ay%2Cz.parquet,title=MF302 a%2Cb%3A c::50%25 lost%0AFix: publish, then: verify",
    ]


def test_name_from_a_file_cannot_forge_a_command() -> None:
    printed = to_github([Annotation("warning", HOSTILE, HOSTILE, HOSTILE)], [HOSTILE], "mirrorfeed.yml")
    text, command = printed.splitlines()
    assert not text.startswith("::")
    assert command.startswith("::warning file=100%25%0A%3A%3Aerror%3A%3Aforged")
    assert "\x1b" not in printed


def test_rows_that_need_no_attention_are_passed_tests_without_annotation() -> None:
    rows = [Annotation("", "sales.orders", "equal"), Annotation("notice", "MF551", "advice")]
    assert to_github(rows, [], "mirrorfeed.yml") == "::notice file=mirrorfeed.yml,title=MF551::advice"
    (suite,) = read(to_junit(rows, [], "mirrorfeed lint"))
    assert [(case.name, case.is_passed) for case in suite] == [("sales.orders", True), ("MF551", True)]


def read(text: str) -> JUnitXml:
    return JUnitXml.fromstring(text.encode())


def test_report_has_a_failed_test_for_each_error_and_warning() -> None:
    rows = [Annotation("error", "a", "broken\nFix: b"), Annotation("warning", "b", "late"), Annotation("", "c", "")]
    report = read(to_junit(rows, ["3 tables", "Keys were not checked."], "mirrorfeed verify"))
    (suite,) = report
    assert (report.tests, report.failures, report.errors, suite.name) == (3, 2, 0, "mirrorfeed verify")
    assert [(type(f), f.message, f.type, f.text) for case in suite for f in case.result] == [
        (Failure, "broken", "error", "broken\nFix: b"),
        (Failure, "late", "warning", "late"),
    ]
    assert suite._elem.findtext("system-out") == "3 tables\nKeys were not checked."
    assert not [each for case in suite for each in case.result if isinstance(each, Error)]


def test_report_of_any_text_is_read_back() -> None:
    (suite,) = read(to_junit([Annotation("error", HOSTILE, HOSTILE)], [HOSTILE], "mirrorfeed lint"))
    (case,) = suite
    assert "::error::forged" in case.result[0].text
    assert "<b>&" in case.name


def test_report_without_findings_has_one_passed_test() -> None:
    (suite,) = read(to_junit([], ["12 tables: no findings"], "mirrorfeed lint"))
    assert [(case.name, case.is_passed) for case in suite] == [("no findings", True)]


@pytest.mark.parametrize(
    ("row", "annotation"),
    [
        (
            LintFinding("MF302", LintSeverity.ERROR, "a/1.parquet", "The file is empty.", "Delete it."),
            Annotation("error", "MF302 a/1.parquet", "The file is empty. Delete it.", "a/1.parquet"),
        ),
        (LintFinding("MF121", LintSeverity.ADVICE, "", "No.", "Do."), Annotation("notice", "MF121", "No. Do.")),
        (
            Finding(Severity.SOON, "MF804", "LAG", "sales.orders", "It is late.", "mirrorfeed publish"),
            Annotation("warning", "MF804 LAG: sales.orders", "It is late.\nFix: mirrorfeed publish"),
        ),
        (Finding(Severity.OK, "", "ledger", "", "./ledger"), Annotation("", "ledger", "./ledger")),
        (Comparison("sales.orders", "equal, 3 rows", True), Annotation("", "sales.orders", "equal, 3 rows")),
        (
            Comparison("a", "DIFFERENT", False, differences=(Difference("id = 1", "v", "x", "y"),)),
            Annotation("error", "a", "DIFFERENT\na: id = 1: v is 'x' in the source, 'y' in the mirror"),
        ),
        (
            Comparison("a", "not compared", None, error=NEVER),
            Annotation("error", "a", f"not compared\na: {with_code(NEVER)}"),
        ),
    ],
)
def test_each_kind_of_row_has_an_annotation(row: LintFinding | Finding | Comparison, annotation: Annotation) -> None:
    assert row.annotation() == annotation
