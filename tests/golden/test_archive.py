"""The whole output of the commands for archives, compared with the files in `expected`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.archive.archived_table import Orders
from tests.golden.expected_output import check
from tests.golden.recorder import COMMANDS, Recorder, recording

ARCHIVE_COMMANDS = [each for each in COMMANDS if each.startswith("archive ")]


@pytest.fixture(scope="module")
def recorder(spark: SparkSession) -> Iterator[Recorder]:
    with recording() as recorder:
        _archives(recorder, spark)
        yield recorder


@pytest.mark.parametrize("command", ARCHIVE_COMMANDS)
def test_output_is_as_expected(recorder: Recorder, command: str, pytestconfig: pytest.Config) -> None:
    check(recorder, command, pytestconfig)


def _archives(recorder: Recorder, spark: SparkSession) -> None:
    made = Orders(spark, recorder.folder / "sales")
    table = str(made.path)

    def case(title: str, *arguments: str) -> None:
        recorder.case(title, "archive", *arguments)

    def text(title: str, *arguments: str) -> None:
        recorder.text(title, "archive", *arguments)

    def as_json(title: str, *arguments: str) -> None:
        recorder.json(title, "archive", *arguments)

    price = {"per_gib": 0, "per_10k_files": 10_000}
    prices = {"currency": "EUR", "standard": price, "high": price, "stored": {"hot": 0, "archive": 0}}
    Path("prices.json").write_text(json.dumps(prices), encoding="utf-8")
    Path("asked.txt").write_text("-- from the dashboard\n\nid = 15\nid = 35\nnope = 1\n", encoding="utf-8")
    Path("mirrorfeed.md").write_text("no JSON", encoding="utf-8")
    Path("rules.json").write_text(json.dumps({"rules": []}), encoding="utf-8")

    simulate = ("simulate", table, "60 days", "120 days", "--predicates", "asked.txt", "--prices", "prices.json")
    text("Two intervals and four conditions", *simulate, "--where", "day = 3")
    as_json("One interval", "simulate", table, "60 days")
    case("No archive", "show", table)
    text("A first interval", "set", table, "60 days")
    case("An interval of months", "set", table, "2 months")
    case("An interval of 60 days", "show", table)
    case("An archived file is needed", "files", table, "--where", "id = 15 OR id = 35")
    text("No such column", "files", table, "--where", "nope = 1")
    text("No condition", "files", table, "--where", "*")
    text("A folder has no tiers", "files", table, "--tiers")
    text("No archived file is needed", "query", table, "--where", "id = 35")
    as_json("No archived file is needed", "query", table, "--where", "id = 35")
    case("Archived files are needed", "query", table)
    text("No such column", "query", table, "--columns", "id,nope")
    case("All files are there", "check", table)
    text("With prices", "plan", table, "--where", "id < 30", "--prices", "prices.json", "--to", "plan.json")
    as_json("For any query", "plan", "--sql", f"SELECT * FROM delta.`{table}` WHERE id < 30", "--to", "query.json")
    text("No archived file is needed", "plan", "--sql", "SELECT 1", "--to", "other.json")
    text("The query is wrong", "plan", "--sql", "nonsense", "--to", "other.json")
    text("Past the newest version", "plan", table, "--feed-from", "9", "--to", "other.json")
    case("The file exists", "plan", table, "--to", "plan.json")
    text("The folder is missing", "plan", table, "--to", "no/such/plan.json")
    text("The prices are missing", "plan", table, "--prices", "nothing.json", "--to", "other.json")
    case("Neither a table nor a query", "plan", "--to", "other.json")
    text("A condition and a feed", "plan", table, "--where", "id = 1", "--feed-from", "1", "--to", "other.json")
    text("The end of a feed alone", "plan", table, "--feed-to", "1", "--to", "other.json")
    case("The files have no tiers", "restore", "plan.json")
    case("No such plan", "restore", "nothing.json")
    text("Two of four files", "report", table)
    as_json("A table is missing", "report", table, f"{table}-missing")
    text("Files that are not archived are compacted", "maintain", table)
    as_json("Statistics are collected", "maintain", table, "--no-optimize", "--analyze")
    text("No such column", "maintain", table, "--zorder", "nope")
    case("A folder has no lifecycle", "rule", table)
    text("Options that exclude each other", "rule", table, "--paused", "--remove")
    case("A folder has no lifecycle", "lifecycle-check", "rules.json", "--table", table)
    text("The file is no JSON", "lifecycle-check", "mirrorfeed.md", "--table", table)
    case("A rule of another interval comes first", "change-interval", table, "--to", "90 days")
    text("A longer interval", "change-interval", table, "--to", "90 days", "--exact", "--rule-changed")
    as_json("On the way to a longer interval", "step", table)
    recorder.text("The ledger is another table", "--ledger", table, "archive", "step", table)
    text("A shorter interval", "change-interval", table, "--to", "30 days")
    as_json("The same interval", "change-interval", table, "--to", "30 days")
    case("Files may be archived", "unset", table)
    text("No file is archived", "unset", table, "--nothing-archived")
