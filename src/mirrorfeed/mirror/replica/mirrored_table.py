"""A mirrored Delta table with the state of the replica: each data file is applied and recorded in one commit.

The properties of the table name its folder in the landing zone, and each commit has an application transaction for
its data file. So after a crash at any moment, a file is either applied and recorded, or neither.
"""

from __future__ import annotations

import json
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction, write_deltalake
from deltalake.exceptions import DeltaError

from mirrorfeed.errors import MirrorfeedError
from mirrorfeed.lint.specification import DELETE, INSERT
from mirrorfeed.mirror.errors import MirrorUnavailable, NotOurs, NullNotAllowed, YearNotHeld
from mirrorfeed.mirror.replica.landing_zone import DataFile, TableFolder
from mirrorfeed.storage.folder import FolderStore, resolve


@dataclass(frozen=True, slots=True)
class Change:
    kept: pa.ChunkedArray
    """For each row of the table, in order, whether it stays."""
    added: pa.Table
    """New rows, with the columns of the file."""

    @property
    def removes(self) -> bool:
        return not pc.all(self.kept, min_count=0).as_py()


def net_change(present: pa.Table, rows: pa.Table, markers: pa.ChunkedArray, keys: Sequence[str]) -> Change:
    """`present` are the key columns of the table's rows; types of keys are the same on both sides."""
    is_full = _has_full_key(rows, keys)
    unmatched = rows.filter(pc.and_(pc.invert(is_full), pc.not_equal(markers, DELETE)))
    rows, markers = rows.filter(is_full), markers.filter(is_full)
    if not rows.num_rows:
        return Change(_repeated(True, present.num_rows), unmatched)

    ids, present_ids = _key_ids(rows.select(keys), present.select(keys))
    position = pc.cumulative_sum(_repeated(1, rows.num_rows))
    deleted = _last(ids, position, pc.equal(markers, DELETE))
    alive = pc.greater(position, _spread(deleted, ids))
    inserts = pc.and_(alive, pc.equal(markers, INSERT))
    updates = pc.and_(alive, pc.invert(pc.or_(pc.equal(markers, INSERT), pc.equal(markers, DELETE))))
    updated = _last(ids, position, updates)
    last_update = _spread(updated, ids)

    # How many rows the key has before its last update.
    known = pc.if_else(pc.less(present_ids, len(deleted)), present_ids, None)
    at_start = pc.if_else(pc.greater(deleted, 0), 0, _count(known, len(deleted)))
    inserted = _per_key(ids, pc.cast(pc.and_(inserts, pc.less(position, last_update)), pa.int64()), "sum")
    first_is_update = pc.equal(_first(ids, position, updates), _first(ids, position, alive))
    created = pc.and_(pc.equal(at_start, 0), pc.fill_null(first_is_update, False))
    copies = pc.add(pc.add(at_start, inserted), pc.cast(created, pa.int64()))

    later_insert = pc.and_(inserts, pc.greater(position, last_update))
    times = pc.if_else(pc.equal(position, last_update), _spread(copies, ids), pc.cast(later_insert, pa.int64()))
    touched = pc.or_(pc.greater(deleted, 0), pc.greater(updated, 0))
    kept = pc.invert(pc.fill_null(pc.take(touched, known), False))
    return Change(_chunked(kept), pa.concat_tables([_multiplied(rows, times), unmatched]))


def _has_full_key(rows: pa.Table, keys: Sequence[str]) -> pa.ChunkedArray:
    is_full = _repeated(True, rows.num_rows)
    for key in keys:
        is_full = pc.and_(is_full, pc.is_valid(rows[key]))
    return is_full


def _key_ids(keys: pa.Table, present: pa.Table) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """A number for each key, the same on both sides. The file's keys have 0 to n-1; a key with a NULL has none."""
    both = pa.concat_tables([keys, present])
    ids = _codes(both.column(0))
    for column in both.columns[1:]:
        codes = _codes(column)
        width = pc.add(pc.max(codes), 1)
        # Numbered again after each column, or the products of many columns would exceed 64 bits.
        ids = _codes(pc.add(pc.multiply(ids, width), codes))
    return ids.slice(0, keys.num_rows), ids.slice(keys.num_rows)


