"""The catalogue of all codes, of errors, of the doctor and of lint. It is made by `make fmt` and read without importing
what it is about: an answer takes no Spark and no time."""

from __future__ import annotations

import difflib
import json
import re
import reprlib
from dataclasses import dataclass
from functools import cache
from importlib import resources

from mirrorfeed.errors import Terminal

FILE = "codes.json"


@dataclass(frozen=True, slots=True)
class Entry:
    code: str
    name: str
    kind: str
    """terminal, transient, finding (of the doctor), or lint with its severity."""
    means: str
    next: str
    """What to do, with facts that are not known before in capitals; a way a line."""
    shown_by: str
    """The test that shows it."""


class UnknownCode(Terminal):
    """`mirrorfeed explain` was asked about a code that nothing has.

    To do: Write the code as errors show it, such as MF2102: the message names the nearest.
    """

    code = "MF1002"

    def __init__(self, asked: str, nearest: tuple[str, ...]) -> None:
        self.asked, self.nearest = asked, nearest

    def what(self) -> str:
        return f"There is no code {reprlib.repr(self.asked)}."

    def next(self) -> str:
        near = f"Nearest are {', '.join(self.nearest)}. " if self.nearest else ""
        return f"{near}Write it as errors show it, such as MF2102."


def explain(asked: str) -> Entry:
    """By its code, or by its name where one alone has it; or `UnknownCode`."""
    known = catalogue()
    spelled = asked.strip()
    if entry := known.get(spelled.upper()) or known.get(f"MF{spelled}"):
        return entry
    named = [entry for entry in known.values() if entry.name == spelled]
    if len(named) == 1:
        return named[0]
    if number := re.fullmatch(r"(?:MF)?(\d{1,9})", spelled, re.IGNORECASE):
        nearest = sorted(known, key=lambda code: abs(int(code[2:]) - int(number[1])))[:3]
    else:
        near = {each.name for each in named} or difflib.get_close_matches(spelled, _names(), 3)
        nearest = [entry.code for entry in known.values() if entry.name in near]
    raise UnknownCode(asked, tuple(f"{code} ({known[code].name})" for code in nearest))


@cache
def catalogue() -> dict[str, Entry]:
    """In the order of their numbers."""
    listed = json.loads(resources.files(__name__).joinpath(FILE).read_text(encoding="utf-8"))
    return {each["code"]: Entry(**each) for each in listed}


def _names() -> set[str]:
    return {entry.name for entry in catalogue().values()}
