from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fixtures.tiers import Clock, FolderTiers
from mirrorfeed.archive.data_files import DataFile
from mirrorfeed.archive.errors import files_not_checkable
from mirrorfeed.archive.table_maintenance import EARLY_DELETION, Maintained, check_files, condition, maintain, split
from tests.archive.archived_table import NOW, Orders


def file(uri: str, **partition: str | None) -> DataFile:
    return DataFile(uri, partition=partition)


def test_partition_is_active_if_none_of_its_files_is_archived() -> None:
    files = [file("1", a="x"), file("2", a="x"), file("3", a="y"), file("4", a=None)]
    assert split(files, [files[1], files[3]]) == (((("a", "y"),),), ((("a", "x"),), (("a", None),)))


def test_unpartitioned_table_is_active_as_a_whole_or_not_at_all() -> None:
    files = [file("1"), file("2")]
    assert split(files, []) == (((),), ())
    assert split(files, files[:1]) == ((), ((),))


def test_partition_conditions_have_typed_values() -> None:
    given = [(("a`b", "it's \\"), ("day", "2026-01-01")), (("a`b", None), ("day", "2026-01-02"))]
    assert condition(given, {"a`b": "string", "day": "date"}) == (
        "(`a``b` = CAST('it\\'s \\\\' AS string) AND `day` = CAST('2026-01-01' AS date)) OR"
        " (`a``b` IS NULL AND `day` = CAST('2026-01-02' AS date))"
    )


def test_partitions_are_named_as_not_rewritten_because_vacuum_covers_the_whole_table() -> None:
    done = Maintained("t", ("OPTIMIZE t WHERE a", "VACUUM t"), ({"day": "1"}, {}), (EARLY_DELETION,))
    assert done.remarks() == (
        *done.statements,
        "Not rewritten, because of archived files: day=1",
        "Not rewritten, because of archived files: the whole table",
        EARLY_DELETION,
    )


@pytest.mark.slow
def test_maintenance_runs_on_active_partitions_and_names_the_others(spark: SparkSession, tmp_path: Path) -> None:
    """The archived files are moved away, so that reading one fails."""
    table = Orders(spark, tmp_path / "t", properties={"delta.enableDeletionVectors": "true"}, interval=60)
    table.sql("DELETE FROM {} WHERE id = 35")
    table.sql("INSERT INTO {} VALUES (400, 'x', 4)")
    tiers = FolderTiers(tmp_path / "aside", Clock(NOW))
    old = table.files("1", "2")
    tiers.archive(file.uri for file in old)

    done = maintain(spark, table.source, NOW, optimize=False, zorder=("id",), purge=True, analyze=True, vacuum=True)
    assert done.left_out == ({"day": "1"}, {"day": "2"})
    where = "WHERE (`day` = CAST('3' AS int)) OR (`day` = CAST('4' AS int))"
    assert done.statements == (
        f"OPTIMIZE {table.source.sql} {where} ZORDER BY (`id`)",
        f"REORG TABLE {table.source.sql} {where} APPLY (PURGE)",
        f"VACUUM {table.source.sql}",
    )
    assert done.notes == (
        EARLY_DELETION,
        "ANALYZE did not run: open source Delta does not support it, and collects statistics when it writes.",
    )
    now = table.files()
    assert {file.uri for file in old} <= {file.uri for file in now}
    assert [(file.partition, file.rows, file.deletion_vector) for file in now if file not in old] == [
        ({"day": "3"}, 9, None),
        ({"day": "4"}, 11, None),
    ]

    assert check_files(spark, table.source, NOW).missing == ()
    hot = next(file.uri for file in now if file not in old)
    Path(hot.removeprefix("file:")).unlink()
    assert check_files(spark, table.source, NOW).missing == (hot,)
    assert check_files(spark, table.source, NOW, tiers).missing == (hot,)


def test_files_that_cannot_be_checked_are_reported() -> None:
    error = files_not_checkable(table="t", uri="s3://b/t/part-0")
    assert error.problem.endswith("for example s3://b/t/part-0.")


@pytest.mark.parametrize("vacuum", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_table_without_an_active_partition_is_not_rewritten(spark: SparkSession, tmp_path: Path, vacuum: bool) -> None:
    table = Orders(spark, tmp_path / "t", properties={"delta.enableDeletionVectors": "true"}, interval=60)
    done = maintain(spark, table.source, NOW + timedelta(days=90), vacuum=vacuum)
    assert done.statements == ((f"VACUUM {table.source.sql}",) if vacuum else ())
    assert done.notes[-1] == "Every partition contains archived files, so nothing was rewritten."
