from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mirrorfeed.landing.schema import FEED_COLUMNS, MARKER, Column, Problem, columns_of, reserved_names
from mirrorfeed.mirror.verify.row_comparison import compare_rows
from mirrorfeed.publish import row_cancellation, rows_and_markers
from mirrorfeed.publish.files.duplicate_keys import key_hashes
from mirrorfeed.publish.rows_and_markers import (
    PROBLEM,
    inserts,
    key_problems,
    landing_rows,
    snapshot_rows,
)
from mirrorfeed.source.reader import without_collations

pytestmark = pytest.mark.connect

COLUMNS = (Column("id", "integer"), Column("v", "string"))
NULL, SHARED = Problem.NULL_KEY.value, Problem.DUPLICATE_KEY.value
DELETE, UPSERT = 2, 4

Event = tuple[int, str, int | None, str | None]
"""Version, change, key, value."""


def feed(spark: SparkSession, events: Sequence[Event]) -> DataFrame:
    kinds = {"+": "insert", "-": "delete", "<": "update_preimage", ">": "update_postimage"}
    rows = [(key, value, kinds[kind], version) for version, kind, key, value in events]
    return spark.createDataFrame(rows, "id int, v string, _change_type string, _commit_version long").selectExpr(
        "*", "timestamp '2026-01-01 00:00:00' AS _commit_timestamp"
    )


def net(feed: DataFrame, columns: Sequence[Column], keys: Sequence[str]) -> DataFrame:
    """The complete result of both queries, as a publication stages it."""
    decided = landing_rows(rows_and_markers.net(feed, columns, keys), columns, keys).where(f"{MARKER} IS NOT NULL")
    return decided.union(landing_rows(row_cancellation.net_of_other_keys(feed, columns, keys), columns, keys))


def full(feed: DataFrame, columns: Sequence[Column], keys: Sequence[str], *, exact: bool = False) -> DataFrame:
    return landing_rows(row_cancellation.full(feed, columns, keys, exact=exact), columns, keys)


def in_one_query(
    spark: SparkSession, translate: Any, cases: Mapping[str, Sequence[Event]], **options: bool
) -> dict[str, list[tuple[Any, ...]]]:
    """Translate all cases in one query. The name of the case is part of the key, so cases do not affect each other."""
    kinds = {"+": "insert", "-": "delete", "<": "update_preimage", ">": "update_postimage"}
    rows = [(case, key, v, kinds[kind], at) for case, events in cases.items() for at, kind, key, v in events]
    events = spark.createDataFrame(rows, "case string, id int, v string, _change_type string, _commit_version long")
    found: dict[str, list[tuple[Any, ...]]] = {case: [] for case in cases}
    columns = (Column("case", "string"), *COLUMNS)
    for case, *row in landed(translate(events, columns, ["case", "id"], **options)):
        found[case].append(tuple(row))
    return found


def landed(rows: DataFrame) -> list[tuple[Any, ...]]:
    """Key, value and marker, and the problem if there is one."""
    assert rows.columns[-1] == PROBLEM
    return [tuple(row)[: -1 if row[PROBLEM] is None else None] for row in rows.collect()]


