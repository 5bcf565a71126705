"""What commands print for programs, held against the page that says it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner

from mirrorfeed.cli import main
from mirrorfeed.publish.ledger import COLUMNS

PAGE = Path(__file__).parent.parent / "docs/reference/json.md"
_LEDGERS = {name for name, _, _ in COLUMNS} | {"from_version_exclusive", "to_version_inclusive"}
"""The columns of a ledger's row, and how the bounds are called elsewhere."""


class Told(NamedTuple):
    value: Any
    words: str
    """For people, in one line."""


class Form(NamedTuple):
    names: frozenset[str]
    of_ledger: bool
    """Of whose columns some are there."""

    def fits(self, row: Any) -> bool:
        names = set(row) if isinstance(row, dict) else self.names
        return names == self.names or (self.of_ledger and names <= self.names | _LEDGERS)


@cache
def forms() -> dict[str, Form]:
    """By command. What stands in brackets is about the parts of a value."""
    lines = (line.split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `"))
    bare = ((commands, re.sub(r"\(.*?\)", "", printed)) for commands, printed in lines)
    return {
        command: Form(frozenset(re.findall("`([^`]*)`", printed)), "the ledger's" in printed)
        for commands, printed in bare
        for command in re.findall("`([^`]*)`", commands)
    }


def told(*arguments: str, code: int = 0) -> Told:
    """What stood on standard output, which is a failure's or has the command's form, and what was said beside it."""
    result = CliRunner().invoke(main, [*arguments, "--json"], env={"COLUMNS": "400"})
    assert result.exit_code == code, result.output
    value = json.loads(result.stdout)
    check_form(arguments, value)
    return Told(value, " ".join(result.stderr.split()))


def check_form(arguments: Sequence[str], value: Any) -> None:
    """Assert that the value has the fields that the page names, or is an error."""
    if isinstance(value, dict) and set(value) == {"error"}:
        return
    command = max((each for each in forms() if f" {each} " in f" {' '.join(arguments)} "), key=len)
    rows = value if isinstance(value, list) else [value]
    assert all(map(forms()[command].fits, rows)), f"{command}: {list(map(set, rows))}"
