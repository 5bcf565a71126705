from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.bench.histories import HAPPENS, KEYS, differences, ways
from tests.support.tables import Table


def row(key: int, value: str) -> dict[str, Any]:
    return {"id": key, "v": value, "w": None}


@pytest.mark.parametrize(
    ("mirror", "kinds"),
    [
        ([row(1, "a"), row(2, "b")], []),
        ([{"id": 2, "v": "b"}, {"id": 1, "v": "a"}], []),
        ([row(1, "a")], ["rows are missing"]),
        ([row(1, "a"), row(2, "b"), row(3, "c")], ["rows are left that were deleted"]),
        ([row(1, "a"), row(2, "b"), row(2, "b")], ["rows stand twice"]),
        ([row(1, "a"), row(2, "old")], ["old values"]),
        ([row(3, "a")], ["rows are missing", "rows are left that were deleted"]),
    ],
)
def test_differences_are_reported_by_kind(mirror: list[dict[str, Any]], kinds: list[str]) -> None:
    assert list(differences([row(1, "a"), row(2, "b")], mirror)) == kinds


def delete_and_insert(table: Table) -> None:
    table.delete(1)
    table.insert(row(1, "again"))


@pytest.mark.parametrize(
    ("change", "happens", "kinds"),
    [
        (lambda table: table.insert(row(3, "c")), "undisturbed", []),
        (lambda table: table.update(1, v="new"), "killed once", []),
        (delete_and_insert, "undisturbed", ["rows are missing"]),
        (lambda table: table.overwrite(row(1, "other")), "undisturbed", ["rows are missing"]),
        (lambda table: table.change_keys({1: 5}), "undisturbed", ["rows are left that were deleted"]),
        (lambda table: table.insert(row(3, "c")), "killed once", ["rows stand twice"]),
        (lambda table: table.insert(row(3, "c")), "a second run meanwhile", ["rows stand twice"]),
    ],
)
def test_notebook_loses_and_duplicates_rows_and_mirrorfeed_does_not(
    tmp_path: Path, change: Callable[[Table], None], happens: str, kinds: list[str]
) -> None:
    assert happens in HAPPENS
    table = Table({"id": "long", "v": "string", "w": "long"}, KEYS)
    table.insert(row(1, "a"), row(2, "b"))
    contenders = dict(ways(table, tmp_path))
    for name, lost in ((f"the notebook, {happens}", kinds), (f"mirrorfeed, {happens}", [])):
        way, before = contenders[name], len(table.versions)
        way.step(disturbed=False)
        change(table)
        way.step(disturbed=True)
        way.step(disturbed=False)
        assert list(differences(table.at(table.latest), way.mirror())) == lost
        del table.versions[before:]
