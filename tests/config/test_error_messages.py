"""Messages about mistakes in `mirrorfeed.yml`. `messages.txt` has the cases.

A section starts with `##` and a template. Each case is a text that replaces {} in the template. The expected messages
follow after `=>`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mirrorfeed.config import loader
from mirrorfeed.config.errors import ConfigInvalidError


def written() -> Iterator[tuple[str, list[str]]]:
    template = "{}"
    for block in Path(__file__).with_name("messages.txt").read_text(encoding="utf-8").strip().split("\n\n"):
        if block.startswith("##"):
            template = block.partition("\n")[2]
            continue
        text, *messages = block.split("\n=> ")
        yield template.replace("{}", text), messages


LONG = "landing_zone: /lz\n{}\ntables: [{source: a, target: b}]\n"
"""Template for values with thousands of digits."""
LARGE = "is a whole number of more than 64 bits"
CASES = [
    *written(),
    (
        LONG.replace("{}", f"max_parallel_tables: {'9' * 5000}"),
        ["2: max_parallel_tables: must be a whole number, not '999999999999...9999999999999'"],
    ),
    (LONG.replace("{}", f"max_parallel_tables: 0x{'f' * 5000}"), [f"2: max_parallel_tables: {LARGE}"]),
    (LONG.replace("{}", f"freshness_target_minutes: 0b{'1' * 20_000}"), [f"2: freshness_target_minutes: {LARGE}"]),
    (LONG.replace("{}", f"target_file_size: 1{':59' * 5000}"), [f"2: target_file_size: {LARGE}"]),
    (
        LONG.replace("{}", f"freshness_target_minutes: 1{':59' * 5000}.5"),
        [
            "2: freshness_target_minutes: must be a number of minutes from 1 to 525600, or never, not"
            " '1:59:59:59:5...59:59:59:59.5'"
        ],
    ),
]


@pytest.mark.parametrize(("text", "messages"), CASES, ids=[f"{i}: {case[1][0][:50]}" for i, case in enumerate(CASES)])
def test_each_mistake_is_reported_once_with_its_line_and_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, messages: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mirrorfeed.yml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigInvalidError) as caught:
        loader.load()
    assert [f"{each.line}: {each.field}: {each.reason}" for each in caught.value.mistakes] == messages
    assert not any(secret in str(caught.value) for secret in ("hush", "sig="))
