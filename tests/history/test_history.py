"""A history through Spark: it is exact after any crash, and every stored version can be rebuilt from it."""

from __future__ import annotations

import hmac
import json
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import deltalake
import pytest
from pyspark.sql import SparkSession

from fixtures.faults import Crash
from fixtures.mirror import canonical
from mirrorfeed.config.model import Table
from mirrorfeed.config.options import HistoryLocation
from mirrorfeed.history import append
from mirrorfeed.history import history_table as table
from mirrorfeed.history.append import AppendProgress, append_versions
from mirrorfeed.history.errors import (
    HistoryChangedError,
    HistorySourceReplacedError,
    hidden_values_changed,
    history_interrupted,
    not_a_history,
    not_in_history,
    reserved_history_names,
)
from mirrorfeed.history.history_record import HistoryRecord, find_disorder, parse_record
from mirrorfeed.history.history_table import HistoryTable
from mirrorfeed.history.replay import apply_changes, replay
from mirrorfeed.landing.names import Target
from mirrorfeed.publish.change_sources.feed_gap import segment_after
from mirrorfeed.runtime.credentials import Secret
from mirrorfeed.runtime.login import read_hash_key
from mirrorfeed.source.errors import copy_target_exists
from mirrorfeed.source.feed_activation import DEFAULT_LINE
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.table_info import read_table_info
from tests.raised import raises
from tests.support.commits import commit
from tests.support.delta import DeltaTable

MAPPED = {"delta.columnMapping.mode": "name"}


def configured(source: Source, location: HistoryLocation) -> Table:
    return Table(source=source, target=Target.parse("orders")).model_copy(update={"history": location})


class History:
    """A table and its history."""

    def __init__(self, source: DeltaTable) -> None:
        self.spark, self.folder, self.source = source.spark, source.path.parent, source
        location = HistoryLocation(location=Source(path=str(self.folder / "history")))
        self.config = configured(source.source, location)
        self.table = HistoryTable(self.spark, location.table)

    @classmethod
    def started(cls, spark: SparkSession, folder: Path, columns: str = "id int, v string", **options: Any) -> History:
        """Create a history of a new table."""
        return cls(DeltaTable(spark, folder / "orders", columns, **options))

    def copied(self, folder: Path) -> History:
        """Copy the history and its table."""
        shutil.copytree(self.folder / "history", folder / "history")
        return History(DeltaTable.copied(self.source, folder / "orders"))

    def keep(self, **options: Any) -> AppendProgress:
        return append_versions(self.spark, self.config.model_copy(update=options))

    def sql(self, statement: str) -> None:
        """Run a statement of another writer on the history."""
        if not commit(self.folder / "history", statement):
            self.spark.sql(statement.replace("{}", self.table.table.sql))

    def rebuilt(self, version: int) -> list[dict[str, Any]]:
        into = Source(path=str(self.folder / f"rebuilt{version}"))
        replay(self.spark, self.table.table, into, version)
        return DeltaTable.at(self.spark, self.folder / f"rebuilt{version}").rows()

    def numbers(self) -> list[tuple[int | None, int, int]]:
        """Versions and rows of the existing records, read without Spark."""
        stored = deltalake.DeltaTable(self.folder / "history").to_pyarrow_table(columns=["_record"])["_record"]
        records = [parse_record(text, "history") for text in stored.drop_null().to_pylist()]
        records.sort(key=lambda record: record.number)
        assert find_disorder(records) is None
        return numbers(records)

    def looks_the_same_to_spark(self) -> bool:
        with pytest.MonkeyPatch.context() as patched:
            stored = self.table.read_view()
            patched.setattr(table, "open_local_table", lambda *_: None)
            return stored is not None and stored == self.table.read_view()

    def equals_time_travel(self, *versions: int) -> bool:
        return all(canonical(self.rebuilt(each)) == canonical(self.source.rows(each)) for each in versions)


def numbers(records: Sequence[HistoryRecord]) -> list[tuple[int | None, int, int]]:
    """Versions and row count of each record."""
    return [(each.from_version_exclusive, each.to_version_inclusive, each.rows) for each in records]


