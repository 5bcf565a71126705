"""Random histories of small Delta tables with known commit times, and the rows that each delivery mode must deliver.

The expected rows are computed from the rows of each version, without the change data feed and without Spark.
`verified` compares a mirror with its source by `verify`."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from mirrorfeed.landing.log_record import Record, parse
from mirrorfeed.mirror.verify import verify_at
from mirrorfeed.mirror.verify.row_comparison import RowComparison
from mirrorfeed.source.identifier import Source
from tests.support.delta import DeltaTable, Zone

FIRST_COMMIT = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=12)
"""Recent, because the feed of old commits has expired."""
Rows = dict[int, str | None]
Marked = dict[int, tuple[str | None, datetime]]


@dataclass
class TimedTable:
    """A table with unique keys. Every commit is one minute after the commit before it."""

    table: DeltaTable
    random: random.Random
    states: list[Rows] = field(default_factory=lambda: [{}])
    """Value by key for each version."""
    shared_times: bool = False
    """True if pairs of commits have the same time."""

    @classmethod
    def create(cls, spark: SparkSession, path: Path, seed: int, *, shared_times: bool = False) -> TimedTable:
        made = cls(DeltaTable(spark, path), random.Random(seed), shared_times=shared_times)
        made._set_time(0)
        return made

    def insert_two_files(self) -> None:
        """Insert the smallest and the greatest keys, so that a first load can have several parts."""
        for keys in ((0, 1), (10, 11)):
            new: Rows = {key: self._value() for key in keys}
            values = ", ".join(f"({key}, {_literal(v)})" for key, v in new.items())
            self.sql(f"INSERT INTO {{}} VALUES {values}", self.states[-1] | new)

    def commit(self) -> None:
        """Insert, update, delete, or change keys. Deleted keys return often."""
        state = dict(self.states[-1])
        kind = self.random.choice("iiuuddkr") if state else "i"
        some = self.random.sample(sorted(state), self.random.randint(1, min(3, len(state)))) if state else []
        free = [key for key in range(12) if key not in state]
        if kind in "ik" and not free:
            kind = "d"
        chosen = ", ".join(map(str, some))
        if kind == "i":
            new = {key: self._value() for key in self.random.sample(free, self.random.randint(1, min(4, len(free))))}
            state |= new
            self.sql(f"INSERT INTO {{}} VALUES {', '.join(f'({key}, {_literal(v)})' for key, v in new.items())}", state)
        elif kind == "u":
            value = self._value()
            state |= dict.fromkeys(some, value)
            self.sql(f"UPDATE {{}} SET v = {_literal(value)} WHERE id IN ({chosen})", state)
        elif kind == "d":
            state = {key: value for key, value in state.items() if key not in some}
            self.sql(f"DELETE FROM {{}} WHERE id IN ({chosen})", state)
        elif kind == "k":
            old, new_key = some[0], self.random.choice(free)
            state[new_key] = state.pop(old)
            self.sql(f"UPDATE {{}} SET id = {new_key} WHERE id = {old}", state)
        else:
            version = self.random.randrange(1, len(self.states))
            self.sql(f"RESTORE TABLE {{}} TO VERSION AS OF {version}", self.states[version])

    def sql(self, statement: str, state: Rows) -> None:
        self.table.sql(statement)
        if self.table.latest >= len(self.states):
            self._set_time(self.table.latest)
            self.states.append(state)
        assert {row["id"]: row["v"] for row in self.table.rows()} == state, statement

    def time(self, version: int) -> datetime:
        return FIRST_COMMIT + timedelta(minutes=version // 2 if self.shared_times else version)

    def _set_time(self, version: int) -> None:
        seconds = self.time(version).timestamp()
        os.utime(self.table.commit_file(version), (seconds, seconds))

    def _value(self) -> str | None:
        return self.random.choice(("a", "b", "c", None))


def _literal(value: str | None) -> str:
    return "NULL" if value is None else f"'{value}'"


def marked_rows(table: TimedTable, publications: Sequence[int], *, way: str) -> Marked:
    """Return the deleted keys that the mirror must have, each with its last values and the time of its deletion.

    `publications` are the published versions. `way` is `net`, `full` or `compare`."""
    states, marked = table.states, Marked()
    for start, end in pairwise(publications):
        steps = [(at, at + 1) for at in range(start, end)] if way == "full" else [(start, end)]
        for before, after in steps:
            for key in states[before].keys() - states[after].keys():
                last = before if way == "compare" else max(at for at in range(before, after) if key in states[at])
                removed = after if way == "compare" else last + 1
                marked[key] = (states[last][key], table.time(removed))
            for key in states[after]:
                marked.pop(key, None)
    return marked


def soft_deleted(table: TimedTable, publications: Sequence[int], *, way: str) -> list[dict[str, Any]]:
    """Return the rows of a mirror with `delivery: soft_delete`."""
    live = table.states[publications[-1]]
    rows = [{"id": key, "v": value, "_deleted": False, "_deleted_at": None} for key, value in live.items()]
    for key, (value, at) in marked_rows(table, publications, way=way).items():
        rows.append({"id": key, "v": value, "_deleted": True, "_deleted_at": at})
    return rows


Event = tuple[int, str, int, str | None]
"""Version, type, key and value of an appended row."""


def appended(table: TimedTable, publications: Sequence[int], *, preimages: bool, compares: bool = False) -> list[Event]:
    """Return the rows of a mirror with `delivery: append`. `compares`: ranges are the difference of two versions.

    Updates without a new value are left out, because the states do not show them."""
    first, states = publications[0], table.states
    events: list[Event] = [(first, "insert", key, value) for key, value in states[first].items()]
    steps = list(pairwise(publications)) if compares else [(at, at + 1) for at in range(first, publications[-1])]
    for before, after in steps:
        old, new = states[before], states[after]
        events += [(after, "delete", key, old[key]) for key in old.keys() - new.keys()]
        events += [(after, "insert", key, new[key]) for key in new.keys() - old.keys()]
        for key in old.keys() & new.keys():
            if old[key] != new[key]:
                events.append((after, "update_postimage", key, new[key]))
                events += [(after, "update_preimage", key, old[key])] if preimages else []
    return events


def changing(rows: list[dict[str, Any]], befores: Mapping[int, Rows], *, preimages: bool) -> list[Event]:
    """Return appended rows that change a value: not an update to the same value, and as update a row that a commit
    deleted and inserted. `befores` has for each version the rows before its changes, except for the first load."""
    groups: dict[tuple[int, int], dict[str, str | None]] = {}
    for row in rows:
        groups.setdefault((row["_commit_version"], row["id"]), {})[row["_change_type"]] = row["v"]
    events: list[Event] = []
    for (version, key), kinds in groups.items():
        if "delete" in kinds and len(kinds) > 1:
            kinds["update_preimage"] = kinds.pop("delete")
            kinds["update_postimage"] = kinds.pop("insert", kinds.get("update_postimage"))
        before = befores.get(version, {})
        if key in before and "update_postimage" in kinds and kinds["update_postimage"] == before[key]:
            continue
        shown = {kind: value for kind, value in kinds.items() if preimages or kind != "update_preimage"}
        events += [(version, kind, key, value) for kind, value in shown.items()]
    return events


def state_of(rows: list[dict[str, Any]], version: int) -> Rows:
    """Return the rows of a version, from appended rows: the last change of a key says whether it exists."""
    state: Rows = {}
    order = {"update_preimage": 0, "delete": 1, "insert": 2, "update_postimage": 2}
    for row in sorted(rows, key=lambda row: (row["_commit_version"], order[row["_change_type"]])):
        if row["_commit_version"] <= version and row["_change_type"] != "update_preimage":
            state.pop(row["id"], None)
            if row["_change_type"] != "delete":
                state[row["id"]] = row["v"]
    return state


def records_of(zone: Zone) -> list[Record]:
    """Records of the log, newest first."""
    files = sorted(zone.folder.glob("_mirrorfeed/*/*.json"), reverse=True)
    return [parse(file.read_bytes(), str(file)) for file in files]


def verified(zone: Zone, rows: list[dict[str, Any]], place: Path) -> RowComparison:
    """Verify a mirror with these rows, written to `place`, by `verify`."""
    types = {field.name: field.type for file in zone.files for field in file.schema}
    columns = {name: pa.array([row.get(name) for row in rows], types[name]) for name in rows[0]}
    write_deltalake(str(place), pa.table(columns), mode="overwrite")
    spark, source, records = zone.table.spark, zone.table.source, records_of(zone)
    mirror, selection = Source(path=str(place)), zone.plan.selection
    return verify_at(spark, source, mirror, records[:1], selection=selection, published=records)
