"""Explore all orders of steps of the protocol's model. It shares no code with the publisher."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.publish.model import Loss, Rules, explore

pytestmark = pytest.mark.proof


@pytest.mark.parametrize(
    ("rules", "most"),
    [
        (Rules(faults=0, deletions=0), 15_000),
        (Rules(versions=1, faults=0), 15_000),
        (Rules(versions=1), 15_000),
        (Rules(versions=1, deletions=0, kills=1), 15_000),
        (Rules(versions=1, faults=0, deletions=0, pages=True), None),
        (Rules(faults=0, publishers=1, duplicates=1, taken=2), None),
        (Rules(versions=1, faults=0, duplicates=1, taken=1), 15_000),
        (Rules(versions=1, faults=0, deletions=0, duplicates=1, pages=True), 15_000),
        (Rules(versions=1, parts=(2, 3), faults=0, deletions=0), 15_000),
        (Rules(parts=(2, 1), deletions=0, kills=1), 15_000),
        (Rules(adopters="A", faults=0, foreign=1, taken=1), 15_000),
        (Rules(adopters="AB", kills=1, foreign=1), 15_000),
    ],
    ids=str,
)
def test_no_order_of_steps_loses_a_file(rules: Rules, most: int | None, counted: Counter[str]) -> None:
    counted["states of the model"] += explore(rules, most)


@pytest.mark.parametrize(
    ("rules", "what"),
    [
        (
            Rules(versions=1, one_request_for_an_id=False, begins_with_a_file=False),
            "record 1 of log A0 counts, and its file is gone",
        ),
        (Rules(versions=1, faults=0, duplicates=1, begins_with_a_file=False), "record 1 of log A0 counts, and its"),
        (
            Rules(versions=1, faults=0, deletions=0, duplicates=1, taken=1, creates_files_empty=False),
            "file 1 of log A0 was taken, and is published again",
        ),
        (Rules(faults=0, deletions=0, begins_anew_when_unfinished=False), "record 1 of log A0 counts, and its"),
        (Rules(faults=0, deletions=0, second_listing=False), "record 1 of log A0 counts, and its file is gone"),
        (
            Rules(versions=1, faults=0, deletions=0, records_in_one_step=False),
            "holds another file than its record says",
        ),
        (Rules(versions=1, deletions=0, looks_after_the_record=False), "number 1 of log A0 holds another file than"),
        (
            Rules(versions=1, parts=(2, 3), faults=0, deletions=0, continues_the_plan=False),
            r"has \[\('A', 1, 2\), \('B', 2, 3\)\]",
        ),
        (
            Rules(adopters="A", publishers=1, faults=0, deletions=0, foreign=1, compares_numbers=False),
            "number 2 of log A0 holds another file than its record says",
        ),
        (
            Rules(adopters="A", faults=0, deletions=0, compares_numbers=False),
            "number 1 of log A0 holds another file than its record says",
        ),
    ],
    ids=str,
)
def test_removing_any_rule_makes_a_few_steps_lose_a_file(rules: Rules, what: str) -> None:
    with pytest.raises(Loss, match=what):
        explore(rules)


@pytest.mark.soak
@pytest.mark.parametrize(
    "rules",
    [
        Rules(faults=0, deletions=0),
        Rules(versions=1, faults=0),
        Rules(versions=1, deletions=0),
        Rules(deletions=0),
        Rules(versions=1, kills=1, faults=0),
        Rules(versions=1, faults=0, deletions=0, duplicates=1, taken=1),
        Rules(versions=1, publishers=1, duplicates=1, taken=1, kills=1),
        Rules(versions=1, parts=(2, 3), faults=0, deletions=0),
        Rules(publishers=1, parts=(3,), duplicates=1, kills=1, deletions=0),
        Rules(adopters="AB", deletions=0, foreign=1),
    ],
    ids=str,
)
def test_no_order_of_all_steps_loses_a_file(rules: Rules, counted: Counter[str]) -> None:
    counted["states of the model"] += explore(rules)


@pytest.mark.soak
def test_no_order_of_millions_of_steps_loses_a_file(counted: Counter[str]) -> None:
    counted["states of the model"] += explore(Rules(), 3_000_000)


@pytest.mark.soak
@pytest.mark.parametrize(
    "rules",
    [
        Rules(versions=1, faults=0, duplicates=1, taken=1),
        Rules(faults=0, deletions=0, duplicates=1, taken=2),
        Rules(versions=1, faults=0, deletions=0, duplicates=1, pages=True),
    ],
    ids=str,
)
def test_no_order_of_steps_with_a_duplicate_request_loses_a_file(rules: Rules, counted: Counter[str]) -> None:
    counted["states of the model"] += explore(rules, 1_000_000)
