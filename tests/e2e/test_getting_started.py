"""Run the commands of the Getting started page in order, with its configuration."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from mirrorfeed.cli import main
from tools.pages import ROOT, snippets

PAGE = ROOT / "docs/getting-started.md"
SHOWN = [
    ("init --source ./orders --keys order_id", "mirrorfeed.yml was written."),
    ("enable-cdf", "switched on"),
    ("publish --dry-run", "snapshot at version 1"),
    ("publish", "snapshot to 1"),
    ("status", "orders"),
    ("replicate ./landing ./mirror", "orders │ replicating"),
    ("verify --mirror ./mirror", "equal at version 1, 3 rows"),
    ("try", "equal at version 2, 3 rows"),
]


@pytest.mark.usefixtures("spark")
def test_commands_of_the_first_page_produce_an_equal_mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    create, change = (each.text.replace("/path/to/orders", "./orders") for each in snippets("python", PAGE)[:2])
    exec(create)
    (configuration,) = snippets("yaml", PAGE)
    commands = [words for each in snippets("sh", PAGE) for words in each.commands if words[0] == "mirrorfeed"]
    typed = [[word.replace("/path/to/orders", "./orders") for word in words[1:]] for words in commands]
    assert [" ".join(words) for words in typed] == [command for command, _ in SHOWN]
    for words, (_, shown) in zip(typed, SHOWN, strict=True):
        result = CliRunner().invoke(main, words, env={"COLUMNS": "400"})
        assert result.exit_code == 0, result.output
        assert shown in " ".join(result.output.split())
        if words[0] == "init":
            written = yaml.safe_load(Path("mirrorfeed.yml").read_text(encoding="utf-8"))
            assert written == yaml.safe_load(configuration.text.replace("/path/to/orders", "./orders"))
        if "equal at version 1" in shown:
            exec(change)
