"""Write a mirrored Delta table: apply each data file and record the file in the same commit.

One commit does both. So even after a crash, a file is recorded if and only if it is applied. The commit contains the
record as a `txn` action of Delta. The table's properties contain the path of the table's folder in the landing zone.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from functools import reduce
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction, write_deltalake
from deltalake.exceptions import DeltaError

from mirrorfeed.errors import MirrorfeedError, first_line
from mirrorfeed.lint.column_rules import NULL_VALUE
from mirrorfeed.lint.specification import DELETE, INSERT
from mirrorfeed.mirror.errors import (
    ForeignDeltaTableError,
    file_breaks_rule,
    mirror_unavailable,
    path_not_supported,
    year_out_of_range,
)
from mirrorfeed.mirror.local_replica.landing_zone import TableFolder, is_visible_folder, number_of
from mirrorfeed.storage.local_folder import FolderStore, arrow_files, resolve


@dataclass(frozen=True, slots=True)
class Change:
    remaining: pa.Array
    """True for each row of the table that stays, and False for each row that is removed.

    The order is the order of the rows in `Mirror.read_columns`. Can be empty if all rows stay.
    """
    added: pa.Table
    """Rows to add, with the columns of the table."""

    @property
    def removes(self) -> bool:
        return not pc.all(self.remaining, min_count=0).as_py()


def net_change(present: pa.Table, rows: pa.Table, markers: pa.ChunkedArray, keys: Sequence[str]) -> Change:
    """Return the change of a table that results from applying the `rows` of a file one by one.

    `present` has the key columns of all rows of the table, with the same types as in `rows`. `markers` has one row
    marker for each of `rows`. A row with NULL in its key matches no other row.
    """
    count = rows.num_rows
    both = [_codes(column) for column in pa.concat_tables([rows.select(keys), present]).columns]
    of_file, of_table = [each[:count] for each in both], [each[count:] for each in both]
    # Only rows of the table whose values all occur in keys of the file can match.
    can_match = [pc.less_equal(codes, pc.max(key_codes)) for key_codes, codes in zip(of_file, of_table, strict=True)]
    # PyArrow 21 crashes on a chunked array without chunks.
    candidates = pc.indices_nonzero(reduce(pc.and_, can_match).combine_chunks())
    old_keys = list(zip(*(each.take(candidates).to_pylist() for each in of_table), strict=True))
    old, new, added = Counter(old_keys), dict[Any, list[int]](), list[int]()
    # Keys whose old rows are deleted. The old rows of other keys remain, in addition to the new rows of the file.
    replaced = set[Any]()
    row_keys = zip(*(each.to_pylist() for each in of_file), strict=True)
    for at, (key, marker) in enumerate(zip(row_keys, markers.to_pylist(), strict=True)):
        if None in key:
            added += [] if marker == DELETE else [at]
        elif marker == INSERT:
            new.setdefault(key, []).append(at)
        else:
            count_before = len(new.get(key, ())) + (0 if key in replaced else old[key])
            new[key] = [] if marker == DELETE else [at] * max(count_before, 1)
            replaced.add(key)
    added += [at for indices in new.values() for at in indices]
    remaining = np.ones(present.num_rows, dtype=bool)
    remaining[[at for at, key in zip(candidates.to_pylist(), old_keys, strict=True) if key in replaced]] = False
    return Change(pa.array(remaining), rows.take(pa.array(sorted(added), pa.int64())))


def _codes(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return an integer for each value, and NULL for NULL. Equal values have the same integer.

    The integers count from 0 in the order of first occurrence. All NaN are equal, and 0.0 equals -0.0.
    """
    if pa.types.is_floating(column.type):  # equal values with several representations
        column = pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), column)
        column = pc.if_else(pc.equal(column, 0), pa.scalar(0.0, column.type), column)
    encoded = pc.dictionary_encode(column)
    return pa.chunked_array([chunk.indices.cast(pa.int64()) for chunk in encoded.chunks], pa.int64())


_DROPPED, _DROPPED_NAME = "_dropped", re.compile(r"[0-9a-f]{32}")
_PREFIX = "mirrorfeed.replica"
_FOLDER, _ETAG, _KEYS, _STOPPED = (f"{_PREFIX}.{name}" for name in ("folder", "etag", "keys", "stopped"))
_ENCODES_PATHS = tuple(int(number) for number in deltalake.__version__.split(".")[:2]) < (1, 3)
"""True for deltalake before 1.3, which writes the data of a table `a b` to a folder `a%20b`."""
_ENCODED = re.compile(r"[^A-Za-z0-9_./+=,@:~()-]")
_FIRST_DAY, _LAST_DAY = ((day - date(1970, 1, 1)).days for day in (date.min, date.max))


