"""Publication on Spark as on serverless compute: through Connect, with isolated Python executors."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pyspark
import pytest
from pyspark.sql import SparkSession

from fixtures.connect import Driver, walled_server
from fixtures.onelake import DATABASE, SECRET, WORKSPACE, OneLake
from mirrorfeed.landing.names import Target
from mirrorfeed.mirror.verify import compare, mirror_of
from mirrorfeed.source.identifier import Source
from tests.e2e.test_connect import pass_over_connect
from tests.support import file_formats, values
from tests.support.delta import DeltaTable

TARGET = Target.parse("s.t")
pytestmark = pytest.mark.skipif(
    pyspark.__version__ < "4.1", reason="Spark 4.0 reaches its Python workers over the network that the walls close"
)


@pytest.fixture(scope="module")
def walled(spark: SparkSession) -> Iterator[str]:
    with walled_server({"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}) as address:
        yield address


PROBES = """
import json, sys
import pyarrow as pa
from pyspark.sql import SparkSession

def probe(batches):
    import os, socket, urllib.request
    def tried(attempt):
        try:
            return f"came through: {attempt()!r}"
        except BaseException as error:
            return type(error).__name__
    for batch in batches:
        if batch.num_rows:
            yield pa.RecordBatch.from_pylist([{
                "connection": tried(lambda: socket.create_connection(("127.0.0.1", PORT), 5)),
                "name": tried(lambda: socket.getaddrinfo("onelake.dfs.fabric.microsoft.com", 443)),
                "secret": tried(lambda: os.environ["SECRET"]),
                "reading": tried(lambda: os.listdir("FOLDER")),
                "writing": tried(lambda: open("FOLDER/new", "w")),
                "memory": tried(lambda: len(bytes(1200 * 2**20))),
                "less": tried(lambda: len(bytes(500 * 2**20))),
                "child": tried(lambda: os.fork() or os._exit(0)),
            }])

names = ("connection", "name", "secret", "reading", "writing", "memory", "less", "child")
spark = SparkSession.builder.getOrCreate()
frame = spark.range(1).mapInArrow(probe, ", ".join(f"{name} string" for name in names))
answers = frame.first().asDict()

from mirrorfeed.archive.data_skipping import InvalidPredicateError, apply_condition
for predicate in ("id = 1", "id = (SELECT 1)", "rand() < 1", "id = = 1", "id"):
    try:
        answers[predicate] = apply_condition(spark.range(2), "t", predicate).count()
    except InvalidPredicateError as refused:
        answers[predicate] = refused.reason
