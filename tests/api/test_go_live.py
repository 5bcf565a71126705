"""The checks of the first live day, with a `Feed` whose methods return fixed results."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mirrorfeed.api.go_live import CHECKS, PAGE, GoLiveCheck, go_live, page_of
from mirrorfeed.api.results import Result
from mirrorfeed.mirror.fabric.status_and_settings import TableState
from mirrorfeed.monitor.findings import failed, passed
from mirrorfeed.publish.table_log.audit import LogRecord
from mirrorfeed.source.errors import rows_protected
from mirrorfeed.storage.errors import PathMissingError
from tools.public_api import GROUPS

ROOT = Path(__file__).parent.parent.parent
SECRET = "main.sales.orders"
ERROR = rows_protected(table=SECRET, row_filter="f", masked=())


def published(records: int = 1, error: Any = None) -> Any:
    return SimpleNamespace(records=[LogRecord] * records, error=error)


class FixedFeed:
    """A feed in OneLake. Each method returns the next of its results, or raises it."""

    landing_zone = "onelake://workspace/database"

    def __init__(self, group: str = "", **answers: Any) -> None:
        self._group, self._answers = group, answers

    def __getattr__(self, name: str) -> Any:
        if name in GROUPS:
            return FixedFeed(f"{name}.", **self._answers)

        def method(**_: Any) -> Any:
            answer = self._answers[f"{self._group}{name}"]
            answer = answer.pop(0) if isinstance(answer, list) else answer
            if isinstance(answer, Exception):
                raise answer
            return answer

        return method


def check(number: int, **answers: Any) -> tuple[str, str]:
    (found,) = go_live(FixedFeed(**answers), None, [number])  # type: ignore[arg-type]
    assert SECRET not in found.seen
    return found.result, found.seen


def status(lag: int = 0, unknown: Any = None, error: Any = None) -> Any:
    return SimpleNamespace(lag_versions=lag, freshness=SimpleNamespace(unknown=unknown or {}), error=error)


def test_checks_are_those_of_the_page() -> None:
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    titles = re.findall(r"^(\d+)\. \*\*(.+?)\.\*\*", page, re.MULTILINE)
    assert [(int(number), title) for number, title in titles] == [(each.number, each.title) for each in CHECKS]


@pytest.mark.parametrize(
    ("number", "answers", "expected"),
    [
        (1, {"setup.check": Result((passed("a"), passed("b")))}, ("ok", "2 ok")),
        (1, {"setup.check": Result((passed("a"), failed(SECRET, "no")))}, ("wrong", "1 ok, 1 wrong")),
        (1, {"setup.check": ERROR}, ("wrong", "MF2201 (RowsProtected)")),
        (2, {"setup.check_platform": Result((passed("a", "b"),))}, ("ok", "1 ok. a: ok, b")),
        (3, {"publish": [[published()], [published(0)]]}, ("ok", "1 table published, then 0 (nothing new)")),
        (3, {"publish": [[published(0, ERROR)], [published(0)]]},
            ("wrong", "0 tables published, then 0; 1 MF2201 (RowsProtected)")),
        (10, {"fabric.status": [[TableState(SECRET, "Replicating", 1)]]},
            ("ok", "1 Replicating; 0 tables without rows")),
        (10, {"fabric.status": [[TableState(SECRET, "Failed")]]}, ("wrong", "1 Failed; 1 table without rows")),
        (10, {"fabric.status": [[]]}, ("wrong", "no tables; 0 tables without rows")),
        (12, {"verify": [[SimpleNamespace(ok=True, error=None)]]}, ("ok", "1 table, 0 with differences")),
        (12, {"verify": [[SimpleNamespace(ok=False, error=None)]]}, ("wrong", "1 table, 1 with differences")),
        (12, {"verify": [[SimpleNamespace(ok=False, error=PathMissingError(address=SECRET))]]},
            ("wrong", "0 tables with differences; 1 MF4001 (PathMissing)")),
        (14, {"status": [[status()]]}, ("ok", "every step has a time; 0 waiting")),
        (14, {"status": [[status(2, {"mirrored": "why"})]]}, ("wrong", "mirrored unknown for 1; 1 waiting")),
        (4, {}, ("not done", f"a person makes this check: {PAGE}")),
    ],
)  # fmt: skip
def test_check_is_judged_without_names_of_tables(
    number: int, answers: dict[str, Any], expected: tuple[str, str]
) -> None:
    assert check(number, **answers) == expected


@pytest.mark.parametrize("number", [10, 14])
def test_checks_of_fabric_need_onelake(number: int) -> None:
    feed = FixedFeed()
    feed.landing_zone = "./zone"
    (found,) = go_live(feed, None, [number])  # type: ignore[arg-type]
    assert (found.result, found.ok) == ("not done", True)


def test_person_is_asked_and_the_page_has_all_results() -> None:
    asked: list[int] = []

    def ask(number: int, title: str) -> Any:
        asked.append(number)
        return ("wrong", "no | task\nfor orders") if number == 9 else ("ok", title)

    rows = go_live(FixedFeed(), ask, [8, 9])  # type: ignore[arg-type]
    assert asked == [8, 9]
    assert [row.ok for row in rows] == [True, False]
    page = page_of((*rows, GoLiveCheck(18, "The dashboard", "not done", "")), datetime(2026, 11, 28, tzinfo=UTC))
    assert "2026-11-28 00:00 UTC: 1 ok, 1 wrong, 1 not done." in page
    assert "| 9 | Task values | wrong | no \\| task for orders |\n| 18 |" in page