def mirror_path(target: str, folder: TableFolder) -> Path:
    """Return the path of the Delta table for `folder`: `<target>/<schema>/<table>`. The default schema is `dbo`."""
    return Path(target, folder.schema or "dbo", folder.name)


def find_delta_tables(target: str) -> list[Path]:
    """Return paths of Delta tables `<schema>/<table>` in the folder `target`. Leaves out names that start with `_`."""
    tables = [Path(target, schema, name) for schema in _folders(target) for name in _folders(target, schema)]
    return [place for place in tables if os.path.isdir(place / "_delta_log")]


def _folders(target: str, path: str = "") -> list[str]:
    with suppress(MirrorfeedError):
        return [entry.name for entry in FolderStore(target).list(path) if is_visible_folder(entry)]
    return []


def open_mirror(place: Path) -> Mirror | None:
    """Return the mirrored table at a path, or None if there is no Delta table.

    Raises `ForeignDeltaTableError` if the replica did not create the table, and `mirror_unavailable` if the table
    cannot be read.
    """
    with _delta_errors(place):
        if not place.is_dir() or not DeltaTable.is_deltatable(_address(place)):
            return None
        delta = DeltaTable(_address(place))
    if _FOLDER not in delta.metadata().configuration:
        raise ForeignDeltaTableError(place=str(place))
    return Mirror(place, delta)


def create_mirror(place: Path, folder: TableFolder, schema: pa.Schema, keys: Sequence[str]) -> Mirror:
    """Create an empty table, and write `folder` and `keys` to its table properties.

    Raises `mirror_unavailable` if the table cannot be created.
    """
    with _delta_errors(place):
        delta = DeltaTable.create(
            _address(place),
            schema=Schema.from_arrow(schema),
            configuration={_FOLDER: folder.path, _ETAG: folder.etag, _KEYS: json.dumps(keys)},
            raise_if_key_not_exists=False,
        )
    return Mirror(place, delta)


def drop(place: Path, target: str) -> None:
    """Move the table at `place` to the subfolder `_dropped` of the folder `target`, and try to delete the table.
    Ignores errors of the deletion, because the next pass tries again."""
    FolderStore(target).rename(f"{place.parent.name}/{place.name}", f"{_DROPPED}/{uuid.uuid4().hex}")
    delete_dropped(target)


def delete_dropped(target: str) -> None:
    """Delete the dropped tables in `_dropped` in the folder `target`. Ignores errors: the next pass tries again."""
    with suppress(MirrorfeedError, OSError):
        for entry in FolderStore(target).list(_DROPPED):
            if entry.is_folder and _DROPPED_NAME.fullmatch(entry.name):
                shutil.rmtree(resolve("remove", target, f"{_DROPPED}/{entry.name}"))


