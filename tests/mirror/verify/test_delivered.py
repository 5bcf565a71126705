"""`verify` of mirrors with `delivery: soft_delete` and `append`: equal over random histories, and with errors."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mirrorfeed.landing.delivery import Delivery
from mirrorfeed.mirror.verify import find_differing_keys
from mirrorfeed.runtime.credentials import Secret
from mirrorfeed.source.identifier import Source
from tests.support.delivered import TimedTable, verified
from tests.support.delta import Zone

HISTORIES = int(os.environ.get("MIRRORFEED_HISTORIES", "1"))
SOFT, APPEND = Delivery("soft_delete"), Delivery("append")
MODES: dict[str, dict[str, Any]] = {
    "soft delete": {"delivery": SOFT},
    "append": {"delivery": APPEND},
    "append with pre-images": {"delivery": Delivery("append", preimages=True)},
    "append without keys": {"delivery": APPEND, "keys": ()},
}
HIDDEN: dict[str, dict[str, Any]] = {
    "soft delete": {"transform": {"id": "hash"}},
    "append": {"transform": {"id": "hash", "v": "hash"}, "rename": {"id": "Key"}},
    "append without keys": {"transform": {"v": "mask('-')"}},
}
"""Values that are hidden in random histories, by mode."""
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def published(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Zone]:
    """A table with live, changed, deleted and returned rows, in all modes, with two publications."""
    place = tmp_path_factory.mktemp("delivered")
    table = TimedTable.create(spark, place / "t", 1)
    zones = {name: Zone(place / name, table.table, **{"keys": ("id",), **options}) for name, options in MODES.items()}
    table.sql("INSERT INTO {} VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')", {1: "a", 2: "b", 3: "c", 4: "d"})
    for zone in zones.values():
        zone.publish()
    table.sql("DELETE FROM {} WHERE id IN (2, 3)", {1: "a", 4: "d"})
    table.sql("UPDATE {} SET v = 'e' WHERE id = 4", {1: "a", 4: "e"})
    table.sql("INSERT INTO {} VALUES (3, 'f')", {1: "a", 4: "e", 3: "f"})
    for zone in zones.values():
        zone.publish()
    return zones


def test_mirrors_are_equal_over_random_histories(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: Counter[str]
) -> None:
    monkeypatch.setenv("KEY_OF_VERIFIED", "the secret of this test")
    for seed in range(100, 100 + HISTORIES):
        table = TimedTable.create(spark, tmp_path / f"t{seed}", seed)
        place = tmp_path / str(seed)
        hash_key = Secret(env="KEY_OF_VERIFIED")
        options = {
            name: {"keys": ("id",), "hash_key": hash_key, **HIDDEN.get(name, {}), **each}
            for name, each in MODES.items()
        }
        zones = {name: Zone(place / name, table.table, **each) for name, each in options.items()}
        for _ in range(2):
            for _ in range(table.random.randint(1, 4)):
                table.commit()
            for zone in zones.values():
                zone.publish()
        for name, zone in zones.items():
            result = verified(zone, zone.mirrored, place / f"{name} mirror")
            assert result.equal, (seed, name, str(result), result.first, table.states)
            counted["mirrors with added columns verified"] += 1


@pytest.mark.slow
def test_equal_mirrors_are_described(published: dict[str, Zone], tmp_path: Path) -> None:
    texts = {name: str(verified(zone, zone.mirrored, tmp_path / name)) for name, zone in published.items()}
    assert texts == {
        "soft delete": "equal at version 4, 3 rows, 1 deleted row marked",
        **dict.fromkeys(list(MODES)[1:], "equal at version 4, 3 rows, also at 1 earlier version"),
    }


def _with(key: int, **values: Any) -> Callable[[Rows], Rows]:
    return lambda rows: [{**row, **values} if row["id"] == key else row for row in rows]


def _without(**values: Any) -> Callable[[Rows], Rows]:
    return lambda rows: [row for row in rows if not values.items() <= row.items()]


PLANTED: Sequence[tuple[str, Callable[[Rows], Rows]]] = [
    ("soft delete", _with(2, _deleted=False)),
    ("soft delete", _with(1, _deleted=True)),
    ("soft delete", _with(1, _deleted_at="2026-01-01")),
    ("soft delete", _with(3, v="c")),
    ("soft delete", lambda rows: [*rows, *rows[:1]]),
    ("append", _without(id=4, _change_type="update_postimage")),
    ("append", _without(id=2, _change_type="delete")),
    ("append", _without(id=2, _change_type="insert")),  # only an earlier version shows it
    ("append", lambda rows: [*rows, *(row for row in rows if row["_change_type"] == "delete")]),
    ("append", _with(4, v="d")),
]


@pytest.mark.parametrize(("mode", "plant"), PLANTED)
def test_planted_error_is_found(
    published: dict[str, Zone], tmp_path: Path, mode: str, plant: Callable[[Rows], Rows]
) -> None:
    zone = published[mode]
    rows = plant(list(zone.mirrored))
    for row in rows:
        if row.get("_deleted_at") == "2026-01-01":
            row["_deleted_at"] = next(each["_deleted_at"] for each in rows if each["_deleted"])
    assert not verified(zone, rows, tmp_path / "mirror").equal


@pytest.mark.slow
def test_marked_rows_are_not_repaired(published: dict[str, Zone], tmp_path: Path) -> None:
    """Published again, they would lose their last values."""
    zone, mirror = published["soft delete"], Source(path=str(tmp_path / "mirror"))
    verified(zone, _with(1, v="wrong")(list(zone.mirrored)), tmp_path / "mirror")
    spark, source = zone.table.spark, zone.table.source
    for where, expected in ((None, [1]), ("id < 4", [1, 3])):
        keys = find_differing_keys(spark, source, 4, mirror, ["id"], where, delivery=SOFT)
        assert sorted(row["id"] for row in keys.collect()) == expected
