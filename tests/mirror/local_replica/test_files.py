"""Which files are applied, in which order, and what happens to them afterwards."""

from __future__ import annotations

import os

import pyarrow as pa
import pytest

from mirrorfeed.lint.file_rules import FORM, NUMBER_TWICE
from mirrorfeed.mirror.errors import file_breaks_rule, file_not_readable
from mirrorfeed.mirror.local_replica import State
from tests.mirror.local_replica.conftest import World, is_error, marked, parquet, plain

BY_TIME = "LastUpdateTimeFileDetection"


def name(number: int) -> str:
    return f"{number:020}.parquet"


def test_processed_files_are_moved_except_the_last_one(world: World) -> None:
    for number in (1, 2, 3):
        world.put("orders", number, plain((number, "a")))
    world.step()
    assert world.names() == [name(3), "_metadata.json"]
    assert world.names("orders/_ProcessedFiles") == [name(1), name(2)]
    world.put("orders", 4, plain((4, "a")))
    assert world.step().files == 1
    assert world.names() == [name(4), "_metadata.json"]
    assert world.step().files == 0
    assert [row[0] for row in world.rows()] == [1, 2, 3, 4]


def test_gap_blocks_later_files_until_it_is_filled(world: World) -> None:
    for number in (1, 3, 4):
        world.put("orders", number, plain((number, "a")))
    report = world.step()
    assert (report.state, report.files) == (State.WAITING, 1)
    assert report.message == f"File {2:020} is missing; 2 files wait, the first is {name(3)}."
    world.put("orders", 2, plain((2, "a")))
    report = world.step()
    assert (report.state, report.files) == (State.REPLICATING, 3)


def test_file_numbers_start_at_one(world: World) -> None:
    world.put("orders", 2, plain((2, "a")))
    report = world.step()
    assert (report.state, report.message) == (State.WAITING, f"File {1:020} is missing; {name(2)} waits.")


@pytest.mark.parametrize("other", ["readme.txt", "1.parquet", f"{0:020}.parquet", f"{1:021}.parquet", f"x{name(1)}"])
def test_foreign_names_are_not_data_files(world: World, other: str) -> None:
    world.put("orders", other, b"anything")
    report = world.step()
    assert (report.state, report.message) == (State.REPLICATING, "No file is published yet.")


def test_names_with_an_underscore_are_ignored_everywhere(world: World) -> None:
    world.put("_scratchPad", 1, plain((1, "a")))
    world.put("_scratch.schema/orders", 1, plain((1, "a")))
    world.put("sales.schema/_stage", 1, plain((1, "a")))
    world.put("orders", f"_{name(1)}", b"staged")
    world.put("orders/_mirrorfeed", 1, b"staged")
    world.put("", "_partnerEvents.json", b"{}")
    assert [report.table for report in world.replica.run_pass()] == ["orders"]
    assert not world.target.exists()


def test_one_number_with_two_extensions_is_an_error(world: World) -> None:
    world.put("orders", 1, plain((1, "a")))
    world.put("orders", f"{1:020}.csv", b"id\r\n1\r\n")
    path = world.zone / "orders" / name(1)
    finding = NUMBER_TWICE.finding(str(path), number=1, other=f"{1:020}.csv")
    assert is_error(world.step(), file_breaks_rule, finding=finding)


def test_extension_that_the_table_does_not_declare_is_an_error(world: World) -> None:
    path = world.put("orders", f"{1:020}.tsv", b"id\r\n1\r\n")
    finding = FORM.finding(str(path), problem="The extension is neither parquet nor csv")
    assert is_error(world.step(), file_breaks_rule, finding=finding)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "Parquet file size is 0 bytes"),
        (
            parquet(plain((1, "a")))[:-7],
            "Parquet magic bytes not found in footer. Either the file is corrupted or this is not a parquet file",
        ),
    ],
)
def test_broken_file_stops_the_table_and_is_retried_after_it_is_replaced(
    world: World, content: bytes, reason: str
) -> None:
    world.put("orders", 1, plain((1, "a")))
    path = world.put("orders", 2, content)
    world.put("orders", 3, plain((3, "c")))
    for files in (1, 0):
        report = world.step()
        assert (report.state, report.files) == (State.FAILED, files)
        assert file_not_readable.matches(report.error)
        assert (report.error.address, report.error.reason.rstrip(".")) == (str(path), reason)
    assert world.names() == [name(1), name(2), name(3), "_metadata.json"]
    world.put("orders", 2, plain((2, "b")))
    assert world.step().files == 2
    assert world.rows() == [(1, "a"), (2, "b"), (3, "c")]


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd"])
def test_parquet_is_read_with_every_documented_compression(world: World, codec: str) -> None:
    import io

    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(plain((1, "a")), buffer, compression=codec)
    world.put("orders", 1, buffer.getvalue())
    world.step()
    assert world.rows() == [(1, "a")]