class Mirror:
    """A mirrored Delta table.

    The table properties contain the path and the ETag of the table's folder in the landing zone, and the key columns.
    If replication of the table is stopped, the properties also contain the reason.
    """

    def __init__(self, place: Path, delta: DeltaTable) -> None:
        self.place, self._delta = place, delta

    @property
    def folder(self) -> str:
        return self._properties[_FOLDER]

    @property
    def etag(self) -> str:
        return self._properties[_ETAG]

    @property
    def keys(self) -> tuple[str, ...]:
        """Key columns, which never change after they are set. Empty if they are not set."""
        return tuple(json.loads(self._properties.get(_KEYS, "[]")))

    @property
    def stopped(self) -> str | None:
        """Reason why replication of the table is stopped, or None if replication is not stopped.
        Replication starts again after the table's folder is created again."""
        return self._properties.get(_STOPPED)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(self._delta.schema().to_arrow())

    def set_keys(self, keys: Sequence[str]) -> None:
        self._set(_KEYS, json.dumps(list(keys)))

    def stop(self, reason: str) -> None:
        self._set(_STOPPED, reason)

    def applied(self) -> int:
        """Return the highest number of an applied file. Every file with a lower number is applied too.

        Returns 0 if no file is applied, or if files are applied in the order of their modification times.
        """
        with _delta_errors(self.place):
            return self._delta.transaction_version(self._app()) or 0

    def processed(self, names: Iterable[str]) -> frozenset[str]:
        applied = self.applied()
        with _delta_errors(self.place):
            return frozenset(
                name
                for name in names
                if 0 < number_of(name) <= applied or self._delta.transaction_version(self._app(name)) is not None
            )

    def add_columns(self, fields: Sequence[pa.Field]) -> None:
        """Add columns to the table in a separate commit."""
        with _delta_errors(self.place):
            self._delta.alter.add_columns([Field.from_arrow(field) for field in fields])

    def read_columns(self, columns: Sequence[str]) -> pa.Table:
        """Return `columns` of all rows of the table. Value n of `Change.remaining` belongs to row n of the result."""
        with _delta_errors(self.place):
            dataset = self._delta.to_pyarrow_dataset(filesystem=arrow_files(self.place.absolute()))
            schema = pa.schema([dataset.schema.field(name).with_nullable(True) for name in columns])
            parts = [part.to_table(schema=dataset.schema, columns=list(columns)) for part in dataset.get_fragments()]
            return pa.concat_tables([schema.empty_table(), *(part.cast(schema) for part in parts)])

    def apply(self, change: Change, name: str, by_time: bool) -> None:
        """Commit the change that the file `name` makes, and record in the same commit that the file is applied.

        Records the number of the file or, with `by_time`, the name. A change that removes rows overwrites the whole
        table.
        """
        mark = Transaction(self._app(name), 1) if by_time else Transaction(self._app(), number_of(name))
        with _delta_errors(self.place):
            write_deltalake(
                self._delta,
                self._remaining_and_added(change) if change.removes else change.added,
                mode="overwrite" if change.removes else "append",
                commit_properties=CommitProperties(app_transactions=[mark], custom_metadata={f"{_PREFIX}.file": name}),
            )

    def _remaining_and_added(self, change: Change) -> pa.RecordBatchReader:
        dataset = self._delta.to_pyarrow_dataset(filesystem=arrow_files(self.place.absolute()))

        def batches() -> Iterator[pa.RecordBatch]:
            start = 0
            for part in dataset.get_fragments():
                table = part.to_table(schema=dataset.schema)
                remaining = change.remaining.slice(start, table.num_rows)
                start += table.num_rows
                yield from table.filter(remaining).to_batches()
            yield from change.added.cast(dataset.schema).to_batches()

        return pa.RecordBatchReader.from_batches(dataset.schema, batches())

    def _app(self, name: str | None = None) -> str:
        return "/".join([_PREFIX, self.etag, *([name] if name else [])])

    @property
    def _properties(self) -> Mapping[str, str]:
        return self._delta.metadata().configuration

    def _set(self, name: str, value: str) -> None:
        with _delta_errors(self.place):
            self._delta.alter.set_table_properties({name: value}, raise_if_not_exists=False)


def check_values(schema: pa.Schema, rows: pa.Table, address: str) -> None:
    """Check that a table with `schema` can store `rows`. `rows` has the rows of the file at `address`, except deletes.

    Raises `file_breaks_rule` for NULL in a non-nullable column, and `year_out_of_range` for a date outside the years 1
    to 9999.
    """
    for field in schema:
        if not field.nullable and (count := rows[field.name].null_count):
            raise file_breaks_rule(finding=NULL_VALUE.finding(address, column=field.name, count=count))
        if pa.types.is_date32(field.type):
            days = pc.min_max(rows[field.name].cast(pa.int32())).as_py()
            if days["min"] is not None and not _FIRST_DAY <= days["min"] <= days["max"] <= _LAST_DAY:
                raise year_out_of_range(address=address, column=field.name)


def _address(place: Path) -> str:
    address = str(place.absolute())
    if _ENCODES_PATHS and (match := _ENCODED.search(address)):
        raise path_not_supported(version=deltalake.__version__, place=address, character=match[0])
    return address


@contextmanager
def _delta_errors(place: Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        is_of_engine = isinstance(error, DeltaError | pa.ArrowException | OSError)
        if not is_of_engine and type(error) is not Exception:  # deltalake 1.1 raises plain exceptions
            raise
        raise mirror_unavailable(place=str(place), reason=first_line(str(error) or type(error).__name__)) from error