print(json.dumps(answers))
"""


@pytest.mark.slow
def test_sandbox_blocks_executors_and_spark_validates_conditions(walled: str, onelake: OneLake, tmp_path: Path) -> None:
    port = onelake.address.rpartition(":")[2]
    code = PROBES.replace("PORT", port).replace("SECRET", SECRET).replace("FOLDER", str(tmp_path))
    answer = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"SPARK_REMOTE": walled}, capture_output=True, text=True
    )
    assert answer.returncode == 0, answer.stderr[-2000:]
    assert json.loads(answer.stdout) == {
        "connection": "PermissionError",
        "name": "gaierror",
        "secret": "KeyError",
        "reading": "PermissionError",
        "writing": "PermissionError",
        "memory": "MemoryError",
        "less": f"came through: {500 * 2**20}",
        "child": "PermissionError",
        "id = 1": 1,
        "id = (SELECT 1)": "contains a subquery",
        "rand() < 1": "contains a nondeterministic function",
        "id = = 1": "cannot be parsed",
        "id": "is not a condition on a row (DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN)",
    }


@pytest.fixture
def driver(walled: str, onelake: OneLake, tmp_path: Path) -> Iterator[Driver]:
    """The driver can access OneLake and has a secret for it. Its executors do not."""
    with Driver(walled, tmp_path) as process:
        yield process


def start(walled: str, place: Path) -> subprocess.Popen[str]:
    """Start a publication in another process."""
    return subprocess.Popen(
        [sys.executable, "-m", "mirrorfeed.cli", "publish"],
        env=os.environ | {"SPARK_REMOTE": walled, "COLUMNS": "400"},
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_for_files(publisher: subprocess.Popen[str], staging: Path) -> None:
    """Wait until files exist, or the process has ended."""
    while not any(staging.glob("*/**/part-*.parquet")):
        with suppress(subprocess.TimeoutExpired):
            publisher.wait(0.01)
            break


@pytest.mark.soak
def test_fleet_with_failures_passes_its_test_in_the_sandbox(walled: str) -> None:
    """A test of a fleet below covers such a fleet through the commands."""
    pass_over_connect(
        walled, "tests/orchestration/test_publish_run.py::test_failure_of_one_table_does_not_stop_the_others"
    )


class Shop:
    """Two tables, published by a driver that has access which its executors lack."""

    def __init__(self, spark: SparkSession, place: Path, onelake: OneLake, driver: Driver) -> None:
        self.place, self._onelake, self._driver = place, onelake, driver
        self.orders = DeltaTable(spark, place / "orders")
        self.notes = DeltaTable(spark, place / "notes", "id int, v string, at timestamp")
        large = "if(id = 7, repeat('too large to come as a result', 200), 'v' || id)"
        self.orders.sql(f"INSERT INTO {{}} SELECT cast(id AS int), {large} FROM range(0, 2000, 1, 2)")
        first = """(1, 'a,"b"', timestamp'2026-01-01 10:00:00Z')"""
        self.notes.sql(f"INSERT INTO {{}} VALUES {first}, (2, NULL, NULL)")

    def configure(self, lines: str, *more: str, name: str = "mirrorfeed.yml") -> None:
        text = f"""{self._onelake.configuration()}{lines}
tables:
  - {{source: ./orders, target: shop.orders, keys: [id], target_file_size: 4 KiB}}
  - {{source: ./notes, target: shop.notes, keys: [id], format: delimited, changes: full}}
