"""Many tables at once, each on its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from fixtures.mirror import Mirror, canonical
from mirrorfeed.config import Config, Table, load
from mirrorfeed.errors import Terminal, Transient
from mirrorfeed.feed.ranges import FeedOff, Gap, PartitionsChanged, SourceRecreated
from mirrorfeed.feed.read import FeedUnreadable
from mirrorfeed.landing.schema import ColumnsDropped, IncompatibleSchema
from mirrorfeed.publish.fleet import decisions, plan_of, publish_tables, statuses
from mirrorfeed.publish.outcome import Outcome, Progress
from mirrorfeed.stores import FolderStore, StoreUnavailable
from tests.delta import FEED, DeltaTable

OFF, ON = (f"ALTER TABLE {{}} SET TBLPROPERTIES ({FEED} = {on})" for on in ("false", "true"))


@pytest.fixture
def configured(tmp_path: Path) -> Callable[..., Config]:
    """A configuration with a table for each target and the line of its keys."""

    def write(*targets: str, zone: str = "zone", more: str = "") -> Config:
        tables = "".join(f"  - {{source: ./{name}, target: {name}, keys: [id]}}\n" for name in targets)
        (tmp_path / "mirrorfeed.yml").write_text(f"landing_zone: ./{zone}\n{more}tables:\n{tables}")
        return load(tmp_path / "mirrorfeed.yml")

    return write


def never(_seconds: float) -> None:
    raise AssertionError("a terminal error is not waited for")


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_failure_of_one_table_never_stops_the_others(
    spark: SparkSession, tmp_path: Path, configured: Callable[..., Config]
) -> None:
    for name in ("a", "c"):
        DeltaTable(spark, tmp_path / name).insert(1, 2)
    DeltaTable(spark, tmp_path / "b", feed=False)
    DeltaTable(spark, tmp_path / "d").sql("INSERT INTO {} VALUES (NULL, 'x')")
    seen: list[str] = []

    def on_step(table: str, _progress: Progress) -> None:
        seen.append(table)

    outcomes = publish_tables(spark, configured("a", "b", "c", "d"), on_step=on_step, sleep=never)
    assert [outcome.table for outcome in outcomes] == ["a", "b", "c", "d"]
    errors = [outcome.error for outcome in outcomes]
    assert errors[0] is None
    assert errors[2] is None
    assert isinstance(errors[1], FeedOff)
    assert "a key is NULL (id = NULL)" in str(errors[3])
    assert [outcome.progress.rows for outcome in outcomes] == [{"insert": 2}, {}, {"insert": 2}, {}]
    assert [outcome.lag_versions for outcome in outcomes] == [0, None, 0, None]
    assert {"a", "c"} <= set(seen)
    assert "b" not in seen  # nothing was begun for it


def test_only_the_tables_that_are_named_are_published(
    spark: SparkSession, tmp_path: Path, configured: Callable[..., Config]
) -> None:
    for name in ("a", "b"):
        DeltaTable(spark, tmp_path / name)
    outcomes = publish_tables(spark, configured("a", "b"), ["b"], sleep=never)
    assert [(outcome.table, outcome.error) for outcome in outcomes] == [("b", None)]
    assert [path.name for path in (tmp_path / "zone").iterdir()] == ["b"]


def test_what_may_pass_is_tried_again_with_longer_and_longer_pauses(
    spark: SparkSession, tmp_path: Path, configured: Callable[..., Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(store: FolderStore, path: str, _: bytes) -> None:
        raise StoreUnavailable("create", store.address(path), "a fault whose cause is not known to stay")

    DeltaTable(spark, tmp_path / "a")
    monkeypatch.setattr(FolderStore, "create", fail)
    pauses: list[float] = []
    (outcome,) = publish_tables(spark, configured("a"), sleep=pauses.append)
    assert pauses == sorted(pauses)
    assert len(pauses) == outcome.tries - 1 == 3
    assert str(tmp_path / "zone") in str(outcome.error)

    def mend(_seconds: float) -> None:
        monkeypatch.undo()

    (outcome,) = publish_tables(spark, configured("a"), sleep=mend)
    assert (outcome.error, outcome.tries, outcome.progress.publications) == (None, 2, 1)


def test_a_decision_is_told_for_each_table_and_nothing_is_touched(
    spark: SparkSession, tmp_path: Path, configured: Callable[..., Config]
) -> None:
    tables = {name: DeltaTable(spark, tmp_path / name) for name in ("new", "behind", "done")}
    DeltaTable(spark, tmp_path / "switched_off", feed=False)
    config = configured("new", "behind", "done", "switched_off", "nowhere")
    publish_tables(spark, config, ["behind", "done"], sleep=never)
    tables["behind"].insert(1)
    before = everything(tmp_path)
    found = decisions(spark, config)
    assert [(name, str(decision)) for name, decision in found[:3]] == [
        ("new", "snapshot at version 0"),
        ("behind", "version 1"),
        ("done", "nothing new, version 0 is published"),
    ]
    assert isinstance(found[3][1], FeedOff)
    assert "There is no Delta table at" in str(found[4][1])
    assert everything(tmp_path) == before


def test_a_status_is_told_for_each_table(
    spark: SparkSession, tmp_path: Path, configured: Callable[..., Config]
) -> None:
    tables = {name: DeltaTable(spark, tmp_path / name) for name in ("new", "behind", "done")}
    config = configured("new", "behind", "done", "nowhere")
    publish_tables(spark, config, ["behind", "done"], sleep=never)
    for i in range(2):
        tables["behind"].insert(i)
    before = everything(tmp_path)
    new, behind, done, nowhere = statuses(spark, config)
    assert (new.published_version, new.newest_version, new.lag_versions, new.lag_seconds) == (None, 0, None, None)
    assert (behind.published_version, behind.newest_version, behind.lag_versions) == (0, 2, 2)
    assert behind.lag_seconds is not None
    assert 0 <= behind.lag_seconds < 3600
    assert (done.lag_versions, done.lag_seconds, done.not_renamed, done.not_consumed) == (0, 0.0, 0, 0)
    assert (nowhere.error or "").startswith(f"There is no Delta table at {tmp_path}/nowhere")
    assert everything(tmp_path) == before


def test_the_status_of_a_table_that_was_created_again_is_no_negative_lag(
    spark: SparkSession, tmp_path: Path, configured: Callable[..., Config]
) -> None:
    name = "made_again"
    source = f"spark_catalog.default.{name}"
    (tmp_path / "mirrorfeed.yml").write_text(
        f"landing_zone: ./zone\ntables:\n  - {{source: default.{name}, target: {name}, keys: [id]}}\n"
    )
    config = load(tmp_path / "mirrorfeed.yml")
    create = f"CREATE TABLE {source} (id int) USING DELTA TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    try:
        spark.sql(create)
        spark.sql(f"INSERT INTO {source} VALUES (1)")
        publish_tables(spark, config, sleep=never)
        spark.sql(f"DROP TABLE {source}")
        spark.sql(create)
        (outcome,) = publish_tables(spark, config, sleep=never)
        assert isinstance(outcome.error, SourceRecreated)
        (found,) = statuses(spark, config)
        assert "is another table than the one that was published" in (found.error or "")
        assert (found.lag_versions, found.lag_seconds) == (None, None)
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {source}")


class Catalog:
    """Unity Catalog as databricks-sdk shows it, with one primary key for all tables."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.tables = self

    def get(self, full_name: str) -> Any:
        self.asked.append(full_name)
        key = SimpleNamespace(primary_key_constraint=SimpleNamespace(child_columns=["order_id", "line"]))
        return SimpleNamespace(table_constraints=[key], row_filter=None, columns=None)


