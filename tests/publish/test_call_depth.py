"""Call depth of the package between `feed.publish()` and the rename that makes a file visible to Fabric."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import mirrorfeed
from fixtures.memory import MemoryStore
from fixtures.tables import TableFeed
from mirrorfeed.orchestration import table_task
from tests.publish.scenarios import two_orders

PACKAGE = str(Path(mirrorfeed.__file__).parent)


def functions(frame: FrameType | None) -> Iterator[str]:
    """Functions of the package in a stack, innermost first."""
    while frame:
        if frame.f_code.co_filename.startswith(PACKAGE):
            yield frame.f_code.co_qualname
        frame = frame.f_back


class Watched(MemoryStore):
    """Records the callers of the rename, in its own thread and in the thread that waits for it."""

    calls: tuple[list[str], list[str]] = ([], [])

    def rename(self, path: str, new_path: str) -> None:
        waits = self._main_thread()
        while waits.f_code.co_name not in ("acquire", "wait"):  # it has not begun to wait on a busy machine
            time.sleep(0.01)
            waits = self._main_thread()
        self.calls = list(functions(sys._getframe())), list(functions(waits))
        super().rename(path, new_path)

    @staticmethod
    def _main_thread() -> FrameType:
        return sys._current_frames()[threading.main_thread().ident or 0]


def test_few_calls_lead_to_a_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, without_spark = Watched(), object()
    (tmp_path / "mirrorfeed.yml").write_text("landing_zone: ./zone\ntables: [{source: ./t, target: s.t, keys: [id]}]\n")
    monkeypatch.setattr(table_task, "zone_of", lambda _: store)
    monkeypatch.setattr(table_task, "source_for", lambda *_: TableFeed(two_orders()))
    feed: Any = mirrorfeed.load(tmp_path / "mirrorfeed.yml", without_spark)
    (row,) = feed.publish()
    assert row.error is None
    publishing, waiting = store.calls
    assert len(publishing) <= 4, publishing
    assert len(waiting) <= 4, waiting
