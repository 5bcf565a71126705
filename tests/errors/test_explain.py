from __future__ import annotations

import subprocess
import sys

import pytest

from mirrorfeed.errors import explain, unknown_code
from tests.raised import raises


@pytest.mark.parametrize("text", ["MF2102", "mf2102", "2102", "FeedGap", " MF2102 "])
def test_code_is_found_in_any_spelling(text: str) -> None:
    (found,) = [each for each in explain(text) if each.kind == "terminal"]
    assert (found.code, found.name) == ("MF2102", "FeedGap")


def test_findings_are_explained_by_name() -> None:
    for name in ("empty_table", "EmptyTable"):
        (found,) = explain(name)
        assert found.code == "MF821"
    assert [each.code for each in explain("FEED_OFF")] == [each.code for each in explain("FeedOff")] != []


def test_all_codes_of_a_name_are_explained_without_the_tests_that_raise_them() -> None:
    assert [each.code for each in explain("GAP")] == ["MF302"]
    assert [each.code for each in explain("unreadable")] == ["MF107", "MF203", "MF307"]
    assert not any(
        "tests/" in line for each in explain("unreadable") for line in (*each.remarks(), str(each.to_dict()))
    )


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("MF2199", ["MF2201 (RowsProtected)", "MF2202 (CatalogRefused)", "MF2203 (CatalogUnavailable)"]),
        ("ConfigInvalidd", ["MF1103 (ConfigInvalid)"]),
        ("9" * 5000, []),
        ("MF" + "9" * 5000, []),
        ("?", []),
    ],
)
def test_unknown_code_is_refused_with_the_nearest_ones(text: str, nearest: list[str]) -> None:
    with raises(unknown_code) as caught:
        explain(text)
    assert list(caught.value.nearest)[: len(nearest)] == nearest
    assert len(str(caught.value)) < 300


def test_explain_imports_no_large_package() -> None:
    heavy = ["pyspark", "deltalake", "pyarrow", "azure", "pydantic", "requests"]
    script = (
        "import sys; from click.testing import CliRunner; from mirrorfeed.cli import main;"
        f"CliRunner().invoke(main, ['explain', 'MF204'], catch_exceptions=False);"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout == "[]\n"
