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

from mirrorfeed.feed.source import quote
from mirrorfeed.landing.rows import Marker, Problem
from mirrorfeed.landing.schema import MARKER, Column, is_place, is_text

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


def net(feed: DataFrame, columns: Sequence[Column], keys: Sequence[str], *, skip_unchanged: bool = False) -> DataFrame:
    """One row a key for the whole range: what its last version left, as an upsert, or its key, as a delete. Without
    unchanged rows, a key that ends as it was before the range gives none."""
    events, key = _events(feed, columns, keys, with_old=skip_unchanged), _key(keys)
    rows = _judged(events, key, _ORDER, "range")
    if skip_unchanged:
        rows = rows.withColumn("__changed__", _changed(key, _ORDER, columns, keys))
    kept = f"__last_in_range__ AND NOT {_came_and_went(key)}"
    if skip_unchanged:
        kept += f" AND (__changed__ OR {_shared('range')} OR {_null(key)})"
    # By key: rows that are alike stand together, and compress.
    return _landing_rows(rows.where(kept).sortWithinPartitions(*key), columns, keys)


def full(
    feed: DataFrame,
    columns: Sequence[Column],
    keys: Sequence[str],
    *,
    exact: bool = False,
    skip_unchanged: bool = False,
) -> DataFrame:
    """One row for every key and version; in the order of versions, deletes before upserts. A key that was NULL or
    shared for a while and is right at the end gives its last row alone.

    With exact markers a row that its version made is an insert, and one that was there before it an update, also where
    it was exchanged by a delete and an insert: an insert would double it. The last row of a key that was wrong for a
    while is an update, for nothing tells whether the mirror has one; where it has none, an update inserts.

    Without unchanged rows, a key that a version left as it was gives none for it.
    """
    events, key = _events(feed, columns, keys, with_old=skip_unchanged), _key(keys)
    in_version, order = [*key, "_commit_version"], ["__live__"]
    judged = _judged(_judged(events, key, _ORDER, "range"), in_version, order, "version")
    if skip_unchanged:
        judged = judged.withColumn("__changed__", _changed(in_version, order, columns, keys))
    wrong = f"{_null(key)} OR (__last_in_version__ AND {_shared('version')})"
    once = f"max({wrong}) OVER (PARTITION BY {', '.join(key)}) AS __once_wrong__"
    kept = f"(__last_in_range__ OR (__last_in_version__ AND NOT __once_wrong__)) AND NOT {_came_and_went(key)}"
    if skip_unchanged:
        kept += f" AND (__changed__ OR __once_wrong__ OR {_shared('range')})"
    rows = judged.selectExpr("*", once).where(kept)
    made = "__gain_in_version__ = 1 AND NOT __once_wrong__"
    live = f"IF({made}, {Marker.INSERT.value}, {Marker.UPDATE.value})" if exact else str(Marker.UPSERT.value)
    return _landing_rows(rows.orderBy(*_ORDER, *key), columns, keys, live)


_LIVE = "_change_type IN ('insert', 'update_postimage')"
_ORDER = ("_commit_version", "__live__")
"""Of the events of a key: within a version, what a row was comes before what it is."""


# What follows is mostly SQL: a plan is made for every range, and to make it column by column takes longer than to read
# some changes. All names in it are from here.


def _key(keys: Sequence[str]) -> list[str]:
    return [f"__key_{i}__" for i in range(len(keys))]


def _null(key: Sequence[str]) -> str:
    return f"({' OR '.join(f'{part} IS NULL' for part in key)})"


def _payload(columns: Sequence[Column], keys: Sequence[str]) -> list[Column]:
    return [column for column in columns if column.name not in keys and not column.dropped]


def _events(feed: DataFrame, columns: Sequence[Column], keys: Sequence[str], *, with_old: bool) -> DataFrame:
    # The table's columns go by their places, so that none of their names can be one of those used from here on.
    # Of a row that ends nothing is needed but its key, unless it is to be compared: its other columns are not carried
    # through the shuffle.
    values = [quote(column.name) for column in _payload(columns, keys)]
    return feed.selectExpr(
        *(f"{quote(name)} AS {place}" for name, place in zip(keys, _key(keys), strict=True)),
        *(
            f"{value if with_old else f'IF({_LIVE}, {value}, NULL)'} AS __value_{place}__"
            for place, value in enumerate(values)
        ),
        "_commit_version",
        f"{_LIVE} AS __live__",
    )