@pytest.mark.parametrize(
    ("source", "keys", "expected", "asked"),
    [
        ("main.sales.orders", None, ("order_id", "line"), ["main.sales.orders"]),
        ("main.sales.orders", ["id"], ("id",), ["main.sales.orders"]),  # for its row filter
        ("main.sales.orders", [], (), ["main.sales.orders"]),
        ("sales.orders", None, (), []),
        ("/tables/orders", None, (), []),
    ],
)
def test_keys_left_out_are_asked_of_unity_catalog(
    source: str, keys: list[str] | None, expected: tuple[str, ...], asked: list[str]
) -> None:
    catalog = Catalog()
    given = {} if keys is None else {"keys": keys}
    table = Table.model_validate({"source": source, "target": "sales.orders", **given})
    assert plan_of(table, lambda: catalog).keys == expected
    assert catalog.asked == asked


def test_an_outcome_counts_the_versions_that_are_not_published_yet() -> None:
    assert Outcome("t", Progress(published=4, latest=7), 1.0).lag_versions == 3
    assert Outcome("t", Progress(latest=7), 1.0).lag_versions is None


def repartition(table: DeltaTable) -> None:
    rows = table.spark.read.table(table.source.sql).write.format("delta").mode("overwrite")
    rows.option("overwriteSchema", "true").partitionBy("v").save(str(table.path))


