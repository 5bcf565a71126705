"""Verify a mirror: compare its rows with the rows of the source, at the source version that the mirror has.

Shares no code for values and types with the publisher, so that verification finds errors of the publisher.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import NullType

from mirrorfeed import archive
from mirrorfeed.config.model import Config
from mirrorfeed.errors import MirrorfeedError, first_line
from mirrorfeed.landing.delivery import UPSERT, Delivery
from mirrorfeed.landing.errors import invalid_condition
from mirrorfeed.landing.log_record import Record
from mirrorfeed.landing.names import Target
from mirrorfeed.landing.output_format import PARQUET
from mirrorfeed.landing.selection import Selection
from mirrorfeed.mirror import errors
from mirrorfeed.mirror.verify import delivered
from mirrorfeed.mirror.verify.expected_rows import column_faults, select_rows
from mirrorfeed.mirror.verify.row_comparison import SHOWN, RowComparison, compare_rows, differing_keys
from mirrorfeed.runtime.spark_errors import EXPIRED, FILES_GONE, LOG_GONE, analyze, find_condition
from mirrorfeed.runtime.spark_session import lossless_settings
from mirrorfeed.source.errors import SnapshotFilesDeletedError
from mirrorfeed.source.identifier import Source, quote
from mirrorfeed.source.reader import read_full, read_version
from mirrorfeed.source.snapshot_or_range import Range, Snapshot
from mirrorfeed.source.table_info import read_table_info


@contextmanager
def version_gone_errors(
    spark: SparkSession, source: Source, version: int, mirror: Source | None = None
) -> Iterator[None]:
    """Context manager that raises `mirrored_version_gone` if `version` of the source can no longer be read.

    If the source does not exist, raises the error of `read_table_info`, such as `SourceMissingError`. Raises any other
    error unchanged, for example an error about a file of `mirror`.
    """
    try:
        yield
    except SnapshotFilesDeletedError as error:
        raise errors.mirrored_version_gone(table=str(source), version=version) from error
    except MirrorfeedError:
        raise
    except Exception as error:
        is_of_mirror = mirror is not None and str(mirror.path) in unquote(str(error))
        if not is_of_mirror and find_condition(error, (*FILES_GONE, *LOG_GONE, EXPIRED)):
            raise errors.mirrored_version_gone(table=str(source), version=version) from error
        read_table_info(spark, source)  # raises an error if the source does not exist
        raise


def mirrors_folder(config: Config, mirror: str | None) -> str:
    """Return `mirror` or, if it is not set, the folder of the mirrored tables in OneLake.

    Raises `mirror_not_named` if `mirror` is not set and `landing_zone` is not in a mirrored database.
    """
    if mirror:
        return mirror
    workspace, database = config.onelake or (None, None)
    if workspace is None or database is None:
        raise errors.mirror_not_named(landing_zone=config.landing_zone)
    from mirrorfeed.storage.onelake import ENDPOINT  # imported late: slow to import

    return f"abfss://{workspace}@{urlsplit(config.files_endpoint or ENDPOINT).netloc}/{database}/Tables"


def mirror_of(folder: str, target: Target) -> Source:
    """Return the mirror `<folder>/<schema or dbo>/<table>`, or `folder` itself if it is a local Delta table."""
    below = f"{target.schema or 'dbo'}/{target.table}"
    if "://" in folder:
        return Source(path=f"{folder.rstrip('/')}/{below}")
    place = Path(folder).resolve()
    return Source(path=str(place if (place / "_delta_log").is_dir() else place / below))


def verify_at(
    spark: SparkSession,
    source: Source,
    mirror: Source,
    records: Sequence[Record],
    shown: int = SHOWN,
    selection: Selection | None = None,
    published: Iterable[Record] = (),
    since: int | None = None,
    sample: int = 0,
) -> RowComparison:
    """Return the comparison of a mirror with the selected rows and columns of its source.

    `records` has the publications that the mirror may have reached, newest first. The mirror is compared with the
    source version of each publication until the rows are equal. If they never are, returns the comparison with the
    fewest differences. A source without versions is compared once, in its current state. Reports differences of at
    most `shown` keys or rows.

    With `delivery: append`, the mirror also has the earlier versions. If it is equal, it is compared with each earlier
    version of the records `published` that can still be read, and the first comparison with a difference is returned.

    With `since`, compares only the keys that changed since this version and of `sample` random rows, and counts all
    rows. Ignores publications before this version. The table must have keys and versions.

    Raises `mirror_not_reached` if `records` is empty, and the errors of `compare`.
    """
    if not records:
        raise errors.mirror_not_reached(table=str(source))
    if has_no_versions := records[0].read is not None:
        records = records[:1]
    changed: Range | None = None
    if since is not None:
        from mirrorfeed.mirror.verify.changed_keys import require_changes  # imported late: few commands need it

        records = [record for record in records if record.to_version_inclusive >= since]
        require_changes(source, records)
        # If the mirror may have reached an older publication, too, these keys show which one it reached.
        changed = Range(since, records[0].to_version_inclusive)

    def compare_at(record: Record) -> RowComparison:
        return compare(
            spark,
            source,
            record.to_version_inclusive,
            mirror,
            record.keys,
            shown,
            as_text=record.extension != PARQUET,
            selection=selection,
            has_no_versions=has_no_versions,
            delivery=record.delivery,
            changed=changed,
            sample=sample,
        )

    result = first_equal(compare_at, records)
    if not (records[0].delivery.appends and result.equal) or has_no_versions or since is not None:
        return result
    return _with_earlier_versions(compare_at, result, published)


def _with_earlier_versions(
    compare_at: Callable[[Record], RowComparison], newest: RowComparison, published: Iterable[Record]
) -> RowComparison:
    """Call `compare_at` for each version of `published` before that of `newest`, except those that cannot be read."""
    compared = {newest.version}
    for record in published:
        if record.to_version_inclusive >= newest.version or record.to_version_inclusive in compared:
            continue
        try:
            earlier = compare_at(record)
        except MirrorfeedError as error:
            if error.code != errors.mirrored_version_gone.code:
                raise
            continue
        if not earlier.equal:
            return earlier
        compared.add(record.to_version_inclusive)
    return replace(newest, earlier_versions=len(compared) - 1)


def first_equal(compare_at: Callable[[Record], RowComparison], records: Sequence[Record]) -> RowComparison:
    """Call `compare_at` for `records` until source and mirror are equal. Return the comparison with fewest differences.

    If records have the same version and keys, calls `compare_at` only for the first of these records. Raises
    `MirrorColumnsError` if each call of `compare_at` raises this error."""
    comparisons: list[RowComparison] = []
    column_error: errors.MirrorColumnsError | None = None
    compared: set[tuple[int, tuple[str, ...]]] = set()
    for record in records:
        if (at := (record.to_version_inclusive, record.keys)) in compared:
            continue  # a repair has the same version as the publication before it
        compared.add(at)
        try:
            comparisons.append(compare_at(record))
        except errors.MirrorColumnsError as error:  # the mirror may not have reached this publication
            column_error = column_error or error
            continue
        if comparisons[-1].equal:
            return comparisons[-1]
    if column_error is not None and not comparisons:
        raise column_error
    return min(comparisons, key=lambda comparison: comparison.differing)


def compare(
    spark: SparkSession,
    source: Source,
    version: int,
    mirror: Source,
    keys: Sequence[str],
    shown: int = SHOWN,
    *,
    as_text: bool = False,
    selection: Selection | None = None,
    has_no_versions: bool = False,
    delivery: Delivery = UPSERT,
    changed: Range | None = None,
    sample: int = 0,
) -> RowComparison:
    """Return the comparison of a source at a version with its mirror.

    Compares rows with the same values in the columns `keys` or, if `keys` is empty, whole rows. Set `as_text` if the
    published files are delimited text. With `has_no_versions`, reads the source in its current state. Reports the
    differences of at most `shown` keys or rows. With `changed`, compares only the keys that changed in this range.

    Raises `mirrored_version_gone` if the version can no longer be read, `ArchivedFilesNeededError` if reading it needs
    archived files that are not restored, and `invalid_condition` if Spark cannot apply the condition in `selection`.
    Raises `mirror_missing` if there is no mirror, `mirror_unreadable` if the mirror cannot be read, and
    `MirrorColumnsError` if its columns do not match.
    """
    version_errors = nullcontext() if has_no_versions else version_gone_errors(spark, source, version, mirror)
    with version_errors, lossless_settings(spark):
        read_at = None if has_no_versions else version
        expected, actual = _read_both(spark, source, read_at, mirror, selection, as_text=as_text, delivery=delivery)
        if changed is not None:
            from mirrorfeed.mirror.verify.changed_keys import compare_changes  # imported late: few commands need it

            return compare_changes(
                spark, source, changed, version, expected, actual, keys, shown, selection, delivery, sample
            )
        if delivery.appends:
            actual = delivered.rows_at(actual, version, keys, expected.columns)
        mark = delivery.deleted_column if delivery.marks_deletes else None
        result = compare_rows(version, expected, actual, keys, shown, mark)
    return replace(result, has_no_versions=has_no_versions)


def find_differing_keys(
    spark: SparkSession,
    source: Source,
    version: int,
    mirror: Source,
    keys: Sequence[str],
    where: str | None = None,
    *,
    as_text: bool = False,
    selection: Selection | None = None,
    delivery: Delivery = UPSERT,
) -> DataFrame:
    """Return each key whose rows differ between source and mirror.

    With `where`, returns instead each key that has a row in source or mirror that matches the SQL condition `where`.
    The columns `IN_SOURCE` and `IN_MIRROR` have the number of rows with the key. Set `as_text` if the published files
    are delimited text. Raises `condition_unreadable` if Spark cannot apply `where`, and the errors of `compare`, except
    `mirrored_version_gone`.
    """
    expected, actual = _read_both(spark, source, version, mirror, selection, as_text=as_text, delivery=delivery)
    mark = delivery.deleted_column if delivery.marks_deletes else None
    try:
        return analyze(differing_keys(expected, actual, keys, where, mark))
    except (AnalysisException, ParseException) as error:
        if where is None:
            raise
        raise errors.condition_unreadable(table=str(source), condition=where, reason=first_line(str(error))) from error


def _read_both(
    spark: SparkSession,
    source: Source,
    version: int | None,
    mirror: Source,
    selection: Selection | None,
    *,
    as_text: bool,
    delivery: Delivery,
) -> tuple[DataFrame, DataFrame]:
    where = selection.where if selection else None
    if version is None:
        expected = read_full(spark, source)
    else:
        expected, properties = read_version(spark, source, version), read_table_info(spark, source).properties
        if where is None:
            archive.check(spark, source, Snapshot(version), properties)
    try:
        expected = select_rows(expected, selection)
        if version is not None and where is not None:
            expected = archive.readable_rows(spark, source, expected, where, properties)
        # A column without a type has no values, so the mirror does not have it.
        typed = [quote(each.name) for each in expected.schema if not isinstance(each.dataType, NullType)]
    except (AnalysisException, ParseException) as error:
        if where is None:
            raise
        raise invalid_condition(table=str(source), condition=where, reason=first_line(str(error))) from error
    try:
        actual = spark.read.table(mirror.sql)
        _ = actual.schema  # Spark Connect accesses the storage only here
    except AnalysisException as error:
        raise errors.mirror_missing(table=str(source), path=str(mirror)) from error
    except Exception as error:  # file systems and sessions raise many classes of errors
        reason = first_line(str(error))
        raise errors.mirror_unreadable(table=str(source), path=str(mirror), reason=reason) from error
    expected = expected.select(*typed)
    if delivery.marks_deletes:
        expected = delivered.with_live_marks(expected, delivery)
    if faults := column_faults(expected.schema, actual.schema, as_text=as_text):
        raise errors.MirrorColumnsError(table=str(source), path=str(mirror), faults=faults)
    return expected, actual
