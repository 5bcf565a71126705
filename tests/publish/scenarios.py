"""Publications for tests that inject faults: a table, its published versions, and the versions left to publish."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from fixtures.faults import PAGE, Crash, Fault, FaultyStore
from fixtures.memory import MemoryStore
from fixtures.mirror import Audit, Mirror, canonical
from mirrorfeed.config.model import Table as ConfigTable
from mirrorfeed.errors import ConfigurationError, TransientError
from mirrorfeed.publish.errors import RecordsMissingError, nothing_published
from mirrorfeed.publish.key_repair import repair
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.publish.table_result import TableResult
from mirrorfeed.storage import Store
from tests.support.entries import FOLDER, entry
from tests.support.tables import Table, TableFeed


def plan(**other: Any) -> ConfigTable:
    """Return a plan in which every row becomes a file."""
    return entry(**{"target_file_size": 1, "compression": "none", **other})


@dataclass(frozen=True)
class Scenario:
    """A publication into which faults are injected, and what was published before."""

    name: str
    table: Callable[[], Table]
    change: Callable[[Table], None]
    plan: ConfigTable = field(default_factory=plan)
    feed: dict[str, Any] = field(default_factory=dict)
    published_before: bool = True
    plan_before: ConfigTable | None = None
    deleted: bool = False
    checks_renames: bool = True
    between: Callable[[Table], None] = lambda _: None
    """Change of the table after each run."""
    leftovers: int = 0
    """Number of files that killed publishers staged for the next records."""
    spoiled: Mapping[int, Sequence[tuple[int, str]]] = field(default_factory=dict)
    """Wrong rows of the mirror, by key, that the landing zone cannot explain. The run then repairs these keys, at the
    version published before the change."""


def orders(*rows: tuple[int, str], keys: tuple[str, ...] = ("id",)) -> Table:
    table = Table({"id": "long", "status": "string"}, keys)
    table.insert(*({"id": id_, "status": status} for id_, status in rows))
    return table


def two_orders() -> Table:
    return orders((1, "new"), (2, "new"))


def snapshot_and_range(store: Store) -> TableResult:
    """Publish two orders and then a change of one, and return both publications as the result of one run."""
    orders = two_orders()
    first = publish(TableFeed(orders), store, entry())
    orders.update(1, status="paid")
    result = publish(TableFeed(orders), store, entry())
    result.records = [*first.records, *result.records]
    result.measured |= first.measured
    return result


def five_orders() -> Table:
    return orders(*((id_, "new") for id_ in range(1, 6)))


def another_order(table: Table) -> None:
    table.merge({"id": 2, "status": "paid"}, {"id": table.latest + 10, "status": "new"})


def one_commit(table: Table) -> None:
    table.merge({"id": 2, "status": "paid"}, {"id": 3, "status": "new"})


def three_commits(table: Table) -> None:
    one_commit(table)
    table.update(1, id=11)
    table.delete(2)


SCENARIOS = [
    Scenario("first snapshot", two_orders, lambda _: None, published_before=False),
    Scenario("empty snapshot", lambda: Table({"id": "long"}, ("id",)), lambda _: None, published_before=False),
    Scenario("one file", two_orders, one_commit, plan(target_file_size=10_000)),
    Scenario("several files", two_orders, three_commits, feed={"partitions": 2, "rows_per_batch": 1}),
    Scenario("two ranges", two_orders, three_commits, plan(max_versions_per_publication=2, changes="full")),
    Scenario("a range without rows", two_orders, Table.optimize),
    Scenario("pruning to one record", two_orders, three_commits,
             plan(max_versions_per_publication=1, log_retention_records=1)),
    Scenario("first load in parts", five_orders, lambda _: None, feed={"part_rows": (2, 1, 3)}, published_before=False,
             between=another_order),
    Scenario("inserts only", lambda: orders((1, "a"), keys=()), lambda t: t.insert({"id": 2}, {"id": 2}),
             plan(keys=()), feed={"partitions": 2}),
    Scenario("keys come later", two_orders, one_commit, plan_before=plan(keys=())),
    Scenario("folder deleted between", two_orders, one_commit, feed={"rows_per_batch": 1}, deleted=True),
    Scenario("tasks tried again", two_orders, three_commits, feed={"partitions": 2, "attempts": 2}),
    Scenario("server that overlooks the condition on renames", two_orders, three_commits,
             plan(max_versions_per_publication=2), feed={"rows_per_batch": 1}, checks_renames=False),
    Scenario("repair", two_orders, lambda t: t.insert({"id": 3, "status": "new"}), plan(target_file_size=10_000),
             spoiled={1: [(1, "lost")], 7: [(7, "never there")]}),
    Scenario("repair of doubled rows, in several files", two_orders, one_commit, feed={"rows_per_batch": 3},
             spoiled={1: [(1, "new"), (1, "new")], 2: [(2, "x"), (2, "y"), (2, "new")], 7: [(7, "a"), (7, "b")]}),
]  # fmt: skip


class Scene:
    """A scenario that is set up once and played many times."""

    def __init__(self, scenario: Scenario) -> None:
        self.plan, self._table, self._options = scenario.plan, scenario.table(), scenario.feed
        self._zone = MemoryStore(checks_renames=scenario.checks_renames)
        self._audit = Audit(self._zone, FOLDER)
        if scenario.published_before:
            publish(TableFeed(self._table, **self._options), self._zone, scenario.plan_before or scenario.plan)
        self._spoiled, self._between = scenario.spoiled, scenario.between
        self._audit.repairs = bool(scenario.spoiled)
        for number in range(scenario.leftovers):
            name = f"{2 + number % 3:020d}-{number:032x}-00001.parquet"
            self._zone.create(f"{FOLDER}/_mirrorfeed/{self._audit.log_id}/{name}", b"half a file")
        if scenario.deleted:
            self._zone.remove_folder(FOLDER)
        scenario.change(self._table)

    def open(self) -> Take:
        zone = self._zone.copy()
        feed = TableFeed(self._table.copy(), **self._options)
        audit, mirror = self._audit.on(zone), Mirror(zone, FOLDER)
        if self._spoiled:
            mirror.take()
        for id_, rows in self._spoiled.items():
            mirror.spoil((id_,), *({"id": row, "status": status} for row, status in rows))
        wrong = [((id_,), len(rows) > 1) for id_, rows in self._spoiled.items()]
        return Take(self.plan, feed, zone, audit, mirror, wrong)

    def play(
        self,
        *faults: Fault,
        service: bool = False,
        runs: int = 1,
        end: Callable[[Take], None] = lambda take: take.ends_equal(),
    ) -> list[list[str]]:
        """Run once with these faults, once while late calls arrive, and once after them. Then the mirror must be equal.

        With `service`, files are consumed while they are published. Returns the calls of the runs."""
        take = self.open()
        store = FaultyStore(
            take.zone,
            faults,
            before=lambda verb: take.mirror.take() if service and verb in ("list", "create", "rename") else None,
            delete=lambda: take.zone.remove_folder(FOLDER),
            page=PAGE,
        )
        starts = []
        for _ in range(runs + 1):
            starts.append(len(store.verbs))
            store.restart()
            take.publish(store)
            self._between(take.table)
        store.deliver()
        end(take)
        return [store.verbs[start:end] for start, end in zip(starts, [*starts[1:], len(store.verbs)], strict=True)]


@dataclass(frozen=True)
class Take:
    """One play of a scene, on its own landing zone, with an audit."""

    plan: ConfigTable
    feed: TableFeed
    zone: MemoryStore
    audit: Audit
    mirror: Mirror
    wrong: Sequence[tuple[tuple[int, ...], bool]] = ()
    """Keys to repair, and whether the mirror has them more than once."""

    @property
    def table(self) -> Table:
        return self.feed.table

    def publish(self, store: Store) -> None:
        """Run once. The run may be killed or fail with a transient error, but no error may require a person."""
        with suppress(TransientError, Crash):
            self._repair(store) if self.wrong else self._publish(store)

    def _repair(self, store: Store) -> None:
        """Repair the keys, or publish the table if its folder was deleted."""
        try:
            repair(self.feed, store, self.plan, self.wrong)
        except (ConfigurationError, RecordsMissingError) as error:
            if isinstance(error, ConfigurationError) and not nothing_published.matches(error):
                raise
            self._publish(store)

    def _publish(self, store: Store) -> None:
        """Publish, and reload the table if its folder was deleted during the publication."""
        try:
            publish(self.feed, store, self.plan)
        except RecordsMissingError:
            store.remove_folder(FOLDER)
            publish(self.feed, store, self.plan)

    def ends_equal(self) -> None:
        """Run once more without faults and compare the mirror."""
        if self.wrong:
            self._repair(self.zone)
        self._publish(self.zone)
        records = 0
        while sum(entry.is_folder for entry in self.zone.list(f"{FOLDER}/_mirrorfeed")) > 1:
            assert (records := records + 1) < 100, "what is left of other logs stays"
            self.table.optimize()  # a later publication removes it
            self._publish(self.zone)
        self.judge()

    def judge(self) -> None:
        """Check the calls and files of a run without faults."""
        self.audit.check_final_state(self.plan.log_retention_records)
        assert self.audit.published == self.table.latest
        self.mirror.take()
        assert canonical(self.mirror.rows) == canonical(self.table.at(self.table.latest))