CASES: dict[str, tuple[list[Event], list[tuple[Any, ...]], list[tuple[Any, ...]]]] = {
    # events, rows with net, rows with full
    "an insert": ([(1, "+", 1, "a")], [(1, "a", UPSERT)], [(1, "a", UPSERT)]),
    "a delete carries the key alone": ([(1, "-", 1, "a")], [(1, None, DELETE)], [(1, None, DELETE)]),
    "an update": ([(1, "<", 1, "a"), (1, ">", 1, "b")], [(1, "b", UPSERT)], [(1, "b", UPSERT)]),
    "the last of several updates": (
        [(1, "<", 1, "a"), (1, ">", 1, "b"), (2, "<", 1, "b"), (2, ">", 1, "c")],
        [(1, "c", UPSERT)],
        [(1, "b", UPSERT), (1, "c", UPSERT)],
    ),
    "a row that came and went": (
        [(1, "+", 1, "a"), (2, "-", 1, "a")],
        [],
        [(1, "a", UPSERT), (1, None, DELETE)],
    ),
    "a row that went and came": (
        [(1, "-", 1, "a"), (2, "+", 1, "b")],
        [(1, "b", UPSERT)],
        [(1, None, DELETE), (1, "b", UPSERT)],
    ),
    "a row that was exchanged in one commit": (
        [(1, "-", 1, "a"), (1, "+", 1, "b")],
        [(1, "b", UPSERT)],
        [(1, "b", UPSERT)],
    ),
    "a changed key": (
        [(1, "<", 1, "a"), (1, ">", 2, "a")],
        [(1, None, DELETE), (2, "a", UPSERT)],
        [(1, None, DELETE), (2, "a", UPSERT)],
    ),
    "keys that were swapped": (
        [(1, "<", 1, "a"), (1, ">", 2, "a"), (1, "<", 2, "b"), (1, ">", 1, "b")],
        [(1, "b", UPSERT), (2, "a", UPSERT)],
        [(1, "b", UPSERT), (2, "a", UPSERT)],
    ),
    "a key that changed and changed back": (
        [(1, "<", 1, "a"), (1, ">", 2, "a"), (2, "<", 2, "a"), (2, ">", 1, "b")],
        [(1, "b", UPSERT)],
        [(1, None, DELETE), (2, "a", UPSERT), (2, None, DELETE), (1, "b", UPSERT)],
    ),
    "a key taken over from a row that was deleted": (
        [(1, "-", 2, "b"), (1, "<", 1, "a"), (1, ">", 2, "a")],
        [(1, None, DELETE), (2, "a", UPSERT)],
        [(1, None, DELETE), (2, "a", UPSERT)],
    ),
    "values that are NULL": ([(1, "<", 1, "a"), (1, ">", 1, None)], [(1, None, UPSERT)], [(1, None, UPSERT)]),
    "a key that is NULL": (
        [(1, "+", None, "a")],
        [(None, "a", UPSERT, NULL)],
        [(None, "a", UPSERT, NULL)],
    ),
    "a key that became NULL": (
        [(1, "<", 1, "a"), (1, ">", None, "a")],
        [(None, "a", UPSERT, NULL), (1, None, DELETE)],
        [(1, None, DELETE), (None, "a", UPSERT, NULL)],
    ),
    "a NULL key that was there before goes": (
        [(1, "-", None, "a")],
        [(None, None, DELETE, NULL)],
        [(None, None, DELETE, NULL)],
    ),
    "two rows inserted with one key": (
        [(1, "+", 1, "a"), (1, "+", 1, "b")],
        [(1, "b", UPSERT, SHARED)],
        [(1, "b", UPSERT, SHARED)],
    ),
    "a second row with the key of one that was updated": (
        [(1, "<", 1, "a"), (1, ">", 1, "b"), (1, "+", 1, "c")],
        [(1, "c", UPSERT, SHARED)],
        [(1, "c", UPSERT, SHARED)],
    ),
    "a key changed to one that another row keeps": (
        [(1, "<", 1, "a"), (1, ">", 2, "a"), (1, "<", 2, "b"), (1, ">", 2, "c")],
        [(1, None, DELETE), (2, "c", UPSERT, SHARED)],
        [(1, None, DELETE), (2, "c", UPSERT, SHARED)],
    ),
    "both rows of one key deleted": (
        [(1, "-", 1, "a"), (1, "-", 1, "b")],
        [(1, None, DELETE)],
        [(1, None, DELETE)],
    ),
    "the older row of a key deleted after a newer one was inserted": (
        [(1, "+", 1, "b"), (2, "-", 1, "a")],
        [(1, "b", UPSERT)],
        [(1, "b", UPSERT)],
    ),
    "the older row deleted in the same commit": (
        [(1, "+", 1, "b"), (1, "-", 1, "a")],
        [(1, "b", UPSERT)],
        [(1, "b", UPSERT)],
    ),
    "the newer of two rows deleted": (
        [(1, "+", 1, "b"), (2, "-", 1, "b")],
        [],
        [(1, "b", UPSERT), (1, None, DELETE)],
    ),
    "a duplicate appended, both deleted, and one inserted": (
        [(1, "+", 1, "a"), (2, "-", 1, "a"), (2, "-", 1, "a"), (3, "+", 1, "a")],
        [],
        [],
    ),
    "rows that took turns": (
        [(1, "+", 1, "b"), (2, "-", 1, "a"), (3, "+", 1, "c"), (4, "-", 1, "b")],
        [(1, "c", UPSERT)],
        [(1, "c", UPSERT)],
    ),
    "an update that changed nothing": ([(1, "<", 1, "a"), (1, ">", 1, "a")], [], []),
    "a row written again as it was": ([(1, "-", 1, "a"), (1, "+", 1, "a")], [], []),
    "NULL as it was": ([(1, "<", 1, None), (1, ">", 1, None)], [], []),
    "one of two rewritten rows changed": (
        [(1, "-", 1, "a"), (1, "-", 2, "b"), (1, "+", 1, "a"), (1, "+", 2, "c")],
        [(2, "c", UPSERT)],
        [(2, "c", UPSERT)],
    ),
    "there and back again": (
        [(1, "<", 1, "a"), (1, ">", 1, "b"), (2, "<", 1, "b"), (2, ">", 1, "a")],
        [],
        [(1, "b", UPSERT), (1, "a", UPSERT)],
    ),
    "a second row equal to one that is there": (
        [(1, "-", 1, "a"), (1, "+", 1, "a"), (1, "+", 1, "a")],
        [(1, "a", UPSERT)],
        [(1, "a", UPSERT)],
    ),
    "a NULL key written again": ([(1, "-", None, "a"), (1, "+", None, "a")], [], []),
}


