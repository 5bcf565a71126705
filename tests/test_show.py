"""What commands print: numbers in words, the summary, and steps as plain lines where there is no terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from mirrorfeed import amounts, show
from mirrorfeed.feed.ranges import FeedOff
from mirrorfeed.landing.schema import IncompatibleSchema
from mirrorfeed.publish.fleet import Outcome
from mirrorfeed.publish.table import Progress


@pytest.mark.parametrize(
    ("number", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 * 2**20, "5.0 MiB"), (3 * 2**40, "3072.0 GiB")],
)
def test_sizes_have_a_unit_that_fits(number: int, shown: str) -> None:
    assert amounts.size(number) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0 s"), (59.9, "59 s"), (60, "1.0 min"), (5400, "1.5 h"), (129_600, "1.5 d")]
)
def test_durations_have_a_unit_that_fits(seconds: float, shown: str) -> None:
    assert amounts.duration(seconds) == shown


@pytest.mark.parametrize(
    ("rows", "shown"),
    [
        ({}, ""),
        ({"insert": 1}, "1 insert"),
        ({"delete": 2, "upsert": 12_000}, "12,000 upserts, 2 deletes"),
        ({"upsert": 0, "delete": 1}, "1 delete"),
    ],
)
def test_rows_are_told_by_what_they_do(rows: dict[str, int], shown: str) -> None:
    assert show.by_marker(rows) == shown


def printed(*outcomes: Outcome, driver_retries: int = 0) -> list[str]:
    out = Console(file=io.StringIO(), width=120)
    out.print(show.summary(outcomes))
    for note in show.notes(outcomes, driver_retries):
        out.print(note)
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue().splitlines()


def test_the_summary_has_a_line_a_table() -> None:
    published = Progress("…", 4, 9, published=9, latest=11, publications=2, rows={"upsert": 7}, files=3, bytes=2048)
    idle = Progress("…", published=9, latest=9)
    lines = printed(Outcome("sales.orders", published, 1.25), Outcome("sales.lines", idle, 0.5))
    assert [cell.strip() for cell in lines[3].split("│")[1:-1]] == [
        "sales.orders", "5 to 9", "7 upserts", "3", "2.0 KiB", "1.2", "2 versions",
    ]  # fmt: skip
    assert [cell.strip() for cell in lines[4].split("│")[1:-1]] == [
        "sales.lines", "nothing new at 9", "", "0", "0 B", "0.5", "0 versions",
    ]  # fmt: skip


def test_failures_repeated_tries_and_unchecked_keys_are_told_below() -> None:
    first = Progress("…", None, 3, published=3, latest=3, publications=1, rows={"insert": 1}, files=1, bytes=10)
    lines = printed(
        Outcome("a", Progress(), 0.1, error=FeedOff("main.a", 4)),
        Outcome("b", first, 0.1, keys_checked=False, tries=3),
    )
    assert "failed" in lines[3]
    assert "snapshot to 3" in lines[4]
    below = " ".join(lines[6:])
    assert "a: The change data feed of main.a is off at version 4, so no changes could follow." in below
    assert "b: took 3 tries." in below
    assert "b: the keys of its first load were not checked (check_keys: false)." in below


def test_first_loads_are_told_in_one_line_for_a_folder_that_was_deleted_shows_as_one() -> None:
    first = Progress("…", None, 3, published=3, latest=3, publications=1, rows={"insert": 1}, files=1, bytes=10)
    later = Progress("…", 2, 3, published=3, latest=3, publications=1, rows={"upsert": 1}, files=1, bytes=10)
    reseeded = Outcome("d", first, 0.1, reseeded=IncompatibleSchema("main.d", 3, ["'v' is gone"]))
    lines = printed(Outcome("a", first, 0.1), Outcome("b", later, 0.1), Outcome("c", first, 0.1), reseeded)
    assert (
        "First loads, for tables of which the landing zone had no log: a, c. If one was published before, its folder"
        " was deleted: Fabric drops that table and takes it anew."
    ) in " ".join(lines)
    assert not any("First loads" in line for line in printed(Outcome("b", later, 0.1), reseeded))
    assert show.notes([Outcome("a", first, 0.1)], rebuilt=True) == []


def test_calls_that_were_repeated_are_counted_in_one_line() -> None:
    outcomes = [Outcome("a", Progress(retries=2), 0.1), Outcome("b", Progress(retries=1), 0.1)]
    assert printed(*outcomes, driver_retries=4)[-1] == "7 calls to the landing zone had to be repeated."
    assert printed(*outcomes[1:])[-1] == "1 call to the landing zone had to be repeated."
    assert not any("repeated" in line for line in printed(Outcome("a", Progress(), 0.1)))


def test_without_a_terminal_each_step_is_a_line() -> None:
    out = Console(file=io.StringIO(), width=120)
    with show.steps(out) as step:
        step("sales.orders", Progress("versions 2 to 4"))
        step("sales.orders", Progress("…", 1, 4, published=4, publications=1, rows={"delete": 1}, files=1))
        step("sales.orders", Progress("…", 4, 5, published=5, publications=1))
    assert isinstance(out.file, io.StringIO)
    assert out.file.getvalue().splitlines() == [
        "sales.orders: publishing versions 2 to 4",
        "sales.orders: published up to version 4: 1 delete, 1 file",
        "sales.orders: published up to version 5: no rows, 0 files",
    ]


def test_on_a_terminal_each_table_has_a_bar() -> None:
    out = Console(file=io.StringIO(), width=120, force_terminal=True)
    with show.steps(out) as step:
        step("sales.orders", Progress("…", 1, 4, published=4, publications=1, rows={"delete": 1}, files=1))
    assert isinstance(out.file, io.StringIO)
    assert "sales.orders: published up to version 4: 1 delete, 1 file" in out.file.getvalue()


def test_a_table_that_was_started_again_says_why() -> None:
    first = Progress("…", None, 3, published=3, latest=3, publications=1, rows={"insert": 1}, files=1, bytes=10)
    lines = printed(Outcome("a", first, 0.1, reseeded=IncompatibleSchema("main.a", 3, ["'v' is gone"])))
    assert "a: reseeded from a snapshot. The columns of main.a at version 3 do not go on" in " ".join(lines)
