"""From rows of the feed to rows of the landing zone: which row of a key is published, and as what."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import reduce
from operator import and_, or_
from typing import Any

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from mirrorfeed.landing.row_markers import Marker, Problem
from mirrorfeed.landing.schema import MARKER, Column, is_place, is_text
from mirrorfeed.source.identifier import quote

PROBLEM = "_change_type"
"""Last column of every result: None, or why the row cannot be published (`Problem`). No published table has a column
of this name, for it is one of the feed's."""

TAKEN_OUT = "_commit_version"
"""Beside the keys of rows that are published again: whether a delete comes before the row, as where the mirror has it
more than once. Like the name above, it is one of the feed's."""

REPLACEMENT = "\ufffd"
"""The character that Java and Spark put in the place of bytes that are not valid UTF-8."""

_JSON = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Nested values give the same text in every session, and lose nothing of a time."""


def snapshot_rows(snapshot: DataFrame, columns: Sequence[Column], keys: Sequence[str] = ()) -> DataFrame:
    """Every row, without a marker; with keys that are not to be NULL."""
    problem = F.when(_any_null([_col(name) for name in keys]), Problem.NULL_KEY.value) if keys else F.lit(None)
    return snapshot.select(*_written(columns), problem.cast("int").alias(PROBLEM))


def key_hashes(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Equal for equal keys, and hardly ever for others: where no hash repeats, no key does."""
    return rows.select(F.xxhash64(*map(_col, keys)).alias("hash"))


def key_problems(snapshot: DataFrame, keys: Sequence[str], limit: int) -> DataFrame:
    """The first keys of a snapshot that are NULL or stand more than once: the key columns and the problem."""
    places = _key(keys)
    key = [F.col(place) for place in places]
    given = (_col(name).alias(place) for name, place in zip(keys, places, strict=True))
    counted = snapshot.groupBy(*given).agg(F.count(F.lit(1)).alias("__count__"))
    problem = F.when(_any_null(key), Problem.NULL_KEY.value).when(F.col("__count__") > 1, Problem.DUPLICATE_KEY.value)
    return (
        counted.where(problem.isNotNull())
        .select(*(part.alias(name) for part, name in zip(key, keys, strict=True)), problem.cast("int").alias(PROBLEM))
        .limit(limit)
    )


def _any_null(key: Sequence[SparkColumn]) -> SparkColumn:
    return reduce(or_, (part.isNull() for part in key))


def again(snapshot: DataFrame, wanted: DataFrame, columns: Sequence[Column], keys: Sequence[str]) -> DataFrame:
    """For each wanted key its row in the snapshot as an upsert, or a delete where it has none. A delete that comes
    before its upsert is next to it. Wanted are keys in the landing's form, none NULL and each once, and `TAKEN_OUT`."""
    forms = {column.name: column.form for column in columns}
    asked = wanted.select(
        *(_col(name).cast(forms[name]).alias(f"__wanted_{i}__") for i, name in enumerate(keys)),
        F.col(TAKEN_OUT).alias("__taken_out__"),
    )
    written = {column.name: f"__value_{i}__" for i, column in enumerate(columns)}
    there = snapshot.select(
        *(_form(column, _col).alias(written[column.name]) for column in columns), F.lit(True).alias("__live__")
    )
    same = reduce(and_, (F.col(f"__wanted_{i}__") == F.col(written[name]) for i, name in enumerate(keys)))
    key = [F.col(f"__wanted_{i}__") for i in range(len(keys))]
    found = asked.join(there, same, "left").withColumn("__rows__", F.count("__live__").over(Window.partitionBy(*key)))
    live = F.col("__live__").isNotNull()
    markers = F.when(live & F.col("__taken_out__"), _array(Marker.DELETE, Marker.UPSERT))
    markers = markers.when(live, _array(Marker.UPSERT)).otherwise(_array(Marker.DELETE))
    rows = found.withColumn("__marker__", F.explode(markers))
    keys_at = {name: F.col(f"__wanted_{i}__") for i, name in enumerate(keys)}
    kept = F.col("__marker__") != Marker.DELETE.value

    def value(name: str) -> SparkColumn:
        return keys_at[name] if name in keys_at else F.when(kept, F.col(written[name]))

    problem = F.when(F.col("__rows__") > 1, Problem.DUPLICATE_KEY.value).cast("int")
    values = [value(column.name).alias(column.name) for column in columns]
    return rows.select(*values, F.col("__marker__").alias(MARKER), problem.alias(PROBLEM))


