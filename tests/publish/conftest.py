"""Counts what the proof suite went through, for the last lines of a run."""

from __future__ import annotations

from collections import Counter

import pytest

COUNTED = pytest.StashKey[Counter[str]]()


@pytest.fixture(scope="session")
def counted(request: pytest.FixtureRequest) -> Counter[str]:
    """How many cases of each kind were played, by its name."""
    return request.config.stash.setdefault(COUNTED, Counter())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for kind, count in sorted(config.stash.get(COUNTED, Counter()).items()):
        terminalreporter.write_line(f"{count} {kind}")