def test_history_stores_hidden_columns_as_they_are_published_or_clear(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_hash_key.cache_clear()
    monkeypatch.setenv("HASH_KEY", "the secret of this test")
    clear = History.started(spark, tmp_path, "id int, v string, w int")
    hidden = {"transform": {"id": "hash", "v": "mask('-')"}, "hash_key": Secret(env="HASH_KEY")}
    clear.source.sql("INSERT INTO {} VALUES (1, 'a', 7)")
    clear.config = clear.config.model_copy(update=hidden)
    location = HistoryLocation(location=Source(path=str(tmp_path / "hidden")), hide_values=True)
    masked = History(clear.source)
    masked.config = clear.config.model_copy(update={"history": location})
    masked.table = HistoryTable(spark, location.table)
    for history in (clear, masked):
        history.keep()
    clear.source.sql("UPDATE {} SET v = 'b' WHERE id = 1")
    clear.source.sql("DELETE FROM {} WHERE id = 1")
    for history in (clear, masked):
        history.keep()
    stored = {each: deltalake.DeltaTable(tmp_path / each).to_pyarrow_table() for each in ("history", "hidden")}
    values = {each: {*zip(rows["v"].to_pylist(), rows["w"].to_pylist(), strict=True)} for each, rows in stored.items()}
    hashed = hmac.new(b"the secret of this test", b"1", "sha256").hexdigest()
    assert values["history"] - {(None, None)} == {("a", 7), ("b", 7)}
    assert values["hidden"] - {(None, None)} == {("-", 7)}
    assert set(stored["hidden"]["id"].to_pylist()) == {hashed, None}
    assert masked.rebuilt(1) == [{"id": hashed, "v": "-", "w": 7}]

    table_id = read_table_info(spark, clear.source.source).table_id
    bridges = [segment_after(spark, each.table.table, 1, table_id) is not None for each in (clear, masked)]
    assert bridges == [True, False], "hidden values would be transformed twice"
    with raises(hidden_values_changed, match="'id' was hash and is not hidden; 'v' was mask.'-'. and is mask"):
        masked.keep(transform={"v": "mask"})
    monkeypatch.setenv("HASH_KEY", "another secret of this test")
    read_hash_key.cache_clear()
    with raises(hidden_values_changed, match="`hash_key` was another secret"):
        masked.keep()
    assert clear.keep().records == [], "a history of source values depends on no transformation"
    read_hash_key.cache_clear()


def test_history_has_no_change_data_feed_even_by_default(spark: SparkSession, tmp_path: Path) -> None:
    history = History.started(spark, tmp_path)
    history.source.insert(1)
    setting = DEFAULT_LINE.split()[0]
    spark.conf.set(setting, "true")
    try:
        assert numbers(history.keep().records) == [(None, 1, 1)]
    finally:
        spark.conf.unset(setting)


@pytest.mark.slow
def test_history_with_merged_files_continues_after_a_partition_column_was_renamed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append, "_RECORDS_PER_COMPACTION", 3)
    history = History.started(spark, tmp_path, "id int, day int", properties=MAPPED, by="day")
    history.source.sql("INSERT INTO {} VALUES (1, 1)")
    assert numbers(history.keep().records) == [(None, 1, 1)]
    history.source.sql("INSERT INTO {} VALUES (2, 2)")
    history.source.sql("ALTER TABLE {} RENAME COLUMN day TO date")
    history.source.sql("INSERT INTO {} VALUES (3, 3)")
    assert [each.to_version_inclusive for each in history.keep().records] == [2, 3, 4]
    files = spark.read.table(history.table.table.sql).where("_commit_date IS NULL").inputFiles()
    assert len(files) == 2  # records 1 to 3 in one file, record 4 in another
    assert canonical(history.rebuilt(2)) == canonical([{"id": 1, "day": 1}, {"id": 2, "day": 2}])


