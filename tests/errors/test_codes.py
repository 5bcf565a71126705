"""Error codes: each error, finding and rule has one that never changes, an explanation and a test."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from mirrorfeed.archive.errors import column_missing
from mirrorfeed.errors import TerminalError, catalogue
from mirrorfeed.source.errors import VersionExpiredError
from tools import codes

_ROOT = Path(__file__).parents[2]


def test_error_catalogue_and_its_page_match_the_code() -> None:
    codes.main(check=True)
    assert list(catalogue().values()) == codes.entries()


def test_every_code_has_a_text_and_one_registry_line() -> None:
    lines = codes.REGISTRY.read_text(encoding="utf-8").splitlines()
    assert lines == sorted(lines, key=lambda line: (len(line.split()[0]), line))
    assert len({line.split()[0] for line in lines}) == len(lines)
    for entry in codes.entries():
        assert entry.means.endswith((".", ">")), entry
        assert not entry.next or entry.next.endswith((".", "…).", ">")), entry


def test_test_of_every_code_exists() -> None:
    shown = {test: code for code, (name, test) in codes.registry().items() if name != codes.RETIRED}
    tests_by_file = {file: set(_tests(_ROOT / file)) for file in {each.split("::")[0] for each in shown}}
    missing = [
        f"{code} {each}"
        for each, code in shown.items()
        if each.split("::")[1] not in tests_by_file[each.split("::")[0]]
    ]
    assert not missing


def test_examples_are_messages_as_errors_show_them() -> None:
    known = catalogue()
    assert known["MF2006"].example == str(VersionExpiredError(table="sales.orders", version=42))
    assert known["MF5005"].example == str(
        column_missing(table="sales.orders", column="amont", columns=["order_id", "amount"])
    )
    assert known["MF2005"].remarks()[-1] == f"Example: {known['MF2005'].example}"
    assert [each.code for each in known.values() if "<" in each.means and not each.example] == []


def test_no_fix_has_code_within_code() -> None:
    spans = [span for each in catalogue().values() for span in each.next.split("`")[1::2]]
    assert [span for span in spans if span != span.strip()] == []


def _tests(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node.name


class TestWhatDoesNotFitIsRefused:
    def test_error_without_a_code_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Bare(TerminalError):
            what = "Something failed."

        found = codes.errors()
        monkeypatch.setattr(codes, "errors", lambda: [*found, Bare])
        assert self.refused() == [f"{__name__}.Bare has no code: give it the next that is free."]

    @pytest.mark.parametrize(
        ("code", "line", "words"),
        [
            ("MF2102", None, "tests/codes.txt does not have MF2102 FeedGap: add it, with the test that shows it."),
            ("MF2102", ("Other", ""), "MF2102 was Other and is FeedGap. A code never gets another meaning."),
            ("MF2102", (codes.RETIRED, ""), "MF2102 was retired and is FeedGap. A code never gets another meaning."),
            ("MF2999", ("Old", ""), "MF2999 Old is gone: let its line in tests/codes.txt say `MF2999 retired`."),
            ("MF2999", (codes.RETIRED, ""), None),
        ],
    )
    def test_unregistered_removed_or_reused_code_is_refused(
        self, monkeypatch: pytest.MonkeyPatch, code: str, line: tuple[str, str] | None, words: str | None
    ) -> None:
        registered = codes.registry()
        changed = {
            **{each: what for each, what in registered.items() if each != code},
            **({code: line} if line else {}),
        }
        monkeypatch.setattr(codes, "registry", lambda: changed)
        assert self.refused() == ([words] if words else [])

    def refused(self) -> list[str]:
        try:
            codes.entries()
        except SystemExit as error:
            return str(error).split("\n")
        return []
