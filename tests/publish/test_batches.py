"""Batches for Python, on engines that bound their bytes and on those that do not."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from mirrorfeed.publish.batches import small_batches

BYTES, ROWS = "spark.sql.execution.arrow.maxBytesPerBatch", "spark.sql.execution.arrow.maxRecordsPerBatch"


class Settings:
    def __init__(self, known: Mapping[str, str], allowed: Collection[str] = (ROWS, BYTES)) -> None:
        self.values, self._allowed = dict(known), allowed

    def get(self, name: str) -> str:
        return self.values[name]

    def set(self, name: str, value: str) -> None:
        if name not in self._allowed:
            raise PermissionError("[CONFIG_NOT_AVAILABLE]")
        self.values[name] = value


def session(settings: Settings) -> Any:
    return SimpleNamespace(conf=settings)


@pytest.mark.parametrize(
    ("known", "meanwhile"),
    [
        ({ROWS: "10000"}, {ROWS: "500"}),
        ({ROWS: "0"}, {ROWS: "500"}),  # for Spark that is any number
        ({ROWS: "200"}, {ROWS: "200"}),
        ({ROWS: "10000", BYTES: "67108864b"}, {ROWS: "500", BYTES: "2147483647b"}),
        ({ROWS: "200", BYTES: "67108864b"}, {ROWS: "200", BYTES: "2147483647b"}),
        ({ROWS: "10000", BYTES: "8m"}, {ROWS: "500", BYTES: "8m"}),  # somebody means it
    ],
)
def test_meanwhile_rows_are_few_and_not_measured_and_afterwards_all_is_as_before(
    known: dict[str, str], meanwhile: dict[str, str]
) -> None:
    settings = Settings(known)
    with small_batches(session(settings)):
        assert settings.values == meanwhile
    assert settings.values == known


def test_bytes_stay_bounded_where_rows_may_not_be_few() -> None:
    settings = Settings({ROWS: "10000", BYTES: "67108864b"}, allowed=frozenset({BYTES}))
    with small_batches(session(settings)):
        assert settings.values == {ROWS: "10000", BYTES: "67108864b"}


def test_what_may_not_be_set_stays() -> None:
    settings = Settings({ROWS: "10000"}, allowed=())
    with small_batches(session(settings)):
        assert settings.values == {ROWS: "10000"}


def test_a_failure_inside_is_passed_on_and_the_setting_restored() -> None:
    settings = Settings({ROWS: "10000"})
    with pytest.raises(ValueError, match="inside"), small_batches(session(settings)):
        raise ValueError("inside")
    assert settings.values == {ROWS: "10000"}
