"""`python -m tests.bench.histories`: count wrong mirrors after random histories, for a public notebook and for
mirrorfeed.

Both publish the same tables at the same moments: undisturbed, killed, and two at a time. The replica applies the
published files. The tables are those of the tests without Spark, with their model of Delta's change data feed."""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from fixtures.mirror import canonical
from mirrorfeed.landing.names import data_name, record_number
from mirrorfeed.landing.schema import MARKER
from mirrorfeed.mirror.local_replica import Replica, State
from mirrorfeed.publish.files.staging_job import arrow_schema
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.storage.local_folder import FolderStore
from tests.support.entries import entry
from tests.support.tables import Table, TableFeed

FOLDER, KEYS, PUBLICATIONS = "s.schema/t", ("id",), 4
HAPPENS = ("undisturbed", "killed once", "a second run meanwhile")
_MARKERS = {"insert": 0, "update_postimage": 1, "delete": 2}
Row = dict[str, Any]


class Killed(BaseException):
    """As a process that is no more."""


@dataclass
class Notebook:
    """As `notebook.Notebook`, over a table that needs no Spark. Rows of one marker keep the order of their commits,
    which is the best that its sort can do."""

    table: Table
    zone: Path
    version: int | None = None
    """What its control table says."""
    meanwhile: Callable[[], object] | None = None
    """What happens once a file is copied, and the control table does not say so yet."""

    def run(self) -> None:
        newest, known = self.table.latest, self.version
        if known is None:
            self.zone.mkdir(parents=True, exist_ok=True)
            (self.zone / "_metadata.json").write_text(json.dumps({"keyColumns": KEYS}))
            self._land(self.table.at(newest), with_marker=False)
        elif known < newest:
            changes = [change for then in self.table.versions[known + 1 : newest + 1] for change in then.changes]
            rows = [{**each.row, MARKER: _MARKERS[each.type]} for each in changes if each.type in _MARKERS]
            self._land(sorted(rows, key=lambda row: row[MARKER]), with_marker=True)
        else:
            return
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile:
            meanwhile()
        self.version = newest

    def _land(self, rows: list[Row], *, with_marker: bool) -> None:
        schema = arrow_schema(self.table.versions[-1].columns, with_marker=with_marker)
        number = len(list(self.zone.rglob("*.parquet"))) + 1
        pq.write_table(pa.Table.from_pylist(rows, schema), self.zone / data_name(number))


@dataclass(frozen=True)
class Zone(FolderStore):
    """A landing zone, and what happens once files are staged and no record says so yet."""

    meanwhile: list[Callable[[], object]] = field(default_factory=list)

    def create(self, path: str, data: bytes) -> str | None:
        if self.meanwhile and record_number(path.rpartition("/")[2]):
            self.meanwhile.pop()()
        return super().create(path, data)


def killed() -> None:
    raise Killed


@dataclass
class Way:
    """One way to publish, into a landing zone and a mirror of its own."""

    place: Path
    publish: Callable[[Callable[[], object] | None], object]
    """With what happens in the middle, if anything does."""
    disturbance: Callable[[], object] | None

    def step(self, *, disturbed: bool) -> None:
        with suppress(Killed):
            self.publish(self.disturbance if disturbed else None)

    def mirror(self) -> list[Row]:
        (report,) = Replica(FolderStore(str(self.place / "zone")), str(self.place / "mirror")).run_pass()
        assert report.state is State.REPLICATING, report
        rows: list[Row] = DeltaTable(str(self.place / "mirror/s/t")).to_pyarrow_table().to_pylist()
        return rows


def ways(table: Table, place: Path) -> Iterator[tuple[str, Way]]:
    """Yield the name of each way to publish, and the way. Its folder has no spaces, which old delta-rs cannot read."""
    for happens in HAPPENS:
        for name, made in (("the notebook", _notebook), ("mirrorfeed", _product)):
            at = place / f"{name}, {happens}".replace(",", "").replace(" ", "-")
            publishing = made(table, at)
            others = {"killed once": killed, "a second run meanwhile": lambda run=publishing: run(None)}
            yield f"{name}, {happens}", Way(at, publishing, others.get(happens))


