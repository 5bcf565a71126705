"""Every file with a matching row is found, for random tables and random predicates.

Reading all files gives the expected answer. Each of the tables has a property that is known to mislead planners.
Predicates use values of the table and values next to them."""

from __future__ import annotations

import random
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from urllib.parse import unquote

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from mirrorfeed.archive import archive_interval
from mirrorfeed.archive.archive_interval import Policy
from mirrorfeed.archive.archived_files import select_archived
from mirrorfeed.archive.data_files import normalize_uri
from mirrorfeed.archive.data_skipping import UncertainFiles, apply_condition
from mirrorfeed.archive.engines.open_source import OpenSourceEngine, files_of
from mirrorfeed.source.identifier import Source

LATER = datetime.now(UTC) + timedelta(days=400)
"""Every file counts as archived at this time."""

STRUCT = T.StructType([T.StructField("x", T.IntegerType()), T.StructField("y", T.StringType())])
SCHEMA = T.StructType(
    [
        T.StructField("i", T.IntegerType()),
        T.StructField("l", T.LongType()),
        T.StructField("f", T.DoubleType()),
        T.StructField("s", T.StringType()),
        T.StructField("d", T.DecimalType(20, 3)),
        T.StructField("t", T.TimestampType()),
        T.StructField("day", T.DateType()),
        T.StructField("b", T.BooleanType()),
        T.StructField("n", STRUCT),
        T.StructField("p", T.StringType()),
    ]
)
LONG = "long " * 10
TEXTS = [
    "",
    "a",
    "A",
    "é",
    "e\u0301",
    "ż" * 40,
    LONG,
    LONG + "1",
    LONG + "\U0010ffff",
    "\U0001f600" * 33,
    "%",
    "_",
    "a'b",
    " a",
]
FLOATS = [0.0, -0.0, 1.5, -1.5, float("nan"), float("inf"), float("-inf"), 1e300, 5e-324]
PARTS = ["a", "b", "", "x y", "c%d", "é=1", None]
BASE = datetime(2026, 3, 29, 0, 59, 59, 999_999)

WIDE = [T.StructField(f"w{i}", T.IntegerType()) for i in range(34)]
"""Unindexed columns, placed before the queried ones."""


def row(rng: random.Random, centre: int) -> tuple[object, ...]:
    """A row with values near a center, so that each file has its own bounds."""

    def maybe(value: object, probability: float = 0.12) -> object:
        return None if rng.random() < probability else value

    number = centre * 10 + rng.randrange(12)
    moment = BASE + timedelta(hours=centre, microseconds=rng.choice([0, 1, 500, 999, 1000, 1500]))
    return (
        maybe(number),
        maybe(rng.choice([number, -(2**63), 2**63 - 1])),
        maybe(rng.choice([float(number), rng.choice(FLOATS)])),
        maybe(rng.choice([f"{LONG}{number}", rng.choice(TEXTS), f"k{number}"])),
        maybe(Decimal(number) / 8 + Decimal("0.001")),
        maybe(moment),
        maybe((BASE + timedelta(days=number)).date()),
        maybe(rng.random() < 0.5),
        maybe((number, f"y{number}")),
        rng.choice(PARTS),
    )


TRAITS: dict[str, dict[str, str]] = {
    "plain": {},
    "partitions": {"by": "p"},
    "deletion vectors": {"delta.enableDeletionVectors": "true"},
    "column mapping": {"delta.columnMapping.mode": "name", "by": "p", "delta.enableDeletionVectors": "true"},
    "columns past the indexed ones": {"wide": "yes"},
    "few statistics": {"delta.dataSkippingNumIndexedCols": "2"},
    "no statistics": {"stats": "no"},
    "checkpoints": {"delta.checkpointInterval": "2"},
    "checkpoints of kind 2": {"delta.checkpointInterval": "2", "delta.checkpointPolicy": "v2"},
    "Z-order": {"zorder": "i, s"},
}
IN_CI = ("column mapping",)


