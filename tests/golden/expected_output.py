"""The recorded output that tests compare with. `make golden` writes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.recorder import Recorder

FOLDER = Path(__file__).parent / "expected"


def file_of(command: str) -> Path:
    return FOLDER / f"{command.replace(' ', '-')}.txt"


def check(recorder: Recorder, command: str, config: pytest.Config) -> None:
    """Compare what was recorded of a command with its file, or with --renew write the file."""
    file, found = file_of(command), recorder.recorded(command)
    if config.getoption("renew"):
        file.write_text(found, encoding="utf-8")
    assert found == file.read_text(encoding="utf-8"), "If the new output is intended, run `make golden`."