@pytest.fixture(scope="module")
def by_range(spark: SparkSession) -> dict[str, list[tuple[Any, ...]]]:
    return in_one_query(spark, net, {case: events for case, (events, _, _) in CASES.items()})


@pytest.fixture(scope="module")
def by_commit(spark: SparkSession) -> dict[str, list[tuple[Any, ...]]]:
    return in_one_query(spark, full, {case: events for case, (events, _, _) in CASES.items()})


@pytest.mark.parametrize("case", CASES)
def test_net_range_has_one_row_per_key(by_range: dict[str, list[tuple[Any, ...]]], case: str) -> None:
    _, expected, _ = CASES[case]
    # The row that is reported with the problem can be either row of the key.
    found = {row if len(row) == 3 else (row[0], *row[2:]) for row in by_range[case]}
    assert found == {row if len(row) == 3 else (row[0], *row[2:]) for row in expected}


@pytest.mark.parametrize("case", CASES)
def test_full_range_is_in_commit_order_with_deletes_before_upserts(
    by_commit: dict[str, list[tuple[Any, ...]]], case: str
) -> None:
    _, _, expected = CASES[case]
    assert [row if len(row) == 3 else (row[0], *row[2:]) for row in by_commit[case]] == [
        row if len(row) == 3 else (row[0], *row[2:]) for row in expected
    ]


@pytest.mark.parametrize("translate", [net, full])
def test_key_inserted_twice_in_different_versions_is_refused(spark: SparkSession, translate: Any) -> None:
    rows = translate(feed(spark, [(1, "+", 1, "a"), (2, "+", 1, "b")]), COLUMNS, ["id"])
    ((key, value, *rest),) = landed(rows)
    assert (key, rest) == (1, [UPSERT, SHARED])
    assert value in ("a", "b")


RIGHT_AT_THE_END: dict[str, tuple[list[Event], list[tuple[Any, ...]]]] = {
    "NULL came and went": (
        [(1, "+", None, "a"), (2, "<", None, "a"), (2, ">", 5, "a")],
        [(5, "a", UPSERT)],
    ),
    "a second row came and went": (
        [(1, "+", 1, "a"), (1, "+", 1, "b"), (2, "-", 1, "b"), (3, "<", 1, "a"), (3, ">", 1, "c")],
        [(1, "c", UPSERT)],
    ),
    "two rows came and went": (
        [(1, "+", 1, "a"), (1, "+", 1, "b"), (2, "-", 1, "a"), (2, "-", 1, "b")],
        [],
    ),
    "one of two NULL keys stays": (
        [(1, "+", None, "a"), (1, "+", None, "b"), (2, "-", None, "a")],
        [(None, None, UPSERT, NULL)],
    ),
    "the second row stays": (
        [(1, "+", 1, "a"), (2, "<", 1, "a"), (2, ">", 1, "b"), (2, "+", 1, "c")],
        [(1, "c", UPSERT, SHARED)],
    ),
}


