"""Full compare without Spark: errors about sources, and the protocol with every fault.

The source changes at any time, row hashes get lost, and the process is killed at every moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from fixtures.faults import Crash, Fault, Mode
from fixtures.memory import MemoryStore
from fixtures.mirror import Mirror, canonical
from mirrorfeed.config.errors import ConfigInvalidError
from mirrorfeed.config.loader import load
from mirrorfeed.config.model import Config, Table, hashes_of, zone_of
from mirrorfeed.errors import TransientError
from mirrorfeed.landing.load_part import LoadPart, Slice
from mirrorfeed.landing.names import Target
from mirrorfeed.landing.schema import MARKER, Column
from mirrorfeed.monitor.fact_collector import Collector
from mirrorfeed.orchestration.dry_run import known_step
from mirrorfeed.orchestration.retry_policy import needs_reload
from mirrorfeed.orchestration.run_context import RunContext
from mirrorfeed.orchestration.table_task import TableTask
from mirrorfeed.publish.change_sources import NO_SPARK, ChangeSource, full_compare
from mirrorfeed.publish.change_sources.errors import first_comparison_impossible, row_hashes_lost
from mirrorfeed.publish.change_sources.full_compare import FullCompare, RowHashTable
from mirrorfeed.publish.errors import keys_required
from mirrorfeed.publish.files.rolling_writer import write_empty
from mirrorfeed.publish.files.staging_job import BadRow, Staged, StagingJob, arrow_schema
from mirrorfeed.publish.next_publication import with_keys
from mirrorfeed.publish.rows_and_markers import PROBLEM
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.source.errors import SourceRecreatedError
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.snapshot_or_range import (
    COMPARISON,
    Commit,
    ComparisonStart,
    Facts,
    KeyRepair,
    PublishedVersion,
    Range,
    Snapshot,
)
from mirrorfeed.source.table_info import TableInfo
from tests.publish.state_machine import Published
from tests.raised import raises
from tests.support.entries import FOLDER, entry
from tests.support.tables import Table as FedTable
from tests.support.tables import TableFeed, stage_small_batch


def a_table(**options: Any) -> Table:
    return Table(source=Source(("sales", "v")), target=Target.parse("sales.orders"), changes="compare", **options)


def test_hash_tables_are_next_to_the_ledger_and_unique_per_target() -> None:
    def place(ledger: Source, target: str) -> str:
        return str(hashes_of(ledger, Target.parse(target)))

    assert place(Source(("main", "ops", "ledger")), "sales.orders") == "main.ops.hashes_sales_orders_74609b97"
    assert place(Source(path="/data/ledger"), "sales.orders") == "/data/hashes_sales_orders_74609b97"
    assert place(Source(("ledger",)), "SALES.Orders") == "hashes_sales_orders_74609b97"
    names = {place(Source(("ledger",)), name) for name in ("a_b.c", "a.b_c", "a.`b c`", "a.`b-c`", "b_c")}
    assert len(names) == 5


@pytest.mark.parametrize(("now", "id"), [(3, "id"), (4, "id"), (7, "another id")])
def test_hashes_older_than_the_published_version_or_of_another_table_are_reported_as_lost(
    now: int, id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hashes that are only one version older are lost as well, because the next comparison would use a wrong state."""

    class WentBack(RowHashTable):
        def info(self) -> Any:
            return TableInfo("the id of the Delta table", "/hashes", {"mirrorfeed.states": id}, (), 0, 0)

    monkeypatch.setattr(full_compare, "newest_version", lambda *_: now)
    feed = FullCompare(None, Source(("v",)), WentBack(None, Source(("hashes",)), "v"))  # type: ignore[arg-type]
    with raises(row_hashes_lost, match="The row hashes of v at version 5 are missing in hashes"):
        feed.facts(PublishedVersion("id", 5), 500)