def test_number_that_was_applied_before_is_not_read_again(world: World) -> None:
    for number in (1, 2):
        world.put("orders", number, plain((number, "a")))
    world.step()
    world.put("orders", 1, plain((9, "other")))
    report = world.step()
    assert (report.files, report.message) == (0, f"{name(1)} was already applied, so it was not read again.")
    assert world.rows() == [(1, "a"), (2, "a")]


def at(world: World, file: str, rows: pa.Table, second: int) -> None:
    os.utime(world.put("orders", file, rows), (second, second))


def test_files_ordered_by_time_are_applied_in_time_order(world: World) -> None:
    world.metadata(keyColumns=["id"], fileDetectionStrategy=BY_TIME)
    at(world, "b.parquet", marked((1, "first", 4)), 100)
    at(world, "a.parquet", marked((1, "last", 4)), 300)
    at(world, name(7), marked((1, "second", 4), (2, "x", 0)), 200)
    assert world.step().files == 3
    assert world.rows() == [(1, "last"), (2, "x")]
    assert world.names() == ["_metadata.json", "a.parquet"]
    assert world.names("orders/_ProcessedFiles") == [name(7), "b.parquet"]


def test_path_that_was_processed_is_never_read_again(world: World) -> None:
    world.metadata(keyColumns=["id"], fileDetectionStrategy=BY_TIME)
    at(world, "a.parquet", plain((1, "a")), 100)
    at(world, "b.parquet", plain((2, "b")), 200)
    world.step()
    at(world, "a.parquet", plain((3, "c")), 300)
    at(world, "b.parquet", plain((4, "d")), 400)
    at(world, "c.parquet", plain((5, "e")), 500)
    report = world.step()
    assert (report.files, report.message) == (1, "a.parquet was already applied, so it was not read again.")
    assert world.rows() == [(1, "a"), (2, "b"), (5, "e")]


def test_files_applied_by_number_are_not_read_again_by_time(world: World) -> None:
    for number in (1, 2):
        world.put("orders", number, plain((number, "a")))
    world.step()
    world.metadata(keyColumns=["id"], fileDetectionStrategy=BY_TIME)
    world.put("orders", "new.parquet", plain((3, "a")))
    assert world.step().files == 1
    assert [row[0] for row in world.rows()] == [1, 2, 3]


def test_processed_files_are_deleted_after_seven_days(world: World) -> None:
    for number in (1, 2):
        world.put("orders", number, plain((number, "a")))
    world.step()
    world.later(days=4)
    world.put("orders", 3, plain((3, "a")))
    world.step()
    world.later(days=2, hours=23)
    world.step()
    assert world.names("orders/_ProcessedFiles") == [name(1), name(2)]
    world.later(hours=1)
    world.step()
    assert world.names("orders/_ProcessedFiles") == [name(2)]
    world.later(days=4)
    world.step()
    assert world.names("orders/_ProcessedFiles") == []
    assert world.names() == [name(3), "_metadata.json"]


def test_files_ready_to_delete_are_deleted_after_seven_days(world: World) -> None:
    world.put("orders", 1, plain((1, "a")))
    world.put("orders/_FilesReadyToDelete", 1, b"anything")
    world.step()
    world.later(days=6)
    world.step()
    assert world.names("orders/_FilesReadyToDelete") == [name(1)]
    world.later(days=1)
    world.step()
    assert world.names("orders/_FilesReadyToDelete") == []
