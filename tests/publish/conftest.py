"""Fixtures that tests of many tables share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mirrorfeed.config.loader import load
from mirrorfeed.config.model import Config


@pytest.fixture
def configured(tmp_path: Path) -> Callable[..., Config]:
    """Write a configuration with one table per target, with this line for its keys."""

    def write(*targets: str, zone: str = "zone", more: str = "") -> Config:
        tables = "".join(f"  - {{source: ./{name}, target: {name}, keys: [id]}}\n" for name in targets)
        (tmp_path / "mirrorfeed.yml").write_text(f"landing_zone: ./{zone}\n{more}tables:\n{tables}")
        return load(tmp_path / "mirrorfeed.yml")

    return write


def never(_seconds: float) -> None:
    raise AssertionError("a terminal error is not waited for")


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