@pytest.mark.slow
def test_every_version_can_be_rebuilt_despite_duplicates_and_new_columns(spark: SparkSession, tmp_path: Path) -> None:
    """Slow, because only Spark changes columns with column mapping, and three versions are rebuilt."""
    history = History.started(
        spark, tmp_path, "a int, b string, m map<string, double>, n struct<x: double>", properties=MAPPED
    )
    table = history.source
    row = "1, 'x', map('k', 1.5D), named_struct('x', -0.0D)"
    table.sql(f"INSERT INTO {{}} VALUES ({row}), ({row}), ({row}), (2, NULL, NULL, NULL)")
    assert numbers(history.keep().records) == [(None, 1, 4)]
    table.sql("ALTER TABLE {} ADD COLUMNS (c int)")
    table.sql(f"INSERT INTO {{}} VALUES ({row}, NULL), (3, NULL, NULL, NULL, 7)")
    table.sql("ALTER TABLE {} RENAME COLUMN b TO a_b")
    table.sql("ALTER TABLE {} DROP COLUMN c")
    table.sql("ALTER TABLE {} ADD COLUMNS (`c` int, `with space` string)")
    table.sql("UPDATE {} SET a_b = 'new' WHERE a > 1")
    table.sql("DELETE FROM {} WHERE a = 1")
    table.sql(f"INSERT INTO {{}} SELECT {row}, 3, 'y' FROM range(2)")
    last = table.latest
    assert numbers(history.keep().records) == [(1, 3, 2), (3, 4, 0), (4, 5, 0), (5, last, 10)]
    values = {"m": {"k": 1.5}, "n": {"x": -0.0}}
    expected = {
        3: [{"a": 1, "b": "x", **values}] * 4 + [{"a": 2}, {"a": 3, "c": 7}],
        4: [{"a": 1, "a_b": "x", **values}] * 4 + [{"a": 2}, {"a": 3, "c": 7}],
        last: [{"a": 1, "a_b": "x", **values, "c": 3, "with space": "y"}] * 2
        + [{"a": 2, "a_b": "new"}, {"a": 3, "a_b": "new"}],
    }
    for version, rows in expected.items():
        assert canonical(history.rebuilt(version)) == canonical(rows), version
    assert history.keep().records == []


def test_rows_that_differ_only_inside_a_nested_value_are_rebuilt_as_they_were(spark: SparkSession) -> None:
    rows = ("0.0D", "01"), ("-0.0D", "01"), ("0.0D", "02")
    selects = (
        f"SELECT named_struct('x', {x}) AS c0,"
        f" named_struct('v', parse_json('1'), 't', TIMESTAMP '2026-01-01 00:00:00.0000{micros}') AS c1"
        for x, micros in rows
    )
    inserts = spark.sql(" UNION ALL ".join(selects))
    types = [json.dumps(field["type"]) for field in json.loads(inserts.schema.json())["fields"]]
    record = SimpleNamespace(columns=[SimpleNamespace(name=f"c{i}", type=type_) for i, type_ in enumerate(types)])
    found = apply_changes(inserts.selectExpr("*", "'insert' AS _change_type"), cast(Any, record))
    values = found.selectExpr("cast(c0.x AS string)", "unix_micros(c1.t) % 10").collect()
    assert sorted(map(tuple, values)) == [("-0.0", 1), ("0.0", 1), ("0.0", 2)]