def statements(*texts: str) -> Callable[[DeltaTable], None]:
    def run(table: DeltaTable) -> None:
        for text in texts:
            table.sql(text)

    return run


RENAME, DROP = statements("ALTER TABLE {} RENAME COLUMN v TO w"), statements("ALTER TABLE {} DROP COLUMN v")
GAP = statements(OFF, "INSERT INTO {} VALUES (3, 'c')", ON)


COME_AND_GO = statements("ALTER TABLE {} ADD COLUMN w int", "UPDATE {} SET w = 1", "RESTORE {} TO VERSION AS OF 1")


@pytest.mark.parametrize(
    ("option", "finding", "change"),
    [
        ("on_schema_change: stop", IncompatibleSchema, RENAME),
        ("on_schema_change: reseed", IncompatibleSchema, RENAME),
        ("on_gap: stop", Gap, GAP),
        ("on_gap: reseed", Gap, GAP),
        ("on_schema_change: reseed", PartitionsChanged, repartition),
        ("on_schema_change: reseed", FeedUnreadable, COME_AND_GO),
        ("on_dropped_column: reseed", ColumnsDropped, DROP),
    ],
)
def test_a_table_that_cannot_go_on_is_reseeded_only_where_the_configuration_says_so(
    spark: SparkSession,
    tmp_path: Path,
    configured: Callable[..., Config],
    option: str,
    finding: type[Exception],
    change: Callable[[DeltaTable], None],
) -> None:
    mapping = "none" if finding is FeedUnreadable else "name"
    table = DeltaTable(spark, tmp_path / "a", properties={"delta.columnMapping.mode": mapping})
    table.insert(1, 2)
    config = configured("a", more=f"{option}\n")
    publish_tables(spark, config, sleep=never)
    change(table)
    assert [type(decision) for _, decision in decisions(spark, config)] == [finding]
    dropped: list[str] = []

    @contextmanager
    def dropping(table: Table) -> Iterator[None]:
        yield
        assert not (tmp_path / "zone" / table.target.folder).exists()
        dropped.append(str(table.target))

    (outcome,) = publish_tables(spark, config, sleep=never, dropping=dropping)
    if option.endswith("stop"):
        assert (type(outcome.error), outcome.reseeded, dropped) == (finding, None, [])
        return
    assert (outcome.error, type(outcome.reseeded), dropped) == (None, finding, ["a"])
    assert outcome.progress.to_version_inclusive == table.latest
    mirror = Mirror(FolderStore(str(tmp_path / "zone")), "a")
    mirror.take()
    assert canonical(mirror.rows) == canonical(table.rows())


class NoRoom(Terminal):
    def what(self) -> str:
        return "No."

    def next(self) -> str:
        return ""


class Waiting(Transient):
    def what(self) -> str:
        return "The service is busy."

    def next(self) -> str:
        return "Wait."


@pytest.fixture
def with_gap(spark: SparkSession, tmp_path: Path, configured: Callable[..., Config]) -> Config:
    """A table whose changes cannot be read, to be started again."""
    table = DeltaTable(spark, tmp_path / "a")
    config = configured("a", more="on_gap: reseed\n")
    publish_tables(spark, config, sleep=never)
    for statement in (OFF, ON):
        table.sql(statement)
    return config


def test_a_table_that_could_not_be_started_again_is_not_told_as_if_it_was(
    spark: SparkSession, tmp_path: Path, with_gap: Config
) -> None:
    @contextmanager
    def dropping(_table: Table) -> Iterator[None]:
        raise NoRoom
        yield

    before = everything(tmp_path / "zone")
    (outcome,) = publish_tables(spark, with_gap, sleep=never, dropping=dropping)
    assert (str(outcome.error), outcome.reseeded) == ("No.", None)
    assert everything(tmp_path / "zone") == before


def test_starting_again_has_as_many_tries_as_publishing(spark: SparkSession, with_gap: Config) -> None:
    asked: list[str] = []

    @contextmanager
    def dropping(table: Table) -> Iterator[None]:
        asked.append(str(table.target))
        if len(asked) < 4:
            raise Waiting
        yield

    (outcome,) = publish_tables(spark, with_gap, sleep=lambda _: None, dropping=dropping)
    assert (outcome.error, type(outcome.reseeded), outcome.tries, len(asked)) == (None, Gap, 5, 4)
