"""Output of commands: humanized numbers, the summary, and steps as plain lines without a terminal."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from datetime import datetime
from typing import Any

import pytest
from rich.console import Console

from fixtures.memory import MemoryStore
from mirrorfeed.api.results import Result
from mirrorfeed.cli import output
from mirrorfeed.cli.main import print_result
from mirrorfeed.display import terminal
from mirrorfeed.display.progress import progress, progress_shown
from mirrorfeed.display.rows import by_marker, duration, size
from mirrorfeed.errors import SparkSessionLostError
from mirrorfeed.landing.errors import IncompatibleSchemaError
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.publish.table_result import TableResult
from mirrorfeed.source.errors import feed_off
from mirrorfeed.storage.errors import PathMissingError
from tests.publish.scenarios import orders, plan
from tests.support.tables import TableFeed


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 * 2**20, "5.0 MiB"), (3 * 2**40, "3072.0 GiB")],
)
def test_sizes_are_formatted_with_a_suitable_unit(number: int, expected: str) -> None:
    assert size(number) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0, "0 s"), (59.9, "59 s"), (60, "1.0 min"), (5400, "1.5 h"), (129_600, "1.5 d")]
)
def test_durations_are_formatted_with_a_suitable_unit(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ({}, ""),
        ({"insert": 1}, "1 insert"),
        ({"delete": 2, "upsert": 12_000}, "12,000 upserts, 2 deletes"),
        ({"upsert": 0, "delete": 1}, "1 delete"),
    ],
)
def test_rows_are_formatted_by_operation(rows: dict[str, int], expected: str) -> None:
    assert by_marker(rows) == expected


def lines(*rows: TableResult) -> list[str]:
    return repr(Result(rows)).splitlines()


def first_load(**more: Any) -> TableResult:
    return TableResult("a", None, 3, 3, inserts=1, files=1, bytes=10, latest=3, **more)


def test_result_has_a_line_per_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    published = TableResult("sales.orders", 4, 9, 9, upserts=7, files=3, bytes=2048, seconds=1.25, latest=11)
    idle = TableResult("sales.lines", published_version=9, latest=9, seconds=0.5)
    shown = lines(published, idle)
    assert [cell.strip() for cell in shown[3].split("│")[1:-1]] == [
        "sales.orders", "5 to 9", "7", "3", "2.0 KiB", "1 s", "2",
    ]  # fmt: skip
    assert [cell.strip() for cell in shown[4].split("│")[1:-1]] == [
        "sales.lines", "nothing new at 9", "-", "0", "0 B", "0 s", "0",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("result", "what"),
    [
        (first_load(), "snapshot to 3"),
        (TableResult("a", 3, 4, 4), "4"),
        (TableResult("a", published_version=4), "nothing new at 4"),
        (TableResult("a", error=PathMissingError(address="a")), "failed"),
        (TableResult("a", stopped=True), "stopped"),
    ],
)
def test_result_is_summarized_in_words(result: TableResult, what: str) -> None:
    assert result.what == what


def remarks(result: TableResult) -> list[str]:
    return [line.removeprefix(f"{result.table}: ") for line in result.remarks()]


def test_failures_attempts_and_unvalidated_keys_are_remarks() -> None:
    error = feed_off(table="main.a", version=4)
    assert remarks(TableResult("a", error=error)) == [f"MF2101: {error}"]
    assert remarks(first_load(keys_checked=False, tries=3)) == [
        "3 attempts.",
        "the keys of the initial load were not validated, because of `validate_keys: none`.",
    ]
    assert remarks(first_load()) == []


@pytest.mark.parametrize(
    ("stage", "look_up", "is_shown"),
    [(1200.0, 720.0, True), (1200.0, 540.0, False), (20.0, 12.0, False), (400.0, 0.0, False)],
)
def test_lookups_that_take_most_of_a_publication_are_a_remark(stage: float, look_up: float, is_shown: bool) -> None:
    result = publish(TableFeed(orders()), MemoryStore(), plan())
    result.measured[result.records[0].batch] |= {"stage_seconds": stage, "look_up_seconds": look_up}
    found = [line for line in remarks(result) if "looking up deleted keys in the source took 12.0 min" in line]
    assert bool(found) == is_shown


def test_reload_is_a_remark_with_its_reason() -> None:
    reason = IncompatibleSchemaError(table="main.a", version=3, changes=["'v' is missing"])
    reloaded = first_load(reseeded=reason, published_before=True)
    assert remarks(reloaded) == [f"reloaded from a snapshot. {reason.problem}"]
    (line,) = remarks(first_load(published_before=True))
    assert line.startswith(
        "loaded from a snapshot: the ledger has earlier publications, but this landing zone has none."
    )


def test_steps_are_printed_as_lines_without_a_terminal() -> None:
    out, result = Console(file=io.StringIO(), width=120), TableResult("sales.orders")
    table, store = orders((1, "new"), (2, "new")), MemoryStore()
    with output.show_steps(out) as step:
        for zone in (store, store, MemoryStore()):  # an initial load, two ranges, a reload after its folder was deleted
            publish(
                TableFeed(table),
                zone,
                plan(max_versions_per_publication=1),
                result,
                lambda made: step("sales.orders", made.step),
            )
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


def test_steps_without_rows_are_reported_as_no_rows() -> None:
    assert TableResult("a", 4, 5, 5).in_words == "published up to version 5: no rows, 0 files"


def test_terminal_shows_running_tables_and_counts_finished_ones() -> None:
    out = Console(file=io.StringIO(), width=80, height=24, force_terminal=True)
    with progress_shown(), output.show_steps(out) as step:
        assert progress.handlers
        for number in range(50):
            step(f"t{number}", "publishing version 2")
        for number in range(49):
            step.done(TableResult(f"t{number}", published_version=2, latest=2))
        step("t60", "publishing version 3")
        assert not progress.handlers
    assert isinstance(out.file, io.StringIO)
    last = _ESCAPES.sub("", out.file.getvalue()).split("49 tables done")[-1]
    assert "t60: publishing version 3" in last
    assert "t3: " not in last
    frames = out.file.getvalue().split("\r\x1b[2K")
    assert max(frame.count("\n") for frame in frames) < 24


def test_many_tables_with_nothing_new_are_counted() -> None:
    idle = [TableResult(f"t{number}", published_version=2, latest=2) for number in range(21)]
    failed = TableResult("bad", error=PathMissingError(address="bad"))
    assert len([line for line in lines(*idle[1:], failed) if line.startswith("│")]) == 21
    shown = lines(*idle, failed)
    assert len([line for line in shown if line.startswith("│")]) == 1
    assert "21 tables: nothing new." in shown


def test_follow_log_shows_an_error_once_and_its_recovery() -> None:
    shown: list[str] = []
    log = output.FollowLog(lambda text, **_: shown.append(text), lambda: datetime(2026, 11, 21, 12))
    error = SparkSessionLostError()
    for each in (error, error, None, None):
        log(TableResult("s.t", error=each))
    assert shown == [f"12:00:00 s.t: MF1202: {error}", "12:00:00 s.t: recovered"]
    log(publish(TableFeed(orders((1, "new"))), MemoryStore(), plan(), TableResult("s.t")))
    assert shown[2:] == ["12:00:00 s.t: published up to version 1: 1 insert, 1 file"]


_ESCAPES = re.compile(r"\x1b\[[?0-9;]*[A-Za-z]")


LONG = "sales.the_orders_of_all_shops_in_the_north_and_of_some_in_the_south"


@pytest.mark.parametrize("name", ["sales.orders", LONG, f"{LONG}_{LONG}"])
def test_nothing_is_truncated_and_no_word_broken_at_80_columns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = TableResult(name, 1, 4, 4, upserts=1_234_567, deletes=2, files=1, latest=4)
    out = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    with output.show_steps(out) as step:
        step(name, result.step)
    assert isinstance(out.file, io.StringIO)
    text = "\n".join([*lines(result), _ESCAPES.sub("", out.file.getvalue())])
    assert max(map(len, text.splitlines())) <= 80
    for word in ("2 to 4", "1,234,567", "upserts", "deletes", "version 4:"):
        assert word in text
    assert "…" not in text
    if len(name) < 80:
        assert text.count(name) >= 2


def test_piped_output_is_never_wrapped(capsys: pytest.CaptureFixture[str]) -> None:
    published = TableResult(f"{LONG}_{LONG}_{LONG}", 1, 4, 4, upserts=1, files=1, latest=4)
    failed = TableResult("a", error=feed_off(table="main." + LONG * 9, version=4))
    print_result(Result((published, failed)))
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 7
    assert f"{LONG}_{LONG}_{LONG}" in shown[3]
    assert shown[-1].startswith("a: MF2101: The change data feed")
    assert shown[-1].endswith(".")


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
def test_long_name_is_broken_only_after_dots_and_underscores(name: str, width: int, lines: list[str]) -> None:
    assert terminal.fold_name(name, width).split("\n") == lines
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
def test_right_columns_are_served_first_in_narrow_tables(
    columns: list[tuple[int, int]], width: int, widths: list[int] | None
) -> None:
    assert terminal.fit_columns(columns, width) == widths


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("mirrorfeed.cli", {"deltalake", "numpy", "pyarrow", "pydantic", "pyspark", "rich", "yaml"}),
        ("mirrorfeed.orchestration.publish_run", {"azure", "boto3"}),
    ],
    ids=["the commands", "publication into a folder"],
)
def test_unneeded_packages_are_not_imported(module: str, heavy: set[str]) -> None:
    script = f"import sys, {module}; print({heavy} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "set()\n")
