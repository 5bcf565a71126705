"""Compare the rows of a source with those of its mirror, by key if there are keys.

Rows stay in Spark. Only counts and the first differences are collected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from unicodedata import normalize

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import NullType, StructType

from mirrorfeed.display.rows import Row, counted, row, shown
from mirrorfeed.mirror.errors import MirrorColumns
from mirrorfeed.mirror.verify.expected_rows import NESTED, column_fault, comparable_columns, key_columns
from mirrorfeed.source.identifier import quote

SHOWN = 5
_AROUND = 8
"""Number of bytes to show before and after the first difference of two texts that look alike."""


@row
class Difference(Row):
    """A difference between source and mirror: a single value, or a whole row."""

    key: str = shown("key")
    column: str = shown("column", lambda name: name or "(whole row)")
    """Name of the column. Empty if only one side has the row."""
    source: str | None = shown("source")
    mirror: str | None = shown("mirror")

    def __str__(self) -> str:
        if not self.column:
            return f"{self.key}: {self.source} in the source, {self.mirror} in the mirror"
        return (
            f"{self.key}: {self.column} is {_quoted(self.source)} in the source, {_quoted(self.mirror)} in the mirror"
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    table: str
    version: int
    source_rows: int
    mirror_rows: int
    differing: int
    """Number of keys that differ, or of distinct rows of a table without keys."""
    first: tuple[Difference, ...] = ()
    of_now: bool = False
    """True if the source has no versions. It was compared in its current state, so changes since its publication
    differ."""

    def __str__(self) -> str:
        where = "to the source as it is now" if self.of_now else f"at version {self.version}"
        if self.equal:
            return f"equal {where}, {counted(self.source_rows, 'row')}"
        where = "from the source as it is now" if self.of_now else where
        return (
            f"DIFFERENT {where}: {counted(self.source_rows, 'row')} in the source,"
            f" {self.mirror_rows:,} in the mirror, {self.differing:,} of them differ"
        )

    @property
    def equal(self) -> bool:
        return self.differing == 0 and self.source_rows == self.mirror_rows


def compare_rows(
    source: str,
    version: int,
    expected: DataFrame,
    mirror: str,
    found: DataFrame,
    keys: Sequence[str],
    shown: int = SHOWN,
    *,
    as_text: bool = False,
) -> Comparison:
    names, left, right = _sides(source, expected, mirror, found, as_text=as_text)
    table = _by_key(left, right, names, keys) if keys else _by_row(left, right, names)
    # A second pass is needed only if there are differences to show.
    counts = table.agg(F.sum("__n_source__"), F.sum("__n_mirror__"), F.count_if("__differs__")).first()
    assert counts is not None
    source_rows, mirror_rows, differing = (int(value or 0) for value in counts)
    first = _first(table, [name for name in names if name not in keys], keys or names, shown) if differing else ()
    return Comparison(source, version, source_rows, mirror_rows, differing, first)


IN_SOURCE, IN_MIRROR = "__n_source__", "__n_mirror__"


def differing_keys(
    source: str,
    expected: DataFrame,
    mirror: str,
    found: DataFrame,
    keys: Sequence[str],
    where: str | None = None,
    *,
    as_text: bool = False,
) -> DataFrame:
    """Return the keys whose rows differ, or that have a row on either side that matches `where`.

    The keys have the types of the mirror. `IN_SOURCE` and `IN_MIRROR` contain the number of rows on each side. A part
    of a key that cannot be parsed is NULL.
    """
    names, left, right = _sides(source, expected, mirror, found, as_text=as_text, keys=keys, where=where)
    extra = {f"__key_{i}__": F.first(f"__key_{i}__", ignorenulls=True) for i in range(len(keys))}
    if where is not None:
        extra["__wanted__"] = F.max("__wanted__")
    table = _by_key(left, right, names, keys, extra).where("__differs__" if where is None else "__wanted__")
    return table.select(
        *(F.col(f"__key_{i}__").alias(name) for i, name in enumerate(keys)), F.col(IN_SOURCE), F.col(IN_MIRROR)
    )


def _sides(
    source: str,
    expected: DataFrame,
    mirror: str,
    found: DataFrame,
    *,
    as_text: bool,
    keys: Sequence[str] = (),
    where: str | None = None,
) -> tuple[list[str], DataFrame, DataFrame]:
    """Return the names of the compared columns, and the rows of both sides with these columns in one form.

    With `keys` and `where`, the rows also contain the keys as values, and whether the row matches the condition.
    """
    # A column without a type has no values, so the mirror does not have it.
    wanted = StructType([field for field in expected.schema if not isinstance(field.dataType, NullType)])
    faults = [fault for field in wanted if (fault := column_fault(field, found.schema, as_text=as_text))]
    if faults:
        raise MirrorColumns(table=source, path=mirror, faults=faults)
    types = {field.name: field.dataType for field in found.schema}
    columns = {field.name: comparable_columns(field, types[field.name]) for field in wanted}
    values = [key_columns(field, types[field.name]) for name in keys for field in wanted if field.name == name]
    fulfils = [] if where is None else [F.coalesce(F.expr(where), F.lit(False)).alias("__wanted__")]

    def side(rows: DataFrame, at: int) -> DataFrame:
        compared = [pair[at].alias(name) for name, pair in columns.items()]
        return rows.select(*compared, *(pair[at].alias(f"__key_{i}__") for i, pair in enumerate(values)), *fulfils)

    return [field.name for field in wanted], side(expected, 0), side(found, 1)


def _by_key(
    left: DataFrame,
    right: DataFrame,
    names: Sequence[str],
    keys: Sequence[str],
    extra: Mapping[str, Column] = MappingProxyType({}),
) -> DataFrame:
    """Join both sides by key. `extra` contains aggregates of other columns of both sides."""
    rows = _tagged(left, names, 1, [*extra]).unionAll(_tagged(right, names, 0, [*extra]))
    grouped = rows.groupBy(*(_of_row(key) for key in keys)).agg(
        *_counts(),
        *(made.alias(name) for name, made in extra.items()),
        F.first(F.when(F.col("__side__") == 1, F.col("__row__")), ignorenulls=True).alias("__s__"),
        F.first(F.when(F.col("__side__") == 0, F.col("__row__")), ignorenulls=True).alias("__m__"),
    )
    once = (F.col("__n_source__") == 1) & (F.col("__n_mirror__") == 1)
    return grouped.withColumn("__differs__", ~(once & F.col("__s__").eqNullSafe(F.col("__m__"))))


def _by_row(left: DataFrame, right: DataFrame, names: Sequence[str]) -> DataFrame:
    rows = _tagged(left, names, 1).unionAll(_tagged(right, names, 0))
    grouped = rows.groupBy("__row__").agg(*_counts())
    rows = grouped.select(*(_of_row(name) for name in names), "__n_source__", "__n_mirror__")
    return rows.withColumn("__differs__", F.col("__n_source__") != F.col("__n_mirror__"))


def _counts() -> list[Column]:
    side = F.col("__side__")
    return [F.sum(side).alias(IN_SOURCE), F.sum(1 - side).alias(IN_MIRROR)]


def _of_row(name: str) -> Column:
    return F.col(f"__row__.{quote(name)}").alias(name)


def _tagged(rows: DataFrame, names: Sequence[str], side: int, extra: Sequence[str] = ()) -> DataFrame:
    """Return each row as one column, with 1 for the source or 0 for the mirror."""
    row = F.struct(*(F.col(quote(name)) for name in names))
    return rows.select(row.alias("__row__"), F.lit(side).alias("__side__"), *extra)


def _first(table: DataFrame, columns: Sequence[str], keys: Sequence[str], shown: int) -> tuple[Difference, ...]:
    wrong = table.where("__differs__")
    key = F.concat_ws(", ", *(F.concat(F.lit(f"{name} = "), _key_text(F.col(quote(name)))) for name in keys))
    texts = [key.alias("key"), F.col("__n_source__"), F.col("__n_mirror__")]
    if "__s__" in table.columns:
        texts += [_text(table, side, name).alias(f"{side}{i}") for side in "sm" for i, name in enumerate(columns)]
        texts += [_bytes(side, name).alias(f"{side}{i}b") for side in "sm" for i, name in enumerate(columns)]
        texts += [
            (~F.col(f"__s__.{quote(name)}").eqNullSafe(F.col(f"__m__.{quote(name)}"))).alias(f"d{i}")
            for i, name in enumerate(columns)
        ]
    found: list[Difference] = []
    for each in wrong.select(*texts).orderBy("key").limit(shown).collect():
        if "__s__" not in table.columns or each["__n_source__"] != 1 or each["__n_mirror__"] != 1:
            found.append(Difference(each["key"], "", _times(each["__n_source__"]), _times(each["__n_mirror__"])))
            continue
        found += [
            Difference(
                each["key"], name, *_distinct(*(_Text(each[f"{side}{i}"], each[f"{side}{i}b"]) for side in "sm"))
            )
            for i, name in enumerate(columns)
            if each[f"d{i}"]
        ]
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Text:
    """A value as text, and its bytes, which are not always valid UTF-8."""

    shown: str | None
    data: bytes | None

    def with_bytes(self, around: int) -> str:
        begin, end = max(0, around - _AROUND), around + _AROUND
        assert self.data is not None
        part = self.data[begin:end].hex().upper()
        return f"{self.shown} (bytes {'…' if begin else ''}{part}{'…' if end < len(self.data) else ''})"


def _distinct(source: _Text, mirror: _Text) -> tuple[str | None, str | None]:
    """Return two different values, with the bytes around the first difference if the texts look alike."""
    if source.data is None or mirror.data is None or source.data == mirror.data:
        return source.shown, mirror.shown
    if normalize("NFC", source.shown or "") != normalize("NFC", mirror.shown or ""):
        return source.shown, mirror.shown
    pairs = enumerate(zip(source.data, mirror.data, strict=False))
    at = next((at for at, (one, other) in pairs if one != other), min(len(source.data), len(mirror.data)))
    return source.with_bytes(at), mirror.with_bytes(at)


def _text(table: DataFrame, side: str, name: str) -> Column:
    value = F.col(f"__{side}__.{quote(name)}")
    nested = isinstance(table.select(value).schema[0].dataType, NESTED)
    return F.make_valid_utf8(F.to_json(value, {"ignoreNullFields": "false"}) if nested else value.cast("string"))


def _bytes(side: str, name: str) -> Column:
    """Return the bytes of a value as text. JSON would replace invalid UTF-8."""
    return F.col(f"__{side}__.{quote(name)}").cast("string").cast("binary")


def _key_text(part: Column) -> Column:
    text = part.cast("string")
    with_bytes = F.concat(F.make_valid_utf8(text), F.lit(" (bytes "), F.hex(text), F.lit(")"))
    return F.coalesce(F.when(F.is_valid_utf8(text), text).otherwise(with_bytes), F.lit("NULL"))


def _times(count: int) -> str:
    return {0: "missing", 1: "once"}.get(count, f"{count} times")


def _quoted(value: str | None) -> str:
    return "NULL" if value is None else repr(value)
