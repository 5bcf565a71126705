"""A source at a version against its mirror, row for row. Shares no code with the translation that it judges.

Nested columns are JSON text in the mirror: they are parsed back and compared by value, and so are the values of a table
that is published as text. Rows stay in Spark; only the counts and the first differences come back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    DayTimeIntervalType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
    YearMonthIntervalType,
)

from mirrorfeed.errors import Terminal, Transient
from mirrorfeed.feed.source import Source, quote
from mirrorfeed.landing.log import Record
from mirrorfeed.landing.names import Target
from mirrorfeed.landing.output import PARQUET

_SHOWN = 5
_NESTED = (ArrayType, MapType, StructType, VariantType)


@dataclass(frozen=True, slots=True)
class Difference:
    """One value, or a whole row, that is not the same on both sides."""

    key: str
    column: str
    source: str | None
    mirror: str | None

    def __str__(self) -> str:
        if not self.column:
            return f"{self.key}: {self.source} in the source, {self.mirror} in the mirror"
        return f"{self.key}: {self.column} is {_spell(self.source)} in the source, {_spell(self.mirror)} in the mirror"


@dataclass(frozen=True, slots=True)
class Comparison:
    table: str
    version: int
    source_rows: int
    mirror_rows: int
    differing: int
    """Keys, or distinct rows of a table without keys, that are not the same on both sides."""
    first: tuple[Difference, ...] = ()

    def __str__(self) -> str:
        if self.equal:
            return f"equal at version {self.version}, {self.source_rows:,} rows"
        return (
            f"DIFFERENT at version {self.version}: {self.source_rows:,} rows in the source, {self.mirror_rows:,} in the"
            f" mirror, {self.differing:,} of them differ"
        )

    @property
    def equal(self) -> bool:
        return self.differing == 0 and self.source_rows == self.mirror_rows


class MirrorMissing(Terminal):
    def __init__(self, table: str, path: str) -> None:
        self.table, self.path = table, path

    def what(self) -> str:
        return f"There is no Delta table at {self.path}, where the mirror of {self.table} should be."

    def next(self) -> str:
        return "Wait until the service has made it, or name the mirror's folder with --mirror."


class MirrorColumns(Terminal):
    def __init__(self, table: str, path: str, faults: Sequence[str]) -> None:
        self.table, self.path, self.faults = table, path, tuple(faults)

    def what(self) -> str:
        return f"The mirror of {self.table} at {self.path} has other columns: {'; '.join(self.faults)}."

    def next(self) -> str:
        return "Check that this is the mirror of that table, and whether all its files have been replicated."


class NothingTaken(Transient):
    def __init__(self, table: str) -> None:
        self.table = table

    def what(self) -> str:
        return f"The mirror of {self.table} has not come to any of the publications that are on record."

    def next(self) -> str:
        return "Verify again once the service has taken more files; `mirrorfeed status` counts those that wait."


class MirrorUnreadable(Terminal):
    def __init__(self, table: str, path: str, reason: str) -> None:
        self.table, self.path, self.reason = table, path, reason

    def what(self) -> str:
        return f"Spark cannot read the mirror of {self.table} at {self.path}: {self.reason}."

    def next(self) -> str:
        return (
            "Give Spark access to that place: for OneLake by the settings `fs.azure.account…` of the cluster, as the"
            " README shows; or name another copy of the mirror with --mirror."
        )


def tables_in_onelake(workspace: str, database: str, endpoint: str) -> str:
    """Where the service keeps the tables of a mirrored database: beside its files."""
    return f"abfss://{workspace}@{urlsplit(endpoint).netloc}/{database}/Tables"


def mirror_of(folder: str, target: Target) -> Source:
    """The mirror of a table below a folder of replicated tables; a folder that is a Delta table is the mirror."""
    below = f"{target.schema or 'dbo'}/{target.table}"
    if "://" in folder:
        return Source(path=f"{folder.rstrip('/')}/{below}")
    place = Path(folder).resolve()
    return Source(path=str(place if (place / "_delta_log").is_dir() else place / below))


def verify_at(spark: SparkSession, source: Source, mirror: Source, records: Sequence[Record]) -> Comparison:
    """The comparison at the version at which the mirror stands, which is that of one of these publications."""
    if not records:
        raise NothingTaken(str(source))

    def compare_at(record: Record) -> Comparison:
        as_text = record.extension != PARQUET
        return compare(spark, source, record.to_version_inclusive, mirror, record.keys, as_text=as_text)

    return first_equal(compare_at, records)


def first_equal(compare_at: Callable[[Record], Comparison], records: Sequence[Record]) -> Comparison:
    """The first comparison that finds the mirror equal; if none does, the one with the fewest differences."""
    found: list[Comparison] = []
    trouble: MirrorColumns | None = None
    for record in records:
        try:
            found.append(compare_at(record))
        except MirrorColumns as error:  # of a publication that the mirror may not have come to
            trouble = trouble or error
            continue
        if found[-1].equal:
            return found[-1]
    if trouble is not None and not found:
        raise trouble
    return min(found, key=lambda comparison: comparison.differing)


def compare(
    spark: SparkSession,
    source: Source,
    version: int,
    mirror: Source,
    keys: Sequence[str],
    shown: int = _SHOWN,
    *,
    as_text: bool = False,
) -> Comparison:
    """The source's rows at a version against the mirror's, by key where there are keys; `as_text`, of a table whose
    files are text."""
    expected = spark.read.option("versionAsOf", version).table(source.sql)
    try:
        found = spark.read.table(mirror.sql)
        _ = found.schema  # only now the storage is asked, over Connect
    except AnalysisException as error:
        raise MirrorMissing(str(source), str(mirror)) from error
    except Exception as error:  # of a file system or a session, by whatever class
        raise MirrorUnreadable(str(source), str(mirror), _cause(error)) from error
    return compare_rows(str(source), version, expected, str(mirror), found, keys, shown, as_text=as_text)


def compare_rows(
    source: str,
    version: int,
    expected: DataFrame,
    mirror: str,
    found: DataFrame,
    keys: Sequence[str],
    shown: int = _SHOWN,
    *,
    as_text: bool = False,
) -> Comparison:
    # A column without a type is not in the mirror: it has no values.
    wanted = StructType([field for field in expected.schema if not isinstance(field.dataType, NullType)])
    faults = [fault for field in wanted if (fault := _fault(field, found.schema, as_text=as_text))]
    if faults:
        raise MirrorColumns(source, mirror, faults)
    types = {field.name: field.dataType for field in found.schema}
    both = {field.name: _both(field, types[field.name]) for field in wanted}
    left = expected.select(*(column.alias(name) for name, (column, _) in both.items()))
    right = found.select(*(column.alias(name) for name, (_, column) in both.items()))
    names = [field.name for field in wanted]
    table = _by_key(left, right, names, keys) if keys else _by_row(left, right, names)
    # One pass for the counts; a second, over what differs, only where there is something to show.
    counts = table.agg(F.sum("__n_source__"), F.sum("__n_mirror__"), F.count_if("__differs__")).first()
    assert counts is not None
    source_rows, mirror_rows, differing = (int(value or 0) for value in counts)
    first = _first(table, [name for name in names if name not in keys], keys or names, shown) if differing else ()
    return Comparison(source, version, source_rows, mirror_rows, differing, first)


def _cause(error: Exception) -> str:
    """The first line of an error that says more than where it was met."""
    lines = [line.strip().rstrip(".") for line in str(error).splitlines() if line.strip()]
    return next((line.removeprefix(": ") for line in lines if line.startswith(": ")), lines[0] if lines else "")[:300]


def _fault(field: StructField, mirror: StructType, *, as_text: bool) -> str | None:
    wanted = _in_mirror(field.dataType)
    there = next((found for found in mirror if found.name == field.name), None)
    if there is None:
        return f"{field.name!r} is missing"
    if there.dataType != wanted and not (as_text and there.dataType in _in_text(wanted)):
        return f"{field.name!r} is {there.dataType.simpleString()} where {wanted.simpleString()} is expected"
    return None


def _in_mirror(type_: DataType) -> DataType:
    """The type that a column of the source has in its mirror."""
    if isinstance(type_, (*_NESTED, StringType, DayTimeIntervalType, YearMonthIntervalType)):
        return StringType()
    return BinaryType() if _is_place(type_) else type_


def _in_text(type_: DataType) -> tuple[DataType, ...]:
    """What becomes of a mirror's type where files are text: it may have no declared form, or a wider one."""
    wider: dict[DataType, DataType] = {ByteType(): ShortType(), TimestampType(): TimestampNTZType()}
    return StringType(), wider.get(type_, type_)


