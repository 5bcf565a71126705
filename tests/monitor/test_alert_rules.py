"""What of a look at all tables is worth telling, and what a look cannot tell."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from mirrorfeed.monitor.alert_rules import Trouble, judge
from mirrorfeed.monitor.findings import Code, Finding, Weight
from mirrorfeed.monitor.freshness import AHEAD, Freshness, Step

NOW = datetime(2026, 3, 14, 9, 30, tzinfo=UTC)
LIMITS: dict[Step, float | None] = dict.fromkeys(AHEAD, 1800.0)


def ago(minutes: float) -> datetime:
    return NOW - timedelta(minutes=minutes)


@pytest.mark.parametrize(
    ("step", "words", "remedy"),
    [
        (Step.VISIBLE, "What was committed since {} is not visible to Fabric.", "mirrorfeed doctor a.b"),
        (Step.CONSUMED, "Fabric has not taken files that have been visible since {}.", "mirrorfeed fabric status"),
        (Step.MIRRORED, "What has been visible since {} is not in the mirror.", "mirrorfeed fabric status"),
        (
            Step.SEEN,
            "The SQL endpoint has not taken up what has been in the mirror since {}.",
            "mirrorfeed status a.b --fabric",
        ),
    ],
)
def test_what_waits_for_too_long_is_told_with_its_step_its_time_and_what_helps(
    step: Step, words: str, remedy: str
) -> None:
    look = judge({"a.b": Freshness(since={step: ago(45)})}, [], LIMITS, NOW)
    what = f"{words.format('2026-03-14 08:45:00 UTC')} That is 45.0 min."
    assert look.troubles == (Trouble("a.b", f"BEHIND_{step.name}", what, remedy, ago(45)),)


@pytest.mark.parametrize(
    ("since", "limit", "told"), [(29, 1800.0, False), (30, 1800.0, False), (31, 1800.0, True), (999, None, False)]
)
def test_no_more_than_the_limit_is_waited_for_in_silence(since: float, limit: float | None, told: bool) -> None:
    fresh = {"a": Freshness(since={Step.MIRRORED: ago(since)})}
    assert bool(judge(fresh, [], {**LIMITS, Step.MIRRORED: limit}, NOW).troubles) is told


@pytest.mark.parametrize(("within", "told"), [({}, False), ({"a": 600.0}, True), ({"b": 600.0}, False)])
def test_a_table_is_judged_by_the_minutes_within_which_it_is_to_be_fresh(
    within: dict[str, float], *, told: bool
) -> None:
    fresh = {"a": Freshness(since={Step.VISIBLE: ago(20), Step.CONSUMED: ago(20)})}
    found = judge(fresh, [], LIMITS, NOW, within).troubles
    assert [each.kind for each in found] == ["BEHIND_VISIBLE"] * told


def test_a_table_that_is_paused_is_in_no_trouble_and_out_of_none() -> None:
    fresh = {"a": Freshness(since={Step.VISIBLE: ago(45)}), "b": Freshness(since={Step.VISIBLE: ago(45)})}
    look = judge(fresh, [found(Code.GAP)], LIMITS, NOW, paused=["a"])
    assert [each.key for each in look.troubles] == [("b", "BEHIND_VISIBLE")]
    assert look.hides(("a", "GAP"))
    assert not look.hides(("b", "GAP"))


def found(code: Code, weight: Weight = Weight.WRONG, table: str = "a") -> Finding:
    return Finding(code, table, "What.", "mirrorfeed x", weight)


@pytest.mark.parametrize(
    ("finding", "lasting"),
    [
        (found(Code.SCHEMA_CHANGED), 0.0),
        (found(Code.EMPTY_FILE), 0.0),
        (found(Code.FALLS_BEHIND, Weight.SOON), 0.0),
        (found(Code.MIRRORING_PAUSED, table=""), 0.0),
        (found(Code.UNFINISHED), 1800.0),
        (found(Code.UNREACHABLE), 1800.0),
    ],
)
def test_what_the_doctor_finds_is_told_at_once_unless_it_may_pass(finding: Finding, lasting: float) -> None:
    (trouble,) = judge({}, [finding], LIMITS, NOW).troubles
    assert trouble == Trouble(finding.table, finding.code.name, "What.", "mirrorfeed x", None, lasting)


def test_notes_are_no_trouble() -> None:
    assert judge({}, [found(Code.CLONED, Weight.NOTE)], LIMITS, NOW).troubles == ()


@pytest.mark.parametrize(
    ("fresh", "findings", "hidden"),
    [
        pytest.param(Freshness(), [], set(), id="a whole look hides nothing"),
        pytest.param(None, [], {"BEHIND_VISIBLE", "BEHIND_SEEN"}, id="a table that could not be asked"),
        pytest.param(Freshness(unknown={Step.SEEN: "no"}), [], {"BEHIND_SEEN"}, id="a step that is not known"),
        pytest.param(
            Freshness(), [found(Code.UNREACHABLE)], {"BEHIND_VISIBLE", "BEHIND_SEEN", "GAP"}, id="no answer of a store"
        ),
        pytest.param(
            Freshness(), [found(Code.CREDENTIAL, table="")], {"BEHIND_VISIBLE", "BEHIND_SEEN", "GAP"}, id="nor Fabric's"
        ),
        pytest.param(Freshness(), [found(Code.CREDENTIAL, table="b")], set(), id="nor another table's"),
    ],
)
def test_what_cannot_be_seen_is_not_taken_for_over(
    fresh: Freshness | None, findings: list[Finding], hidden: set[str]
) -> None:
    look = judge({"a": fresh}, findings, LIMITS, NOW)
    assert {kind for kind in ("BEHIND_VISIBLE", "BEHIND_SEEN", "GAP") if look.hides(("a", kind))} == hidden
