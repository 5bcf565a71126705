"""Run the commands of the Getting started page in order, with its configuration."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from mirrorfeed.cli import main
from tools.pages import ROOT, snippets

PAGE = ROOT / "docs/getting-started.md"
SHOWN = [
    ("init", "mirrorfeed.yml was written."),
    ("enable-cdf", "switched on"),
    ("publish --dry-run", "snapshot at version 1"),
    ("publish", "snapshot to 1"),
    ("status", "sales.orders"),
    ("replicate ./landing ./mirror", "sales.orders │ replicating"),
    ("verify --mirror ./mirror", "equal at version 1, 3 rows"),
    ("publish", "sales.orders"),
    ("replicate ./landing ./mirror", "sales.orders │ replicating"),
    ("verify --mirror ./mirror", "equal at version 2, 3 rows"),
]


@pytest.mark.usefixtures("spark")
def test_commands_of_the_first_page_produce_an_equal_mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    create, change = (each.text.replace("/path/to/orders", "./orders") for each in snippets("python", PAGE)[:2])
    exec(create)
    (configuration,) = snippets("yaml", PAGE)
    typed = [words[1:] for each in snippets("sh", PAGE) for words in each.commands if words[0] == "mirrorfeed"]
    assert [" ".join(words) for words in typed] == [command for command, _ in SHOWN]
    for words, (_, shown) in zip(typed, SHOWN, strict=True):
        result = CliRunner().invoke(main, words, env={"COLUMNS": "400"})
        assert result.exit_code == 0, result.output
        assert shown in " ".join(result.output.split())
        if words == ["init"]:
            text = configuration.text.replace("/path/to/orders", "./orders")
            Path("mirrorfeed.yml").write_text(text, encoding="utf-8")
        if "equal at version 1" in shown:
            exec(change)