def test_switch_of_a_table_that_was_published_without_keys_is_refused() -> None:
    zone, table = MemoryStore(), FedTable({"id": "long", "v": "string"}, ("id",))
    table.insert({"id": 1, "v": "a"})
    publish(TableFeed(table), zone, entry("v", keys=()))
    changes = list[str]()
    zone.watcher = lambda verb, path, new_path: changes.append(f"{verb} {path}")
    with raises(first_comparison_impossible, match="v was published from its change data feed until now") as refused:
        publish(ModelSource(table, SavedStates()), zone, entry("v", changes="compare"))
    assert changes == []
    assert needs_reload(entry("v", on_gap="reseed"), refused.value)


def test_switch_to_comparison_stores_row_hashes_of_the_published_version_and_publishes_the_rows_that_differ() -> None:
    """Row hashes of an earlier time, when the table was compared, do not belong to the published version."""
    zone, table = MemoryStore(), FedTable({"id": "long", "v": "string"}, ("id",))
    mirror, states = Mirror(zone, FOLDER), SavedStates()
    states.versions += [({7: "old"}, [])] * 5
    table.insert({"id": 1, "v": "a"}, {"id": 2, "v": "a"})
    publish(TableFeed(table), zone, entry("v"))
    table.update(1, v="b")
    start, compared = publish(ModelSource(table, states), zone, entry("v", changes="compare")).records
    assert (start.from_version_exclusive, start.to_version_inclusive, start.files) == (5, 5, ())
    assert (compared.from_version_exclusive, compared.to_version_inclusive, compared.rows) == (5, 6, {"upsert": 1})
    mirror.take()
    assert canonical(mirror.rows) == canonical(table.at(-1))


def test_all_parts_of_a_load_are_from_the_comparison_that_began_it() -> None:
    """Another publisher stores a newer comparison during the load, and publishes nothing of it."""
    zone, table, states = MemoryStore(), FedTable({"id": "long", "v": "string"}, ("id",)), SavedStates()
    table.insert(*({"id": key, "v": "a"} for key in range(3)))
    plan = entry("v", changes="compare")

    def callback(now: str) -> None:
        if now == "before the commit":
            left = iter((False, True))
            publish(ModelSource(table, states, part_rows=1), zone, plan, stop=lambda: next(left))
            table.update(1, v="b")

    with pytest.raises(Moved):
        publish(ModelSource(table, states, callback, part_rows=1), zone, plan)
    assert [state[1] for state, _ in states.versions] == ["a", "b"]
    table.update(1, v="a")  # so that a wrong row would stay wrong
    table.update(2, v="c")
    rest, compared = (publish(ModelSource(table, states), zone, plan) for _ in range(2))

    assert [str(each.load) for each in rest.records] == ["part 2 of 3", "part 3 of 3"]
    assert [each.to_version_inclusive for each in rest.records] == [0, 0]
    assert (rest.latest, rest.published_version) == (0, 0)
    assert (compared.to_version_inclusive, compared.rows) == (2, {"upsert": 1})
    mirror = Mirror(zone, FOLDER)
    mirror.take()
    assert canonical(mirror.rows) == canonical(table.at(-1))


def test_comparison_requires_keys() -> None:
    with raises(keys_required) as caught:
        with_keys(a_table())
    assert caught.value.table == "sales.v"


