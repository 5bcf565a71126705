"""Call depth of the package between `feed.publish()` and the rename that makes a file visible to Fabric."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import mirrorfeed
from fixtures.memory import MemoryStore
from mirrorfeed.orchestration import run_context, scheduler, table_task
from tests.publish.scenarios import two_orders
from tests.support.tables import TableFeed

PACKAGE = str(Path(mirrorfeed.__file__).parent)


def functions(frame: FrameType | None) -> Iterator[str]:
    """Functions of the package in a stack, innermost first."""
    while frame:
        if frame.f_code.co_filename.startswith(PACKAGE):
            yield frame.f_code.co_qualname
        frame = frame.f_back


class Watched(MemoryStore):
    """Records the functions that called the rename in its own thread."""

    calls: tuple[str, ...] = ()

    def rename(self, path: str, new_path: str) -> None:
        self.calls = tuple(functions(sys._getframe()))
        super().rename(path, new_path)


def test_few_calls_lead_to_a_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, without_spark = Watched(), object()
    waiting: set[tuple[str, ...]] = set()

    def wait(*arguments: Any) -> Any:
        waiting.add(tuple(functions(sys._getframe())))
        return futures.wait(*arguments)

    (tmp_path / "mirrorfeed.yml").write_text("landing_zone: ./zone\ntables: [{source: ./t, target: s.t, keys: [id]}]\n")
    monkeypatch.setattr(scheduler, "wait", wait)
    monkeypatch.setattr(run_context, "zone_of", lambda _: store)
    monkeypatch.setattr(table_task, "source_for", lambda *_: TableFeed(two_orders()))
    feed: Any = mirrorfeed.load(tmp_path / "mirrorfeed.yml", without_spark)
    (row,) = feed.publish()
    assert row.error is None
    assert 0 < len(store.calls) <= 4, store.calls
    assert waiting
    assert all(len(calls) <= 4 for calls in waiting), waiting