@pytest.fixture(scope="module")
def at_the_end(spark: SparkSession) -> dict[str, dict[str, list[tuple[Any, ...]]]]:
    cases = {case: events for case, (events, _) in RIGHT_AT_THE_END.items()}
    return {translate.__name__: in_one_query(spark, translate, cases) for translate in (net, full)}


@pytest.mark.parametrize("translate", ["net", "full"])
@pytest.mark.parametrize("case", RIGHT_AT_THE_END)
def test_key_valid_at_the_end_of_a_range_is_published(
    at_the_end: dict[str, dict[str, list[tuple[Any, ...]]]], translate: str, case: str
) -> None:
    found = [row if len(row) == 3 else (row[0], *row[2:]) for row in at_the_end[translate][case]]
    assert found == [row if len(row) == 3 else (row[0], *row[2:]) for row in RIGHT_AT_THE_END[case][1]]


def test_exact_row_markers_never_insert_an_existing_key(spark: SparkSession) -> None:
    events: list[Event] = [
        *[(1, "+", 1, "inserted"), (2, "<", 1, "inserted"), (2, ">", 1, "updated"), (3, "-", 1, "updated")],
        *[(1, "-", 2, "old"), (1, "+", 2, "exchanged")],
        *[(1, "<", 3, "c"), (1, ">", 4, "c")],  # a changed key
        *[(2, "<", 5, "e"), (2, ">", 6, "e"), (2, "<", 6, "f"), (2, ">", 5, "f")],  # swapped keys
        *[(1, "+", 7, "x"), (1, "+", 7, "y"), (2, "-", 7, "x"), (2, "-", 7, "y"), (3, "+", 7, "z")],  # wrong once
        *[(1, "+", None, "n"), (2, "<", None, "n"), (2, ">", 8, "n")],
    ]
    assert landed(full(feed(spark, events), COLUMNS, ["id"], exact=True)) == [
        *[(3, None, 2), (1, "inserted", 0), (2, "exchanged", 1), (4, "c", 0)],
        *[(1, "updated", 1), (5, "f", 1), (6, "e", 1), (8, "n", 0)],
        *[(1, None, 2), (7, None, 2), (7, "z", 0)],
    ]


def test_duplicate_key_does_not_affect_other_keys(spark: SparkSession) -> None:
    events: list[Event] = [(1, "+", 1, "a"), (1, "+", 1, "b"), (1, "+", 2, "x"), (2, "-", 2, "x"), (3, "-", 1, "b")]
    events += [(4, "<", 1, "a"), (4, ">", 1, "c")]
    assert landed(full(feed(spark, events), COLUMNS, ["id"])) == [(2, "x", UPSERT), (2, None, DELETE), (1, "c", UPSERT)]


def test_order_within_a_feed_does_not_matter(spark: SparkSession) -> None:
    events: list[Event] = [(3, "+", 1, "c"), (1, "+", 1, "a"), (2, "-", 1, "a"), (2, "+", 2, "x"), (3, "-", 2, "x")]
    for order in (events, events[::-1]):
        assert landed(net(feed(spark, order), COLUMNS, ["id"])) == [(1, "c", UPSERT)]


def test_marker_is_an_int_column_after_all_others(spark: SparkSession) -> None:
    for rows in (net(feed(spark, []), COLUMNS, ["id"]), full(feed(spark, []), COLUMNS, ["id"])):
        assert rows.columns == ["id", "v", MARKER, PROBLEM]
        assert [rows.schema[name].dataType.simpleString() for name in (MARKER, PROBLEM)] == ["int", "int"]


