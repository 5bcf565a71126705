"""`init --from`: the configuration that it writes, and the questions that it asks on a terminal."""

from __future__ import annotations

import json
import re
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from click.testing import CliRunner

from mirrorfeed.cli import main
from mirrorfeed.cli import new_config as questions
from mirrorfeed.config import SCHEMA
from mirrorfeed.config.loader import load
from mirrorfeed.config.new_config import Entry, write_new_config
from tests.support.delta import FEED


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = pa.table({"id": [1], "v": ["a"]})
    deltalake.write_deltalake("tables/orders", rows, configuration={FEED: "true"})
    deltalake.write_deltalake("tables/lines", rows)
    return tmp_path


def run(*arguments: str, answers: str = "", code: int = 0) -> str:
    result = CliRunner().invoke(main, ["init", *arguments], answers, env={"COLUMNS": "400"})
    assert result.exit_code == code, result.output
    return result.output


def written(path: Path) -> list[tuple[str, str, tuple[str, ...] | None]]:
    return [(str(each.source), str(each.target), each.keys) for each in load(path / "mirrorfeed.yml").tables]


def test_tables_without_decisions_are_entries_and_others_comments(lake: Path) -> None:
    text = run("--from", "tables", "--keys", "id", "--yes")
    assert "mirrorfeed.yml was written. Run `mirrorfeed enable-cdf`" in text
    names = [f"{lake}/tables/{name}" for name in ("lines", "orders")]
    assert written(lake) == [(names[0], "lines", ("id",)), (names[1], "orders", ("id",))]
    assert (lake / SCHEMA).exists()
    assert "  - source: ./tables/lines\n" in (lake / "mirrorfeed.yml").read_text(encoding="utf-8")
    assert "already exists" in run("--from", "tables", code=1)


def test_nobody_is_asked_without_a_terminal(lake: Path) -> None:
    assert "Edit this file" in run("--from", "tables")
    text = (lake / "mirrorfeed.yml").read_text(encoding="utf-8")
    assert "# ./tables/lines: has no known key." in text
    assert "\n  # Columns: id, v\n" in text
    text = re.sub("^  # (- source|  )", r"  \1", text, flags=re.MULTILINE)  # as a person would
    (lake / "mirrorfeed.yml").write_text(text, encoding="utf-8")
    assert written(lake)[0] == (f"{lake}/tables/lines", "lines", ())


def test_person_is_asked_for_missing_keys(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "is_terminal", lambda: True)
    text = run("--from", "tables", answers="./zone\nnr\nID, v\n-\n")
    assert "has no column nr." in text
    assert written(lake) == [(f"{lake}/tables/lines", "lines", ("id", "v")), (f"{lake}/tables/orders", "orders", ())]
    assert load(lake / "mirrorfeed.yml").landing_zone == f"{lake}/zone"
    run("other.yml", "--from", "tables", answers="\n\n-\n")
    config = load(lake / "other.yml")
    assert (config.landing_zone, [str(each.target) for each in config.tables]) == (f"{lake}/landing", ["orders"])


def test_json_has_the_tables(lake: Path) -> None:
    (row,) = json.loads(run("--from", "./tables", "--keys", "v", "--json"))["rows"]
    assert row["file"] == "mirrorfeed.yml"
    assert [(each["target"], each["feed"], each["keys"]) for each in row["tables"]] == [
        ("lines", "off", ["v"]),
        ("orders", "on", ["v"]),
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["--keys", "id"], "--keys requires --from"), (["--from", "main.sales.orders"], "is a single table")],
)
def test_wrong_options_are_usage_errors(lake: Path, arguments: list[str], words: str) -> None:
    assert words in run(*arguments, code=2)
    assert not (lake / "mirrorfeed.yml").exists()


def test_text_of_a_new_configuration(tmp_path: Path) -> None:
    protected = "main.sales.cards has the row filter f. Its rows depend on the reader"
    entries = [
        Entry("main.sales.`a.b`", "sales.ab", ("id", "on")),
        Entry("main.sales.v", None, None, "is a view, which has no change data feed"),
        Entry("main.sales.cards", "sales.cards", ("id",), protected, ("id", "v")),
    ]
    text = write_new_config(str(tmp_path / "mirrorfeed.yml"), "./landing", entries)
    (tmp_path / "mirrorfeed.yml").write_text(text, encoding="utf-8")
    assert written(tmp_path) == [("main.sales.`a.b`", "sales.ab", ("id", "on"))]
    assert text.endswith(
        f"""
  # main.sales.v: is a view, which has no change data feed.

  # main.sales.cards: {protected}.
  # - source: main.sales.cards
  #   target: sales.cards
  #   keys: [id]
"""
    )