def _judged(events: DataFrame, group: Sequence[str], order: Sequence[str], name: str) -> DataFrame:
    """Which event is the last of its group; and of that one in `__gain_in_…__` how many rows the key gained there, and
    what `_shared` needs.

    All that follows from the events so far and the next one, so Spark sorts them once and holds none."""
    in_order = f"PARTITION BY {', '.join(group)} ORDER BY {', '.join(order)}"
    before = f"lag(__live__) OVER ({in_order}) AND lag(_commit_version) OVER ({in_order}) = _commit_version"
    return events.selectExpr(
        "*",
        f"lead(__live__) OVER ({in_order}) IS NULL AS __last_in_{name}__",
        f"coalesce(__live__ AND {before}, false) AS __twice_in_{name}__",
        f"sum(IF(__live__, 1, -1)) OVER ({in_order} ROWS UNBOUNDED PRECEDING) AS __gain_in_{name}__",
    )


def _shared(name: str) -> str:
    """Of a group's last event: whether more than one row had the key. A row that ends live was gained or there before;
    one that ends dead was lost, or came and went."""
    gain = f"__gain_in_{name}__"
    return f"(__twice_in_{name}__ OR IF(__live__, {gain} NOT IN (0, 1), {gain} NOT IN (-1, 0)))"


def _came_and_went(key: Sequence[str]) -> str:
    """Of a group's last event: a key that is NULL, and of which nothing is left."""
    return f"({_null(key)} AND NOT __live__ AND __gain_in_range__ = 0)"


def _changed(group: Sequence[str], order: Sequence[str], columns: Sequence[Column], keys: Sequence[str]) -> SparkColumn:
    """Whether an event leaves its key otherwise than it was before the first of its group."""
    row, live = _compared(columns, keys), F.col("__live__")
    so_far = Window.partitionBy(*group).orderBy(*order).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return ~F.when(live, row).eqNullSafe(F.first(F.when(~live, row)).over(so_far))


def _compared(columns: Sequence[Column], keys: Sequence[str]) -> SparkColumn:
    """An event's values to compare with another's: nested values are the text that they become, and so are floating
    ones, of which Spark takes 0.0 for equal to -0.0."""
    payload = _payload(columns, keys)
    places = {column.name: F.col(f"__value_{i}__") for i, column in enumerate(payload)}
    values = [_form(column, places.__getitem__) for column in payload]
    values = [
        value.cast("string") if column.type in ("float", "double") else value
        for column, value in zip(payload, values, strict=True)
    ]
    return F.struct(F.lit(True), *(value.alias(f"_{i}") for i, value in enumerate(values)))


def _landing_rows(
    rows: DataFrame, columns: Sequence[Column], keys: Sequence[str], live_marker: str = str(Marker.UPSERT.value)
) -> DataFrame:
    key = _key(keys)
    marker = f"IF(__live__, {live_marker}, {Marker.DELETE.value})"
    problem = (
        f"CASE WHEN {_null(key)} THEN {Problem.NULL_KEY.value}"
        f" WHEN __last_in_range__ AND {_shared('range')} THEN {Problem.DUPLICATE_KEY.value} END"
    )
    written = dict(zip(keys, key, strict=True))
    written |= {c.name: f"IF(__live__, __value_{i}__, NULL)" for i, c in enumerate(_payload(columns, keys))}
    return rows.select(
        *(_form(column, lambda name: F.expr(written[name])) for column in columns),
        F.expr(marker).alias(MARKER),
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
    few keys: a part of a key that is a whole number or a text narrows the search, so that data skipping helps."""
    there = [column for column in columns if column.name in snapshot.columns]
    for column in there:
        if column.name in among.column_names and column.type in ("byte", "short", "integer", "long", "string"):
            values = among.column(column.name).unique().to_pylist()
            if not any(REPLACEMENT in value for value in values if isinstance(value, str)):
                snapshot = snapshot.where(_col(column.name).isin(values))
    judged = with_text_judged(snapshot_rows(snapshot, there), there, from_feed=False)
    return judged.where(F.col(PROBLEM).isNotNull()).limit(limit)


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
