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
_WHERE = rf"(?: WHERE (\w+ (?:=|<|>|<=|>=) {_LITERAL}))?"
_INSERT = re.compile(rf"INSERT INTO {{}} VALUES (\({_LITERAL}(?:(?:, |\), \(){_LITERAL})*\))")
_UPDATE = re.compile(rf"UPDATE {{}} SET (\w+) = ({_LITERAL}){_WHERE}")
_DELETE = re.compile(rf"DELETE FROM {{}}{_WHERE}")


def commit(path: Path, statement: str) -> bool:
    """Does what a statement says, where {} is the table; or nothing, where it or the table is not that plain."""
    inserted, updated, deleted = (kind.fullmatch(statement) for kind in (_INSERT, _UPDATE, _DELETE))
    if not (inserted or updated or deleted):
        return False
    try:
        table = deltalake.DeltaTable(path)
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
    except (deltalake.exceptions.DeltaError, pa.ArrowException, TypeError, ValueError):
        return False
    return True


def anew(first: str) -> str:
    """The first commit of a table, for another one that begins now."""
    now = str(time.time_ns() // 1_000_000)
    first = re.sub(r'("(?:timestamp|inCommitTimestamp|createdTime)":)\d+', rf"\g<1>{now}", first)
    return re.sub(r'(?<="metaData":\{"id":")[^"]+', str(uuid.uuid4()), first)