def test_table_without_keys_accepts_only_inserts_in_commit_order(spark: SparkSession) -> None:
    rows = inserts(feed(spark, [(2, "+", 2, "b"), (1, "+", 1, "a"), (3, "-", 1, "a"), (4, "<", 2, "b")]), COLUMNS)
    assert rows.columns == ["id", "v", PROBLEM]
    refused = Problem.CHANGE_WITHOUT_KEY.value
    assert [tuple(row) for row in rows.collect()] == [
        (1, "a", None),
        (2, "b", None),
        (1, "a", refused),
        (2, "b", refused),
    ]


def test_snapshot_rows_are_unchanged(spark: SparkSession) -> None:
    rows = snapshot_rows(feed(spark, [(1, "+", 1, "a"), (1, "+", 1, "b")]), COLUMNS)
    assert [tuple(row) for row in rows.collect()] == [(1, "a", None), (1, "b", None)]


def test_snapshot_row_with_null_key_has_a_problem_and_hashes_are_stable(spark: SparkSession) -> None:
    snapshot = spark.createDataFrame([(1, "a"), (1, "a"), (1, "b"), (None, "a")], "id int, v string")
    rows = snapshot_rows(snapshot, COLUMNS, ["id", "v"])
    assert rows.columns == ["id", "v", PROBLEM]
    assert [row[PROBLEM] for row in rows.collect()] == [None, None, None, NULL]
    hashes = [row[0] for row in key_hashes(rows, ["id", "v"]).collect()]
    assert [each == hashes[0] for each in hashes] == [True, True, False, False]


def test_null_and_duplicate_keys_of_a_snapshot_are_found(spark: SparkSession) -> None:
    snapshot = spark.createDataFrame(
        [(1, "a"), (1, "b"), (1, "b"), (2, None), (2, None), (None, "a")], "id int, v string"
    )
    found = {tuple(row) for row in key_problems(snapshot, ["id", "v"], 10).collect()}
    assert found == {(1, "b", SHARED), (2, None, NULL), (None, "a", NULL)}
    assert key_problems(snapshot, ["id", "v"], 2).count() == 2
    assert key_problems(snapshot.where("v = 'a' AND id IS NOT NULL"), ["id", "v"], 2).isEmpty()


def test_net_changes_of_random_histories_are_those_of_cancellation(spark: SparkSession) -> None:
    """Rows share keys, come back, and are rewritten. The model cancels equal rows, without hashes and without order."""
    random, events, expected = Random(71), list[tuple[Any, ...]](), dict[int, Any]()
    for key in range(4_000):
        live = random.choices("ab", k=random.choice([0, 1, 1, 1, 2]))
        counts = Counter[str]()
        for version in range(random.randrange(1, 6)):
            for _ in range(random.choice([0, 1, 1, 1, 2])):
                removed = random.choice(live) if live and random.random() < 0.7 else None
                added = random.choice("abc") if removed is None or random.random() < 0.7 else None
                for row, kind, sign in ((removed, "update_preimage", -1), (added, "update_postimage", 1)):
                    if row is not None:
                        events.append((key, None if row == "b" else row, kind, version))
                        counts[row] += sign
                live += [added] if added else []
                if removed:
                    live.remove(removed)
        gained = list((+counts).elements())
        if gained or any(counts.values()):
            expected[key] = sorted(gained) if gained else None
    random.shuffle(events)
    feed = spark.createDataFrame(events, "id int, v string, _change_type string, _commit_version long")
    found, undecided = dict[int, Any](), 0
    for is_first, changes in ((True, rows_and_markers.net), (False, row_cancellation.net_of_other_keys)):
        rows = landing_rows(changes(feed, COLUMNS, ["id"]), COLUMNS, ["id"])
        for key, value, marker, problem in rows.collect():
            if marker is None:
                assert is_first
                assert (key, value, problem) == (None, None, None)
                undecided += 1
                continue
            assert key not in found
            found[key] = (value or "b", problem) if marker == UPSERT else None
    assert found.keys() == expected.keys()
    for key, gained in expected.items():
        if gained is None:
            assert found[key] is None
        else:
            value, problem = found[key]
            assert value in gained
            assert problem == (SHARED if len(gained) > 1 else None)
    assert undecided > 100


