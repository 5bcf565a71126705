"""Progress messages: when and where they are shown."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from mirrorfeed.display import progress as room
from mirrorfeed.display.progress import progress, progress_shown, waiting


def test_long_step_is_shown(capfd: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    displayed = threading.Event()
    monkeypatch.setattr(room, "_DELAY_SECONDS", 0.0)
    monkeypatch.setattr("builtins.print", lambda *a, print=print, **k: (print(*a, **k), displayed.set()))
    with progress_shown():
        progress.info("Reading %s", "the log")
        assert displayed.wait(10)
    assert capfd.readouterr() == ("", "Reading the log …\n")


def test_short_step_is_not_shown(capfd: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setattr(room, "_DELAY_SECONDS", 60.0)
    with progress_shown():
        progress.info("Reading the log")
        with waiting("Starting Spark"):
            pass
    assert capfd.readouterr() == ("", "")


def test_logged_messages_are_not_shown_twice(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, monkeypatch: Any
) -> None:
    monkeypatch.setattr(room, "_DELAY_SECONDS", 0.0)
    caplog.set_level(logging.INFO, "mirrorfeed")
    with progress_shown():
        assert not progress.handlers
        progress.info("Reading the log")
    assert capfd.readouterr().out == ""


def test_progress_goes_to_the_original_standard_error(tmp_path: Path) -> None:
    """Standard error is redirected to a file while Spark starts."""
    script = """
import os, sys, threading
from mirrorfeed.display import progress as room
room._DELAY_SECONDS = 0.0
with room.progress_shown(), room.waiting("Starting Spark"):
    os.dup2(os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY), 2)
    while threading.active_count() > 1:
        pass
"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "log")], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "Starting Spark …\n")
    assert (tmp_path / "log").read_text() == ""
