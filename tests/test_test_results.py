"""The page with test results, from JUnit files."""

from __future__ import annotations

from pathlib import Path

from tools.test_results import PAGE, write

SUITE = '<testsuite tests="1200" failures="1" errors="1" skipped="3" timestamp="2026-11-28T02:17:00"/>'


def test_results_are_written_to_the_page_and_can_be_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "test-floor.xml").write_text(f"<testsuites>{SUITE}</testsuites>", encoding="utf-8")
    write(tmp_path, page)
    assert "\n| `make test-floor` | 2026-11-28 | 1,195 | 2 | 3 |\n" in page.read_text(encoding="utf-8")
    write(tmp_path / "none", page)
    assert page.read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8")
