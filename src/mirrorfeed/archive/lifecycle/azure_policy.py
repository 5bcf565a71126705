"""The one policy of a storage account: a table's rules put into it, or taken out. Pure: JSON in, JSON out.

An account has a single policy, which is replaced whole: what others wrote into it is kept word for word, also where it
archives a table's files as ours do, unless that is to be taken over. Ours are known by their names and made anew each
time, tables of one interval together, so that they are as few as can be: a policy holds 100 rules, and a rule ten
prefixes.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from mirrorfeed.archive.errors import TooManyRules
from mirrorfeed.archive.lifecycle.azure import BY_CREATION, Place, rules_in
from mirrorfeed.archive.lifecycle.finding import Wanted

MOST_RULES = 100
_PREFIXES_A_RULE = 10
_NAME = re.compile(r"mirrorfeed(\d+)days(paused)?\d+")


def policy(
    place: Place,
    listed: Sequence[str],
    days: int,
    wanted: Wanted = Wanted.ON,
    exported: Any = None,
    take_over: bool = False,
) -> Any:
    """The account's policy with what a table needs; or `TooManyRules`. `listed` is what its files' names begin with,
    from the container on. Without an exported policy, one for this table alone. To take over is to leave out what
    `of_others` names."""
    theirs = of_others(place, exported) if take_over else []
    kept: list[dict[str, Any]] = []
    ours: dict[tuple[int, bool], set[str]] = defaultdict(set)
    for rule in rules_in(exported or {"rules": []}):
        found = _archived_by(rule)
        if str(rule.get("name")) in theirs:
            continue
        if found and _is_ours(rule):
            others = {prefix for prefix in found if not prefix.startswith(place.prefix)}
            ours[_days(rule), bool(rule.get("enabled", True))] |= others
        else:
            kept.append(rule)
    if wanted is not Wanted.GONE:
        ours[days, wanted is Wanted.ON] |= set(listed)
    names = {str(rule.get("name")) for rule in kept}
    made = [rule for (age, on), found in sorted(ours.items()) for rule in _rules(age, on, sorted(found), names)]
    if len(kept) + len(made) > MOST_RULES:
        raise TooManyRules(
            owner="A storage account", limit=MOST_RULES, needed=len(kept) + len(made), folder=place.prefix
        )
    return {"rules": kept + made}


def of_others(place: Place, exported: Any) -> list[str]:
    """The rules that others wrote and that do what ours do, to files of this table alone."""
    return [
        str(rule.get("name"))
        for rule in rules_in(exported or {"rules": []})
        if not _is_ours(rule) and (found := _archived_by(rule)) and all(each.startswith(place.prefix) for each in found)
    ]


def _is_ours(rule: Mapping[str, Any]) -> bool:
    return _NAME.fullmatch(str(rule.get("name"))) is not None


def _rules(days: int, on: bool, listed: Sequence[str], taken: set[str]) -> list[dict[str, Any]]:
    name = f"mirrorfeed{days}days{'' if on else 'paused'}"
    parts = [listed[i : i + _PREFIXES_A_RULE] for i in range(0, len(listed), _PREFIXES_A_RULE)]
    free = (f"{name}{number}" for number in range(1, len(parts) + len(taken) + 1) if f"{name}{number}" not in taken)
    return [
        {
            "enabled": on,
            "name": own,
            "type": "Lifecycle",
            "definition": {
                "filters": {"blobTypes": ["blockBlob"], "prefixMatch": list(part)},
                "actions": {"baseBlob": {"tierToArchive": {BY_CREATION: days}}},
            },
        }
        for own, part in zip(free, parts, strict=False)
    ]


def _archived_by(rule: Mapping[str, Any]) -> list[str] | None:
    """The prefixes of a rule that archives block blobs by creation time and does nothing else, as ours do."""
    match rule.get("definition"):
        case {
            "filters": {"blobTypes": ["blockBlob"], "prefixMatch": [*listed], **more},
            "actions": {"baseBlob": {"tierToArchive": {"daysAfterCreationGreaterThan": int(), **conditions}, **acts}},
        } if not more and not conditions and not acts:
            others = {name for name, value in rule["definition"]["actions"].items() if value and name != "baseBlob"}
            return [str(prefix) for prefix in listed] if not others else None
    return None


def _days(rule: Mapping[str, Any]) -> int:
    return int(rule["definition"]["actions"]["baseBlob"]["tierToArchive"][BY_CREATION])
