"""What Spark makes of some values in the place for files: whether it writes there, and this process reads them."""

from __future__ import annotations

import uuid

from pyspark.sql import SparkSession

from mirrorfeed.landing.names import LOG
from mirrorfeed.landing.schema import Column
from mirrorfeed.publish.files.schema_check import look
from mirrorfeed.publish.files.spark_writer import made
from mirrorfeed.publish.files.staging_area import Place
from mirrorfeed.publish.files.staging_job import StagingJob
from mirrorfeed.publish.translate.landing_rows import PROBLEM
from mirrorfeed.storage.create_once import Sink

_VALUES = {
    "id": ("long", "1L"),
    "price": ("decimal(9,2)", "1.5BD"),
    "at": ("timestamp", "timestamp'0001-01-01 00:00:00Z'"),
    "text": ("string", "'a'"),
}


def trial(spark: SparkSession, place: Place, store: Sink) -> str:
    """In what the file differs from those that are written here; empty: in nothing. Nothing of it is left."""
    columns = tuple(Column(name, type_) for name, (type_, _) in _VALUES.items())
    folder, batch = f"{uuid.uuid4().hex}/{LOG}/{uuid.uuid4().hex}", uuid.uuid4().hex
    job = StagingJob(store, folder, 1, batch, columns, ("id",), False, "zstd", 2**20)
    values = ", ".join(f"CAST({value} AS {type_}) AS {name}" for name, (type_, value) in _VALUES.items())
    with made(spark.sql(f"SELECT {values}, CAST(NULL AS int) AS {PROBLEM}"), place, job) as files:
        for name in files.names:
            with place.open(f"{files.folder}/{name}") as file:
                return look(file, job).differs
    return "no file"
