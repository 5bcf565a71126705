"""Compare a source with its mirror: the rows of each key or, in a table without keys, how often each row occurs.

Spark compares the rows. The driver collects only counts and the first differences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import takewhile
from operator import and_
from unicodedata import normalize

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from mirrorfeed.display.rows import Row, counted, row, shown
from mirrorfeed.mirror.verify.expected_rows import NESTED, comparable_columns, key_columns
from mirrorfeed.source.identifier import quote

SHOWN = 5
IN_SOURCE, IN_MIRROR = "__n_source__", "__n_mirror__"
"""Names of the columns with the number of rows of a key in the source and in the mirror."""
_BYTES_AROUND = 8
"""Number of bytes to show before and after the first difference of two texts that look alike."""


@row
class Difference(Row):
    """A difference between source and mirror: in the value of a column, or in how often a whole row occurs."""

    key: str = shown("key")
    column: str = shown("column", lambda name: name or "(whole row)")
    """Name of the column. If it is empty, `source` and `mirror` show how often the whole row occurs."""
    source: str | None = shown("source")
    mirror: str | None = shown("mirror")

    def __str__(self) -> str:
        if not self.column:
            return f"{self.key}: {self.source} in the source, {self.mirror} in the mirror"
        return (
            f"{self.key}: {self.column} is {_quoted(self.source)} in the source, {_quoted(self.mirror)} in the mirror"
        )


@dataclass(frozen=True, slots=True)
class RowComparison:
    version: int
    source_rows: int
    mirror_rows: int
    differing: int
    """Number of keys, or of distinct rows in a table without keys, that differ between source and mirror."""
    first: tuple[Difference, ...] = ()
    """First differences, sorted by the text of the key."""
    has_no_versions: bool = False
    """True if the source has no versions. Source changes since the publication then count as differences."""
    marked: int = 0
    """Number of mirror rows that are marked as deleted and not in the source. They are not in `mirror_rows`."""
    earlier_versions: int = 0
    """With `delivery: append`: number of earlier versions that are also equal."""
    since: int | None = None
    """Verified version since which changed keys were compared. All rows were counted. None if all rows were compared.
    """
    compared_keys: int | None = None
    """With `since`: number of compared keys. None if unknown."""
    uncompared_rows: int = 0
    """With `since`: number of rows that only the source has, minus those that only the mirror has, outside the compared
    keys. If it is not 0, other rows differ than those that changed."""

    def __str__(self) -> str:
        at_version = f"at version {self.version}"
        if self.since is not None:
            return self._changes_in_words(at_version)
        if self.equal:
            target = "to the source as it is now" if self.has_no_versions else at_version
            marked = f", {counted(self.marked, 'deleted row')} marked" if self.marked else ""
            earlier = f", also at {counted(self.earlier_versions, 'earlier version')}" if self.earlier_versions else ""
            return f"equal {target}, {counted(self.source_rows, 'row')}{marked}{earlier}"
        origin = "from the source as it is now" if self.has_no_versions else at_version
        return (
            f"DIFFERENT {origin}: {counted(self.source_rows, 'row')} in the source,"
            f" {self.mirror_rows:,} in the mirror, {self.differing:,} of them differ"
        )

    def _changes_in_words(self, at_version: str) -> str:
        keys = "changed keys" if self.compared_keys is None else counted(self.compared_keys, "key")
        compared = f"{keys} since version {self.since} compared"
        if self.equal:
            return f"equal {at_version}: {compared}, {counted(self.source_rows, 'row')} counted"
        return (
            f"DIFFERENT {at_version}: {compared}, {self.differing:,} of them differ;"
            f" {counted(self.source_rows, 'row')} counted in the source, {self.mirror_rows:,} in the mirror"
        )

    @property
    def equal(self) -> bool:
        return self.differing == 0 and self.source_rows == self.mirror_rows


def compare_rows(
    version: int,
    expected: DataFrame,
    actual: DataFrame,
    keys: Sequence[str],
    shown: int = SHOWN,
    mark: str | None = None,
    wanted: DataFrame | None = None,
) -> RowComparison:
    """Compare the rows of a source (`expected`) with the rows of its mirror (`actual`), and return the comparison.

    `version` is the version of the source. `actual` must have all columns of `expected`. The comparison lists the
    differences of at most `shown` keys or, if `keys` is empty, at most `shown` rows that differ. `mark` is the
    column that is true for deleted rows of the mirror. Such a row must not be in the source. With `wanted`, which has
    the columns `keys`, compares only the rows with these keys."""
    names, rows = expected.columns, _both_sides(expected, actual, wanted=wanted)
    table = _compare_by_key(rows, keys, mark) if keys else _compare_by_row(rows, names)
    # A second pass is needed only if there are differences to show.
    counts = table.agg(
        F.sum(IN_SOURCE),
        F.sum(IN_MIRROR),
        F.count_if("__differs__"),
        F.count_if("__marked__" if mark else F.lit(False)),
    ).first()
    assert counts is not None
    source_rows, mirror_rows, differing, marked = (int(value or 0) for value in counts)
    columns = [name for name in names if name not in keys] if keys else []
    first = _first_differences(table, keys or names, columns, shown) if differing else ()
    return RowComparison(version, source_rows, mirror_rows - marked, differing, first, marked=marked)


def differing_keys(
    expected: DataFrame, actual: DataFrame, keys: Sequence[str], where: str | None = None, mark: str | None = None
) -> DataFrame:
    """Return each key whose rows differ between source (`expected`) and mirror (`actual`).

    If `where` is set, returns all keys with a source or mirror row for which the SQL condition `where` is true, even if
    no rows differ. Each key column has the type of this column in a mirror that gets Parquet files. If the type in
    `actual` is different, such as text, the keys are converted. A value that cannot be converted becomes NULL. The
    columns `IN_SOURCE` and `IN_MIRROR` have the number of rows with the key. `actual` must have all columns of
    `expected`. Leaves out keys that are not in the source, and whose row in the mirror is marked by the column `mark`.
    """
    rows = _both_sides(expected, actual, keys, where)
    compared = _compare_by_key(rows, keys, mark, *(F.max(name).alias(name) for name in ("__key__", "__wanted__")))
    if mark:  # published again, it would lose its last values
        compared = compared.where("NOT __marked__")
    return compared.where("__differs__" if where is None else "__wanted__").select("__key__.*", IN_SOURCE, IN_MIRROR)


def with_keys(rows: DataFrame, wanted: DataFrame, pairs: Sequence[tuple[Column, Column]]) -> DataFrame:
    """Return the rows whose keys `wanted` has. `pairs` has the column of `rows` and the column of `wanted` of each key
    column, converted so that equal values are equal. NULL equals NULL."""
    names = [f"__k{at}__" for at in range(len(pairs))]
    these = wanted.select(*(of_wanted.alias(name) for name, (_, of_wanted) in zip(names, pairs, strict=True)))
    has_key = reduce(and_, (of_rows.eqNullSafe(F.col(name)) for name, (of_rows, _) in zip(names, pairs, strict=True)))
    return rows.join(these, has_key, "left_semi")


def _both_sides(
    expected: DataFrame,
    actual: DataFrame,
    keys: Sequence[str] = (),
    where: str | None = None,
    wanted: DataFrame | None = None,
) -> DataFrame:
    """Return the rows of source and mirror in one DataFrame.

    `__row__` has all values of a row, converted with `comparable_columns`. `__side__` is 1 for the source and 0 for the
    mirror. `__key__` has the values of the columns `keys`. `__wanted__` is true in rows that match `where`. With
    `wanted`, the result has only the rows whose keys `wanted` has.
    """
    types = {field.name: field.dataType for field in actual.schema}
    columns = {field.name: comparable_columns(field, types[field.name]) for field in expected.schema}
    key_values = {name: key_columns(expected.schema[name], types[name]) for name in keys}
    matches = F.coalesce(F.expr("false" if where is None else where), F.lit(False)).alias("__wanted__")

    def side(rows: DataFrame, index: int) -> DataFrame:
        row, key = (
            F.struct(*(pair[index].alias(name) for name, pair in pairs.items())) for pairs in (columns, key_values)
        )
        each = rows.select(row.alias("__row__"), key.alias("__key__"), F.lit(1 - index).alias("__side__"), matches)
        if wanted is None:
            return each
        return with_keys(each, wanted, [(F.col(f"__row__.{quote(name)}"), columns[name][0]) for name in wanted.columns])

    return side(expected, 0).unionAll(side(actual, 1))


def _compare_by_key(rows: DataFrame, keys: Sequence[str], mark: str | None, *more: Column) -> DataFrame:
    """Return one row for each key in `rows`. `rows` is the result of `_both_sides`.

    `IN_SOURCE` and `IN_MIRROR` have the number of rows with the key in the source and in the mirror. `__s__` is a
    source row with the key, and `__m__` a mirror row. `__differs__` is false only if source and mirror have one row
    each, and both rows are equal. `more` adds columns. With `mark`, `__marked__` is true for a key with one row in the
    mirror, in which the column `mark` is true, and none in the source. Then `__differs__` is false, too.
    """
    source, mirror = (F.when(F.col("__side__") == side, F.col("__row__")) for side in (1, 0))
    grouped = rows.groupBy(*map(_row_field, keys)).agg(
        *_counts(),
        F.first(source, ignorenulls=True).alias("__s__"),
        F.first(mirror, ignorenulls=True).alias("__m__"),
        *more,
    )
    once = (F.col(IN_SOURCE) == 1) & (F.col(IN_MIRROR) == 1)
    differs = ~(once & F.col("__s__").eqNullSafe(F.col("__m__")))
    if mark is None:
        return grouped.withColumn("__differs__", differs)
    is_marked = F.col(f"__m__.{quote(mark)}").eqNullSafe(F.lit(True))
    marked = (F.col(IN_SOURCE) == 0) & (F.col(IN_MIRROR) == 1) & is_marked
    return grouped.withColumn("__marked__", marked).withColumn("__differs__", differs & ~F.col("__marked__"))


def _compare_by_row(rows: DataFrame, names: Sequence[str]) -> DataFrame:
    grouped = rows.groupBy("__row__").agg(*_counts())
    counted_rows = grouped.select(*(_row_field(name) for name in names), IN_SOURCE, IN_MIRROR)
    return counted_rows.withColumn("__differs__", F.col(IN_SOURCE) != F.col(IN_MIRROR))


def _counts() -> list[Column]:
    side = F.col("__side__")
    return [F.sum(side).alias(IN_SOURCE), F.sum(1 - side).alias(IN_MIRROR)]


def _row_field(name: str) -> Column:
    return F.col(f"__row__.{quote(name)}").alias(name)


def _first_differences(
    table: DataFrame, keys: Sequence[str], columns: Sequence[str], shown: int
) -> tuple[Difference, ...]:
    """Return the differences for the first `shown` rows of `table` in which `__differs__` is true.

    `table` is the result of `_compare_by_key` or `_compare_by_row`. For `_compare_by_row`, pass all columns as `keys`
    and an empty list as `columns`. If a key has one row in the source and one in the mirror, returns a difference for
    each of `columns` whose values differ. Otherwise, returns one difference with the number of rows on each side."""
    values = {name: _as_text(table, F.col(quote(name))) for name in keys}
    key = F.concat_ws(", ", *(F.concat(F.lit(f"{name} = "), _key_text(value)) for name, value in values.items()))
    texts = [key.alias("key"), F.col(IN_SOURCE), F.col(IN_MIRROR)]
    for i, name in enumerate(columns):
        source, mirror = (F.col(f"__{side}__.{quote(name)}") for side in "sm")
        texts += [_text_and_bytes(table, source).alias(f"s{i}"), _text_and_bytes(table, mirror).alias(f"m{i}")]
        texts.append((~source.eqNullSafe(mirror)).alias(f"d{i}"))
    differences: list[Difference] = []
    for each in table.where("__differs__").select(*texts).orderBy("key").limit(shown).collect():
        if each[IN_SOURCE] != 1 or each[IN_MIRROR] != 1:
            differences.append(Difference(each["key"], "", _times(each[IN_SOURCE]), _times(each[IN_MIRROR])))
            continue
        differences += [
            Difference(each["key"], name, *_distinct_texts(*each[f"s{i}"], *each[f"m{i}"]))
            for i, name in enumerate(columns)
            if each[f"d{i}"]
        ]
    return tuple(differences)


def _text_and_bytes(table: DataFrame, value: Column) -> Column:
    """Return a struct: `value` as valid UTF-8 text (JSON if nested), and the bytes of `_as_text(value)`."""
    text = _as_text(table, value)
    if _is_nested(table, value):
        json = F.to_json(value["value"], {"ignoreNullFields": "false"})
        return F.struct(F.make_valid_utf8(F.coalesce(value["text"], json)), text.cast("binary"))
    return F.struct(F.make_valid_utf8(text), text.cast("binary"))


def _as_text(table: DataFrame, value: Column) -> Column:
    """Return a result of `comparable_columns` as text."""
    if _is_nested(table, value):
        return F.coalesce(value["text"], value["value"].cast("string"))
    return value.cast("string")


def _is_nested(table: DataFrame, value: Column) -> bool:
    return isinstance(table.select(value).schema[0].dataType, NESTED)


def _distinct_texts(
    source: str | None, source_bytes: bytes | None, mirror: str | None, mirror_bytes: bytes | None
) -> tuple[str | None, str | None]:
    """Return the texts of two different values, with the bytes around the first difference if the texts look alike."""
    look_alike = normalize("NFC", source or "") == normalize("NFC", mirror or "")
    if source_bytes is None or mirror_bytes is None or source_bytes == mirror_bytes or not look_alike:
        return source, mirror
    equal = takewhile(lambda pair: pair[0] == pair[1], zip(source_bytes, mirror_bytes, strict=False))
    index = sum(1 for _ in equal)
    return _with_bytes(source, source_bytes, index), _with_bytes(mirror, mirror_bytes, index)


def _with_bytes(text: str | None, data: bytes, index: int) -> str:
    """Return `text`, followed by bytes as hexadecimal digits: the bytes around position `index` in `data`."""
    start, end = max(0, index - _BYTES_AROUND), index + _BYTES_AROUND
    part = data[start:end].hex().upper()
    return f"{text} (bytes {'…' if start else ''}{part}{'…' if end < len(data) else ''})"


def _key_text(text: Column) -> Column:
    with_bytes = F.concat(F.make_valid_utf8(text), F.lit(" (bytes "), F.hex(text), F.lit(")"))
    return F.coalesce(F.when(F.is_valid_utf8(text), text).otherwise(with_bytes), F.lit("NULL"))


def _times(count: int) -> str:
    return {0: "missing", 1: "once"}.get(count, f"{count} times")


def _quoted(value: str | None) -> str:
    return "NULL" if value is None else repr(value)