def _is_place(type_: DataType) -> bool:
    return type_.typeName() in ("geometry", "geography")  # Spark 4.0 has no classes for them


def _both(field: StructField, there: DataType) -> tuple[Column, Column]:
    """A column of the source and of its mirror, which has this type there, in one form that Spark can compare."""
    value, type_ = F.col(quote(field.name)), field.dataType
    if isinstance(type_, VariantType):
        return F.to_json(value), F.to_json(_parsed(value, type_))
    source = _comparable(value, type_, from_text=False)
    if isinstance(type_, _NESTED):
        return source, _comparable(_parsed(value, type_), type_, from_text=True)
    wanted = _in_mirror(type_)
    if there == wanted:
        return source, value
    if there == StringType():  # what is no text of a value stays as it is, and so equals none
        return _as_text(source, wanted), F.coalesce(_as_text(_from_text(value, wanted), wanted), value)
    # A byte is among shorts, or an instant is a time without a zone, in UTC.
    return (source, _instant(value)) if isinstance(wanted, TimestampType) else (source.cast(there), value)


def _as_text(value: Column, type_: DataType) -> Column:
    if isinstance(type_, TimestampType):  # its text in a session's zone may stand for two of them
        value = F.unix_micros(value)
    return F.hex(value) if isinstance(type_, BinaryType) else value.cast("string")


