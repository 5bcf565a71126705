"""Who brings files into the landing zone: executors, where they reach it and may use its credential; else the driver.

Serverless compute and standard access mode keep the Python of executors away from the network, the environment and the
identity of their machines. So nothing is concluded from names: an executor is asked to look.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import pyarrow as pa
from pyspark.sql import SparkSession

from mirrorfeed.config import Config
from mirrorfeed.errors import Terminal, Transient
from mirrorfeed.publish.carry import Carrier, InResult
from mirrorfeed.publish.handover import VOLUMES, Handover
from mirrorfeed.publish.source import let_code_travel
from mirrorfeed.session import is_on_databricks, is_on_this_machine
from mirrorfeed.stores import NotThere, Store
from mirrorfeed.stores.patience import Patience

FOLDER = "_mirrorfeed_preflight"
"""Readers of a landing zone ignore it; it is there for a moment."""
_DEADLINE = 15.0
"""Seconds after which an executor that did not answer is taken for shut out."""
_BRISK = Patience(seconds=3, connections=1, answer_seconds=5)


@dataclass(frozen=True)
class Way:
    carrier: Carrier | None
    """None: executors write into the landing zone themselves."""
    why: str
    through: str = ""
    chosen: bool = True
    """Whether there was a choice."""

    def __str__(self) -> str:
        if self.carrier is None:
            return f"Executors write into the landing zone: {self.why}."
        return f"The driver writes into the landing zone what executors give it {self.through}: {self.why}."


class Choosing:
    """The way of a run, asked for in a thread of its own: once, and again only after what may pass."""

    def __init__(self, ask: Callable[[], Way]) -> None:
        self._ask, self._pool, self._lock = ask, ThreadPoolExecutor(1), threading.Lock()
        self._asked = self._pool.submit(ask)

    def __call__(self) -> Way:
        """Or why there is none."""
        with self._lock:
            if isinstance(self._asked.exception(), Transient):
                self._asked = self._pool.submit(self._ask)
        return self._asked.result()

    def found(self) -> Way | None:
        """At the end of the run."""
        self._pool.shutdown()
        return None if self._asked.exception() else self._asked.result()


def choose(spark: SparkSession, config: Config, store: Store, environment: Mapping[str, str] = os.environ) -> Way:
    """The way for a whole run; or why it cannot be the one that the configuration asks for."""
    shut_out = ""
    if config.writers != "driver":
        if is_on_this_machine(spark, environment):
            return Way(None, "Spark is on this machine", chosen=False)
        shut_out = reach(spark, store)
    carry, why = decide(config.writers, shut_out, store.address(""))
    if not carry:
        return Way(None, why)
    if config.handover is None:
        return Way(InResult(), why, "in the result of the query")
    if is_on_databricks(environment) and not config.handover.startswith(VOLUMES):
        raise HandoverOutsideCatalog(config.handover)
    handover = Handover(spark, config.handover)
    handover.check(store)
    return Way(handover, why, f"through {config.handover}")


def decide(writers: Literal["auto", "executors", "driver"], shut_out: str, zone: str) -> tuple[bool, str]:
    """Whether the driver writes, and why. `shut_out` is what keeps executors from the landing zone; empty: nothing."""
    if writers == "driver":
        return True, "the configuration says so"
    if not shut_out:
        return False, "they reach it"
    if writers == "executors":
        raise ExecutorsShutOut(zone, shut_out)
    return True, f"executors do not reach it ({shut_out})"


def reach(spark: SparkSession, store: Store) -> str:
    """What keeps executors from the landing zone; empty if nothing does. Reads alone, if anything is there to read."""
    there = {entry.name for entry in store.list("")}
    mark = "" if there else f"{FOLDER}/{uuid.uuid4().hex}"
    let_code_travel()
    brisk = replace(cast(Any, store), patience=_BRISK) if hasattr(store, "patience") else store
    asked = spark.range(1, numPartitions=1).mapInArrow(_asking(brisk, mark), "name string, trouble string")
    names: set[str] = set()
    for row in asked.toArrow().to_pylist():
        if row["trouble"] is not None:
            return str(row["trouble"]).rstrip(".")
        names.add(row["name"])
    if mark:
        return _collect(store, mark)
    return "" if there & names else "what they find at its address is another place"


def _collect(store: Store, mark: str) -> str:
    try:
        store.read(mark)
    except NotThere:
        return "what they write to its address goes to another place"
    finally:
        store.remove_folder(FOLDER)
    return ""


def _asking(store: Store, mark: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def look() -> list[str]:
        if mark:
            store.create(mark, b"")
            return []
        return [entry.name for entry in store.list("")]

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                names, trouble = within(_DEADLINE, look)
                rows = [{"trouble": trouble}] if trouble else [{"name": name} for name in names]
                yield pa.RecordBatch.from_pylist(rows, pa.schema([("name", pa.string()), ("trouble", pa.string())]))

    return task


def within(seconds: float, look: Callable[[], list[str]]) -> tuple[list[str], str | None]:
    """What a call gave, or what went wrong, even if it did not end: a network may swallow what is sent."""
    names: list[str] = []
    trouble = [f"no answer within {seconds:.0f} seconds"]

    def call() -> None:
        try:
            names.extend(look())
            trouble.clear()
        except Exception as error:
            # Not by its class: code that travelled with the task has classes of its own. Of others only the kind, for
            # what they put into their messages is not known.
            what = getattr(error, "what", None)
            trouble[0] = what() if callable(what) else type(error).__name__

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(seconds)
    return list(names), trouble[0] if trouble else None


class ExecutorsShutOut(Terminal):
    def __init__(self, zone: str, reason: str) -> None:
        self.zone, self.reason = zone, reason

    def what(self) -> str:
        return f"Executors cannot write to {self.zone}: {self.reason}. Nothing was staged."

    def next(self) -> str:
        return (
            "Leave out `writers: executors`, so that the driver writes what executors give it: on serverless compute"
            " and in standard access mode executors have no network of their own. Or use a dedicated cluster."
        )


class HandoverOutsideCatalog(Terminal):
    def __init__(self, handover: str) -> None:
        self.handover = handover

    def what(self) -> str:
        return f"The handover {self.handover} is no volume, and on Databricks only volumes are shared by all of Spark."

    def next(self) -> str:
        return "Set `handover` to a volume of Unity Catalog, /Volumes/catalog/schema/volume. Nothing was staged."
