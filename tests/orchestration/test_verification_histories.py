"""Random histories of `verify --since-last`: changes, publications, mirrors that lag, and planted differences.

An oracle that reads both tables without Spark knows which keys differ, and which of them changed since the mark.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from deltalake import DeltaTable as AnyDeltaTable
from pyspark.sql import SparkSession

from mirrorfeed.mirror.errors import full_verification_required
from tests.orchestration.test_verification import error_of, verified
from tests.orchestration.test_verify_and_repair import Shop
from tests.support.delta import DeltaTable

KEYS = range(1, 9)
Rows = Mapping[int, Counter[str]]
"""Values of each key."""


def rows_of(path: Path, version: int | None = None) -> Rows:
    rows: dict[int, Counter[str]] = {}
    for each in AnyDeltaTable(path, version=version).to_pyarrow_table().to_pylist():
        rows.setdefault(each["id"], Counter())[each["v"]] += 1
    return rows


@dataclass
class History:
    shop: Shop
    chance: random.Random
    mirrored: int = 0
    """Version of the source that the mirror has."""
    through: int | None = None
    """Expected mark."""
    changed: dict[int, set[int]] = field(default_factory=dict)
    """Keys that each version changed."""
    seen: Counter[str] = field(default_factory=Counter)

    def change(self) -> None:
        """Insert, update or delete up to three rows of the source in one commit each."""
        table = self.shop.table
        for key in self.chance.sample(KEYS, self.chance.randint(1, 3)):
            if key not in rows_of(table.path):
                table.insert(key)
            elif self.chance.random() < 0.4:
                table.sql(f"DELETE FROM {{}} WHERE id = {key}")
            else:
                table.sql(f"UPDATE {{}} SET v = 'at {table.latest + 1}' WHERE id = {key}")
            self.changed[table.latest] = {key}

    def publish(self) -> None:
        self.shop.run("publish")
        if self.chance.random() < 0.75 or not self.mirrored:  # otherwise the mirror lags
            self.shop.replicate()
            self.mirrored = self.shop.records[-1][1]

    def plant(self) -> None:
        """Change one row of the mirror, add it, or delete it."""
        key, mirror = self.chance.choice(KEYS), rows_of(self.shop.folder / "mirror/s/t")
        if key not in mirror:
            self.shop.spoil(f"INSERT INTO {{}} VALUES ({key}, 'planted')")
        elif self.chance.random() < 0.5:
            self.shop.spoil(f"DELETE FROM {{}} WHERE id = {key}")
        else:
            self.shop.spoil(f"UPDATE {{}} SET v = 'planted' WHERE id = {key}")

    def verify(self) -> None:
        """Verify the changes, or all rows if this is refused. The result and the mark must be those of the oracle."""
        before = self.through
        if before is None:
            assert error_of(verified(self.shop, "--since-last")) == full_verification_required.code
            self._verify_all()
            return
        found = verified(self.shop, "--since-last")
        differing, missing = self._differing(found["version"])
        changed = set().union(*(self.changed[each] for each in range(before + 1, found["version"] + 1)))
        inside = differing & changed
        self.through = found["verified_through"]
        if found["equal"]:
            assert (inside, missing, self.through) == (set(), 0, found["version"]), (
                "the mark moves only over equal keys"
            )
        else:
            assert self._differing(self.mirrored)[0], "no difference is reported that does not exist"
            assert {each["key"] for each in found["differences"]} <= {f"id = {key}" for key in differing}
            assert self.through in (before, None), "the mark does not move over a difference"
        if not self.lags:
            missing_elsewhere = sum(self._missing(found["version"], key) for key in differing - changed)
            assert (found["version"], found["compared_keys"]) == (self.mirrored, len(changed))
            assert found["equal"] == (not inside and not missing_elsewhere), (differing, changed, found)
            assert {each["key"] for each in found["differences"]} == {f"id = {key}" for key in inside}
            expected = None if missing_elsewhere else before if inside else self.mirrored
            assert self.through == expected
            self.seen[f"changed keys {'differ' if inside else 'are equal'}"] += 1
            self.seen["other keys differ in number"] += bool(missing_elsewhere)
        self.seen["a mirror lags"] += self.lags
        if differing and found["equal"]:
            self.seen["other keys differ, which is not seen"] += 1
            self._verify_all()

    def _verify_all(self) -> None:
        found = verified(self.shop)
        differing, _ = self._differing(found["version"])
        assert {each["key"] for each in found["differences"]} == {f"id = {key}" for key in differing}
        self.through = None if differing else found["version"]
        assert (found["equal"], found["verified_through"]) == (not differing, self.through)
        self.seen[f"all keys {'differ' if differing else 'are equal'}"] += 1
        if differing:
            self.shop.repair()
            self.shop.replicate()
            self.mirrored = self.shop.records[-1][1]
            assert verified(self.shop)["equal"] is True
            self.through = self.mirrored

    @property
    def lags(self) -> bool:
        """True if published files may wait. Then the mirror can be at the version of two publications."""
        return self.shop.records[-1][1] != self.mirrored

    def _differing(self, version: int) -> tuple[set[int], int]:
        """Return the keys that differ between a version and the mirror, and the difference of the numbers of rows."""
        source, mirror = rows_of(self.shop.table.path, version), rows_of(self.shop.folder / "mirror/s/t")
        keys = {*source, *mirror}
        return {key for key in keys if source.get(key) != mirror.get(key)}, sum(
            self._missing(version, key) for key in keys
        )

    def _missing(self, version: int, key: int) -> int:
        source, mirror = rows_of(self.shop.table.path, version), rows_of(self.shop.folder / "mirror/s/t")
        return source.get(key, Counter()).total() - mirror.get(key, Counter()).total()


def run(spark: SparkSession, folder: Path, seed: int, steps: int) -> Counter[str]:
    folder.mkdir()
    history = History(Shop(DeltaTable(spark, folder / "source"), folder, "id"), random.Random(seed))
    for _ in range(steps):
        history.change()
        if history.chance.random() < 0.9:
            history.publish()
        if history.chance.random() < 0.6:
            history.plant()
        if history.mirrored:
            history.verify()
    return history.seen


def test_random_history_is_verified_as_the_oracle_says(
    spark: SparkSession, tmp_path: Path, counted: Counter[str]
) -> None:
    counted["verified changes of random histories"] += run(spark, tmp_path / "shop", 1, 3).total()


@pytest.mark.slow  # the same with more seeds
def test_many_random_histories_are_verified_as_the_oracle_says(
    spark: SparkSession, tmp_path: Path, counted: Counter[str]
) -> None:
    seen = sum((run(spark, tmp_path / f"shop {seed}", seed, 12) for seed in range(2, 22)), Counter[str]())
    assert len(+seen) == 7, seen
    counted["verified changes of random histories"] += seen.total()