def _from_text(text: Column, type_: DataType) -> Column:
    if isinstance(type_, TimestampType):
        return _instant(text)
    return F.try_to_binary(text, F.lit("base64")) if isinstance(type_, BinaryType) else text.try_cast(type_)


def _instant(in_utc: Column) -> Column:
    return F.concat(in_utc.cast("string"), F.lit("Z")).try_cast("timestamp")


def _parsed(text: Column, type_: DataType) -> Column:
    return F.parse_json(text) if isinstance(type_, VariantType) else F.from_json(text, _in_json(type_).json())


def _in_json(type_: DataType) -> Any:
    """The type as JSON can hold it: keys are text."""
    if isinstance(type_, StructType):
        return StructType([StructField(field.name, _in_json(field.dataType)) for field in type_])
    if isinstance(type_, ArrayType):
        return ArrayType(_in_json(type_.elementType))
    if isinstance(type_, MapType):
        return MapType(StringType(), _in_json(type_.valueType))
    return type_ if isinstance(type_, VariantType) else _in_mirror(type_)


def _comparable(value: Column, type_: DataType, *, from_text: bool) -> Column:
    """Maps have no equality in Spark: they become arrays of entries in the order of their keys. Nor have variants:
    they become text; inside of others JSON does not tell their null from NULL."""
    if isinstance(type_, VariantType):
        return F.when(~F.is_variant_null(value), F.to_json(value))
    if isinstance(type_, StructType):
        fields = [
            _comparable(value.getField(field.name), field.dataType, from_text=from_text).alias(field.name)
            for field in type_
        ]
        return F.when(value.isNotNull(), F.struct(*fields)) if fields else value
    if isinstance(type_, ArrayType):
        return F.transform(value, lambda item: _comparable(item, type_.elementType, from_text=from_text))
    if isinstance(type_, MapType):
        return F.array_sort(
            F.transform(
                F.map_entries(value),
                lambda entry: F.struct(
                    _key(entry["key"], type_.keyType, from_text=from_text).alias("key"),
                    _comparable(entry["value"], type_.valueType, from_text=from_text).alias("value"),
                ),
            )
        )
    return value if from_text else _plain(value, type_)


def _plain(value: Column, type_: DataType) -> Column:
    """A value of the source that is not nested, as the mirror should have it."""
    if _is_place(type_):
        return F.call_function("st_asbinary", value)
    if isinstance(type_, StringType):  # compared as it is written, whatever its collation
        return F.collate(value, "UTF8_BINARY")
    wanted = _in_mirror(type_)
    return value if wanted == type_ else value.cast(wanted)


