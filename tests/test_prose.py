"""The prose check finds the words and sentences that it forbids."""

from __future__ import annotations

import pytest

from tools.prose import Text, problems


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The run is told anew.", ["'told'", "'anew'"]),
        ("A file is refused, for it is damaged.", ["', for it'"]),
        (" ".join(["word"] * 31) + ".", ["a sentence of 31 words"]),
        (" ".join(["word"] * 20) + ". " + " ".join(["Word"] * 20) + ".", []),
        ("Run `mirrorfeed tell anew` again.", []),
    ],
)
def test_words_to_avoid_and_long_sentences_are_found(text: str, found: list[str]) -> None:
    messages = list(problems(Text("page.md:1", text, 30)))
    assert len(messages) == len(found)
    assert all(part in message for part, message in zip(found, messages, strict=True))
