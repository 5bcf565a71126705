"""The files that remain after comparisons with partition values and statistics, as Delta would keep them. Pure.

Decides only comparisons that must all hold, of integer, date and text columns with constants. As in Delta, a file is
kept unless its partition or statistics rule out a match, or if a statistic is missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import reduce
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

Sign = Literal["=", "<", "<=", ">", ">=", "is there"]
TYPES: Mapping[str, pa.DataType] = {
    **dict.fromkeys(("byte", "short", "integer", "long"), pa.int64()),
    "date": pa.date32(),
    "string": pa.string(),
}
"""Types by their names in the log, for which values compare as in Delta."""
_UNDERSTOOD = {"comment", "delta.columnMapping.id", "delta.columnMapping.physicalName", "delta.generationExpression"}
"""Column metadata that does not change comparisons, unlike collations, padded text and widened types."""
_INDEXED = 32
"""Leading columns for which Delta collects statistics, unless a table property sets other ones."""
_OTHERS = ("delta.dataSkippingNumIndexedCols", "delta.dataSkippingStatsColumns")


@dataclass(frozen=True, slots=True)
class Comparison:
    column: str
    """The name in the query."""
    sign: Sign
    value: int | str | date | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """A comparison with the column name and type of the log."""

    name: str
    type: pa.DataType
    sign: Sign
    value: int | str | date | None


@dataclass(frozen=True, slots=True)
class Rules:
    partitions: tuple[Rule, ...]
    statistics: tuple[Rule, ...]


class Doubt(Exception):
    """The result might differ from Delta's, so Delta decides."""


def rules(asked: Sequence[Comparison], schema: str, partitions: Sequence[str], properties: Mapping[str, str]) -> Rules:
    """The rules for comparisons on a table. Raises `Doubt`."""
    before, fields = 0, {}
    for field in json.loads(schema)["fields"]:
        fields[field["name"].lower()] = (field, before)
        before += _leaves(field["type"])
    of_partitions = {name.lower() for name in partitions}
    found: tuple[list[Rule], list[Rule]] = [], []
    for each in asked:
        field, place = fields.get(each.column.lower(), ({}, 0))
        type_ = TYPES.get(field["type"]) if field and isinstance(field["type"], str) else None
        if type_ is None or not set(field["metadata"]) <= _UNDERSTOOD:
            raise Doubt(each.column)
        is_partition = field["name"].lower() in of_partitions
        if not is_partition and (place >= _INDEXED or any(name in properties for name in _OTHERS)):
            raise Doubt(each.column)
        name = str(field["metadata"].get("delta.columnMapping.physicalName", field["name"]))
        found[not is_partition].append(Rule(name, type_, each.sign, each.value))
    return Rules(*map(tuple, found))


def _leaves(type_: Any) -> int:
    """The number of leaf columns of a type."""
    if isinstance(type_, dict) and type_["type"] == "struct":
        return sum(_leaves(field["type"]) for field in type_["fields"])
    return 1


def kept(asked: Rules, partition: Callable[[str], pa.Array], stats: pa.Array) -> pa.Array:
    """Whether each file is kept. `partition` returns the values of a partition column as in the log."""
    found = [pc.fill_null(_holds(rule, _of(partition(rule.name), rule)), False) for rule in asked.partitions]
    if asked.statistics:
        found.append(_by_statistics(asked.statistics, stats))
    return reduce(pc.and_, found, pa.array([True] * len(stats)) if not found else found[0])


def _of(spelled: pa.Array, rule: Rule) -> pa.Array:
    if pc.any(pc.equal(spelled, "")).as_py():
        raise Doubt(f"{rule.name} is '' or NULL")
    return spelled.cast(rule.type)


_SIGNS = {"=": "equal", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}


def _holds(rule: Rule, values: pa.Array) -> pa.Array:
    if rule.sign == "is there":
        return pc.is_valid(values)
    return pc.call_function(_SIGNS[rule.sign], [values, pa.scalar(rule.value, rule.type)])


def _by_statistics(asked: Sequence[Rule], stats: pa.Array) -> pa.Array:
    """False if the statistics rule out a match, by three-valued logic. A missing statistic keeps the file."""
    table = _parsed(asked, stats)
    holds, known = [], []
    number = table["numRecords"]
    for rule in asked:
        nulls = table["nullCount"][rule.name]
        known += [pc.is_valid(number), pc.is_valid(nulls)]
        if rule.sign == "is there":
            holds.append(pc.less(nulls, number))
            continue
        ends = {"=": "<>", "<": "<", "<=": "<", ">": ">", ">=": ">"}[rule.sign]
        only_nulls = pc.equal(nulls, number)
        for end, kind in (("<", "minValues"), (">", "maxValues")):
            if end not in ends:
                continue
            values = table[kind][rule.name]
            sign = f"{end}=" if rule.sign == "=" else rule.sign
            holds.append(pc.call_function(_SIGNS[sign], [values, pa.scalar(rule.value, rule.type)]))
            known.append(pc.or_kleene(pc.is_valid(values), only_nulls))
    all_hold = reduce(pc.and_kleene, holds)
    all_known = reduce(pc.and_kleene, known)
    stays = pc.or_kleene(all_hold, pc.invert(all_known))
    return pc.fill_null(stays, False)


def _parsed(asked: Sequence[Rule], stats: pa.Array) -> Mapping[str, Any]:
    """The statistics of the compared columns."""
    types = {rule.name: rule.type for rule in asked}
    ends = pa.struct([(name, pa.string() if type_ == pa.date32() else type_) for name, type_ in types.items()])
    counts = pa.struct([(name, pa.int64()) for name in types])
    schema = pa.schema({"numRecords": pa.int64(), "nullCount": counts, "minValues": ends, "maxValues": ends})
    given = pc.fill_null(stats, "{}")
    if pc.any(pc.or_(pc.match_substring(given, "\n"), pc.invert(pc.starts_with(given, "{")))).as_py():
        raise Doubt("statistics that are not one line each")
    lines = pc.binary_join_element_wise(given, pa.scalar("\n", given.type), pa.scalar("", given.type))
    read = pj.read_json(
        pa.BufferReader(_bytes_of(lines)),
        parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    ).combine_chunks()
    if len(read) != len(stats):
        raise Doubt("statistics that are not one object each")
    return {"numRecords": in_one(read["numRecords"])} | {
        kind: {
            name: in_one(pc.struct_field(read[kind], name)).cast(types[name] if "V" in kind else pa.int64())
            for name in types
        }
        for kind in ("nullCount", "minValues", "maxValues")
    }


def in_one(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array, copied only if it has several chunks."""
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays([pa.nulls(0, column.type), *column.chunks])


def _bytes_of(texts: pa.Array) -> pa.Buffer:
    """The concatenated texts, without a copy."""
    width = pa.int64() if pa.types.is_large_string(texts.type) else pa.int32()
    _, offsets, data = texts.buffers()
    ends = pa.Array.from_buffers(width, len(texts) + 1, [None, offsets], offset=texts.offset)
    start, end = ends[0].as_py(), ends[len(texts)].as_py()
    return data.slice(start, end - start)