def test_several_key_columns_form_one_key(spark: SparkSession) -> None:
    rows = net(feed(spark, [(1, "+", 1, "a"), (1, "+", 1, "b"), (2, "-", 1, "a")]), COLUMNS, ["v", "id"])
    assert landed(rows) == [(1, "b", UPSERT)]


ODD_NAMES = ["a.b", "with space", "tick`ed", "quo'te\"d", "Łódź", "ünïcode→", "select", "a,b;c{}()=", "__live__"]
ODD_NAMES += [
    "__row__",
    "__hash__",
    "__gained__",
    "__count__",
    "__marker__",
    "_0",
    "_1",
    "count",
]


@pytest.mark.parametrize(
    "as_key", [pytest.param(False, id="value", marks=pytest.mark.slow), pytest.param(True, id="key")]
)
def test_columns_with_special_names_are_supported(spark: SparkSession, as_key: bool) -> None:
    names = ["id", *ODD_NAMES]
    events = feed(spark, [(1, "+", 1, "a"), (2, "-", 2, "b")])
    events = events.toDF("id", *events.columns[1:]).selectExpr(
        "id", *(f"concat(v, '{i}') AS `{name.replace('`', '``')}`" for i, name in enumerate(ODD_NAMES)), *FEED_COLUMNS
    )
    columns = [Column("id", "integer"), *(Column(name, "string") for name in ODD_NAMES)]
    keys = names if as_key else ["id"]
    for translate in (net, full):
        found = sorted(translate(events, columns, keys).collect())
        assert found[0].__fields__ == [*names, MARKER, PROBLEM]
        assert list(found[0]) == [1, *(f"a{i}" for i in range(len(ODD_NAMES))), UPSERT, None]
        assert list(found[1])[-2:] == [DELETE, None]
        assert list(found[1])[1:-2] == [f"b{i}" if as_key else None for i in range(len(ODD_NAMES))]
    assert list(snapshot_rows(events, columns).first())[1] == "a0"
    assert key_problems(events, keys, 5).isEmpty()


def test_problem_column_has_a_reserved_name() -> None:
    assert reserved_names([PROBLEM]) == [PROBLEM]


@pytest.fixture
def oslo(spark: SparkSession) -> Iterator[SparkSession]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Oslo")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", before)


def test_nested_values_become_json_independent_of_the_session(oslo: SparkSession) -> None:
    moment = "timestamp'2026-07-01 10:00:00.123456+00:00'"
    snapshot = oslo.sql(f"""SELECT
        named_struct('t', {moment}, 'n', timestamp_ntz'2026-07-01 10:00:00.123456', 'd', date'2026-07-01',
                     'price', 1.50BD, 'b', X'00FF', 'none', CAST(NULL AS int), 'word', 'Łódź "x"') AS s,
        array({moment}) AS a, array() AS e, array(CAST(NULL AS struct<a: int>)) AS an,
        map('k', CAST(NULL AS int)) AS m, map(1, 'one') AS mi, CAST(NULL AS struct<a: int>) AS gone""")
    columns = columns_of("t", json.loads(snapshot.schema.json()))
    assert {column.type for column in columns} == {"json"}
    row = snapshot_rows(snapshot, columns).first()
    assert row.asDict() | {PROBLEM: None} == {
        "s": '{"t":"2026-07-01T10:00:00.123456Z","n":"2026-07-01T10:00:00.123456","d":"2026-07-01","price":1.50,'
        '"b":"AP8=","none":null,"word":"Łódź \\"x\\""}',
        "a": '["2026-07-01T10:00:00.123456Z"]',
        "e": "[]",
        "an": "[null]",
        "m": '{"k":null}',
        "mi": '{"1":"one"}',
        "gone": None,
        PROBLEM: None,
    }


