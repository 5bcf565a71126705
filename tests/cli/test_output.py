"""What commands print: numbers in words, the summary, and steps as plain lines where there is no terminal."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from rich.console import Console

from fixtures.memory import MemoryStore
from fixtures.tables import TableFeed
from mirrorfeed.cli import output as show
from mirrorfeed.display import humanize as amounts
from mirrorfeed.display import terminal
from mirrorfeed.landing.schema import IncompatibleSchema
from mirrorfeed.publish.result import TableResult
from mirrorfeed.publish.table_publisher import Progress, publish
from mirrorfeed.source.errors import FeedOff
from mirrorfeed.storage import NotThere
from tests.publish.scenes import orders, plan


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


def printed(*outcomes: TableResult, repeated: int = 0) -> list[str]:
    out = Console(file=io.StringIO(), width=120)
    out.print(show.summary(outcomes))
    for note in show.notes(outcomes, repeated):
        out.print(note)
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue().splitlines()


def test_the_summary_has_a_line_a_table() -> None:
    published = Progress("…", 4, 9, published=9, latest=11, publications=2, rows={"upsert": 7}, files=3, bytes=2048)
    idle = Progress("…", published=9, latest=9)
    lines = printed(TableResult("sales.orders", published, 1.25), TableResult("sales.lines", idle, 0.5))
    assert [cell.strip() for cell in lines[3].split("│")[1:-1]] == [
        "sales.orders", "5 to 9", "7 upserts", "3", "2.0 KiB", "1.2", "2 versions",
    ]  # fmt: skip
    assert [cell.strip() for cell in lines[4].split("│")[1:-1]] == [
        "sales.lines", "nothing new at 9", "", "0", "0 B", "0.5", "0 versions",
    ]  # fmt: skip


def test_failures_repeated_tries_and_unchecked_keys_are_told_below() -> None:
    first = Progress("…", None, 3, published=3, latest=3, publications=1, rows={"insert": 1}, files=1, bytes=10)
    lines = printed(
        TableResult("a", Progress(), 0.1, error=FeedOff(table="main.a", version=4)),
        TableResult("b", first, 0.1, keys_checked=False, tries=3),
    )
    assert "failed" in lines[3]
    assert "snapshot to 3" in lines[4]
    below = " ".join(lines[6:])
    assert "a: MF2101: The change data feed of main.a is off at version 4." in below
    assert "b: took 3 tries." in below
    assert "b: the keys of its first load were not checked (validate_keys: none)." in below


@pytest.mark.parametrize(
    ("stage", "look_up", "is_said"), [(20.0, 12.0, True), (20.0, 9.0, False), (4.0, 3.0, False), (6.0, 0.0, False)]
)
def test_look_ups_that_take_most_of_a_publication_are_told_below(stage: float, look_up: float, is_said: bool) -> None:
    progress = publish(TableFeed(orders()), MemoryStore(), plan())
    progress.made[0].seconds |= {"stage": stage, "look_up": look_up}
    notes = [str(note) for note in show.notes([TableResult("a", progress, 0.1)])]
    said = "a: looking up deleted keys in the source took 12 s, more than all else."
    assert notes == ([f"{said} If its keys are always unique, set validate_keys: range."] if is_said else [])


def test_a_first_load_is_remarkable_only_where_the_ledger_tells_of_earlier_publications() -> None:
    first = Progress("…", None, 3, published=3, latest=3, publications=1, rows={"insert": 1}, files=1, bytes=10)
    later = Progress("…", 2, 3, published=3, latest=3, publications=1, rows={"upsert": 1}, files=1, bytes=10)
    again = [TableResult(name, first, 0.1, published_before=True) for name in ("a", "c")]
    reseeded = TableResult(
        "d", first, 0.1, reseeded=IncompatibleSchema("main.d", 3, ["'v' is gone"]), published_before=True
    )
    assert show.notes([TableResult("a", first, 0.1), TableResult("b", later, 0.1)]) == []
    assert (
        "First loads of tables that were published before, says the ledger: a, c. Their folders were deleted from the"
        " landing zone: Fabric drops such a table and takes it anew."
    ) in " ".join(" ".join(printed(*again, TableResult("b", later, 0.1), reseeded)).split())
    assert show.notes(again, rebuilt=True) == []


def test_calls_that_were_repeated_are_counted_in_one_line() -> None:
    outcome = TableResult("a", Progress(retries=2), 0.1)
    assert printed(outcome, repeated=7)[-1] == "7 calls to the landing zone had to be repeated."
    assert printed(outcome, repeated=1)[-1] == "1 call to the landing zone had to be repeated."
    assert not any("repeated" in line for line in printed(outcome))


def test_without_a_terminal_each_step_is_a_line() -> None:
    out = Console(file=io.StringIO(), width=120)
    with show.steps(out) as step:
        step("sales.orders", Progress("versions 2 to 4"))
        step("sales.orders", Progress("", 1, 4, published=4, publications=1, rows={"delete": 1}, files=1))
        step("sales.orders", Progress("", 4, 5, published=5, publications=1))
    assert isinstance(out.file, io.StringIO)
    assert out.file.getvalue().splitlines() == [
        "sales.orders: publishing versions 2 to 4",
        "sales.orders: published up to version 4: 1 delete, 1 file",
        "sales.orders: published up to version 5: no rows, 0 files",
    ]


def test_each_publication_of_a_run_is_told_once_also_where_the_table_is_started_again() -> None:
    out, progress = Console(file=io.StringIO(), width=120), Progress()
    table, store = orders((1, "new"), (2, "new")), MemoryStore()
    with show.steps(out) as step:
        for zone in (store, store, MemoryStore()):  # a first load, two ranges, and one after its folder was deleted
            publish(TableFeed(table), zone, plan(versions_per_range=1), progress, partial(step, "sales.orders"))
            table.delete(1)
            table.delete(2)
    assert isinstance(out.file, io.StringIO)
    assert out.file.getvalue().splitlines() == [
        "sales.orders: publishing snapshot at version 1",
        "sales.orders: published up to version 1: 2 inserts, 1 file",
        "sales.orders: publishing version 2, then version 3",
        "sales.orders: published up to version 2: 2 inserts, 1 delete, 2 files",
        "sales.orders: publishing version 3",
        "sales.orders: published up to version 3: 2 inserts, 2 deletes, 3 files",
        "sales.orders: publishing snapshot at version 5",
        "sales.orders: published up to version 5: 2 inserts, 2 deletes, 4 files",
    ]


def test_until_there_is_a_step_it_is_told_how_many_tables_are_looked_at() -> None:
    log, terminal = (Console(file=io.StringIO(), width=80, force_terminal=force) for force in (False, True))
    for out in (log, terminal):
        with show.steps(out) as step:
            step.looking(2)
            step("a", Progress("version 2"))
    assert isinstance(log.file, io.StringIO)
    assert log.file.getvalue() == "Looking at 2 tables …\na: publishing version 2\n"
    assert isinstance(terminal.file, io.StringIO)
    frame, *words = _ESCAPES.sub("", terminal.file.getvalue()).split()[-6:-1]
    assert (frame in "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", words) == (True, ["a:", "publishing", "version", "2"])


def test_more_tables_than_a_screen_has_lines_are_counted_and_those_in_hand_are_shown() -> None:
    out = Console(file=io.StringIO(), width=80, height=24, force_terminal=True)
    with show.steps(out) as step:
        step.looking(300)
        for number in range(50):
            step(f"t{number}", Progress("version 2"))
        for number in range(49):
            step.done(TableResult(f"t{number}", Progress(published=2, latest=2), 0.1))
        step("t60", Progress("version 3"))
    assert isinstance(out.file, io.StringIO)
    last = _ESCAPES.sub("", out.file.getvalue()).split("49 of 300 tables done")[-1]
    assert "t60: publishing version 3" in last
    assert "t3: " not in last
    assert out.file.getvalue().count("\n") < 24 * 3


def test_many_tables_with_nothing_new_are_a_line_of_their_own() -> None:
    idle = [TableResult(f"t{number}", Progress(published=2, latest=2), 0.1) for number in range(21)]
    failed = TableResult("bad", Progress(), 0.1, error=NotThere(address="bad"))
    assert show.shortened([*idle[1:], failed]) == ([*idle[1:], failed], "")
    assert show.shortened([*idle, failed]) == ([failed], "21 tables: nothing new.")


_ESCAPES = re.compile(r"\x1b\[[?0-9;]*[A-Za-z]")
NOW = datetime(2026, 3, 14, 9, 30, tzinfo=UTC)


def ago(minutes: float) -> datetime:
    return NOW - timedelta(minutes=minutes)


LONG = "sales.the_orders_of_all_shops_in_the_north_and_of_some_in_the_south"


@pytest.mark.parametrize("name", ["sales.orders", LONG, f"{LONG}_{LONG}"])
def test_nothing_is_cut_and_no_word_is_broken_at_80_columns(name: str) -> None:
    rows = {"upsert": 1_234_567, "delete": 2}
    progress = Progress("", 1, 4, published=4, latest=4, publications=1, rows=rows, files=1)
    out = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    out.print(show.summary([TableResult(name, progress, 0.1)]))
    with show.steps(out) as step:
        step(name, progress)
    assert isinstance(out.file, io.StringIO)
    text = _ESCAPES.sub("", out.file.getvalue())
    assert max(map(len, text.splitlines())) <= 80
    for word in ("2 to 4", "1,234,567", "upserts", "deletes", "version 4:"):
        assert word in text
    assert "…" not in text
    if len(name) < 80:
        assert text.count(name) >= 2


def test_what_is_piped_is_never_folded(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress("…", 1, 4, published=4, latest=4, publications=1, rows={"upsert": 1}, files=1)
    out = terminal.console()
    out.print(show.summary([TableResult(f"{LONG}_{LONG}_{LONG}", progress, 0.1)]))
    for note in show.notes([TableResult("a", Progress(), 0.1, error=FeedOff(table="main." + LONG * 9, version=4))]):
        out.print(note)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert f"{LONG}_{LONG}_{LONG}" in lines[3]
    assert lines[-1].startswith("a: MF2101: The change data feed")
    assert lines[-1].endswith(".")


def test_rows_are_listed_a_line_each_with_long_values_cut() -> None:
    rows = [{"id": 1, "note": "a\nb\rc", "nested": {"k": [1, None]}}, {"id": 2, "note": "x" * 99, "nested": None}]
    out = Console(file=io.StringIO(), width=120)
    out.print(show.listed(rows))
    assert isinstance(out.file, io.StringIO)
    lines = out.file.getvalue().splitlines()[3:5]
    assert [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines] == [
        ["1", "a\\nb\\rc", '{"k": [1, null]}'],
        ["2", "x" * 59 + "…", "NULL"],
    ]


@pytest.mark.parametrize(
    ("name", "width", "lines"),
    [
        ("sales.orders", 80, ["sales.orders"]),
        ("sales.orders", 8, ["sales.", "orders"]),
        ("sales.all_orders", 12, ["sales.all_", "orders"]),
        ("a.b_c.d", 4, ["a.b_", "c.d"]),
        ("ordersandlines", 6, ["orders", "andlin", "es"]),
        ("a.ordersandlines", 6, ["a.", "orders", "andlin", "es"]),
        ("__a..b__", 3, ["__", "a..", "b__"]),
    ],
)
def test_a_name_is_broken_after_dots_and_underscores_and_only_where_it_must_be(
    name: str, width: int, lines: list[str]
) -> None:
    assert terminal.folded(name, width).split("\n") == lines
    assert "".join(lines) == name


@pytest.mark.parametrize(
    ("columns", "width", "widths"),
    [
        ([(5, 5), (3, 9), (2, 2)], 100, [5, 9, 2]),
        ([(5, 5), (3, 9), (2, 2)], 20, [5, 3, 2]),
        ([(5, 5), (3, 9), (2, 4)], 23, [5, 4, 4]),
        ([(5, 5), (3, 9), (2, 2)], 19, None),
    ],
)
def test_columns_on_the_right_come_first_to_what_is_left(
    columns: list[tuple[int, int]], width: int, widths: list[int] | None
) -> None:
    assert terminal.fitting(columns, width) == widths


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("mirrorfeed.cli", {"deltalake", "numpy", "pyarrow", "pydantic", "pyspark", "rich", "yaml"}),
        ("mirrorfeed.orchestration.publish_run", {"azure", "boto3"}),
    ],
    ids=["the commands", "publication into a folder"],
)
def test_nobody_waits_for_what_is_not_needed(module: str, heavy: set[str]) -> None:
    script = f"import sys, {module}; print({heavy} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "set()\n")


def test_on_a_terminal_each_table_has_a_bar() -> None:
    out = Console(file=io.StringIO(), width=120, force_terminal=True)
    with show.steps(out) as step:
        step("sales.orders", Progress("", 1, 4, published=4, publications=1, rows={"delete": 1}, files=1))
    assert isinstance(out.file, io.StringIO)
    assert "sales.orders: published up to version 4: 1 delete, 1 file" in out.file.getvalue()


def test_a_table_that_was_started_again_says_why() -> None:
    first = Progress("…", None, 3, published=3, latest=3, publications=1, rows={"insert": 1}, files=1, bytes=10)
    lines = printed(TableResult("a", first, 0.1, reseeded=IncompatibleSchema("main.a", 3, ["'v' is gone"])))
    assert "a: reseeded from a snapshot. The columns of main.a at version 3 do not go on" in " ".join(lines)