def _notebook(table: Table, place: Path) -> Callable[[Callable[[], object] | None], object]:
    notebook = Notebook(table, place / "zone" / FOLDER)

    def run(meanwhile: Callable[[], object] | None) -> None:
        notebook.meanwhile = meanwhile
        notebook.run()

    return run


def _product(table: Table, place: Path) -> Callable[[Callable[[], object] | None], object]:
    def run(meanwhile: Callable[[], object] | None) -> None:
        zone = Zone(str(place / "zone"), [meanwhile] if meanwhile else [])
        publish(TableFeed(table), zone, entry("a.b.t", "s.t", KEYS))

    return run


def commit(table: Table, choose: random.Random) -> None:
    """One of the things that happen to tables, on some of its rows."""
    keys = [row["id"] for row in table.rows]
    some = choose.sample(keys, min(len(keys), choose.randint(1, 3)))
    free = [key for key in range(12) if key not in keys]
    new = [_row(key, choose) for key in choose.sample(free, min(len(free), choose.randint(1, 3)))]
    what: Mapping[Callable[[], object], int] = {
        lambda: table.insert(*new): 4,
        lambda: table.update(*some, v=choose.randrange(1000)): 4,
        lambda: table.delete(*some): 3,
        lambda: table.merge(*new, *(_row(key, choose) for key in some)): 4,
        lambda: table.change_keys(dict(zip(some, [row["id"] for row in new], strict=False))): 1,
        lambda: table.overwrite(*new, *(_row(key, choose) for key in some)): 1,
        lambda: table.restore(choose.randrange(len(table.versions))): 1,
        table.optimize: 1,
    }
    choose.choices(list(what), list(what.values()))[0]()


def _row(key: int, choose: random.Random) -> Row:
    return {"id": key, "v": choose.randrange(1000)}


def differences(source: list[Row], mirror: list[Row]) -> Iterator[str]:
    """What a person would see who compares the two."""
    keys, found = _by_key(source), _by_key(mirror)
    if keys.keys() - found.keys():
        yield "rows are missing"
    if found.keys() - keys.keys():
        yield "rows are left that were deleted"
    if any(len(found[key]) > 1 for key in found):
        yield "rows stand twice"
    if any(canonical(found[key][-1:]) != canonical(keys[key]) for key in keys.keys() & found.keys()):
        yield "old values"


def _by_key(rows: list[Row]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = {}
    for row in rows:
        found.setdefault(row["id"], []).append(row)
    return found


def live_through(place: Path, seed: int) -> Mapping[str, list[str]]:
    """For each way, in what its mirror differs from the source in the end."""
    choose, table = random.Random(seed), Table({"id": "long", "v": "long"}, KEYS)
    table.insert(*(_row(key, choose) for key in range(6)))
    contenders, disturbed = dict(ways(table, place)), choose.randrange(PUBLICATIONS)
    for number in range(PUBLICATIONS):
        for contender in contenders.values():
            contender.step(disturbed=number == disturbed)
        for _ in range(choose.randint(1, 4)):
            commit(table, choose)
    for contender in contenders.values():  # and a last run, undisturbed
        contender.step(disturbed=False)
    return {
        name: list(differences(table.at(table.latest), contender.mirror())) for name, contender in contenders.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.histories")
    parser.add_argument("--histories", type=int, default=100)
    given = parser.parse_args()
    differ, kinds = Counter[str](), Counter[tuple[str, str]]()
    for seed in range(given.histories):
        with tempfile.TemporaryDirectory(prefix="mirrorfeed-histories-") as place:
            for name, found in live_through(Path(place), seed).items():
                differ[name] += bool(found)
                kinds.update((name, kind) for kind in found)
    for name in (f"{name}, {happens}" for name in ("the notebook", "mirrorfeed") for happens in HAPPENS):
        summary = ", ".join(f"{kind} in {count}" for (whose, kind), count in sorted(kinds.items()) if whose == name)
        print(f"{name:<40}{differ[name]:>5} of {given.histories} differ{f': {summary}' if summary else ''}")


if __name__ == "__main__":
    main()