"""
        text += "".join(f"  - {{source: ./{each}, target: shop.{each}, keys: [id]}}\n" for each in more)
        (self.place / name).write_text(text, encoding="utf-8")

    def publish(self, code: int = 0) -> str:
        return self._driver.run("publish", code=code)

    def publish_and_verify(self) -> str:
        mirror = shlex.quote(str(self.place / "mirror"))
        commands = (f"replicate onelake://{WORKSPACE}/{DATABASE} {mirror}", f"verify --mirror {mirror}")
        return self._driver.run("publish", *commands)


@pytest.mark.slow
def test_driver_publishes_fleet_into_onelake_after_a_kill(
    spark: SparkSession, walled: str, driver: Driver, onelake: OneLake, tmp_path: Path
) -> None:
    """Slow, because the isolated Spark is a separate one.

    The first publisher is killed with files in the staging area, and the next one completes its work.
    `test_killed_publishers` covers every phase."""
    shop = Shop(spark, tmp_path, onelake, driver)
    doubled = DeltaTable(spark, tmp_path / "doubled")
    shop.configure(f"staging_path: {tmp_path}/staging", "doubled")
    publisher = start(walled, tmp_path)
    wait_for_files(publisher, tmp_path / "staging")
    publisher.kill()
    assert publisher.wait() == -signal.SIGKILL

    assert "with an unexpected schema" not in shop.publish()
    assert not any((tmp_path / "staging").rglob("*.parquet"))

    shop.orders.sql("UPDATE {} SET id = -id WHERE id BETWEEN 10 AND 20")
    shop.orders.sql("DELETE FROM {} WHERE id > 1990")
    shop.notes.sql("INSERT INTO {} VALUES (3, 'Łódź', NULL)")
    shop.configure("", "doubled")  # without a staging area
    shop.publish_and_verify()

    large = "too large" * 1000
    shop.orders.sql(f"UPDATE {{}} SET v = '{large}' WHERE id = 9")
    shop.notes.sql("INSERT INTO {} VALUES (NULL, 'no key', NULL)")
    doubled.sql(f"INSERT INTO {{}} VALUES (5000, 'one of a key'), (5000, '{large}')")
    DeltaTable(spark, tmp_path / "well").insert(1)
    DeltaTable(spark, tmp_path / "silent", feed=False)
    shop.configure(f"upload_from: executors\nstaging_path: {tmp_path}/staging", name="executors.yml")
    shop.configure(f"staging_path: {tmp_path}/staging", "doubled", "well", "silent", name="fleet.yml")
    with (tmp_path / "fleet.yml").open("a") as fleet:
        fleet.write("  - {source: ./well, target: shop.part, keys: [id], where: id}\n")
    calls = len(onelake.calls)
    others = "publish shop.notes shop.doubled shop.well shop.silent shop.part --config fleet.yml"
    output = driver.run("publish", "publish shop.orders --config executors.yml", others, code=1)
    assert "MF3301" in output
    assert "Set `staging_path` to a Unity Catalog volume" in output
    assert f"cannot read the files that Spark wrote to {tmp_path}/staging: Permission denied." in output
    assert "Remove `upload_from: executors`" in output
    assert "snapshot to 1 " in output
    assert "is off at version 0" in output
    assert "a key is not unique" in output
    assert "a key is NULL" in output
    assert "The condition 'id' is not valid for the rows of " in output
    changing = {"create", "append", "flush", "put blob", "rename", "create folder"}
    changed = [call.path for call in onelake.calls[calls:] if call.verb in changing]
    assert changed
    assert all("/shop.schema/well" in path for path in changed)
    assert not list((tmp_path / "staging").rglob("*.parquet"))


@pytest.mark.soak
def test_every_file_format_is_mirrored_with_equal_values(spark: SparkSession, driver: Driver, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "text", file_formats.COLUMNS)
    file_formats.play(table.sql, tmp_path, lambda *arguments, code=0: driver.run(shlex.join(arguments), code=code))


@pytest.mark.soak
def test_every_value_of_every_type_is_equal_in_the_mirror(spark: SparkSession, driver: Driver, tmp_path: Path) -> None:
    (tmp_path / "mirrorfeed.yml").write_text(
        "landing_zone: zone\ntables: [{source: ./source, target: s.t, keys: [id]}]\n"
    )
    table = f"delta.`{tmp_path}/source`"
    with values.any_type(spark):
        values.create(spark, table)
        for first in (0, values.ROWS):  # a snapshot, and a range
            values.insert(spark, table, first)
            driver.run("publish")
        driver.run("replicate zone mirror")
        found = compare(spark, Source(path=f"{tmp_path}/source"), 2, mirror_of(f"{tmp_path}/mirror", TARGET), ("id",))
    assert found.equal, found.first
    assert found.source_rows == 2 * values.ROWS


@pytest.mark.soak
def test_two_concurrent_publishers_neither_lose_nor_duplicate_rows(
    spark: SparkSession, walled: str, driver: Driver, onelake: OneLake, tmp_path: Path, counted: Counter[str]
) -> None:
    shop = Shop(spark, tmp_path, onelake, driver)
    shop.configure("staging_path: ./staging\n")
    for number in range(4):
        shop.orders.sql(f"UPDATE {{}} SET v = repeat('at {number}', 1000) WHERE id % 10 >= {number}")
        shop.orders.sql(f"INSERT INTO {{}} VALUES ({9000 + number}, 'later')")
        shop.notes.sql(f"INSERT INTO {{}} VALUES ({9000 + number}, 'later', NULL)")
        publishers = [start(walled, tmp_path) for _ in range(2)]
        for publisher in publishers:
            publisher.communicate()
            counted[f"of two publishers over walls {'lost' if publisher.returncode else 'came'} through"] += 1
        shop.publish_and_verify()
    assert not any((tmp_path / "staging").rglob("*.parquet"))


@pytest.mark.soak
def test_staging_path_deleted_during_a_run_loses_nothing(
    spark: SparkSession, walled: str, driver: Driver, onelake: OneLake, tmp_path: Path
) -> None:
    shop = Shop(spark, tmp_path, onelake, driver)
    shop.configure("staging_path: ./staging\n")
    publisher = start(walled, tmp_path)
    wait_for_files(publisher, tmp_path / "staging")
    shutil.rmtree(tmp_path / "staging", ignore_errors=True)
    publisher.communicate()  # it may already have its input, or read it again
    shop.publish_and_verify()


@pytest.mark.soak
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a file system that is full")
def test_full_staging_path_is_reported_and_later_runs_recover(
    spark: SparkSession, driver: Driver, onelake: OneLake, tmp_path: Path
) -> None:
    shop = Shop(spark, tmp_path, onelake, driver)
    shop.configure("staging_path: ./staging\n")
    uuids = "array_join(transform(sequence(1, 20), each -> uuid()), '')"
    shop.orders.sql(f"INSERT INTO {{}} SELECT cast(id AS int), {uuids} FROM range(5000, 8000)")
    full = tmp_path / "staging"
    full.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "none", str(full)], check=True)
    try:
        output = shop.publish(code=1)
        assert f"Files that Spark wrote to {full}/" in output
        assert " before they were uploaded: " in output
        assert "No space left on device" in output
    finally:
        subprocess.run(["umount", "--lazy", str(full)], check=True)
    shop.publish_and_verify()


@pytest.mark.soak
def test_memory_of_driver_and_executors_is_bounded(spark: SparkSession, onelake: OneLake, tmp_path: Path) -> None:
    """Rows of 50 KB, MIRRORFEED_CARRIED_MIB in total in one table, or 200 MiB in four in parallel. Spark limits the
    size of a query result."""
    mib = int(os.environ.get("MIRRORFEED_CARRIED_MIB", "1000"))
    options = {"spark.driver.memory": "4g", "spark.sql.shuffle.partitions": "2"}
    four = tuple(f"part{number}" for number in range(4))
    sizes = {"few": 10, "wide": mib * 20} | dict.fromkeys(four, 50 * 20)
    for name, rows in sizes.items():
        table = DeltaTable(spark, tmp_path / name)
        table.sql(f"INSERT INTO {{}} SELECT cast(id AS int), repeat(sha2('' || id, 256), 820) FROM range({rows})")
    with walled_server(options) as walled:

        def peaks(*tables: str) -> tuple[int, int]:
            entries = [
                f"  - {{source: ./{table}, target: s.{table}, keys: [id], validate_keys: none}}\n" for table in tables
            ]
            (tmp_path / "mirrorfeed.yml").write_text(
                f"{onelake.configuration()}staging_path: ./staging\ncompression: none\ntables:\n{''.join(entries)}"
            )
            started = time.monotonic()
            found = watched(start(walled, tmp_path))
            print(f"{', '.join(tables)}: {found} MiB, {time.monotonic() - started:.0f} s")
            return found

        small, _ = peaks("few")
        for tables in (("wide",), four):
            large, worker = peaks(*tables)
            assert large - small <= 200
            assert worker == 0


def watched(publisher: subprocess.Popen[str]) -> tuple[int, int]:
    """Peak memory in MiB of the publishing process, and of the largest Python process of Spark."""
    peaks = {"driver": 0, "worker": 0}
    while publisher.poll() is None:
        for process in psutil.Process().children(recursive=True):
            command: list[str] = []
            with suppress(psutil.Error):  # a process that has just ended
                command = process.cmdline()
            is_worker = any("pyspark/daemon" in word or "pyspark.daemon" in word for word in command)
            role = "driver" if process.pid == publisher.pid else "worker" if is_worker else ""
            with suppress(OSError, IndexError):  # a process that has just ended has no file or no memory
                status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
                mib = int(status.partition("VmHWM:")[2].split()[0]) // 1024
                peaks[role] = max(peaks.get(role, 0), mib)
        time.sleep(0.2)
    output, _ = publisher.communicate()
    assert publisher.returncode == 0, output
    return peaks["driver"], peaks["worker"]