@pytest.fixture(scope="module")
def with_history(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> History:
    """A history with two rows, at version 1."""
    history = History.started(spark, tmp_path_factory.mktemp("kept"))
    history.source.insert(1, 2)
    history.keep()
    return history


Call = Callable[[], None]


def dying(history: History, patch: pytest.MonkeyPatch, verb: str, do: Callable[[Call], object]) -> None:
    """End the next run at its first call of `verb`, and run `do` instead of the call."""
    original = getattr(HistoryTable, verb)

    def dies(*arguments: Any, **options: Any) -> None:
        do(lambda: original(*arguments, **options))
        raise Crash

    with patch.context() as patched:
        patched.setattr(HistoryTable, verb, dies)
        with pytest.raises(Crash):
            history.keep()


def before(_: Call) -> None:
    """The call takes no effect."""


def after(call: Call) -> None:
    """The call takes effect."""
    call()


def test_next_run_after_a_crash_appends_each_version_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History.started(spark, tmp_path)
    history.source.insert(1, 2)
    dying(history, monkeypatch, "create", before)
    assert not (tmp_path / "history").exists()
    for verb, do in (("create", after), ("append", before)):
        dying(history, monkeypatch, verb, do)
        assert history.numbers() == []
    dying(history, monkeypatch, "append", after)
    assert history.numbers() == [(None, 1, 2)]
    history.source.sql("DELETE FROM {} WHERE id = 1")
    history.source.sql("OPTIMIZE {}")
    dying(history, monkeypatch, "append", after)
    assert history.keep().records == []
    assert history.numbers() == [(None, 1, 2), (1, history.source.latest, 1)]


@pytest.mark.slow
def test_concurrent_runs_and_maintenance_append_each_version_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History.started(spark, tmp_path)
    history.source.insert(1)
    with ThreadPoolExecutor(2) as pool:
        for each in [pool.submit(history.keep) for _ in range(2)]:
            each.result()
    assert history.numbers() == [(None, 1, 1)]
    history.source.insert(2)
    late: list[Call] = []
    dying(history, monkeypatch, "append", late.append)
    history.source.sql("OPTIMIZE {}")
    history.source.insert(3)
    assert [each.to_version_inclusive for each in history.keep().records] == [4]
    late[0]()
    assert history.numbers() == [(None, 1, 1), (1, 4, 2)]
    history.sql("OPTIMIZE {}")
    vacuumed = deltalake.DeltaTable(tmp_path / "history").vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert vacuumed
    assert history.keep().records == []
    assert history.looks_the_same_to_spark()
    assert history.equals_time_travel(3)


@pytest.mark.slow
def test_history_with_foreign_writes_is_neither_read_nor_appended_to(
    spark: SparkSession, with_history: History, tmp_path: Path
) -> None:
    history = with_history.copied(tmp_path)
    with pytest.raises(Exception, match="DELTA_CANNOT_MODIFY_APPEND_ONLY"):
        spark.sql(f"DELETE FROM {history.table.table.sql} WHERE id = 1")
    history.sql("INSERT INTO {} (id, v, _commit_date) VALUES (7, 'mine', DATE'2026-01-01')")
    history.source.insert(3)
    with pytest.raises(HistoryChangedError, match="it has 4 rows, and its records account for 3"):
        history.keep()
    with pytest.raises(HistoryChangedError):
        history.rebuilt(1)
    history.sql("ALTER TABLE {} SET TBLPROPERTIES (delta.appendOnly = false)")
    history.sql("RESTORE TABLE {} TO VERSION AS OF 1")  # with its table properties
    history.sql("ALTER TABLE {} SET TBLPROPERTIES (delta.appendOnly = false)")
    history.sql("UPDATE {} SET v = 'another' WHERE id = 1")
    with pytest.raises(HistoryChangedError, match="another process committed its version 6"):
        history.keep()
    history.sql("RESTORE TABLE {} TO VERSION AS OF 4")
    history.keep()
    assert history.equals_time_travel(2)
    history.sql("ALTER TABLE {} SET TBLPROPERTIES (delta.appendOnly = false)")
    history.sql("RESTORE TABLE {} TO VERSION AS OF 1")
    with pytest.raises(HistoryChangedError, match="restored to a version before record 2"):
        history.keep()


@pytest.mark.slow
def test_lost_versions_stop_a_history_or_continue_it_with_a_snapshot(
    spark: SparkSession, with_history: History, tmp_path: Path
) -> None:
    history = with_history.copied(tmp_path)
    table = history.source
    table.sql("UPDATE {} SET v = 'a' WHERE id = 1")
    table.sql("UPDATE {} SET v = 'b' WHERE id = 1")
    shutil.rmtree(table.path / "_change_data")  # as VACUUM would
    with raises(history_interrupted) as caught:
        history.keep()
    assert (caught.value.version, caught.value.finding.reason) == (1, "a file is missing")
    assert history.keep(on_gap="reseed").records[0].from_version_exclusive is None
    table.sql("ALTER TABLE {} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    table.insert(4)
    history.keep()
    table.sql("ALTER TABLE {} ALTER COLUMN id TYPE bigint")
    table.insert(5)
    history.keep()
    assert history.numbers() == [(None, 1, 2), (None, 3, 2), (3, 5, 1), (5, 6, 0), (6, 7, 1)]
    assert history.looks_the_same_to_spark()
    then = [{"id": 1, "v": "b"}, {"id": 2, "v": "v2"}, {"id": 4, "v": "v4"}]
    assert canonical(history.rebuilt(5)) == canonical(then)
    assert canonical(history.rebuilt(7)) == canonical([*then, {"id": 5, "v": "v5"}])
    assert spark.read.load(str(tmp_path / "rebuilt7")).dtypes[0] == ("id", "bigint")
    texts = spark.sql(f"SELECT string(id) AS id, v FROM {table.source.sql}")
    texts.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(str(table.path))
    with raises(history_interrupted, match=r"changed at version 8.*: 'id' was long and is string"):
        history.keep()
    history.keep(on_schema_change="reseed")
    assert history.numbers()[5:] == [(None, 8, 4)]
    with raises(not_in_history) as missing:
        history.rebuilt(2)
    assert missing.value.problem == f"Version 2 is not in the history {history.table.table}."
    assert [each.partition(" (")[0] for each in missing.value.stored][:1] == ["versions 1 to 1"]
    with raises(not_in_history, match="The time 2001-01-01 00:00:00 UTC is not in "):
        replay(spark, history.table.table, Source(path=str(tmp_path / "x")), "2001-01-01")

    shutil.rmtree(table.path)
    DeltaTable(spark, table.path)
    with pytest.raises(HistorySourceReplacedError, match=r"is the history of .* with the id .*, up to version 8"):
        history.keep(on_gap="reseed", on_schema_change="reseed")


@pytest.mark.slow
def test_type_can_be_widened_if_earlier_versions_changed_no_rows(
    spark: SparkSession, with_history: History, tmp_path: Path
) -> None:
    history = with_history.copied(tmp_path)
    table = history.source
    table.sql("ALTER TABLE {} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    table.sql("OPTIMIZE {}")
    table.sql("ALTER TABLE {} ALTER COLUMN id TYPE bigint")
    table.insert(4)
    history.keep()
    assert history.numbers()[-2:] == [(table.latest - 2, table.latest - 1, 0), (table.latest - 1, table.latest, 1)]
    assert {record[2] for record in history.numbers()[1:-1]} == {0}
    assert canonical(history.rebuilt(table.latest)) == canonical(table.rows())
    table.insert(5)
    table.sql("ALTER TABLE {} ALTER COLUMN id TYPE decimal(20, 0)")
    with raises(history_interrupted, match="Delta cannot read the changes"):
        history.keep()


def test_table_that_is_not_a_history_is_not_changed(spark: SparkSession, tmp_path: Path) -> None:
    history = History.started(spark, tmp_path)
    history.source.insert(1)
    other = DeltaTable(spark, tmp_path / "history")
    with raises(not_a_history, match="exists, but is not a history: it has no column _commit_date"):
        history.keep()
    assert other.latest == 0
    with_reserved_name = History.started(spark, tmp_path / "named", "id int, _record string")
    with raises(reserved_history_names, match="has columns whose names are reserved in a history: '_record'"):
        with_reserved_name.keep()
    assert with_reserved_name.table.read_view() is None


@pytest.mark.soak
def test_record_is_repeated_before_archiving_and_replay_changes_no_table(spark: SparkSession, tmp_path: Path) -> None:
    history = History.started(spark, tmp_path, "id int, v string, day date", by="day")
    history.source.sql("INSERT INTO {} VALUES (1, 'a', DATE'2026-01-01')")
    start = datetime(2026, 3, 1, tzinfo=UTC)
    assert history.config.history is not None
    location = history.config.history.model_copy(update={"archive_days": 36_000})
    history.config = configured(history.source.source, location)
    assert len(append_versions(spark, history.config, now=lambda: start).records) == 1
    assert append_versions(spark, history.config, now=lambda: start + timedelta(days=17_999)).records == []
    (again,) = append_versions(spark, history.config, now=lambda: start + timedelta(days=18_000)).records
    assert (again.from_version_exclusive, again.to_version_inclusive, again.rows) == (1, 1, 0)

    into = Source(path=str(tmp_path / "rebuilt"))
    assert replay(spark, history.table.table, into, 1).created
    assert not replay(spark, history.table.table, into, "1").created
    assert spark.sql(f"DESCRIBE DETAIL {into.sql}").select("partitionColumns").first() == (["day"],)
    with raises(copy_target_exists, match="exists and is not a replay of this version"):
        replay(spark, history.table.table, history.source.source, 1)
