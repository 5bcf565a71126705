"""Arrows between the rooms point one way."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import mirrorfeed

SOURCE = Path(mirrorfeed.__file__).parent
ARROWS = {
    "interval": {"engine"},
    "log": {"interval"},
    "classic": {"engine", "log"},
    # the error makes the plan that brings files back, and that is a value
    "guard": {"engine", "interval", "log", "classic", "bring_back.plan"},
    "bring_back": {"engine", "interval", "log", "guard"},
    "rules": set(),
    "upkeep": {"engine", "interval", "log", "guard"},
}


def imported(folder: Path) -> set[str]:
    """What of the archive the modules of a folder import, as `room` or `room.module`."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in folder.rglob("*.py"))
    found = re.findall(r"from mirrorfeed\.archive((?:\.\w+)*) import (\w+)", text)
    return {f"{module}.{name}".strip(".") for module, name in found}


@pytest.mark.parametrize("room", ARROWS)
def test_a_room_uses_only_those_below_it(room: str) -> None:
    allowed = {room, "errors"} | ARROWS[room]
    beyond = {
        each
        for each in imported(SOURCE / "archive" / room)
        if not any(f"{each}.".startswith(f"{way}.") for way in allowed)
    }
    assert beyond == set()


def test_the_configuration_uses_none() -> None:
    assert imported(SOURCE / "config") == set()
