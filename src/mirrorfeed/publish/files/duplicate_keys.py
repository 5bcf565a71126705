"""Check that the keys in Spark's files are unique. Files are compared with each other only if their keys overlap."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mirrorfeed.errors import first_line
from mirrorfeed.publish.errors import StagingFilesLostError
from mirrorfeed.publish.files.spark_files import SparkFiles
from mirrorfeed.publish.files.staging_job import StagingJob
from mirrorfeed.source.identifier import quote

MAX_DRIVER_KEYS = 2**25
"""Maximum number of integer keys with overlapping ranges that the driver sorts at a time (256 MiB)."""
MAX_COLLECTED_HASHES = 2**23
"""Maximum number of hashes of other keys that the driver collects from Spark (64 MiB, more than once while they are
collected). Above, Spark checks the keys."""
_Numbers = np.ndarray[Any, np.dtype[np.int64]]
_INTEGERS = ("byte", "short", "integer", "long")


class KeyRange(NamedTuple):
    """The keys of a row group, from its statistics."""

    least: int
    greatest: int
    rows: int
    path: str
    row_group: int


def may_have_duplicates(files: SparkFiles, job: StagingJob, keys: Sequence[str]) -> bool:
    """Return False if all keys in the files are unique. If the result is True, Spark must check the keys.
    Raises `StagingFilesLostError` if a file is damaged."""
    if not files.paths:
        return False
    types = [column.type for column in job.file_columns if column.name in keys]
    if len(types) == 1 and types[0] in _INTEGERS and files.area.is_visible():
        ranges = _key_ranges(files, keys[0])
        groups = None if ranges is None else overlapping(ranges)
        if groups is not None and max(sum(each.rows for each in group) for group in groups) <= MAX_DRIVER_KEYS:
            return any(_group_may_have_duplicates(files, keys[0], group) for group in groups)
    if sum(files.rows.values()) > MAX_COLLECTED_HASHES:
        return True
    hashes = key_hashes(files.written, keys).toArrow().column(0)
    return has_duplicates(copy_numbers(hashes))


def overlapping(ranges: Sequence[KeyRange]) -> list[list[KeyRange]]:
    """Group ranges of keys. Ranges of different groups have no key in common. `ranges` must not be empty."""
    groups: list[list[KeyRange]] = []
    end = 0
    for each in sorted(ranges, key=attrgetter("least", "greatest")):
        if groups and each.least <= end:
            groups[-1].append(each)
            end = max(end, each.greatest)
        else:
            groups.append([each])
            end = each.greatest
    return groups


def copy_numbers(numbers: pa.ChunkedArray) -> _Numbers:
    return np.concatenate([np.empty(0, np.int64), *(chunk.to_numpy(zero_copy_only=True) for chunk in numbers.chunks)])


def key_hashes(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return a 64-bit hash of each row's key, in the column `hash`. If no two hashes are equal, all keys are unique."""
    return rows.select(F.xxhash64(*(F.col(quote(key)) for key in keys)).alias("hash"))


def has_duplicates(numbers: _Numbers) -> bool:
    """Return whether any of the 64-bit numbers occurs more than once. Sorts the array in place."""
    # A hash table would need about 100 bytes per number.
    if (numbers[1:] > numbers[:-1]).all():
        return False
    numbers.sort()
    return bool((numbers[1:] == numbers[:-1]).any())


def _key_ranges(files: SparkFiles, key: str) -> list[KeyRange] | None:
    """Return the range of each row group, or None if a file has no statistics of the key column."""
    ranges: list[KeyRange] = []
    for path in files.paths:
        with files.area.open(path) as file:
            try:
                metadata = pq.ParquetFile(file).metadata
                at = metadata.schema.names.index(key)
                for number in range(metadata.num_row_groups):
                    group = metadata.row_group(number)
                    if not group.num_rows:
                        continue
                    found = group.column(at).statistics
                    if found is None or not found.has_min_max or found.null_count != 0:
                        return None
                    ranges.append(KeyRange(int(found.min), int(found.max), group.num_rows, path, number))
            except (pa.ArrowException, OSError, ValueError) as error:
                raise StagingFilesLostError(place=path, reason=first_line(str(error))) from error
    return ranges or None


def _group_may_have_duplicates(files: SparkFiles, key: str, group: Sequence[KeyRange]) -> bool:
    numbers, end = np.empty(sum(each.rows for each in group), np.int64), 0
    for each in group:
        with files.area.open(each.path) as file:
            try:
                column = pq.ParquetFile(file).read_row_group(each.row_group, [key]).column(0).cast(pa.int64())
            except (pa.ArrowException, OSError, KeyError) as error:
                raise StagingFilesLostError(place=each.path, reason=first_line(str(error))) from error
        if column.null_count or len(column) != each.rows:
            return True
        for chunk in column.chunks:
            numbers[end : end + len(chunk)] = chunk.to_numpy(zero_copy_only=True)
            end += len(chunk)
    # If the statistics were wrong, another group could have the same keys. After the check, the numbers are sorted.
    least, greatest = min(each.least for each in group), max(each.greatest for each in group)
    return has_duplicates(numbers) or bool(numbers[0] < least or numbers[-1] > greatest)
