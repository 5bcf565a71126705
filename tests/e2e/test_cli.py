"""Whole journeys through the commands."""

from __future__ import annotations

import shutil
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

import mirrorfeed
from mirrorfeed.cli import main
from mirrorfeed.cli import output as show
from mirrorfeed.cli.output import Interruption
from mirrorfeed.config import loader
from mirrorfeed.config.model import zone_of
from mirrorfeed.monitor.fact_collector import Collector
from mirrorfeed.monitor.status import status_of
from mirrorfeed.orchestration.dry_run import Decision, known_step
from mirrorfeed.orchestration.run_context import RunContext
from mirrorfeed.orchestration.table_task import TableTask
from mirrorfeed.publish.change_sources import NO_SPARK
from mirrorfeed.runtime import spark_session
from mirrorfeed.runtime.errors import spark_missing
from mirrorfeed.source.errors import NoTableAtPathError, SourceRecreatedError
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.table_info import is_in_local_folder
from tests.support.delta import DeltaTable
from tests.support.json_output import run_json


class Project:
    """A folder with a configuration, sources and a landing zone."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.landing, self.mirror = folder, folder / "landing", folder / "mirror"
        self.config = folder / "mirrorfeed.yml"
        self.configure("  - {source: ./orders, target: sales.orders, keys: [id]}")

    def configure(self, *tables: str, options: tuple[str, ...] = ()) -> None:
        self.config.write_text("\n".join(["landing_zone: landing", *options, "tables:", *tables]), encoding="utf-8")

    def run(self, *arguments: str, code: int = 0) -> str:
        """Return the output of a command that reads the configuration, in one line."""
        return run_command([*arguments, "--config", str(self.config)], code)

    def json(self, *arguments: str, code: int = 0) -> Any:
        """Return the JSON that a command writes to standard output."""
        return run_json(*arguments, "--config", str(self.config), code=code).value

    @property
    def orders(self) -> Path:
        return self.landing / "sales.schema" / "orders"

    def content(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in self.landing.rglob("*") if path.is_file()}


def run_command(arguments: list[str], code: int) -> str:
    result: Result = CliRunner().invoke(main, arguments, env={"COLUMNS": "400"})
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


@pytest.fixture
def project(spark: SparkSession, tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.fixture
def orders(spark: SparkSession, project: Project) -> DeltaTable:
    return DeltaTable(spark, project.folder / "orders")


def test_ctrl_c_stops_publish_after_the_current_files(
    spark: SparkSession, project: Project, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    names = "abc"
    for name in names:
        DeltaTable(spark, project.folder / name).insert(1)
    project.configure(
        *(f"  - {{source: ./{name}, target: {name}, keys: [id]}}" for name in names),
        options=("max_parallel_tables: 2",),
    )
    stopping = threading.Event()

    class Interrupted(show.Steps):
        """Interrupted by a person at the first publication, when two tables are in progress."""

        def __call__(self, table: str, step: str) -> None:
            super().__call__(table, step)
            if step.startswith("published") and not stopping.is_set():
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                stopping.wait(60)

    def notify(self: Interruption, message: str) -> None:
        messages.append(message)
        stopping.set()

    messages: list[str] = []
    monkeypatch.setattr(show, "Steps", Interrupted)
    monkeypatch.setattr(Interruption, "notify", notify)
    ended = project.run("publish", code=1)
    assert messages == ["Stopping after the current publication. Press Ctrl-C again to stop immediately."]
    assert "Stopped on request. The next run continues with 1 of 3 tables." in ended
    assert "stopped" in ended
    assert ended.count("snapshot to 1 ") == 2
    assert not list(project.landing.rglob("_mirrorfeed/*/*-*"))
    assert "Traceback" not in ended + "".join(capfd.readouterr())
    assert "nothing new at 1" in (second := project.run("publish"))
    assert "Stopped on request" not in second


def test_stopped_rebuild_fails_and_deletes_nothing_if_stopped_before(
    spark: SparkSession, project: Project, orders: DeltaTable
) -> None:
    orders.insert(1)
    project.configure("  - {source: ./orders, target: sales.orders, keys: [id]}")
    project.run("publish")
    feed, log = mirrorfeed.load(project.config, spark), project.landing / "sales.schema/orders/_mirrorfeed/log.json"
    for is_stopped, is_kept in ((lambda: True, True), (lambda: not log.exists(), False)):
        (row,) = (stopped := feed.rebuild("sales.orders", stop=is_stopped)).rows
        assert (stopped.ok, row.what, log.exists()) == (False, "stopped", is_kept)
    assert "snapshot to 1 " in project.run("publish")


@pytest.mark.slow  # `publish/test_up_to_date_check` covers it
def test_up_to_date_tables_are_reported_without_spark(
    spark: SparkSession, project: Project, orders: DeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    DeltaTable(spark, project.folder / "lines")
    listed = ["  - {source: ./orders, target: sales.orders, keys: [id]}", "  - {source: ./lines, target: sales.lines}"]
    project.configure(*listed)
    project.run("publish", "sales.orders")
    facts = Collector(loader.load(project.config), lambda: spark)
    store = zone_of(facts.config)
    stopping = [status_of(facts._facts(spark, store, each)) for each in facts.config.tables]

    def no_spark(*_: object) -> None:
        raise spark_missing()

    monkeypatch.setattr(spark_session, "get_session", no_spark)
    found = {row["table"]: row for row in project.json("status")["rows"]}
    assert found == {each.table: each.to_dict() for each in stopping}
    assert "nothing new, version 0 is published" in project.run("publish", "sales.orders", "--dry-run")
    (published,) = project.json("publish", "sales.orders")["rows"]
    assert (published["table"], published["error"], published["lag_versions"]) == ("sales.orders", None, 0)
    assert "nothing new" in project.run("publish", "sales.orders")
    assert "This command needs Spark, but pyspark and delta-spark are not installed" in project.run("publish", code=1)
    assert "This command needs Spark, but pyspark and delta-spark are not installed" in project.run(
        "publish", "--dry-run", code=1
    )  # no table `lines` is published
    orders.insert(1)
    behind, _ = project.json("status")["rows"]
    assert (behind["table"], behind["state"], behind["lag_versions"]) == ("sales.orders", "behind", 1)
    for asked_for in (["publish", "sales.orders", "--dry-run"], ["publish", "sales.orders"]):
        assert "This command needs Spark, but pyspark and delta-spark are not installed" in project.run(
            *asked_for, code=1
        )


def test_certain_stops_are_found_without_spark_and_others_are_left_to_spark(
    spark: SparkSession, project: Project, orders: DeltaTable
) -> None:
    project.run("publish")
    config = loader.load(project.config)
    (table,) = config.tables
    context = RunContext(NO_SPARK, config)
    step = Decision("sales.orders", "nothing new, version 0 is published", kind="nothing new")
    assert known_step(context, table) == step
    stopped = known_step(context, table.model_copy(update={"keys": ("v",)}))
    assert stopped is not None
    assert stopped.error is not None
    assert stopped.error.code == "MF3006"
    shutil.rmtree(orders.path)
    DeltaTable(spark, orders.path)
    assert known_step(context, table) is None  # `on_replace: compare` needs Spark
    blocked = known_step(context, table.model_copy(update={"on_replace": "stop"}))
    assert blocked is not None
    assert isinstance(blocked.error, SourceRecreatedError)
    assert TableTask(context, table).attempt_without_spark() is None
    collector = Collector(config, lambda: spark)
    store = zone_of(config)
    assert collector._without_spark(store, table) is None
    shutil.rmtree(orders.path)
    facts = collector._without_spark(store, table)
    assert facts is not None
    assert [type(error) for error in facts.errors] == [NoTableAtPathError]
    for source in ("main.sales.orders", "abfss://a@b/c"):
        elsewhere = table.model_copy(update={"source": Source.parse(source)})
        assert not is_in_local_folder(elsewhere.source)


@pytest.mark.parametrize(
    ("command", "words", "other"),
    [
        pytest.param(
            ["enable-cdf"],
            "far: MF1000: Enabling the feed of foo://far/away failed with",
            "on already",
            marks=pytest.mark.slow,
        ),
        (["publish"], "far: MF1000: Publishing far failed with", "snapshot to 0"),
        pytest.param(
            ["publish", "--dry-run"],
            "far: MF1000: Deciding the next step of far failed with",
            "snapshot at version 0",
            marks=pytest.mark.slow,
        ),
        (["status"], "far: MF1000: Checking far failed with", "sales.orders"),
    ],
)
def test_unexpected_error_does_not_affect_other_tables(
    project: Project, orders: DeltaTable, command: list[str], words: str, other: str
) -> None:
    project.configure(
        "  - {source: 'foo://far/away', target: far, keys: [id]}",
        "  - {source: ./orders, target: sales.orders, keys: [id]}",
    )
    ended = project.run(*command, code=1)
    assert words in ended
    assert 'No FileSystem for scheme "foo"' in ended
    assert "No data is lost or duplicated. Run the same command again" in ended
    assert other in ended


def test_empty_table_publishes_one_file_with_schema_and_no_rows(
    spark: SparkSession, project: Project, orders: DeltaTable
) -> None:
    project.run("publish")
    assert [path.name for path in project.orders.glob("*.parquet")] == ["00000000000000000001.parquet"]
    run_command(["replicate", str(project.landing), str(project.mirror)], 0)
    assert DeltaTable.at(spark, project.mirror / "sales/orders").rows() == []


@pytest.fixture(scope="module")
def published(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, DeltaTable]:
    """A published table with one row, at version 1."""
    project = Project(tmp_path_factory.mktemp("published"))
    orders = DeltaTable(spark, project.folder / "orders")
    orders.insert(1)
    project.run("publish")
    return project, orders


def break_record(project: Project, content: Callable[[str], str]) -> None:
    (path,) = project.orders.glob("_mirrorfeed/*/0*.json")
    path.write_text(content(path.read_text()))


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (
            lambda p: break_record(p, lambda text: "{"),
            "is damaged, or mirrorfeed did not write it: it is not valid JSON",
        ),
        (
            lambda p: break_record(p, lambda text: text.replace('"format": 1', '"format": 5')),
            "has format 5",
        ),
        (
            lambda p: (p.orders / f"{7:020d}.parquet").touch(),
            "exists, but the last file number in the log is",
        ),
        (
            lambda p: (p.orders / "notes.txt").touch(),
            "was not written by a publisher of this table",
        ),
        (
            lambda p: (p.orders / "_metadata.json").write_text('{"keyColumns": ["v"]}'),
            "The table has the keys 'id', but was published with the keys 'v'",
        ),
    ],
    ids=["record not JSON", "record too new", "foreign number", "foreign file", "other keys"],
)
def test_inconsistent_landing_zone_is_not_changed(
    project: Project, published: tuple[Project, DeltaTable], harm: Callable[[Project], object], words: str
) -> None:
    first, orders = published
    shutil.copytree(first.landing, project.landing)
    DeltaTable.copied(orders, project.folder / "orders").insert(2)
    harm(project)
    before = project.content()
    ended = project.run("publish", code=1)
    assert words in ended
    assert str(project.orders) in ended
    assert words in project.run("publish", "--dry-run", code=1)
    after = project.content()
    failures = [path for path in after if path.parent == project.landing / "_mirrorfeed/failures"]
    assert len(failures) == 1
    assert {path: content for path, content in after.items() if path not in failures} == before


def test_error_names_landing_zone_that_cannot_be_written(project: Project, orders: DeltaTable) -> None:
    project.landing.write_text("a file where a folder should be")
    orders.insert(1)
    ended = project.run("publish", code=1)
    assert str(project.landing) in ended
    assert "then run the same command again." in ended


def test_enable_cdf_names_tables_that_it_cannot_enable(
    spark: SparkSession, project: Project, orders: DeltaTable
) -> None:
    reserved = DeltaTable(spark, project.folder / "reserved", "id int, `__rowMarker__` int", feed=False)
    project.configure(
        f"  - {{source: {reserved.path}, target: reserved}}",
        "  - {source: ./nothing, target: nothing}",
        "  - {source: ./orders, target: sales.orders, keys: [id]}",
    )
    ended = project.run("enable-cdf", code=1)
    assert "has columns whose names are reserved for the change data feed or for Fabric: '__rowMarker__'." in ended
    assert "There is no Delta table at" in ended
    assert "orders │ on already │" in ended


def test_configuration_errors_are_reported_before_spark_starts(tmp_path: Path) -> None:
    missing = run_command(["publish", "--config", str(tmp_path / "none.yml")], 1)
    assert f"There is no configuration file {tmp_path}/none.yml. Run `mirrorfeed init`" in missing
    project = Project(tmp_path)
    project.configure("  - {source: ./a, target: a, kyes: [id]}", "  - {source: ./b, target: A}")
    wrong = project.run("publish", code=1)
    assert "mirrorfeed.yml:3: kyes: is not a known field; did you mean keys?" in wrong
    assert "mirrorfeed.yml:4: target: 'A' is also the target of the table on line 3" in wrong
    project.configure("  - {source: ./a, target: a}")
    assert "has no target or source 'b'. Use one of the targets in the file (a)" in project.run("publish", "b", code=1)


def test_missing_replica_package_is_reported_with_install_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith(("deltalake", "mirrorfeed.mirror.local_replica"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "deltalake", None)
    monkeypatch.delattr("mirrorfeed.mirror.local_replica", raising=False)
    missing = run_command(["replicate", str(tmp_path), str(tmp_path)], 1)
    assert "Error MF1005: The replica requires the Python package deltalake" in missing


@pytest.mark.parametrize("group", [[], ["archive"], ["fabric"]], ids=["all", "archive", "fabric"])
def test_help_lists_commands_in_full_sentences(group: list[str]) -> None:
    listed = run_command([*group, "--help"], 0).partition("Commands:" if group else "Set up:")[2]
    assert listed
    assert "..." not in listed