def _codes(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Numbers for distinct values, from 0 in the order of first occurrence."""
    if pa.types.is_floating(column.type):  # equal values with more than one representation
        column = pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), column)
        column = pc.if_else(pc.equal(column, 0), pa.scalar(0.0, column.type), column)
    encoded = pc.dictionary_encode(column)
    return pa.chunked_array([chunk.indices.cast(pa.int64()) for chunk in encoded.chunks], pa.int64())


def _per_key(ids: pa.ChunkedArray, values: pa.ChunkedArray, how: str) -> pa.ChunkedArray:
    """One value for each key, at the place of its number."""
    grouped = pa.table({"id": ids, "value": values}).group_by("id").aggregate([("value", how)])
    return grouped.sort_by("id")[f"value_{how}"]


def _last(ids: pa.ChunkedArray, position: pa.ChunkedArray, among: pa.ChunkedArray) -> pa.ChunkedArray:
    """The last position for each key, 0 if there is none; positions count from 1."""
    return pc.fill_null(_per_key(ids, pc.if_else(among, position, None), "max"), 0)


def _first(ids: pa.ChunkedArray, position: pa.ChunkedArray, among: pa.ChunkedArray) -> pa.ChunkedArray:
    return _per_key(ids, pc.if_else(among, position, None), "min")


def _count(ids: pa.ChunkedArray, keys: int) -> pa.ChunkedArray:
    """How often each of the numbers 0 to `keys` - 1 occurs."""
    every = pc.subtract(pc.cumulative_sum(_repeated(1, keys)), 1)
    occurring = pc.drop_null(ids)
    numbers = pa.chunked_array([*every.chunks, *occurring.chunks], pa.int64())
    return pc.subtract(_per_key(numbers, _repeated(1, len(numbers)), "sum"), 1)


def _spread(per_key: pa.ChunkedArray, ids: pa.ChunkedArray) -> pa.ChunkedArray:
    """The value of each row's key."""
    return pc.take(per_key, ids)


def _multiplied(rows: pa.Table, times: pa.ChunkedArray) -> pa.Table:
    """Each row as many times as `times` has, which is mostly 0 or 1."""
    if pc.max(times).as_py() <= 1:
        return rows.filter(pc.equal(times, 1))
    ends = pc.cumulative_sum(times).combine_chunks()
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), ends])
    places = pc.list_parent_indices(pa.LargeListArray.from_arrays(offsets, pa.nulls(ends[-1].as_py())))
    return rows.take(places)


def _repeated(value: bool | int, size: int) -> pa.ChunkedArray:
    return pa.chunked_array([pa.repeat(value, size)])


def _chunked(values: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray:
    return values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])


_PREFIX = "mirrorfeed.replica"
_FOLDER, _ETAG, _KEYS, _STOPPED = (f"{_PREFIX}.{name}" for name in ("folder", "etag", "keys", "stopped"))
_DEFAULT_SCHEMA = "dbo"
_DROPPED, _DROPPED_NAME = "_dropped", re.compile(r"[0-9a-f]{32}")
_FIRST_DAY, _LAST_DAY = ((day - date(1970, 1, 1)).days for day in (date.min, date.max))


def mirror_path(target: str, folder: TableFolder) -> Path:
    """The path of the mirror of a table folder: `<target>/<schema>/<table>`."""
    return Path(target, folder.schema or _DEFAULT_SCHEMA, folder.name)


def find_delta_tables(target: str) -> list[Path]:
    """The paths of all Delta tables below the target."""
    return sorted(place for place in Path(target).glob("[!_]*/[!_]*") if Path(place, "_delta_log").is_dir())


def open_mirror(place: Path) -> Mirror | None:
    """The mirror at a path; None if there is no table. Raise `NotOurs` if no replica created the table."""
    with _delta_errors(place):
        if not place.is_dir() or not DeltaTable.is_deltatable(_address(place)):
            return None
        delta = DeltaTable(_address(place))
    if _FOLDER not in delta.metadata().configuration:
        raise NotOurs(place=str(place))
    return Mirror(place, delta)


def create_mirror(place: Path, folder: TableFolder, schema: pa.Schema, keys: Sequence[str]) -> Mirror:
    """Create a table without rows, in one commit with the state of the replica."""
    state = {_FOLDER: folder.path, _ETAG: folder.etag, **({_KEYS: json.dumps(keys)} if keys else {})}
    with _delta_errors(place):
        delta = DeltaTable.create(
            _address(place),
            schema=Schema.from_arrow(schema),
            configuration=state,
            raise_if_key_not_exists=False,
        )
    return Mirror(place, delta)


def drop(place: Path, target: str) -> None:
    """Drop the table with one rename, then delete its files. `delete_dropped` continues after a crash."""
    FolderStore(target).rename(f"{place.parent.name}/{place.name}", f"{_DROPPED}/{uuid.uuid4().hex}")
    delete_dropped(target)


def delete_dropped(target: str) -> None:
    """Remove dropped tables as far as possible, and nothing that has a name of another kind."""
    with suppress(MirrorfeedError, OSError):
        for entry in FolderStore(target).list(_DROPPED):
            if entry.is_folder and _DROPPED_NAME.fullmatch(entry.name):
                shutil.rmtree(resolve("remove", target, f"{_DROPPED}/{entry.name}"))


