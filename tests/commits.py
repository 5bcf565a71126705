"""Commits of a few plain rows without Spark: delta-rs makes them in milliseconds, with their part of the feed."""

from __future__ import annotations

import ast
import re
import time
import uuid
from pathlib import Path

import deltalake
import pyarrow as pa

_LITERAL = r"(?:-?\d+|'[^'\\]*'|NULL)"
_TERM = r"(?:\w+(?![\w'(])|'[^'\\]*'|[-+*%<> ])"
"""A name, a number, a text or a sign that means the same everywhere; no function, and no text with a type."""
_WHERE = rf"(?: WHERE ((?:{_TERM}|[=(),])+))?"
_INSERT = re.compile(rf"INSERT INTO {{}} VALUES (\({_LITERAL}(?:(?:, |\), \(){_LITERAL})*\))")
_UPDATE = re.compile(rf"UPDATE {{}} SET (\w+) = ({_TERM}+?){_WHERE}")
_DELETE = re.compile(rf"DELETE FROM {{}}{_WHERE}")
_SWITCH = re.compile(r"ALTER TABLE {} SET TBLPROPERTIES \((delta\.enableChangeDataFeed) = (true|false)\)")
_ADD = re.compile(r"ALTER TABLE {} ADD COLUMNS? \(?(\w+) int\)?")


def commit(path: Path, statement: str) -> bool:
    """Does what a statement says, where {} is the table; or nothing, where it or the table is not that plain."""
    kinds = (_INSERT, _UPDATE, _DELETE, _SWITCH, _ADD)
    inserted, updated, deleted, switched, added = (kind.fullmatch(statement) for kind in kinds)
    if not (inserted or updated or deleted or switched or added):
        return False
    try:
        table = deltalake.DeltaTable(path)
        before = table.version()
        if inserted:
            schema = pa.schema(table.schema().to_arrow())
            rows = ast.literal_eval(f"[{inserted[1].replace('NULL', 'None')}]")
            values = zip(*(row if isinstance(row, tuple) else (row,) for row in rows), strict=True)
            columns = [pa.array(list(each), field.type) for each, field in zip(values, schema, strict=True)]
            deltalake.write_deltalake(table, pa.table(columns, schema), mode="append")
        elif updated:
            table.update({updated[1]: updated[2]}, predicate=updated[3])
        elif deleted:
            table.delete(deleted[1])
        elif switched:
            table.alter.set_table_properties({switched[1]: switched[2]})
        elif added:
            table.alter.add_columns([deltalake.Field(added[1], "integer")])
        if (version := deltalake.DeltaTable(path).version()) > before:
            made = path / "_delta_log" / f"{version:020d}.json"
            made.write_text(_as_spark_says(made.read_text(encoding="utf-8")), encoding="utf-8")
    except (deltalake.exceptions.DeltaError, pa.ArrowException, TypeError, ValueError):
        return False
    return True


_COUNTS = {"added": "numOutputRows", "updated": "numUpdatedRows", "deleted": "numDeletedRows"}


def _as_spark_says(commit: str) -> str:
    """With Spark's names for what was done and for how many rows it was."""
    commit = commit.replace('"operation":"ADD COLUMN"', '"operation":"ADD COLUMNS"')
    counted = r'"num_(added|updated|deleted)_rows":(\d+)'
    return re.sub(counted, lambda found: f'"{_COUNTS[found[1]]}":"{found[2]}"', commit)


def anew(first: str) -> str:
    """The first commit of a table, for another one that begins now."""
    now = str(time.time_ns() // 1_000_000)
    first = re.sub(r'("(?:timestamp|inCommitTimestamp|createdTime)":)\d+', rf"\g<1>{now}", first)
    return re.sub(r'(?<="metaData":\{"id":")[^"]+', str(uuid.uuid4()), first)
