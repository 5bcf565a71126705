"""The monitor room is above publication: commands and the API import it, and no room below does."""

from __future__ import annotations

from pathlib import Path

import mirrorfeed
from tests.mirror.test_imports import imports_of

ROOT = Path(mirrorfeed.__file__).parent
ABOVE = {"api", "cli", "monitor", "report"}


def test_no_room_below_imports_the_monitor_room() -> None:
    files = [file for file in ROOT.rglob("*.py") if file.relative_to(ROOT).parts[0] not in ABOVE]
    found = {file.name: imports_of(file.read_text(encoding="utf-8")) for file in files}
    assert len(found) > 100
    assert [file for file, names in found.items() if any(f"{name}.".startswith("monitor.") for name in names)] == []