@pytest.fixture(scope="module")
def table(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Source:
    trait = TRAITS[request.param]
    rng = random.Random(request.param)
    source = Source(path=str(tmp_path_factory.mktemp("property") / "t"))
    schema = T.StructType([*WIDE, *SCHEMA.fields]) if "wide" in trait else SCHEMA
    for name, value in trait.items():
        if name.startswith("delta."):
            spark.conf.set(f"spark.databricks.delta.properties.defaults.{name.removeprefix('delta.')}", value)
    spark.conf.set("spark.databricks.delta.stats.collect", str("stats" not in trait).lower())
    try:
        for start in (0, 4):
            rows = [row(rng, start + file) for file in range(4) for _ in range(8)]
            prefix = tuple(range(len(WIDE))) if "wide" in trait else ()
            ranges = 2 if "by" in trait else 4  # so that files of partitions contain several rows, too
            frame = spark.createDataFrame([prefix + each for each in rows], schema).repartitionByRange(ranges, "i")
            write = frame.write.format("delta").mode("append")
            (write.partitionBy("p") if "by" in trait else write).save(str(source.path))
        if "delta.enableDeletionVectors" in trait:
            spark.sql(f"DELETE FROM {source.sql} WHERE i % 5 = 0")
        if "zorder" in trait:
            spark.sql(f"OPTIMIZE {source.sql} ZORDER BY ({trait['zorder']})")
    finally:
        spark.conf.unset("spark.databricks.delta.stats.collect")
        for name in trait:
            if name.startswith("delta."):
                spark.conf.unset(f"spark.databricks.delta.properties.defaults.{name.removeprefix('delta.')}")
    return source


def literal(rng: random.Random, column: str) -> str:
    """A value of the column, or a value close to it, as an SQL literal."""
    number = rng.randrange(-5, 105)
    match column:
        case "i" | "n.x":
            return str(number)
        case "l":
            return rng.choice([str(number), "9223372036854775807L", "-9223372036854775807L"])
        case "f":
            special = ["double('NaN')", "double('Infinity')", "double('-Infinity')", "0D", "-0D", "1e300D", "1.5D"]
            return rng.choice([f"{number}D", *special])
        case "d":
            return f"{Decimal(number) / 8 + Decimal('0.001')}BD"
        case "t":
            micros = rng.choice([0, 1, 499, 999, 1000, 1001, 1500])
            return f"TIMESTAMP '{BASE + timedelta(hours=number // 10, microseconds=micros)}'"
        case "day":
            return f"DATE '{(BASE + timedelta(days=number)).date()}'"
        case "b":
            return rng.choice(["true", "false"])
        case "p":
            text = rng.choice(PARTS) or ""
        case _:
            text = rng.choice([f"{LONG}{number}", rng.choice(TEXTS), f"k{number}", f"y{number}"])
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


COLUMNS = ["i", "l", "f", "s", "d", "t", "day", "b", "n.x", "n.y", "p"]


def predicate(rng: random.Random, depth: int = 0) -> str:
    if depth < 2 and rng.random() < 0.4:
        left, right = predicate(rng, depth + 1), predicate(rng, depth + 1)
        return rng.choice([f"({left} AND {right})", f"({left} OR {right})", f"(NOT {left})"])
    column = rng.choice(COLUMNS)
    value, other = literal(rng, column), literal(rng, column)
    forms = [
        *(f"{column} {sign} {value}" for sign in ("=", "<", "<=", ">", ">=", "<>", "<=>")),
        f"{value} >= {column}",
        f"{column} IS NULL",
        f"{column} IS NOT NULL",
        f"{column} IN ({value}, {other}, NULL)",
        f"{column} NOT IN ({value}, {other})",
        f"{column} BETWEEN {value} AND {other}",
        f"coalesce({column} > {value}, true)",
        f"({column} = {value}) IS NULL",
        f"if({column} < {value}, b, NOT b)",
    ]
    if column in ("s", "p", "n.y"):
        start = value[1:-1].replace("\\", "")[:6].replace("'", "")
        forms += [f"{column} LIKE '{start}%'", f"startswith({column}, {value})", f"upper({column}) = {value}"]
        forms += [f"substring({column}, 1, 3) = substring({value}, 1, 3)", f"length({column}) > 40"]
    if column == "f":
        forms += ["isnan(f)", "NOT isnan(f)", f"-f < {value}", f"nanvl(f, 0D) > {value}"]
    if column == "t":
        forms += [
            f"cast(t AS date) = DATE '{BASE.date()}'",
            f"date_trunc('HOUR', t) = {value}",
            "unix_micros(t) % 2 = 1",
        ]
    if column in ("i", "l", "n.x"):
        forms += [
            f"{column} % 7 = 3",
            f"cast({column} AS string) > '5'",
            f"{column} = {rng.randrange(100)} + 1",
            f"{column} * 1.0 = {value}",
        ]
    return rng.choice(forms)


def comparisons(rng: random.Random) -> str:
    """Comparisons on indexed columns and partitions, which are decided without Delta."""
    parts = []
    for _ in range(rng.choice([1, 1, 2])):
        column = rng.choice(["i", "l", "s", "day", "p"])
        sign = rng.choice(["=", "<", "<=", ">", ">="])
        parts.append(rng.choice([f"{column} {sign} {literal(rng, column)}", f"{column} IS NOT NULL"]))
    return " AND ".join(parts)


FEW = [pytest.param(trait, 5, 7, id=trait) for trait in IN_CI]
MANY = [pytest.param(trait, 1000, None, id=f"{trait}, many", marks=pytest.mark.soak) for trait in TRAITS]


@pytest.mark.slow
@pytest.mark.parametrize(("table", "count", "seed"), [*FEW, *MANY], indirect=["table"])
def test_no_file_with_a_matching_row_is_missing(
    spark: SparkSession, table: Source, count: int, seed: int | None
) -> None:
    seed = random.randrange(2**32) if seed is None else seed
    rng = random.Random(seed)
    conditions = [predicate(rng) for _ in range(count)] + [comparisons(rng) for _ in range(count // 2)]
    engine, decided = OpenSourceEngine(spark), 0
    archive_interval.set_first(spark, table, 1, LATER)
    frame = spark.table(table.sql)
    with_files = frame.withColumn("__file__", F.col("_metadata.file_path"))
    every = files_of(frame)
    known = engine.files(table)
    assert set(known) == set(every)
    assert len(select_archived([known[uri] for uri in every], Policy(1), LATER)) == len(every)

    holding = retained = 0
    for start in range(0, len(conditions), 35):
        chunk = conditions[start : start + 35]
        sets = [F.collect_set(F.when(F.expr(each), F.col("__file__"))).alias(str(i)) for i, each in enumerate(chunk)]
        found = with_files.agg(*sets).collect()[0]
        for i, each in enumerate(chunk):
            holds = {normalize_uri(unquote(uri)) for uri in found[i]}
            answer = set(files_of(apply_condition(frame, str(table), each)))
            assert holds <= answer, f"{each} misses {holds - answer}, seed {seed}"
            with suppress(UncertainFiles):
                compared = engine.find_in_log(table, each, LATER)
                decided += 1
                assert ({file.uri for file in compared.files}, compared.active) == (answer, 0), f"{each}, seed {seed}"
            holding, retained = holding + len(holds), retained + len(answer)
    print(
        f"{len(conditions)} predicates on {len(every)} files: {holding} hold a match, {retained} are kept;"
        f" {decided} are decided without Delta too"
    )
