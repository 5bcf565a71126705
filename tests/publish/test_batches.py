"""Batches for Python, on engines that bound their bytes and on those that do not."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from mirrorfeed.publish.batches import small_batches

BYTES, ROWS = "spark.sql.execution.arrow.maxBytesPerBatch", "spark.sql.execution.arrow.maxRecordsPerBatch"


class Settings:
    def __init__(self, known: Mapping[str, str], allowed: bool = True) -> None:
        self.values, self._allowed = dict(known), allowed

    def get(self, name: str) -> str:
        return self.values[name]

    def set(self, name: str, value: str) -> None:
        if not self._allowed:
            raise PermissionError("[CONFIG_NOT_AVAILABLE]")
        self.values[name] = value


def session(settings: Settings) -> Any:
    return SimpleNamespace(conf=settings)


@pytest.mark.parametrize(
    ("known", "meanwhile"),
    [
        ({ROWS: "10000"}, "1000"),
        ({ROWS: "0"}, "1000"),  # for Spark that is any number
        ({ROWS: "200"}, "200"),
        ({ROWS: "10000", BYTES: "67108864b"}, "10000"),
    ],
)
def test_rows_are_few_where_bytes_are_not_bounded_and_afterwards_as_before(
    known: dict[str, str], meanwhile: str
) -> None:
    settings = Settings(known)
    with small_batches(session(settings)):
        assert settings.values[ROWS] == meanwhile
    assert settings.values == known


def test_what_may_not_be_set_stays() -> None:
    settings = Settings({ROWS: "10000"}, allowed=False)
    with small_batches(session(settings)):
        assert settings.values == {ROWS: "10000"}


def test_a_failure_inside_is_passed_on_and_the_setting_restored() -> None:
    settings = Settings({ROWS: "10000"})
    with pytest.raises(ValueError, match="inside"), small_batches(session(settings)):
        raise ValueError("inside")
    assert settings.values == {ROWS: "10000"}
