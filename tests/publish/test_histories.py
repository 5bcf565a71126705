"""Random tables with random histories, published at random moments while the service consumes files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from fixtures.faults import Fault, Mode
from fixtures.mirror import canonical
from mirrorfeed.publish.errors import RowsRefusedError
from mirrorfeed.publish.table_publisher import publish
from tests.publish.state_machine import Published
from tests.support.entries import entry
from tests.support.tables import Table, TableFeed

_KEYS: dict[str, st.SearchStrategy[Any]] = {
    "long": st.integers(0, 4),
    "string": st.sampled_from(["", "a", "A", "ä"]),
    "date": st.sampled_from([date(1582, 10, 10), date(1970, 1, 1), date(2026, 11, 21)]),
}
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "long": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False),
    "decimal(12,2)": st.decimals(Decimal("-9999999999.99"), Decimal("9999999999.99"), places=2),
    "string": st.text(max_size=3).filter(lambda text: text.isprintable()),
    "binary": st.binary(max_size=3),
    "boolean": st.booleans(),
    "timestamp": st.datetimes(datetime(1582, 10, 4), datetime(2100, 1, 1), timezones=st.just(UTC)),
    "json": st.sampled_from(["[]", '{"a":null}']),
}
_PART_ROWS = st.sampled_from([(), (1,), (2,)])
"""Sizes of the parts of a first load, or no parts."""


class Histories(Published):
    @initialize(
        keys=st.lists(st.sampled_from(sorted(_KEYS)), max_size=3),
        values=st.lists(st.sampled_from(sorted(_VALUES)), min_size=1, max_size=4),
        changes=st.sampled_from([("net", "upsert"), ("full", "upsert"), ("full", "exact")]),
        max_versions_per_publication=st.sampled_from([1, 2, 3, 500]),
        log_retention_records=st.sampled_from([1, 2, 10]),
        target_file_size=st.sampled_from([1, 2**20]),
    )
    def a_table(self, keys: list[str], values: list[str], changes: tuple[str, str], **options: Any) -> None:
        self.types = {f"k{n}": type_ for n, type_ in enumerate(keys)}
        self.keys = tuple(self.types)
        self.types |= {f"v{n}": type_ for n, type_ in enumerate(values)}
        self.table = Table(self.types, self.keys)
        self.plan = entry(keys=self.keys, changes=changes[0], row_markers=changes[1], **options)
        self.begin_zone()

    # Changes of the table.

    @rule(data=st.data(), count=st.integers(1, 4))
    def insert(self, data: st.DataObject, count: int) -> None:
        keys = {self.table.key(row) for row in self.table.rows}
        rows = []
        for _ in range(count):
            row = self._row(data)
            if not self.keys or self.table.key(row) not in keys:
                keys.add(self.table.key(row))
                rows.append(row)
        self.table.insert(*rows)

    @precondition(lambda self: self.keys)
    @rule(data=st.data(), count=st.integers(1, 4))
    def merge(self, data: st.DataObject, count: int) -> None:
        self.table.merge(*(self._row(data) for _ in range(count)))

    @precondition(lambda self: self.keys and self.table.rows)
    @rule(data=st.data(), same=st.booleans())
    def update(self, data: st.DataObject, same: bool) -> None:
        chosen = self._some(data)
        values = {name: data.draw(self._value(name)) for name in self.types if name not in self.keys}
        self.table.update(*chosen, **({} if same else values))

    @precondition(lambda self: self.keys and self.table.rows)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        self.table.delete(*self._some(data))

    @precondition(lambda self: self.keys and self.table.rows)
    @rule(data=st.data())
    def change_a_key(self, data: st.DataObject) -> None:
        new = self.table.key(self._row(data))
        if new not in {self.table.key(row) for row in self.table.rows}:
            self.table.change_keys({self._some(data)[0]: new})

    @precondition(lambda self: self.keys and len(self.table.rows) > 1)
    @rule()
    def exchange_keys(self) -> None:
        keys = [self.table.key(row) for row in self.table.rows]
        self.table.change_keys(dict(zip(keys, keys[1:] + keys[:1], strict=True)))

    @precondition(lambda self: self.keys)
    @rule(data=st.data(), same=st.booleans())
    def overwrite(self, data: st.DataObject, same: bool) -> None:
        rows = {self.table.key(row): row for row in [self._row(data), self._row(data)]}
        self.table.overwrite(*(self.table.rows if same else rows.values()))

    @precondition(lambda self: self.keys)
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        versions = [at for at, version_ in enumerate(self.table.versions) if self._unique(version_.rows)]
        self.table.restore(data.draw(st.sampled_from(versions)))

    @precondition(lambda self: self.keys and self.table.rows and self.plan.max_versions_per_publication in (1, 500))
    @rule(data=st.data(), between=st.booleans(), by=st.sampled_from(["delete", "overwrite"]))
    def share_a_key(self, data: st.DataObject, between: bool, by: str) -> None:
        """Append a row with an existing key. One of the two rows is deleted later."""
        row = data.draw(st.sampled_from(self.table.rows))
        other = {**self._row(data), **{name: row[name] for name in self.keys}}
        self.table.insert(other)
        if between:
            with suppress(RowsRefusedError):
                publish(TableFeed(self.table), self.zone, self.plan)
        removed = data.draw(st.sampled_from([row, other]))
        if by == "delete":
            self.table.delete_row(removed)
        else:
            at = self.table.rows.index(removed)
            self.table.overwrite(*self.table.rows[:at], *self.table.rows[at + 1 :])

    @rule()
    def optimize(self) -> None:
        self.table.optimize()

    @precondition(lambda self: len(self.types) < 9)
    @rule(type_=st.sampled_from(sorted(_VALUES)))
    def add_a_column(self, type_: str) -> None:
        name = f"v{len(self.types)}"
        self.types[name] = type_
        self.table.add_column(name, type_)

    # Events of its publication.

    @rule(partitions=st.integers(1, 3), rows_per_batch=st.sampled_from([1, 2, 100]), part_rows=_PART_ROWS)
    def publish(self, partitions: int, rows_per_batch: int, part_rows: tuple[int, ...]) -> None:
        publish(TableFeed(self.table, partitions, rows_per_batch, part_rows=part_rows), self.zone, self.plan)
        self.mirror.take()
        assert self.audit.published == self.table.latest
        assert canonical(self.mirror.rows) == canonical(self.table.at(self.table.latest))

    @rule(
        call=st.integers(0, 60),
        mode=st.sampled_from(list(Mode)),
        late=st.one_of(st.none(), st.integers(1, 20)),
        partitions=st.integers(1, 3),
        part_rows=_PART_ROWS,
    )
    def publish_with_a_fault(
        self, call: int, mode: Mode, late: int | None, partitions: int, part_rows: tuple[int, ...]
    ) -> None:
        feed = TableFeed(self.table, partitions, rows_per_batch=2, part_rows=part_rows)
        self.publish_disturbed(feed, Fault(call, mode, late)).deliver()

    def decided(self, rows: Iterable[Mapping[str, Any]], version: int) -> Iterable[Mapping[str, Any]]:
        count = Counter(map(self.table.key, self.table.at(version)))
        return [row for row in rows if not self.keys or count[self.table.key(row)] < 2]

    def rows_at(self, version: int) -> Iterable[Mapping[str, Any]]:
        return self.table.at(version)

    def _unique(self, rows: Sequence[Mapping[str, Any]]) -> bool:
        return len(set(map(self.table.key, rows))) == len(rows)

    def _row(self, data: st.DataObject) -> Mapping[str, Any]:
        return {
            name: data.draw(_KEYS[type_] if name in self.keys else self._value(name))
            for name, type_ in self.types.items()
        }

    def _value(self, name: str) -> st.SearchStrategy[Any]:
        return st.one_of(st.none(), _VALUES[self.types[name]])

    def _some(self, data: st.DataObject) -> list[tuple[Any, ...]]:
        keys = sorted({self.table.key(row) for row in self.table.rows}, key=repr)
        return data.draw(st.lists(st.sampled_from(keys), min_size=1, max_size=3, unique=True))


TestHistories = pytest.mark.proof(Histories.TestCase)
