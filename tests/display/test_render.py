"""Results as text, HTML and JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from mirrorfeed.api.results import Result
from mirrorfeed.display.grid import grid_of
from mirrorfeed.display.rows import DataRow, Row, nonzero, row, shown, size
from mirrorfeed.source.errors import PublicationBlockedError, feed_off


@row
class Copied(Row):
    QUIET = "{tables}: nothing to copy."

    table: str = shown("table")
    files: int = shown("files", nonzero)
    bytes: int = shown("size", size, right=True, default=0)
    at: datetime | None = shown("copied at", default=None)
    tags: tuple[str, ...] = ()
    error: PublicationBlockedError | str | None = None

    @property
    def quiet(self) -> bool:
        return not self.files


@row
class Dropped(Row):
    table: str

    def remarks(self) -> Sequence[str]:
        return (f"{self.table} was dropped.",)


AT = datetime(2026, 3, 14, 9, 30, tzinfo=UTC)


def test_empty_columns_are_omitted_and_numbers_right_aligned() -> None:
    grid = grid_of([Copied("a", 1234, 2048), Copied("b", 0, 1, AT)])
    assert grid.header == ["table", "files", "size", "copied at"]
    assert grid.lines == [["a", "1,234", "2.0 KiB", "-"], ["b", "-", "1 B", "2026-03-14 09:30:00"]]
    assert grid.right == {1, 2}
    assert grid_of([Copied("a", 0)]).header == ["table", "size"]


def test_row_without_columns_is_shown_by_its_remarks() -> None:
    assert str(Dropped("sales.old")) == "sales.old was dropped."
    assert "<p>sales.old was dropped.</p>" in Dropped("sales.old")._repr_html_()
    assert "<table>" not in Dropped("sales.old")._repr_html_()


@pytest.mark.parametrize(("quiet", "listed"), [(20, 21), (21, 1)])
def test_many_unremarkable_rows_are_counted(quiet: int, listed: int) -> None:
    result = Result((*(Copied(f"t{n}", 0) for n in range(quiet)), Copied("busy", 1)))
    lines = repr(result).splitlines()
    assert sum(line.startswith("│") for line in lines) == listed
    assert (f"{quiet} tables: nothing to copy." in lines) == (listed == 1)
    assert result._repr_html_().count("<tr>") == listed + 1


def test_json_has_every_field_and_structured_errors() -> None:
    error = feed_off(table="main.a", version=4)
    result = Result((Copied("a", 1, 2, AT, ("x",), error), Copied("b", 0, error="Gone.")), ("A note.",), "Summary.")
    found = json.loads(json.dumps(result.to_dict()))
    assert found == result.to_dict()
    assert (found["ok"], found["notes"]) == (False, ["A note."])
    assert found["rows"][0] == {
        "table": "a", "files": 1, "bytes": 2, "at": "2026-03-14T09:30:00+00:00", "tags": ["x"],
        "error": error.to_dict(),
    }  # fmt: skip
    assert found["rows"][1]["error"] == "Gone."


def test_summary_comes_first_and_remarks_and_notes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    error = feed_off(table="main.a", version=4)
    result = Result((Copied("a", 1, error=error),), ("A note.",), "One table.")
    lines = repr(result).splitlines()
    assert (lines[0], lines[-2], lines[-1]) == ("One table.", f"a: {error.code}: {error}", "A note.")
    html = result._repr_html_()
    assert html.index("<p>One table.</p>") < html.index("<table>") < html.index('<p class="bad">a: ')
    assert str(Result[Copied]((), summary="No table.")) == "No table."


@pytest.mark.parametrize("width", [40, 80, 120])
def test_table_fits_the_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    rendered = repr(Result((Copied("sales.orders_of_the_whole_year_2026_and_before", 12, 2**30, AT),)))
    assert max(map(len, rendered.splitlines())) <= width


@pytest.mark.parametrize("width", [8, 120])
def test_heading_is_shown_without_markup_at_any_width(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert "orders" in str(DataRow({"[/]": "sales.orders"}))
    assert width < 80 or "[/]" in str(DataRow({"[/]": "sales.orders"}))
