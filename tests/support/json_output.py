"""The JSON that a command prints, and the text that it writes to standard error."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from click.testing import CliRunner

from mirrorfeed.cli import main


class JsonResult(NamedTuple):
    value: Any
    words: str
    """Standard error, in one line."""

    @property
    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.value["rows"]
        return rows


def run_json(*arguments: str, code: int = 0) -> JsonResult:
    result = CliRunner().invoke(main, [*arguments, "--json"], env={"COLUMNS": "400"})
    assert result.exit_code == code, result.output
    return JsonResult(json.loads(result.stdout), " ".join(result.stderr.split()))