def test_decimals_in_map_keys_keep_all_digits(spark: SparkSession) -> None:
    snapshot = spark.sql("""SELECT 1 AS id,
        map(12345678901234567890.123456789012345678BD, 1, -0.000000000000000001BD, 2) AS plain,
        map(1.000000000000000001BD, 1, 1.000000000000000002BD, 2) AS close,
        map(named_struct('d', 1.000000000000000001BD, 's', 'Łódź "x"\u2028\n', 'none', CAST(NULL AS int)), 1) AS st,
        map(array(1.000000000000000001BD, NULL), 1) AS ar""")
    columns = columns_of("t", json.loads(snapshot.schema.json()))
    rows = snapshot_rows(snapshot, columns).drop(PROBLEM)
    texts = rows.first().asDict()
    assert json.loads(texts["plain"]) == {"12345678901234567890.123456789012345678": 1, "-1E-18": 2}
    assert json.loads(texts["close"]) == {"1.000000000000000001": 1, "1.000000000000000002": 2}
    (struct,) = json.loads(texts["st"])
    assert struct.startswith('{"d":1.000000000000000001,')
    assert json.loads(struct) == {"d": 1.0, "s": 'Łódź "x"\u2028\n', "none": None}
    assert json.loads(texts["ar"]) == {"[1.000000000000000001,null]": 1}
    assert compare_rows(0, snapshot, rows, ("id",)).equal
    for name in ("close", "st", "ar"):  # as if the digits of the key had been lost
        rounded = rows.withColumn(name, F.regexp_replace(name, "1[.]000000000000000001", "1.0"))
        assert not compare_rows(0, snapshot, rounded, ("id",)).equal


TYPED = [
    # type, value, other value, whether this is a change
    ("double", "double('NaN')", "double('NaN')", False),
    ("double", "1.0D", "double('NaN')", True),
    ("double", "0.0D", "double('-0.0')", True),
    ("float", "float('-0.0')", "0.0F", True),
    ("float", "float('-0.0')", "float('-0.0')", False),
    ("struct<a: double>", "named_struct('a', 0.0D)", "named_struct('a', double('-0.0'))", True),
    ("decimal(38,18)", "1.000000000000000001BD", "1.000000000000000002BD", True),
    ("binary", "X'00FF'", "X'00FF'", False),
    ("struct<a: int, b: array<int>>", "named_struct('a', 1, 'b', array(1, NULL))",
     "named_struct('a', 1, 'b', array(1, NULL))", False),
    ("struct<a: int, b: array<int>>", "named_struct('a', 1, 'b', array(1, NULL))",
     "named_struct('a', 1, 'b', array(1, 2))", True),
    ("map<string, int>", "map('k', 1)", "map('k', 1)", False),
    ("map<string, int>", "map('k', 1)", "map('k', 2)", True),
]  # fmt: skip


def test_values_of_every_type_are_compared(spark: SparkSession) -> None:
    """Each type in its own column and row."""
    rows = []
    for at in range(len(TYPED)):
        for image, kind in ((1, "update_preimage"), (2, "update_postimage")):
            values = (
                f"CAST({case[image] if n == at else 'NULL'} AS {case[0]}) AS v{n}" for n, case in enumerate(TYPED)
            )
            rows.append(f"SELECT {at} AS id, {', '.join(values)}, '{kind}' AS _change_type, 5L AS _commit_version")
    events = spark.sql(" UNION ALL ".join(rows))
    columns = columns_of("t", json.loads(events.drop("_change_type", "_commit_version").schema.json()))
    changed = [at for at, (*_, other) in enumerate(TYPED) if other]
    for translate in (net, full):
        found = translate(events, columns, ["id"]).collect()
        assert sorted(row["id"] for row in found) == changed


def test_texts_equal_only_by_collation_are_different_keys_and_values(spark: SparkSession) -> None:
    collated = "string collate UTF8_LCASE"
    events = spark.createDataFrame(
        [
            *[("a", "x", "update_preimage", 5), ("A", "X", "update_postimage", 5)],
            *[("b", "y", "update_preimage", 5), ("b", "Y", "update_postimage", 5)],
        ],
        f"id {collated}, v {collated}, _change_type string, _commit_version long",
    )
    columns = (Column("id", "string"), Column("v", "string"))
    for translate in (net, full):
        found = translate(without_collations(events), columns, ["id"])
        assert sorted(landed(found)) == [("A", "X", UPSERT), ("a", None, DELETE), ("b", "Y", UPSERT)]
    assert key_problems(without_collations(events).where("v IN ('x', 'X')"), ["id"], 5).isEmpty()