def _array(*markers: Marker) -> SparkColumn:
    return F.array(*(F.lit(marker.value) for marker in markers))


def inserts(feed: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """For tables without keys, which take inserts only."""
    problem = F.when(F.col("_change_type") != "insert", Problem.CHANGE_WITHOUT_KEY.value).cast("int").alias(PROBLEM)
    return feed.orderBy("_commit_version").select(*_written(columns), problem)


def net(feed: DataFrame, columns: Sequence[Column], keys: Sequence[str]) -> DataFrame:
    """One row for each key whose rows differ between the two ends of the range: the row that it gained, as an upsert,
    or its key, as a delete.

    The feed has whole rows on both sides of every change, so what is left after equal rows cancel each other is that
    difference, and the order of events does not matter. A key that gained several rows has all of them at the end.
    """
    key = _key(keys)
    of_key = f"PARTITION BY {', '.join(key)} ORDER BY __count__"
    rows = _counted(feed, columns, keys, by=[]).selectExpr(
        "*",
        f"lead(__count__) OVER ({of_key}) IS NULL AS __last__",
        f"sum(greatest(__count__, 0)) OVER ({of_key} ROWS UNBOUNDED PRECEDING) AS __gained__",
        f"IF(__count__ > 0, {Marker.UPSERT.value}, {Marker.DELETE.value}) AS __marker__",
    )
    rows = rows.where("__last__")
    # By key: similar rows are next to each other, and compress.
    return _landing_rows(rows.sortWithinPartitions(*key), columns, keys)


def full(feed: DataFrame, columns: Sequence[Column], keys: Sequence[str], *, exact: bool = False) -> DataFrame:
    """One row for every key and version that changed it; in the order of versions, deletes before upserts.

    A key that had two rows for a while, or whose rows do not follow from each other, gives only what `net` gives for
    it: its events do not say which of its rows is left.

    With exact markers a new row is an insert, and one that replaces another in its version an update. For a key that
    had two rows, the mirror may have both: a delete comes before the insert.
    """
    key = _key(keys)
    of_key, of_row = (f"PARTITION BY {', '.join(group)}" for group in (key, [*key, *_HASH]))
    in_order = f"{of_key} ORDER BY _commit_version, __count__"
    follows = (
        f"lag(__count__) OVER ({in_order}) = -__count__"
        f" AND (__count__ = 1 OR lag(struct({', '.join(_HASH)})) OVER ({in_order}) = struct({', '.join(_HASH)}))"
    )
    rows = _counted(feed, columns, keys, by=["_commit_version"]).selectExpr(
        "*",
        f"sum(__count__) OVER ({of_row}) AS __total__",
        f"abs(__count__) = 1 AND coalesce({follows}, true) AND NOT {_null(key)} AS __follows__",
        f"lag(_commit_version) OVER ({in_order}) <=> _commit_version AS __replaces__",
        f"lead(_commit_version) OVER ({in_order}) <=> _commit_version AS __replaced__",
    )
    rows = rows.selectExpr(
        "*",
        f"sum(greatest(sign(__total__), 0) * __count__) OVER ({of_key}) AS __gained__",
        f"min(__total__) OVER ({of_key}) < 0 AS __lost__",
        f"min(__follows__) OVER ({of_key}) AS __all_follow__",
        f"row_number() OVER ({of_key} ORDER BY __total__ DESC, __count__ DESC) = 1 AS __left__",
    )
    net_row = "__left__ AND (__gained__ > 0 OR __lost__)"
    rows = rows.where(f"IF(__all_follow__, __count__ > 0 OR NOT __replaced__, {net_row})")
    upsert, delete = f"array({Marker.UPSERT.value})", f"array({Marker.DELETE.value})"
    if exact:
        upsert = (
            f"CASE WHEN NOT __all_follow__ THEN array({Marker.DELETE.value}, {Marker.INSERT.value})"
            f" WHEN __replaces__ THEN array({Marker.UPDATE.value}) ELSE array({Marker.INSERT.value}) END"
        )
    markers = f"IF(IF(__all_follow__, __count__, __gained__) > 0, {upsert}, {delete})"
    rows = rows.withColumn("__marker__", F.explode(F.expr(markers)))
    rows = rows.orderBy("_commit_version", F.expr(f"__marker__ <> {Marker.DELETE.value}"), *key)
    return _landing_rows(rows, columns, keys)


_LIVE = "_change_type IN ('insert', 'update_postimage')"
_HASH = ("__hash_1__", "__hash_2__")
"""128 bits of a row's values."""


# What follows is mostly SQL: a plan is made for every range, and to make it column by column takes longer than to read
# some changes. All names in it are from here.


def _key(keys: Sequence[str]) -> list[str]:
    return [f"__key_{i}__" for i in range(len(keys))]


def _null(key: Sequence[str]) -> str:
    return f"({' OR '.join(f'{part} IS NULL' for part in key)})"


def _payload(columns: Sequence[Column], keys: Sequence[str]) -> list[tuple[int, Column]]:
    return [(at, column) for at, column in enumerate(columns) if column.name not in keys and not column.dropped]


def _value(at: int) -> str:
    return f"__value_{at}__"


def _counted(feed: DataFrame, columns: Sequence[Column], keys: Sequence[str], by: Sequence[str]) -> DataFrame:
    """One event for equal rows of a key, and how many more of them there are after the range than before; none if that
    is 0. The values are there if it is more."""
    # Columns are named by their places, so that no name of the table can be one of those used from here on.
    payload, key = _payload(columns, keys), _key(keys)
    events = feed.select(
        *(_col(name).alias(part) for name, part in zip(keys, key, strict=True)),
        *(as_landed(column).alias(_value(at)) for at, column in payload),
        *by,
        F.expr(f"{_LIVE} AS __live__"),
    )
    hashes = zip(payload_hashes(payload, _value), _HASH, strict=True)
    events = events.selectExpr(
        *key,
        *by,
        *(f"{hash_} AS {name}" for hash_, name in hashes),
        "__live__",
        # Of a removed row nothing but its hash goes through the shuffle.
        *(f"IF(__live__, {_value(at)}, NULL) AS {_value(at)}" for at, _ in payload),
    )
    # One exchange, by key alone, is enough for all that follows. Windows with an end at the current row hold no rows.
    same = f"PARTITION BY {', '.join([*key, *by, *_HASH])} ORDER BY __live__"
    counted = events.repartition(*map(F.col, key)).selectExpr(
        "*",
        f"sum(IF(__live__, 1, -1)) OVER ({same} ROWS UNBOUNDED PRECEDING) AS __count__",
        f"lead(__live__) OVER ({same}) IS NULL AS __last_of_same__",
    )
    return counted.where("__last_of_same__ AND __count__ <> 0")


def payload_hashes(payload: Sequence[tuple[int, Column]], name: Callable[[int], str]) -> tuple[str, str]:
    """Twice 64 bits of the landed values, under the names of their places: two chains that begin differently. To
    Spark's hash a NULL is nothing, and 0.0 is -0.0: so each value goes in with its place, a NULL without, and floating
    ones as text. A column that is added, with nothing but NULL, changes no hash."""

    def text(at: int, column: Column) -> str:
        return f"CAST({name(at)} AS string)" if column.type in ("float", "double") else name(at)

    parts = "".join(f", IF({name(at)} IS NULL, NULL, {at}), {text(at, column)}" for at, column in payload)
    return f"xxhash64(1{parts})", f"xxhash64(2{parts})"


def _landing_rows(rows: DataFrame, columns: Sequence[Column], keys: Sequence[str]) -> DataFrame:
    key = _key(keys)
    problem = (
        f"CASE WHEN {_null(key)} THEN {Problem.NULL_KEY.value}"
        f" WHEN __gained__ > 1 THEN {Problem.DUPLICATE_KEY.value} END"
    )
    key_of, live = dict(zip(keys, key, strict=True)), f"__marker__ <> {Marker.DELETE.value}"

    def value(at: int, column: Column) -> SparkColumn:
        if column.dropped or column.name in key_of:
            return _form(column, lambda name: F.expr(key_of[name]))
        return F.expr(f"IF({live}, {_value(at)}, NULL)").alias(column.name)

    return rows.select(
        *(value(at, column) for at, column in enumerate(columns)),
        F.expr("__marker__").alias(MARKER),
        F.expr(problem).alias(PROBLEM),
    )


def _written(columns: Sequence[Column]) -> list[SparkColumn]:
    return [as_landed(column) for column in columns]


def as_landed(column: Column) -> SparkColumn:
    """A column of the source in the form that it has in files."""
    return _form(column, _col)


def _form(column: Column, value_of: Callable[[str], SparkColumn]) -> SparkColumn:
    if column.dropped:
        return F.lit(None).cast(column.form).alias(column.name)
    value = value_of(column.name)
    if column.type == "json":
        value = _json_text(value, json.loads(column.nested))
    elif is_place(column.type):
        value = _bytes_of(value)
    elif column.form != column.type:
        value = value.cast(column.form)
    return value.alias(column.name)


def with_text_judged(rows: DataFrame, columns: Sequence[Column], *, from_feed: bool) -> DataFrame:
    """The landing rows, where a text that is not valid UTF-8 is a problem: Delta allows any bytes in a STRING column,
    readers of the files do not.

    Open source Delta replaces invalid bytes in the rows of its change feed. There, a text with the character that
    replaces them is a problem as well, until the source was looked at.
    """
    texts = [quote(column.name) for column in columns if column.type in ("string", "json") and not column.dropped]
    if not texts:
        return rows
    invalid = " OR ".join(f"NOT is_valid_utf8({text})" for text in texts)
    cases = f"WHEN {invalid} THEN {Problem.INVALID_TEXT.value}"
    if from_feed:
        replaced = " OR ".join(f"contains({text}, '{REPLACEMENT}')" for text in texts)
        cases += f" WHEN {replaced} THEN {Problem.REPLACED_TEXT.value}"
    return rows.withColumn(PROBLEM, F.expr(f"coalesce({PROBLEM}, CASE {cases} END)"))


def invalid_texts(snapshot: DataFrame, columns: Sequence[Column], among: pa.Table, limit: int) -> DataFrame:
    """The first rows of a snapshot with a text that is not valid UTF-8, in landing form. They are searched for among a
    few keys, if there are any."""
    there = [column for column in columns if column.name in snapshot.columns]
    judged = with_text_judged(snapshot_rows(_narrowed(snapshot, there, among), there), there, from_feed=False)
    return judged.where(F.col(PROBLEM).isNotNull()).limit(limit)


def still_there(
    snapshot: DataFrame, columns: Sequence[Column], keys: Sequence[str], deleted: pa.Table | DataFrame
) -> DataFrame:
    """Those of the deleted keys that rows of a snapshot have, each once. Keys are in landing form on both sides."""
    of_key = [next(column for column in columns if column.name == name) for name in keys]
    key = _key(keys)
    if isinstance(deleted, pa.Table):
        if deleted.num_rows <= _NARROWED:
            snapshot = _narrowed(snapshot, of_key, deleted)
        deleted = snapshot.sparkSession.createDataFrame(deleted.select(keys))
    there = snapshot.select(*(as_landed(column).alias(part) for column, part in zip(of_key, key, strict=True)))
    found = there.join(deleted.select(*map(_col, keys)).toDF(*key), key, "left_semi").distinct()
    return found.toDF(*keys)


def rows_of(
    snapshot: DataFrame, columns: Sequence[Column], keys: Sequence[str], found: pa.Table | DataFrame
) -> DataFrame:
    """The rows of these keys, which the snapshot has, as upserts."""
    if isinstance(found, pa.Table):
        if found.num_rows <= _NARROWED:
            snapshot = _narrowed(snapshot, columns, found)
        found = snapshot.sparkSession.createDataFrame(found)
    return again(snapshot, found.withColumn(TAKEN_OUT, F.lit(False)), columns, keys)


_NARROWED = 1_000
"""With more keys, a condition on them takes Spark longer than it saves."""
_SKIPPED_RIGHT = ("byte", "short", "integer", "long", "string")
"""Types by which Delta skips files without fault. By dates it passes over files that have the days from 5 to 14 October
1582 alone."""


def _narrowed(snapshot: DataFrame, columns: Sequence[Column], keys: pa.Table) -> DataFrame:
    """The rows that may have one of a few keys, found with the help of data skipping; others may be among them."""
    for column in columns:
        if column.name in keys.column_names and column.type == column.form and column.type in _SKIPPED_RIGHT:
            values = keys.column(column.name).unique().to_pylist()
            # A text with this character may come from a change feed that replaced bytes.
            if not any(REPLACEMENT in value for value in values if isinstance(value, str)):
                snapshot = snapshot.where(_col(column.name).isin(values))
    return snapshot


def _json_text(value: SparkColumn, type_: Any) -> SparkColumn:
    """Spark's JSON replaces invalid bytes in texts. If it did, an invalid byte is appended, so that the row is refused
    like one with any other invalid text. Values are looked into only if the JSON has the character that replaces bytes.
    """
    text = F.to_json(_for_json(value, type_), _JSON)
    if not _has_texts(type_):
        return text
    replaced = F.contains(text, F.lit(REPLACEMENT)) & _has_invalid_text(value, type_)
    return F.concat(text, F.when(replaced, F.lit(b"\xff").cast("string")).otherwise(""))


def _has_texts(type_: Any) -> bool:
    if isinstance(type_, str):
        return is_text(type_)
    match type_["type"]:
        case "array":
            return _has_texts(type_["elementType"])
        case "struct":
            return any(_has_texts(field["type"]) for field in type_["fields"])
    return _has_texts(type_["keyType"]) or _has_texts(type_["valueType"])


def _has_invalid_text(value: SparkColumn, type_: Any) -> SparkColumn:
    """Whether a text anywhere in a value is not valid UTF-8; NULL is not invalid."""
    if not _has_texts(type_):
        return F.lit(False)
    if isinstance(type_, str):
        return F.coalesce(~F.is_valid_utf8(value), F.lit(False))
    match type_["type"]:
        case "array":
            found = F.exists(value, lambda item: _has_invalid_text(item, type_["elementType"]))
            return F.coalesce(found, F.lit(False))
        case "struct":
            fields = type_["fields"]
            return reduce(or_, (_has_invalid_text(value.getField(each["name"]), each["type"]) for each in fields))
    keys, values = ({"type": "array", "elementType": type_[part]} for part in ("keyType", "valueType"))
    return _has_invalid_text(F.map_keys(value), keys) | _has_invalid_text(F.map_values(value), values)


def _bytes_of(place: SparkColumn) -> SparkColumn:
    """Well-known binary; which system its coordinates are in is said by the column's type in the source."""
    return F.call_function("st_asbinary", place)


def _for_json(value: SparkColumn, type_: Any) -> SparkColumn:
    """The value with the keys of its maps as the text that they would be as values: of other keys Spark's JSON shows
    what they are inside, days for a date, and for bytes not even that. Places are bytes, for JSON of them there is
    none."""
    if not _is_foreign_to_json(type_):
        return value
    if is_place(type_):
        return _bytes_of(value)
    match type_["type"]:
        case "array":
            return F.transform(value, lambda item: _for_json(item, type_["elementType"]))
        case "struct":
            parts = [_for_json(value.getField(f["name"]), f["type"]).alias(f["name"]) for f in type_["fields"]]
            return F.when(value.isNotNull(), F.struct(*parts))

    def text(key: SparkColumn) -> SparkColumn:
        if type_["keyType"] == "string":
            return key
        return F.get_json_object(F.to_json(F.struct(key.alias("k")), _JSON), "$.k")

    return F.map_from_entries(
        F.transform(
            F.map_entries(value),
            lambda entry: F.struct(text(entry["key"]), _for_json(entry["value"], type_["valueType"])),
        )
    )


def _is_foreign_to_json(type_: Any) -> bool:
    if not isinstance(type_, dict):
        return is_place(type_)
    match type_["type"]:
        case "array":
            return _is_foreign_to_json(type_["elementType"])
        case "struct":
            return any(_is_foreign_to_json(field["type"]) for field in type_["fields"])
        case "map":
            return type_["keyType"] != "string" or _is_foreign_to_json(type_["valueType"])
    return False


def _col(name: str) -> SparkColumn:
    return F.col(quote(name))
