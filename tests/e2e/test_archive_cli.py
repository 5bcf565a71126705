"""The commands for archived files."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from fixtures.tiers import Clock, FolderTiers
from mirrorfeed.archive.restore import request_and_wait
from mirrorfeed.cli import main
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.table_info import read_table_info
from tests.archive.archived_table import Orders
from tests.e2e.test_cli import run_command
from tests.support.delta import DeltaTable
from tests.support.json_output import run_json
from tests.support.ledgers import read_ledger


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["set", "t", "2 months"], "The interval '2 months' is not a whole number of days."),
        (["change-interval", "t", "--to", "0 days"], "The interval '0 days' is empty."),
        (
            ["unset", "t"],
            "Files of t may still be archived. Without an interval, queries that read them fail.",
        ),
        (["plan", "t", "--prices", "/no/such/file", "--to", "p"], "/no/such/file is not a valid file with prices"),
        (["plan", "t", "--to", "/no/such/folder/p"], "the folder /no/such/folder does not exist"),
        (["plan", "t", "--to", "/tmp"], "The file /tmp already exists, and was not overwritten."),
        (["restore", "/no/such/plan"], "/no/such/plan is not a valid restore plan"),
    ],
)
def test_invalid_arguments_are_refused_before_spark_starts(arguments: list[str], words: str) -> None:
    assert words in run_command(["archive", *arguments], 1)


def test_invalid_ledger_is_refused_before_spark_starts() -> None:
    assert "The source 'a.b.c.d' has 4 parts" in run_command(["--ledger", "a.b.c.d", "archive", "step", "t"], 1)


def test_archive_plan_needs_either_a_query_or_a_feed_range() -> None:
    ended = run_command(["archive", "plan", "t", "--where", "id = 1", "--feed-from", "1", "--to", "p"], 2)
    assert "--where and --feed-from cannot be combined" in ended
    assert "--feed-to requires --feed-from" in run_command(["archive", "plan", "t", "--feed-to", "1", "--to", "p"], 2)
    for given in (["t", "--sql", "SELECT 1"], [], ["--sql", "SELECT 1", "--where", "id = 1"]):
        assert "Use either TABLE" in run_command(["archive", "plan", *given, "--to", "p"], 2)
    assert "-1 is not in the range x>=0" in run_command(["archive", "plan", "t", "--feed-from", "-1", "--to", "p"], 2)


def test_lifecycle_rules_of_a_table_are_merged_into_the_account_policy(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Source(path=str(tmp_path / "t"))
    spark.sql(f"CREATE TABLE {table.sql} (id INT) USING DELTA")
    found = read_table_info(spark, table)
    place = replace(found, location="abfss://lake@acct.dfs.core.windows.net/t")
    monkeypatch.setattr(
        "mirrorfeed.archive.lifecycle.read_table_info", lambda spark, source: replace(place, properties=properties)
    )
    properties = {"delta.timeUntilArchived": "60 days"}

    def run(*arguments: str, code: int = 0) -> str:
        ended = CliRunner().invoke(main, ["archive", *arguments])
        assert ended.exit_code == code, ended.output
        return ended.stdout

    exported = tmp_path / "exported.json"
    logs = {"name": "logs", "definition": {"filters": {"prefixMatch": ["logs/"]}, "actions": {"baseBlob": None}}}
    exported.write_bytes(json.dumps({"policy": {"rules": [logs]}}).encode("utf-16"))
    merged = json.loads(run("rule", str(table), "--merge", str(exported)))
    assert [rule["name"] for rule in merged["rules"]] == ["logs", "mirrorfeed60days1"]
    exported.write_text(json.dumps(merged))
    (finding,) = run_json("archive", "lifecycle-check", str(exported), "--table", str(table)).rows
    assert finding == {**finding, "table": str(table), "days": 60, "problems": []}
    paused = json.loads(run("rule", str(table), "--paused"))
    assert [rule["enabled"] for rule in paused["rules"]] == [False]
    assert "mirrorfeed" not in run("rule", str(table), "--merge", str(exported), "--remove")
    assert "mirrorfeed90days1" in run("rule", str(table), "--merge", str(exported), "--interval", "90 days")
    assert "cannot be combined" in run_command(["archive", "rule", str(table), "--paused", "--remove"], 2)

    exported.write_text(json.dumps(merged).replace("mirrorfeed60days1", "legalhold"))
    (ruled,) = run_json("archive", "rule", str(table), "--merge", str(exported), "--remove").rows
    assert [rule["name"] for rule in ruled["policy"]["rules"]] == ["logs", "legalhold"]
    assert (ruled["rules_of_others"], ruled["problems"]) == (["legalhold"], [])
    result_text = run_command(["archive", "rule", str(table), "--merge", str(exported), "--remove"], 0)
    assert (
        f"Kept (to replace these rules, use --take-over): legalhold, which archive only files of {table}" in result_text
    )
    assert "legalhold" in run("rule", str(table), "--merge", str(exported), "--remove")
    assert f"Replaced: legalhold, which archive only files of {table}" in run_command(
        ["archive", "rule", str(table), "--merge", str(exported), "--take-over"], 0
    )
    assert "legalhold" not in run("rule", str(table), "--merge", str(exported), "--take-over")

    logs["definition"] = {"actions": {"baseBlob": {"delete": {"daysAfterCreationGreaterThan": 9}}}}
    exported.write_text(json.dumps({"rules": [logs]}))
    refused = run_command(["archive", "rule", str(table), "--merge", str(exported)], 1)
    assert "logs: deletes files of the table (daysAfterCreationGreaterThan 9): only VACUUM may delete them" in refused
    exported.write_text("no JSON")
    assert f"{exported}: it is not valid JSON" in run_command(
        ["archive", "lifecycle-check", str(exported), "--table", "t"], 1
    )

    place = replace(place, location="s3://lake/t")
    policy = json.loads(run("rule", str(table)))
    assert [rule["Filter"]["Prefix"] for rule in policy["Rules"]] == [
        "t/part-",
        "t/deletion_vector_",
        "t/_change_data/",
    ]


def test_restored_rows_are_copied_into_another_table(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders_table = Orders(spark, tmp_path / "orders", interval=60)
    table, plan, copied = str(orders_table.path), str(tmp_path / "plan.json"), Source(path=str(tmp_path / "copy"))
    clock = Clock(datetime.now(UTC))
    tiers = FolderTiers(tmp_path / "aside", clock)
    tiers.archive(file.uri for file in orders_table.files("1", "2"))
    monkeypatch.setattr("mirrorfeed.archive.restore.tiers_at", lambda location: tiers)
    passing = partial(request_and_wait, sleep=lambda seconds: clock.pass_(seconds / 3600))
    monkeypatch.setattr("mirrorfeed.archive.restore.request_and_wait", passing)
    monkeypatch.chdir(tmp_path)
    price = {"per_gib": 2**30, "per_10k_files": 0}
    prices = {"currency": "EUR", "standard": price, "high": price}
    Path("mirrorfeed.yml").write_text(
        json.dumps({"landing_zone": "zone", "archive": {"prices": prices}, "tables": [{"source": "a", "target": "b"}]})
    )

    def restored(*options: str, code: int = 0) -> str:
        return run_command(["archive", "restore", plan, "--poll", "36000", *options], code)

    planned = run_command(["archive", "plan", table, "--where", "id BETWEEN 18 AND 32", "--to", plan], 0)
    assert re.search(r"15\.0 +│? *[\d,]+\.\d\d +│? *EUR", planned)
    assert "do not stay restored for 3 days" in restored("--keep", "3", code=1)
    once = run_json("archive", "restore", plan, "--once", "--tier", "cool", "--into", str(copied))
    (requested,) = once.rows
    assert requested == {
        **requested,
        "table": table,
        "done": False,
        "ready": 0,
        "pending": 2,
        "archived": 0,
        "into": None,
    }
    assert "Estimated costs: 8.00 EUR for retrieval" in once.words
    assert "archives these files again within about a day" in requested["notes"][0]
    assert not (tmp_path / "copy").exists()
    assert f"Copied the rows into {copied}." in restored("--into", str(copied))
    tiers.archive(file.uri for file in orders_table.files("1", "2"))
    assert {row.id for row in spark.read.table(copied.sql).collect()} == set(range(18, 33))
    (second,) = run_json("archive", "restore", plan, "--into", str(copied)).rows
    assert (second["done"], second["ready"], second["into"]) == (True, None, str(copied))
    assert second["notes"] == [f"{copied} already contains the rows of the plan."]
    assert f"{table} already exists and is not a copy of the rows of this plan" in restored("--into", table, code=1)

    other = Path(plan)
    other.write_text(json.dumps(json.loads(other.read_text()) | {"feed_from": 1}))
    assert "has no rows to copy" in restored("--into", "t", code=1)


def test_archive_report_counts_restored_files_and_updates_the_ledger(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders_table = Orders(spark, tmp_path / "orders", interval=60)
    table, rows = str(orders_table.path), Source(path=str(tmp_path / "ledger"))
    prices, price = tmp_path / "prices.json", {"per_gib": 0, "per_10k_files": 0}
    stored = {"hot": 2**30, "archive": 0}
    prices.write_text(json.dumps({"currency": "EUR", "standard": price, "high": price, "stored": stored}))
    tiers = FolderTiers(tmp_path / "aside", Clock(datetime.now(UTC)))
    monkeypatch.setattr("mirrorfeed.api.archive_table.tiers_at", lambda location: tiers)
    without_archive = DeltaTable(spark, tmp_path / "no-archive").path
    sources = map(str, (table, without_archive, tmp_path / "none"))
    listed = [{"source": source, "target": f"t{n}"} for n, source in enumerate(sources)]
    config = tmp_path / "mirrorfeed.yml"
    config.write_text(json.dumps({"landing_zone": "zone", "ledger": str(rows), "tables": listed}))
    options = ("--prices", str(prices), "--config", str(config))
    reported_row, missing = run_json("archive", "report", *options, code=1).rows
    assert (reported_row["table"], reported_row["archived_files"], reported_row["restored_files"]) == (table, 2, 2)
    assert (missing["table"], missing["error"]["code"][:2]) == (str(tmp_path / "none"), "MF")
    (row,) = read_ledger(spark, rows)
    assert (row.table, row.currency, row.restored_bytes) == (table, "EUR", 8)
    assert row.bytes_by_age is not None
    assert {age for age, count in row.bytes_by_age.items() if count} == {"0-7 d", "90-180 d"}
    assert sum(row.bytes_by_age.values()) == sum(file.bytes or 0 for file in orders_table.files())
