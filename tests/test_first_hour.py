"""The page about the first hour shows what its commands print."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tools.first_hour import PAGE, run_page

TEXT = PAGE.read_text(encoding="utf-8")


def _steady(text: str) -> str:
    """Return the text without builds, times, durations and the widths of tables."""
    text = re.sub(r"[━─]+", "─", re.sub(r" +", " ", text))
    text = re.sub(r"(?<=required variable )\w+|(?<=BUNDLE_VAR_)\w+", "one_of_them", text)  # the CLI chooses at random
    text = re.sub(r"0\.1\.0\+[\w.]+", "0.1.0", text)
    text = re.sub(r"\b20\d\d-\d\d-\d\d[T ][\d:.]+", "2026-01-01T00:00", text)
    return re.sub(r"\b\d+(\.\d+)? (s|min)\b", "0 s", text)


def test_page_ends_with_an_equal_mirror() -> None:
    assert "```text\n```" not in TEXT
    *_, last = re.findall(r"```text\n(.*?)```", TEXT, re.DOTALL)
    assert "equal" in last


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.skipif(shutil.which("databricks") is None, reason="there is no databricks command on PATH")
def test_page_shows_the_output_of_its_commands(tmp_path: Path) -> None:
    assert _steady(run_page(TEXT, tmp_path)) == _steady(TEXT)
