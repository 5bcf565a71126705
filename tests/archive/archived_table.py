"""A small table with some archived files, and a context manager that moves these files away."""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

from pyspark.sql import SparkSession

from fixtures.tiers import make_old
from mirrorfeed.archive import archive_interval as intervals
from mirrorfeed.archive import guard
from mirrorfeed.archive.archive_interval import Policy
from mirrorfeed.archive.data_files import DataFile
from mirrorfeed.archive.delta_log_reader import ColumnarLog
from mirrorfeed.archive.lifecycle import file_prefixes
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.snapshot_or_range import Range
from mirrorfeed.source.table_info import read_table_info
from tests.support.delta import SparkTable

NOW = datetime.now(UTC)
POLICY = Policy(60)


class Orders(SparkTable):
    """A table partitioned by day, with one file and ten rows per day: ids 10 to 19 on day 1, and so on.

    Days 1 and 2 are 100 days old, the others are new. Version 2 sets the archive interval, if one is given. Spark
    creates one table of each kind. The others are copies with their own ids."""

    _templates: ClassVar[dict[tuple[Any, ...], dict[str, bytes]]] = {}

    def __init__(
        self,
        spark: SparkSession,
        path: Path,
        days: int = 4,
        properties: Mapping[str, str] | None = None,
        interval: int | None = None,
    ) -> None:
        kind = (days, interval, *sorted((properties or {}).items()))
        if (files_by_name := self._templates.get(kind)) is not None:
            self._copy(spark, path, files_by_name)
            return
        if interval is None:
            super().__init__(spark, path, "id int, v string, day int", properties=properties, by="day")
            self.sql(f"""
                INSERT INTO {{}} SELECT /*+ REPARTITION(1) */ cast(id AS int), concat('v', id), cast(id DIV 10 AS int)
                FROM range(10, {days + 1}0)""")
            old = NOW - timedelta(days=100)
            make_old(path, lambda add: old if {"1", "2"} & {*add["partitionValues"].values()} else None)
        else:
            Orders.__init__(self, spark, path, days, properties)
            intervals.set_first(spark, self.source, interval, NOW)
        files = [each for each in path.rglob("*") if each.is_file() and not each.name.startswith(".")]
        self._templates[kind] = {str(each.relative_to(path)): each.read_bytes() for each in files}

    def _copy(self, spark: SparkSession, path: Path, files_by_name: Mapping[str, bytes]) -> None:
        self.spark, self.path, self.source = spark, path, Source(path=str(path))
        for name, content in files_by_name.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(content)
        (old_id,) = re.findall(r'"metaData": ?{"id": ?"([^"]+)', self.commit_file(0).read_text())
        new_id = str(uuid.uuid4())
        for each in (path / "_delta_log").iterdir():
            if each.suffix in (".json", ".crc"):
                each.write_text(each.read_text().replace(old_id, new_id))

    def changed_files(self, first: int, last: int) -> list[DataFile]:
        found = read_table_info(self.spark, self.source)
        return list(guard.files_to_read(self.spark, self.source, found, Range(first - 1, last)))

    def files(self, *of: str) -> list[DataFile]:
        """Files of the newest version, all or only those of these days."""
        folder = self.path / "_delta_log"
        names = [each.name for each in folder.iterdir()]
        log = ColumnarLog(f"file:{self.path}", names, self.latest, lambda name: folder / name)
        found = sorted(log.files()[1], key=lambda file: file.uri)
        return [file for file in found if not of or (file.partition or {}).get("day") in of]


def prefixes(folder: str, partition_columns: Sequence[str], random_names: bool) -> list[str]:
    """Prefixes of a table's files, including the container."""
    return [folder + prefix for prefix in file_prefixes(partition_columns, random_names)]


def days(files: Iterable[DataFile]) -> list[str | None]:
    """Partitions of the files."""
    return sorted(str(file.partition["day"]) if file.partition else "?" for file in files)


@contextmanager
def data_moved_away(path: Path) -> Iterator[None]:
    """Move all data files of the table away. Its folder contains only the log during this time."""
    moved = path.with_name(f"{path.name}-aside")
    path.rename(moved)
    shutil.copytree(moved / "_delta_log", path / "_delta_log")
    try:
        yield
    finally:
        shutil.rmtree(path)
        moved.rename(path)
