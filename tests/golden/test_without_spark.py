"""The whole output of the commands that need no Spark, compared with the files in `expected`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from fixtures.onelake import DATABASE, WORKSPACE, OneLake
from mirrorfeed.landing.delivery import Delivery
from mirrorfeed.landing.names import data_name
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.storage.local_folder import FolderStore
from tests.golden.expected_output import FOLDER, check, file_of
from tests.golden.recorder import COMMANDS, Recorder, recording
from tests.golden.test_archive import ARCHIVE_COMMANDS
from tests.golden.test_with_spark import COMMANDS_WITH_SPARK
from tests.publish.scenarios import two_orders
from tests.support.entries import entry
from tests.support.tables import Table, TableFeed
from tests.support.zones import CUSTOMERS, customers, put, write_clean_zone

COMMANDS_WITHOUT_SPARK = sorted({*COMMANDS} - {*COMMANDS_WITH_SPARK, *ARCHIVE_COMMANDS})
TABLES = """tables:
  - {source: ./orders, target: sales.orders, keys: [id]}
  - {source: ./lines, target: sales.lines}
"""
EXECUTION = {
    "SourceSchemaName": "sales", "SourceTableName": "orders", "Timestamp": "2026-03-14T09:30:00Z",
    "OperationName": "Replicating", "ProcessedRows": 7, "ProcessedBytes": 2048, "ReplicatorBatchLatency": 21,
    "ErrorType": "", "ErrorMessage": "",
}  # fmt: skip


@pytest.fixture(scope="module")
def recorder() -> Iterator[Recorder]:
    with recording() as recorder, pytest.MonkeyPatch.context() as patch:
        _configurations(recorder)
        _landing_zones(recorder)
        _fabric(recorder, patch)
        yield recorder


@pytest.mark.parametrize("command", COMMANDS_WITHOUT_SPARK)
def test_output_is_as_expected(recorder: Recorder, command: str, pytestconfig: pytest.Config) -> None:
    check(recorder, command, pytestconfig)


def test_every_expected_file_belongs_to_a_command() -> None:
    assert {*FOLDER.iterdir()} == {*map(file_of, COMMANDS)}


def _configurations(recorder: Recorder) -> None:
    recorder.text("The file is written", "init")
    recorder.json("The file is written", "init", "other.yml")
    recorder.case(
        "A short file for one table", "init", "short.yml", "--source", "main.sales.orders", "--keys", "id,day"
    )
    recorder.case("The file exists", "init")
    recorder.case("The folder is missing", "init", "no/such/folder.yml")
    deltalake.write_deltalake("lake/orders", pa.table({"id": [1], "v": ["a"]}))
    deltalake.write_deltalake("lake/notes", pa.table({"text": ["a"]}))
    recorder.text("A folder with a table without keys", "init", "from.yml", "--from", "lake", "--keys", "id")
    recorder.json("A folder with a table without keys", "init", "again.yml", "--from", "lake", "--keys", "id")
    recorder.case("A folder without tables", "init", "none.yml", "--from", "./lake/orders")

    recorder.case("An unknown option", "schema", "--sorted")

    recorder.case("An error", "explain", "MF3405")
    recorder.case("A rule of lint", "explain", "MF204")
    recorder.case("A name of two codes", "explain", "Unreadable")
    recorder.case("No such code", "explain", "NoHistor")
    recorder.case("No code is given", "explain")

    tables, wrong = "{source: ./a, target: a, kyes: [id]}", "{source: ./b, target: A}"
    _write("wrong.yml", f"landing_zone: zone\ntables:\n  - {tables}\n  - {wrong}\n")
    _write("part.yml", f"landing_zone: zone\n{TABLES}  - {{source: ./eu, target: eu, keys: [id], columns: [id, v]}}\n")
    _write("mirrorfeed.yml", f"landing_zone: zone\n{TABLES}")
    recorder.case("The sources are missing", "tables")
    for name in ("orders", "lines", "eu"):
        deltalake.write_deltalake(name, pa.table({"id": [1], "v": ["a"]}))
    recorder.case("Two tables", "tables")
    recorder.case("A table of which a part is published", "tables", "--config", "part.yml")
    recorder.case("A mistake in each of two tables", "tables", "--config", "wrong.yml")
    recorder.case("The configuration is missing", "tables", "--config", "none.yml")
    recorder.case("An unknown option", "tables", "--sorted")
    recorder.case("Outside of a Databricks task", "tables", "--task-value", "names")

    recorder.text("A person answers", "setup", "go-live", "--check", "9", "--check", "18", answer="wrong\nno tasks\n\n")
    recorder.json("Nobody is asked", "setup", "go-live", "--check", "9", "--no-input")
    recorder.case("No such check", "setup", "go-live", "--check", "20")

    recorder.case("The configuration is missing", "setup", "check-platform", "--config", "none.yml")

    recorder.text("The tables with an archive", "deployment", "facts.json", "--archive-tables", '["main.sales.orders"]')
    recorder.case("They are no JSON", "deployment", "facts.json", "--archive-tables", "main.sales.orders")


def _landing_zones(recorder: Recorder) -> None:
    zone = FolderStore(str(recorder.folder / "zone"))
    recorder.case("Nothing is published", "log", "sales.orders")
    recorder.case("It is not configured", "log", "sales.nothing")
    _publish(zone, "sales.orders", times=2)
    recorder.case("Two publications", "log", "sales.orders")
    recorder.case("No such landing zone", "replicate", "nowhere", "mirror")
    recorder.text("Two files are applied", "replicate", "zone", "mirror")
    recorder.json("Nothing is new", "replicate", "zone", "mirror")
    recorder.json("--follow and JSON", "replicate", "zone", "mirror", "--follow")
    zone.create(f"sales.schema/orders/{data_name(3)}", b"no Parquet file")
    recorder.case("A file that cannot be read", "replicate", "zone", "mirror")
    zone.remove(f"sales.schema/orders/{data_name(3)}")
    zone.remove(f"sales.schema/orders/{data_name(2)}")
    zone.create(f"sales.schema/orders/{data_name(2)}", b"")
    recorder.case("A file that is not the recorded one", "log", "sales.orders")

    prices = Table({"id": "long", "price": "double"}, ("id",))
    publish(TableFeed(prices), zone, entry("a", "sales.prices", delivery=Delivery("append")))
    appended = "{source: ./prices, target: sales.prices, keys: [id], delivery: append}"
    _write("append.yml", f"landing_zone: zone\ntables: [{appended}]\n")
    recorder.case("A table with every change", "history-view", "sales.prices", "--config", "append.yml")
    recorder.case("Another delivery mode", "history-view", "sales.orders")
    zone.remove_folder("sales.schema/prices")

    _publish(zone, "sales.old")
    _publish(zone, "sales.older")
    recorder.case("It is configured", "drop", "sales.orders", "--yes")
    recorder.case("It was never published", "drop", "sales.never", "--yes")
    recorder.text("It is not confirmed", "drop", "sales.old", answer="n\n")
    recorder.text("It is dropped", "drop", "sales.old", "--yes")
    recorder.json("It is dropped", "drop", "sales.older", "--yes")
    zone.create(f"sales.schema/theirs/{data_name(1)}", b"of another publisher")
    recorder.text("Another publisher wrote it", "drop", "sales.theirs", "--yes")

    write_clean_zone(FolderStore(str(recorder.folder / "clean")))
    recorder.case("Nothing is wrong", "lint", "clean")
    recorder.case("No such landing zone", "lint", "nowhere")
    recorder.case("No landing zone is given", "lint")
    put(FolderStore(str(recorder.folder / "clean")), f"{CUSTOMERS}/{data_name(4)}", customers((None, "x", None)))
    recorder.case("Two errors in a file", "lint", "clean")
    recorder.text("Two errors in a file", "lint", "clean", "--format", "github")
    recorder.text("Two errors in a file", "lint", "clean", "--format", "junit")
    recorder.text("No such landing zone", "lint", "nowhere", "--format", "github")
    recorder.text("No such landing zone", "lint", "nowhere", "--format", "junit")
    recorder.text("Two formats", "lint", "clean", "--format", "junit", "--json")

    recorder.case("Nobody is configured", "setup", "partner")
    _write(
        "partner.yml", f"landing_zone: zone\npartner: {{name: us, source_type: Delta, source_version: '4'}}\n{TABLES}"
    )
    recorder.text("The file is written", "setup", "partner", "--config", "partner.yml")
    recorder.case("The file is there", "setup", "partner", "--config", "partner.yml")
    _write("zone/_partnerEvents.json", "{}")
    recorder.case("The file names another partner", "setup", "partner", "--config", "partner.yml")
    recorder.text("It is replaced", "setup", "partner", "--force", "--config", "partner.yml")


def _fabric(recorder: Recorder, patch: pytest.MonkeyPatch) -> None:
    recorder.case("The landing zone is a folder", "fabric", "status")
    with OneLake(recorder.folder / "certificates") as onelake:
        for name, value in onelake.environment.items():
            patch.setenv(name, value)
        zone = f"onelake://{WORKSPACE}/{DATABASE}"
        _write("mirrorfeed.yml", onelake.configuration(zone) + TABLES)
        database = onelake.fabric.databases[DATABASE]
        recorder.text("It is made", "fabric", "create", "shop")
        recorder.json("It exists", "fabric", "create", "shop")
        recorder.case("A table has no file", "fabric", "start")
        for table in ("orders", "lines"):
            onelake.store().create(f"sales.schema/{table}/{data_name(1)}", b"")
        onelake.fabric.starting = ["Running"]
        recorder.text("Mirroring starts", "fabric", "start")
        recorder.json("Mirroring runs", "fabric", "start")
        recorder.case("All tables replicate", "fabric", "status")
        database.tables[("sales", "lines")] = {"status": "Failed", "error": "broken"}
        recorder.case("A table has failed", "fabric", "status")
        recorder.case("Monitoring is off", "fabric", "log")
        onelake.fabric.monitoring_address = f"https://{onelake.address}"
        recorder.text("No table replicated", "fabric", "log")
        onelake.fabric.executions = [EXECUTION]
        recorder.case("A table replicated", "fabric", "log")
        recorder.case("It runs", "fabric", "resume")
        database.status = "Paused"
        recorder.text("It is paused", "fabric", "resume")
        at = "2026-03-14T09:30:00Z"
        onelake.fabric.syncs = [{"tableName": "orders", "status": "Success", "lastSuccessfulSyncDateTime": at}]
        recorder.case("All is taken up", "fabric", "refresh")
        lost = {"errorCode": "DeltaTableMissing", "message": "No log."}
        onelake.fabric.syncs.append({"tableName": "lines", "status": "Failure", "error": lost})
        recorder.case("A table fails", "fabric", "refresh")
        recorder.case("Nothing differs", "fabric", "plan")
        _write("mirrorfeed.yml", f"{onelake.configuration(zone)}fabric: {{retention_days: 30}}\n{TABLES}")
        recorder.case("A setting differs", "fabric", "plan")
        recorder.text("It is not confirmed", "fabric", "apply", answer="n\n")
        recorder.text("A setting is changed", "fabric", "apply", "--yes")
        recorder.case("Nothing differs", "fabric", "apply", "--yes")
        database.status = "Stopped"
        recorder.case("It is stopped", "fabric", "stop")
        recorder.case("It is stopped", "fabric", "resume")
        _write("mirrorfeed.yml", onelake.configuration(f"onelake://{WORKSPACE}/{WORKSPACE}") + TABLES)
        recorder.case("No such database", "fabric", "stop")


def _write(name: str, text: str) -> None:
    Path(name).write_text(text, encoding="utf-8")


def _publish(zone: FolderStore, target: str, times: int = 1) -> None:
    table = two_orders()
    for _ in range(times):
        publish(TableFeed(table), zone, entry("a", target))
        table.update(1, status="paid")