class Mirror:
    def __init__(self, place: Path, delta: DeltaTable) -> None:
        self.place, self._delta = place, delta

    @property
    def folder(self) -> str:
        """The path of the mirrored table folder."""
        return self._property(_FOLDER) or ""

    @property
    def etag(self) -> str:
        return self._property(_ETAG) or ""

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns, which never change after they are set. Empty if they are not set."""
        return tuple(json.loads(self._property(_KEYS) or "[]"))

    @property
    def stopped(self) -> str | None:
        """Why no file is applied until the folder is recreated; None if files are."""
        return self._property(_STOPPED)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(self._delta.schema().to_arrow())

    def set_keys(self, keys: Sequence[str]) -> None:
        self._set(_KEYS, json.dumps(list(keys)))

    def stop(self, reason: str) -> None:
        self._set(_STOPPED, reason)

    def applied(self) -> int:
        """The last applied file number; 0 if there is none."""
        with _delta_errors(self.place):
            return self._delta.transaction_version(self._app()) or 0

    def processed(self, files: Iterable[DataFile]) -> frozenset[str]:
        """The names of applied files among `files`, by name or by number."""
        applied = self.applied()
        with _delta_errors(self.place):
            return frozenset(
                file.name
                for file in files
                if (file.number is not None and file.number <= applied)
                or self._delta.transaction_version(self._app(file.name)) is not None
            )

    def add_columns(self, fields: Sequence[pa.Field]) -> None:
        """Add columns in a separate commit: after a crash the columns exist, and the file is applied again."""
        with _delta_errors(self.place):
            self._delta.alter.add_columns([Field.from_arrow(field) for field in fields])

    def read_columns(self, columns: Sequence[str]) -> pa.Table:
        """Some columns of all rows, in the order that `replace` needs."""
        with _delta_errors(self.place):
            dataset = self._delta.to_pyarrow_dataset()
            schema = pa.schema([dataset.schema.field(name).with_nullable(True) for name in columns])
            parts = [part.to_table(schema=dataset.schema, columns=list(columns)) for part in dataset.get_fragments()]
            return pa.concat_tables([schema.empty_table(), *(part.cast(schema) for part in parts)])

    def append(self, rows: pa.Table, file: DataFile, by_time: bool) -> None:
        with _delta_errors(self.place):
            write_deltalake(self._delta, rows, mode="append", commit_properties=self._commit_properties(file, by_time))

    def replace(self, kept: pa.ChunkedArray, rows: pa.Table, file: DataFile, by_time: bool) -> None:
        """Rewrite the table with the rows that `kept` selects, in the order of `read_columns`, and with `rows`."""
        with _delta_errors(self.place):
            dataset = self._delta.to_pyarrow_dataset()
            schema = pa.schema([field.with_nullable(True) for field in dataset.schema])

            def batches() -> Iterator[pa.RecordBatch]:
                start = 0
                for part in dataset.get_fragments():
                    table = part.to_table(schema=dataset.schema)
                    stays = kept.slice(start, table.num_rows)
                    start += table.num_rows
                    yield from table.filter(stays).cast(schema).to_batches()
                yield from rows.cast(schema).to_batches()

            write_deltalake(
                self._delta,
                pa.RecordBatchReader.from_batches(schema, batches()),
                mode="overwrite",
                commit_properties=self._commit_properties(file, by_time),
            )

    def _commit_properties(self, file: DataFile, by_time: bool) -> CommitProperties:
        mark = Transaction(self._app(file.name), 1) if by_time else Transaction(self._app(), file.number or 0)
        return CommitProperties(app_transactions=[mark], custom_metadata={f"{_PREFIX}.file": file.name})

    def _app(self, name: str | None = None) -> str:
        return "/".join([_PREFIX, self.etag, *([name] if name else [])])

    def _property(self, name: str) -> str | None:
        return self._delta.metadata().configuration.get(name)

    def _set(self, name: str, value: str) -> None:
        with _delta_errors(self.place):
            self._delta.alter.set_table_properties({name: value}, raise_if_not_exists=False)


def refuse_nulls(schema: pa.Schema, rows: pa.Table, address: str) -> None:
    """Raise `NullNotAllowed` if a column that is not nullable has NULLs. Deleted rows are not among `rows`."""
    for field in schema:
        if not field.nullable and rows[field.name].null_count:
            raise NullNotAllowed(address=address, column=field.name)


def refuse_years(rows: pa.Table, address: str) -> None:
    """Raise `YearNotHeld` for dates whose statistics the engine cannot read: years that do not have four digits."""
    for field in rows.schema:
        if pa.types.is_date32(field.type):
            found = pc.min_max(rows[field.name].cast(pa.int32())).as_py()
            if found["min"] is not None and not _FIRST_DAY <= found["min"] <= found["max"] <= _LAST_DAY:
                raise YearNotHeld(address=address, column=field.name)


def _address(place: Path) -> str:
    return str(place.absolute())


@contextmanager
def _delta_errors(place: Path) -> Iterator[None]:
    try:
        yield
    except (DeltaError, pa.ArrowException, OSError) as error:
        # The lines below the first can be a stack of the engine's own calls.
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise MirrorUnavailable(place=str(place), reason=reason) from error
