"""Publication on Spark as serverless compute has it: behind Connect, and executors' Python behind walls."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from fixtures.connect import walled_server
from fixtures.onelake import DATABASE, SECRET, WORKSPACE, OneLake
from tests.delta import DeltaTable

ROOT = Path(__file__).parent.parent.parent
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
                "memory": tried(lambda: len(bytearray(1200 * 2**20))),
                "less": tried(lambda: len(bytearray(500 * 2**20))),
            }])

names = ("connection", "name", "secret", "reading", "writing", "memory", "less")
frame = SparkSession.builder.getOrCreate().range(1).mapInArrow(probe, ", ".join(f"{name} string" for name in names))
print(json.dumps(frame.first().asDict()))
"""


def test_the_walls_hold(walled: str, onelake: OneLake, tmp_path: Path) -> None:
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
    }


def test_a_driver_that_is_killed_with_parts_in_the_handover_leaves_nothing_that_the_next_cannot_complete(
    spark: SparkSession, walled: str, onelake: OneLake, tmp_path: Path
) -> None:
    """The long form, in every phase, is in `test_kill`."""
    shop = Shop(spark, tmp_path, onelake, walled)
    shop.configure(f"handover: {tmp_path}/handover")
    publisher = subprocess.Popen(shop.command("publish"), env=shop.environment, cwd=tmp_path, stdout=subprocess.DEVNULL)
    while not any((tmp_path / "handover").glob("*/0*/**/part-*.parquet")):  # not of its check, which comes first
        with suppress(subprocess.TimeoutExpired):
            publisher.wait(0.01)
            break
    publisher.kill()
    assert publisher.wait() == -signal.SIGKILL

    shop.run("publish")
    shop.mirror_and_verify()
    assert not any((tmp_path / "handover").rglob("*.parquet"))


class Shop:
    """Two tables, published by the commands of a driver that has what its executors lack."""

    def __init__(self, spark: SparkSession, place: Path, onelake: OneLake, walled: str) -> None:
        self.place, self._onelake, self._walled = place, onelake, walled
        self.orders = DeltaTable(spark, place / "orders")
        self.notes = DeltaTable(spark, place / "notes", "id int, v string, at timestamp")
        self.orders.sql("INSERT INTO {} SELECT cast(id AS int), 'v' || id FROM range(0, 2000, 1, 2)")
        first = """(1, 'a,"b"', timestamp'2026-01-01 10:00:00Z')"""
        self.notes.sql(f"INSERT INTO {{}} VALUES {first}, (2, NULL, NULL)")

    def configure(self, lines: str) -> None:
        text = f"""{self._onelake.configuration()}{lines}
tables:
  - {{source: ./orders, target: shop.orders, keys: [id], file_size: 4 KiB}}
  - {{source: ./notes, target: shop.notes, keys: [id], format: delimited, changes: full}}
"""
        (self.place / "mirrorfeed.yml").write_text(text, encoding="utf-8")

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "mirrorfeed.cli", *arguments, "--config", str(self.place / "mirrorfeed.yml")]

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {"SPARK_REMOTE": self._walled}

    def run(self, *arguments: str, fails: bool = False) -> str:
        answer = subprocess.run(
            self.command(*arguments),
            env=self.environment,
            cwd=self.place,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert (answer.returncode != 0) is fails, answer.stdout
        return " ".join(answer.stdout.split())  # lines are broken where the console ends

    def mirror_and_verify(self) -> None:
        zone = f"onelake://{WORKSPACE}/{DATABASE}"
        self.run("replicate", zone, str(self.place / "mirror"))
        self.run("verify", "--mirror", str(self.place / "mirror"))


def test_a_fleet_is_published_into_onelake_by_the_driver(
    spark: SparkSession, walled: str, onelake: OneLake, tmp_path: Path
) -> None:
    shop = Shop(spark, tmp_path, onelake, walled)
    shop.configure(f"handover: {tmp_path}/handover")
    said = shop.run("publish")
    assert f"The driver writes into the landing zone what executors give it through {tmp_path}/handover: " in said
    assert "executors do not reach it (The client secret cannot be read from the environment variable" in said
    shop.mirror_and_verify()

    shop.orders.sql("UPDATE {} SET id = -id WHERE id BETWEEN 10 AND 20")
    shop.orders.sql("DELETE FROM {} WHERE id > 1990")
    shop.notes.sql("INSERT INTO {} VALUES (3, 'Łódź', NULL)")
    shop.configure("")  # without a handover
    assert "what executors give it in the result of the query" in shop.run("publish")
    shop.mirror_and_verify()

    shop.orders.sql("INSERT INTO {} VALUES (5000, 'one of a key'), (5000, 'another of it')")
    shop.notes.sql("INSERT INTO {} VALUES (NULL, 'no key', NULL)")
    calls = len(onelake.calls)
    shop.configure("writers: executors")
    said = shop.run("publish", fails=True)
    assert said.count("Nothing was staged. Leave out `writers: executors`") == 2
    changing = {"create", "append", "flush", "put blob", "rename", "create folder"}
    assert changing.isdisjoint(call.verb for call in onelake.calls[calls:])

    shop.configure(f"handover: {tmp_path}/handover")
    said = shop.run("publish", fails=True)
    assert "a key stands for more than one row" in said
    assert "a key is NULL" in said
    assert not list((tmp_path / "handover").rglob("*.parquet"))
