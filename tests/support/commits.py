"""Commits and rows of plain tables without Spark: delta-rs writes and reads them in milliseconds, with their feed."""

from __future__ import annotations

import ast
import json
import re
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa

from tests.support.arrow_rows import rows_with_maps

_LITERAL = r"(?:-?\d+|'[^'\\]*'|NULL)"
_TERM = r"(?:\w+(?![\w'(])|'[^'\\]*'|[-+*%<> ])"
"""A name, a number, a string or an operator with the same meaning in every engine. No functions and no typed
literals."""
_WHERE = rf"(?: WHERE ((?:{_TERM}|[=(),])+))?"
_INSERT = re.compile(rf"INSERT INTO {{}} VALUES (\({_LITERAL}(?:(?:, |\), \(){_LITERAL})*\))")
_SET = rf"(\w+) = ({_TERM}+?)"
_UPDATE = re.compile(rf"UPDATE {{}} SET ({_SET}(?:, {_SET})*){_WHERE}")
_DELETE = re.compile(rf"DELETE FROM {{}}{_WHERE}")
_SWITCH = re.compile(r"ALTER TABLE {} SET TBLPROPERTIES \((delta\.(?:enable\w+Feed|appendOnly)) = (true|false)\)")
_ADD = re.compile(r"ALTER TABLE {} ADD COLUMNS? \(?(\w+) int\)?")
_RESTORE = re.compile(r"RESTORE (?:TABLE )?{} TO VERSION AS OF (\d+)")
_OPTIMIZE = re.compile(r"OPTIMIZE {}")


def commit(path: Path, statement: str) -> bool:
    """Run a statement without Spark; {} is the table. Return False if the statement or the table is not plain."""
    kinds = (_INSERT, _UPDATE, _DELETE, _SWITCH, _ADD, _RESTORE, _OPTIMIZE)
    found = [kind.fullmatch(statement) for kind in kinds]
    if not any(found):
        return False
    inserted, updated, deleted, switched, added, restored, optimized = found
    try:
        table = deltalake.DeltaTable(path)
        before = table.version()
        if inserted:
            schema = pa.schema(table.schema().to_arrow())
            rows = ast.literal_eval(f"[{inserted[1].replace('NULL', 'None')}]")
            values = zip(*(row if isinstance(row, tuple) else (row,) for row in rows), strict=True)
            columns = [pa.array(list(each), field.type) for each, field in zip(values, schema, strict=True)]
            # Newer releases do this by default. PyArrow cannot read pages whose statistics exceed 16 MiB.
            short = deltalake.WriterProperties(statistics_truncate_length=64)
            deltalake.write_deltalake(table, pa.table(columns, schema), mode="append", writer_properties=short)
        elif updated:
            table.update(dict(re.findall(rf"{_SET}(?:, |$)", updated[1])), predicate=updated[updated.re.groups])
        elif deleted:
            table.delete(deleted[1])
        elif switched:
            table.alter.set_table_properties({switched[1]: switched[2]})
        elif added:
            table.alter.add_columns([deltalake.Field(added[1], "integer")])
        elif restored:
            table.restore(int(restored[1]))
        elif optimized:
            table.optimize.compact()
        if (version := deltalake.DeltaTable(path).version()) > before:
            commit_file = path / "_delta_log" / f"{version:020d}.json"
            commit_file.write_text(_as_spark_prints(commit_file.read_text(encoding="utf-8")), encoding="utf-8")
            write_checksum(commit_file)
    except (deltalake.exceptions.DeltaError, pa.ArrowException, TypeError, ValueError):
        return False
    return True


_SAME_EVERYWHERE = {"integer", "long", "double", "string", "boolean"}


def plain_rows(path: Path, version: int | None) -> list[dict[str, Any]] | None:
    """Rows of a table, or None if the table is not plain."""
    try:
        table = deltalake.DeltaTable(path, version=version)
        types = set(_types_in(json.loads(table.schema().to_json())))
        if table.protocol().min_reader_version == 1 and types <= _SAME_EVERYWHERE:
            return rows_with_maps(table.to_pyarrow_table())
    except (deltalake.exceptions.DeltaError, pa.ArrowException, OSError, ValueError):
        pass
    return None


def _types_in(type_: Any) -> Iterator[str]:
    """Primitive types in a schema, including nested ones."""
    if isinstance(type_, str):
        yield type_
        return
    inner = [field["type"] for field in type_.get("fields", ())]
    for each in [*inner, *(type_[name] for name in ("elementType", "keyType", "valueType") if name in type_)]:
        yield from _types_in(each)


_COUNTS = {"added": "numOutputRows", "updated": "numUpdatedRows", "deleted": "numDeletedRows"}


def _as_spark_prints(commit: str) -> str:
    """Use Spark's names for operations and row counts."""
    commit = commit.replace('"operation":"ADD COLUMN"', '"operation":"ADD COLUMNS"')
    counted = r'"num_(added|updated|deleted)_rows":(\d+)'
    return re.sub(counted, lambda found: f'"{_COUNTS[found[1]]}":"{found[2]}"', commit)


def write_checksum(commit_file: Path) -> None:
    """Write the state of the table next to a commit, as Spark does. It saves readers a query."""
    files: dict[str, int] = {}
    actions: dict[str, Any] = {}
    transactions: dict[str, Any] = {}
    for version in range(int(commit_file.stem) + 1):
        commit = commit_file.with_name(f"{version:020d}.json")
        if not commit.exists():
            return
        for line in commit.read_text(encoding="utf-8").splitlines():
            ((kind, action),) = json.loads(line).items()
            if kind == "domainMetadata":
                return
            actions[kind] = action
            if kind == "txn":
                transactions[action["appId"]] = action
            elif kind == "add":
                files[action["path"]] = action["size"]
            elif kind == "remove":
                files.pop(action["path"], None)
    state = {"tableSizeBytes": sum(files.values()), "numFiles": len(files), "numMetadata": 1, "numProtocol": 1}
    state |= {"setTransactions": [*transactions.values()], "domainMetadata": []}
    state |= {"metadata": actions["metaData"], "protocol": actions["protocol"]}
    commit_file.with_suffix(".crc").write_text(json.dumps(state), encoding="utf-8")


def with_new_identity(first: str) -> str:
    """Return the first commit of a table with the identity of a new table."""
    now = str(time.time_ns() // 1_000_000)
    first = re.sub(r'("(?:timestamp|inCommitTimestamp|createdTime)":)\d+', rf"\g<1>{now}", first)
    return re.sub(r'(?<="metaData":\{"id":")[^"]+', str(uuid.uuid4()), first)