def _key(key: Column, type_: DataType, *, from_text: bool) -> Column:
    if isinstance(type_, _NESTED):
        return _comparable(_parsed(key, type_) if from_text else key, type_, from_text=from_text)
    if not from_text:
        return key
    return F.unbase64(key) if isinstance(type_, BinaryType) else key.cast(type_)


def _by_key(left: DataFrame, right: DataFrame, names: Sequence[str], keys: Sequence[str]) -> DataFrame:
    both = _tagged(left, names, 1).unionAll(_tagged(right, names, 0))
    grouped = both.groupBy(*(_of_row(key) for key in keys)).agg(
        *_counts(),
        F.first(F.when(F.col("__side__") == 1, F.col("__row__")), ignorenulls=True).alias("__s__"),
        F.first(F.when(F.col("__side__") == 0, F.col("__row__")), ignorenulls=True).alias("__m__"),
    )
    once = (F.col("__n_source__") == 1) & (F.col("__n_mirror__") == 1)
    return grouped.withColumn("__differs__", ~(once & F.col("__s__").eqNullSafe(F.col("__m__"))))


def _by_row(left: DataFrame, right: DataFrame, names: Sequence[str]) -> DataFrame:
    both = _tagged(left, names, 1).unionAll(_tagged(right, names, 0))
    grouped = both.groupBy("__row__").agg(*_counts())
    rows = grouped.select(*(_of_row(name) for name in names), "__n_source__", "__n_mirror__")
    return rows.withColumn("__differs__", F.col("__n_source__") != F.col("__n_mirror__"))


def _counts() -> list[Column]:
    side = F.col("__side__")
    return [F.sum(side).alias("__n_source__"), F.sum(1 - side).alias("__n_mirror__")]


def _of_row(name: str) -> Column:
    return F.col(f"__row__.{quote(name)}").alias(name)


def _tagged(rows: DataFrame, names: Sequence[str], side: int) -> DataFrame:
    """One column that holds the row, beside 1 for the source and 0 for the mirror."""
    row = F.struct(*(F.col(quote(name)) for name in names))
    return rows.select(row.alias("__row__"), F.lit(side).alias("__side__"))


def _first(table: DataFrame, columns: Sequence[str], keys: Sequence[str], shown: int) -> tuple[Difference, ...]:
    wrong = table.where("__differs__")
    key = F.concat_ws(
        ", ",
        *(F.concat(F.lit(f"{name} = "), F.coalesce(F.col(quote(name)).cast("string"), F.lit("NULL"))) for name in keys),
    )
    texts = [key.alias("key"), F.col("__n_source__"), F.col("__n_mirror__")]
    if "__s__" in table.columns:
        texts += [_text(table, side, name).alias(f"{side}{i}") for side in "sm" for i, name in enumerate(columns)]
        texts += [_unequal(name).alias(f"d{i}") for i, name in enumerate(columns)]
    found: list[Difference] = []
    for row in wrong.select(*texts).orderBy("key").limit(shown).collect():
        if "__s__" not in table.columns or row["__n_source__"] != 1 or row["__n_mirror__"] != 1:
            found.append(Difference(row["key"], "", _times(row["__n_source__"]), _times(row["__n_mirror__"])))
            continue
        found += [
            Difference(row["key"], name, row[f"s{i}"], row[f"m{i}"]) for i, name in enumerate(columns) if row[f"d{i}"]
        ]
    return tuple(found)


def _text(table: DataFrame, side: str, name: str) -> Column:
    value = F.col(f"__{side}__.{quote(name)}")
    nested = isinstance(table.select(value).schema[0].dataType, _NESTED)
    return F.to_json(value, {"ignoreNullFields": "false"}) if nested else value.cast("string")


def _unequal(name: str) -> Column:
    return ~F.col(f"__s__.{quote(name)}").eqNullSafe(F.col(f"__m__.{quote(name)}"))


def _times(count: int) -> str:
    return {0: "not there", 1: "there once"}.get(count, f"there {count} times")


def _spell(value: str | None) -> str:
    return "NULL" if value is None else repr(value)