@pytest.mark.parametrize(
    ("top", "table", "words"),
    [
        ("", "keys: [id]", "compare stores row hashes next to the ledger: set `ledger`"),
        ("ledger: ./ledger", "keys: []", "is required with changes: compare"),
        ("ledger: ./ledger\nhistory: ./kept", "keys: [id]", "so there is no history of them: set `history: false`"),
        ("ledger: ./ledger", "keys: [id], where: v > 1", "compare publishes the whole source: select columns and rows"),
        ("ledger: ./ledger", "row_markers: exact", "exact requires changes: full"),
    ],
)
def test_missing_comparison_options_are_reported_with_their_line(
    tmp_path: Path, top: str, table: str, words: str
) -> None:
    path = tmp_path / "mirrorfeed.yml"
    text = f"landing_zone: ./zone\n{top}\ntables:\n  - {{source: v, target: t, changes: compare, {table}}}\n"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigInvalidError) as caught:
        load(path)
    assert words in str(caught.value)
    assert f"mirrorfeed.yml:{text.count(chr(10))}: " in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "changes: compare\ntables:\n  - {source: v, target: t, keys: [id]}\n",
        "tables:\n  - {sources: main.sales.*, changes: compare, keys: [id]}\n",
        "changes: compare\ntables:\n  - {sources: main.sales.*, keys: [id]}\n",
    ],
)
def test_comparison_of_a_pattern_or_as_default_requires_a_ledger(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mirrorfeed.yml"
    path.write_text(f"landing_zone: ./zone\n{text}", encoding="utf-8")
    with pytest.raises(ConfigInvalidError, match="compare stores row hashes next to the ledger: set `ledger`"):
        load(path)
    assert load(path, ledger="main.ops.ledger").ledger == Source(("main", "ops", "ledger"))


def test_delta_versions_do_not_make_a_compared_table_up_to_date(tmp_path: Path) -> None:
    table = a_table(keys=("id",)).model_copy(update={"source": Source(path=str(tmp_path))})
    config = Config(landing_zone=str(tmp_path / "zone"), tables=(table,))
    assert Collector(config, NO_SPARK)._without_spark(zone_of(config), table) is None
    task = TableTask(RunContext(NO_SPARK, config), table)
    assert (known_step(task.context, task.table), task.attempt_without_spark()) == (None, None)


COLUMNS = (Column("id", "long"), Column("v", "string"))
Rows = dict[int, str | None]


class SavedStates:
    """Model of the table of row hashes: for each version, the state and the differences from the previous version.

    The values themselves are used as hashes."""

    def __init__(self) -> None:
        self.versions: list[tuple[Rows, list[dict[str, Any]]]] = []


class ModelSource:
    """Like `FullCompare`, with a table in memory as the source.

    `callback` is called before and after the commit, also if there is none, and after the files are written. Other
    writers can act in it, or the process is killed. A first load has parts of `part_rows` rows, if that is not 0: each
    part has the rows of the committed state that the record of the first part names, and commits no state."""

    def __init__(
        self, source: FedTable, states: SavedStates, callback: Any = lambda when: None, part_rows: int = 0
    ) -> None:
        self.source, self.states, self.callback, self.part_rows = source, states, callback, part_rows

    def facts(self, published: PublishedVersion | None, limit: int) -> Facts:
        new, after = len(self.states.versions), published.version if published else None
        assert after is None or after < new, "a record names a state that was kept before"
        if published and published.next_part:
            return Facts("the table of hashes", published.version, ())
        first = new if after is None else after + 1
        commits = tuple(Commit(n, datetime(2026, 1, 1, tzinfo=UTC), COMPARISON) for n in range(first, new + 1))
        return Facts("the table of hashes", new, commits)

    def is_unchanged(self, facts: Facts) -> bool:
        return True

    def schema(self, version: int, facts: Facts) -> dict[str, Any]:
        return {"fields": [{"name": column.name, "type": column.type} for column in COLUMNS]}

    def check(self, what: Range | Snapshot, facts: Facts) -> None: ...

    def check_start(self, start: ComparisonStart) -> None: ...

    def store_hashes(self, start: ComparisonStart, facts: Facts, job: StagingJob) -> Staged:
        self.callback("before the commit")
        self.states.versions.append((values_at(self.source, start.published.version), []))
        if len(self.states.versions) - 1 != facts.latest:
            raise Moved
        self.callback("after the commit")
        return Staged([], rows_read=len(self.states.versions[-1][0]))

    def stage(self, what: Range | Snapshot | KeyRepair, facts: Facts, table: Table, job: StagingJob) -> Staged | None:
        if isinstance(what, Snapshot) and what.continues:
            return self._stage_part(what.version, what.part, job)
        new = facts.latest
        before = self.states.versions[what.from_version_exclusive][0] if isinstance(what, Range) else {}
        self.callback("before the commit")
        now = values_at(self.source)
        rows = [{"id": key, "v": now.get(key), MARKER: 4 if key in now else 2, PROBLEM: None}
                for key in sorted(now.keys() | before.keys())
                if key not in before or key not in now or now[key] != before[key]]  # fmt: skip
        continues = isinstance(what, Range) and what.from_version_exclusive == new - 1
        if rows or not continues:
            self.states.versions.append((now, rows))
        if len(self.states.versions) - 1 != new - (continues and not rows):
            raise Moved
        self.callback("after the commit")
        if continues and not rows:
            return None
        if isinstance(what, Snapshot) and 0 < self.part_rows < len(rows):
            ends = [str(row["id"]) for row in rows[self.part_rows - 1 : -1 : self.part_rows]]
            last = Slice(None, len(rows) - self.part_rows * len(ends), 1)
            return self._stage_part(
                new, LoadPart(1, "id", (*(Slice(end, self.part_rows, 1) for end in ends), last)), job
            )
        return self._write(rows, job, len(now), is_load=isinstance(what, Snapshot))

    def _stage_part(self, version: int, part: LoadPart | None, job: StagingJob) -> Staged:
        assert part is not None
        state, rows = self.states.versions[version]
        after, up_to = int(part.after or -1), int(part.slice.up_to or 99)
        staged = self._write([row for row in rows if after < row["id"] <= up_to], job, len(state))
        return staged._replace(part=part)

    def _write(self, rows: list[dict[str, Any]], job: StagingJob, rows_read: int, *, is_load: bool = False) -> Staged:
        schema = arrow_schema(job.columns, with_marker=job.with_marker).append(pa.field(PROBLEM, pa.int32()))
        staged = stage_small_batch(pa.Table.from_pylist(rows, schema), job)
        self.callback("after the files")
        if is_load and not staged.files:
            staged = Staged([write_empty(job)])
        return staged._replace(rows_read=rows_read)

    def bad_keys(self, version: int, table: Table) -> list[BadRow]:
        return []


def values_at(source: FedTable, version: int = -1) -> Rows:
    return {row["id"]: row["v"] for row in source.at(version)}


class Moved(TransientError):
    """Like `row_hashes_changed`."""

    code = "MF0000"
    what = "moved"
    fix = "again"


_VALUE = st.one_of(st.none(), st.sampled_from("ab"))
_MOMENTS = ("before the commit", "after the commit", "after the files")


class Comparisons(Published):
    @initialize(compares=st.booleans(), part_rows=st.integers(0, 2))
    def begin(self, compares: bool, part_rows: int) -> None:
        self.part_rows = part_rows
        self.source = FedTable({"id": "long", "v": "string"}, ("id",))
        self.states = SavedStates()
        self.plan = entry("v", changes="compare" if compares else "net")
        self.begin_zone()

    def feed(self, callback: Any = lambda when: None) -> ChangeSource:
        compares = self.plan.changes == "compare"
        if not compares:
            return TableFeed(self.source)
        return ModelSource(self.source, self.states, callback, self.part_rows)

    @rule()
    def the_configuration_changes_to_comparison(self) -> None:
        self.plan = entry("v", changes="compare")

    @rule(part_rows=st.integers(0, 2))
    def the_size_of_a_part_changes(self, part_rows: int) -> None:
        self.part_rows = part_rows

    @rule(key=st.integers(0, 3), value=_VALUE)
    def a_row_exists(self, key: int, value: str | None) -> None:
        self.source.merge({"id": key, "v": value})

    @rule(key=st.integers(0, 3))
    def a_row_is_deleted(self, key: int) -> None:
        self.source.delete(key)

    @rule()
    def publish(self) -> None:
        records = publish(self.feed(), self.zone, self.plan).records
        if records and records[-1].load:  # the run completed a load, which may have begun with an earlier comparison
            publish(self.feed(), self.zone, self.plan)
        self.mirror.take()
        assert canonical(self.mirror.rows) == canonical(self.source.at(-1))
        assert self.audit.is_compared == (self.plan.changes == "compare")

    @rule()
    def publish_again(self) -> None:
        """If nothing differs, there is neither a new state nor a record of it."""
        publish(self.feed(), self.zone, self.plan)
        states, audited, changes = len(self.states.versions), self.zone.watcher, list[str]()
        self.zone.watcher = lambda verb, path, new_path: changes.append(f"{verb} {path}")
        again = publish(self.feed(), self.zone, self.plan)
        self.zone.watcher = audited
        assert (again.latest, again.decision) == (
            again.published_version,
            f"nothing new, version {again.published_version} is published",
        )
        assert (len(self.states.versions), changes) == (states, [])

    @rule()
    def publish_with_the_configuration_before_the_change(self) -> None:
        """After a comparison, the change data feed is never used to continue."""
        compared, records = self.audit.is_compared, self.audit.published
        try:
            publish(TableFeed(self.source), self.zone, entry("v"))
            assert not compared
        except SourceRecreatedError:
            assert compared
            assert (self.audit.is_compared, self.audit.published) == (True, records)
        if self.plan.changes == "compare":  # otherwise no later rule can find out
            self.publish()

    @rule(when=st.sampled_from(_MOMENTS), before=st.integers(0, 2), key=st.integers(0, 3), value=_VALUE)
    def publish_and_be_killed(self, when: str, before: int, key: int, value: str | None) -> None:
        """The process is killed at a moment of its first publication, or of a later one, such as the next part."""
        left = [when] * before

        def callback(now: str) -> None:
            if now == when and left:
                left.pop()
            elif now == when:
                self.source.merge({"id": key, "v": value})
                raise Crash

        with suppress(Crash):
            publish(self.feed(callback), self.zone, self.plan)

    @rule(
        when=st.sampled_from(_MOMENTS),
        key=st.integers(0, 3),
        value=_VALUE,
        by=st.sampled_from(("compare", "net")),
        stops=st.booleans(),
    )
    def publish_and_be_overtaken(self, when: str, key: int, value: str | None, by: str, stops: bool) -> None:
        """Another publisher does the same, or publishes from the feed, because it read an older configuration. If it
        `stops`, it ends after one publication, such as the first part of a load."""
        overtaken: list[str] = []

        def callback(now: str) -> None:
            if now == when and not overtaken:
                overtaken.append(now)
                with suppress(SourceRecreatedError):
                    feed = self.feed() if by == "compare" else TableFeed(self.source)
                    left = iter((False, stops))
                    publish(feed, self.zone, entry("v", changes=by), stop=lambda: next(left, stops))
                self.source.merge({"id": key, "v": value})

        with suppress(TransientError):
            publish(self.feed(callback), self.zone, self.plan)

    @rule(
        call=st.integers(0, 60),
        mode=st.sampled_from(list(Mode)),
        late=st.one_of(st.none(), st.integers(1, 20)),
        value=_VALUE,
    )
    def publish_with_a_fault(self, call: int, mode: Mode, late: int | None, value: str | None) -> None:
        store = self.publish_disturbed(self.feed(), Fault(call, mode, late))
        self.source.merge({"id": 0, "v": value})
        store.deliver()

    def rows_at(self, version: int) -> Iterable[Mapping[str, Any]]:
        if not self.audit.is_compared:
            return self.source.at(version)
        return ({"id": key, "v": v} for key, v in self.states.versions[version][0].items())


TestComparisons = pytest.mark.proof(Comparisons.TestCase)
