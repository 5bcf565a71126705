"""A model of the mark of verifications, written from its description and not from its code.

Verifications run at the same time as Fabric applies versions to the mirror. Each makes one call per step: read the
newest mark, read the position of the mirror, compare, read the position again, and create the next mark. Requests fail,
take effect late or lose their response. Verifiers are killed. All orders of steps are explored.

Version `n` of the source changes only key `n`, and key 0 is never changed. Fabric may apply a version wrongly, and
somebody may break key 0 in the mirror. A repair corrects the mirror."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple


class Loss(AssertionError):
    """The newest mark covers a difference that a verification must have found, or a version that no mirror had."""


@dataclass(frozen=True, slots=True)
class MarkRules:
    """The rules of the mark, each of which prevents a loss, and the number of events of each kind."""

    marks_position_of_mirror: bool = True
    """Otherwise a verification marks the newest published version."""
    follows_the_mark_it_read: bool = True
    """Otherwise an equal result follows any mark that was created in the meantime."""
    creates_if_absent: bool = True
    """Otherwise a verification replaces the mark with the next number."""
    differences_take_the_mark_away: bool = True
    """Otherwise the mark stays, although a full verification found a difference."""
    differences_stop_the_mark: bool = True
    """Otherwise the mark moves to the compared version, although changed keys differ."""
    differences_are_retried: bool = True
    """Otherwise a verification that found a difference gives up if another one created the next mark."""
    versions: int = 3
    verifiers: int = 2
    runs: int = 2
    """Number of verifications by each verifier."""
    faults: int = 1
    kills: int = 1
    wrong: int = 1
    breaks: int = 1
    repairs: int = 1


class Mark(NamedTuple):
    number: int
    through: int | None
    """Equal up to this version. None if only a full verification can set it again."""
    by: str


class Verifier(NamedTuple):
    runs: int
    at: str = "idle"
    full: bool = False
    base: Mark | None = None
    position: int = 0
    found: frozenset[int] = frozenset()
    number: int = 0
    through: int | None = None
    attempts: int = 0


class State(NamedTuple):
    marks: frozenset[Mark]
    mirror: int
    wrong: frozenset[int]
    """Keys that differ in the mirror."""
    reported: bool
    """True if a verification ended with the result that key 0 differs, and nothing was repaired since then."""
    verifiers: tuple[Verifier, ...]
    late: tuple[Mark, ...]
    faults: int
    kills: int
    may_be_wrong: int
    breaks: int
    repairs: int

    @property
    def newest(self) -> Mark | None:
        return max(self.marks, key=lambda mark: mark.number, default=None)


def explore(rules: MarkRules, most: int | None = None) -> int:
    """Return the number of states. Raise the first loss, with a shortest sequence of steps that leads to it."""
    verifiers = (Verifier(rules.runs),) * rules.verifiers
    counts = rules.faults, rules.kills, rules.wrong, rules.breaks, rules.repairs
    first = State(frozenset(), 1, frozenset(), False, verifiers, (), *counts)
    before: dict[State, tuple[State, str] | None] = {first: None}
    left = deque([first])
    while left and (most is None or len(before) < most):
        state = left.popleft()
        for step, after in _steps(rules, state):
            if after in before:
                continue
            before[after] = state, step
            if lost := _lost(after):
                path, at = [lost], before[after]
                while at:
                    path.append(at[1])
                    at = before[at[0]]
                raise Loss("\n".join(reversed(path)))
            left.append(after)
    return len(before)


def _lost(state: State) -> str | None:
    newest = state.newest
    if newest is None or newest.through is None:
        return None
    if newest.through > state.mirror:
        return f"version {newest.through} is marked, and the mirror has version {state.mirror}"
    if missed := [key for key in state.wrong if 0 < key <= newest.through]:
        return f"version {newest.through} is marked, and key {missed[0]} differs"
    return f"version {newest.through} is marked, and key 0 was reported" if state.reported else None


def _steps(rules: MarkRules, state: State) -> Iterator[tuple[str, State]]:
    if state.mirror < rules.versions:
        new = state._replace(mirror=state.mirror + 1)
        yield f"the service applies version {new.mirror}", new
        if state.may_be_wrong:
            wrong = state.wrong | {new.mirror}
            yield (
                f"the service applies version {new.mirror} wrongly",
                new._replace(wrong=wrong, may_be_wrong=state.may_be_wrong - 1),
            )
    if state.breaks:
        yield "key 0 is broken", state._replace(wrong=state.wrong | {0}, breaks=state.breaks - 1)
    if state.repairs and state.wrong:
        yield "repair", state._replace(wrong=frozenset(), reported=False, repairs=state.repairs - 1)
    for mark in dict.fromkeys(state.late):
        late = list(state.late)
        late.remove(mark)
        yield f"late: {mark}", _create(rules, state._replace(late=tuple(late)), mark)
    for index, verifier in enumerate(state.verifiers):

        def put(new: Verifier, state: State = state, index: int = index) -> State:
            return state._replace(verifiers=(*state.verifiers[:index], new, *state.verifiers[index + 1 :]))

        if verifier.at != "idle" and state.kills:
            yield f"{index} is killed", put(Verifier(verifier.runs), state._replace(kills=state.kills - 1))
        yield from _verify(rules, state, verifier, index, put)


def _verify(rules: MarkRules, state: State, me: Verifier, index: int, put) -> Iterator[tuple[str, State]]:  # type: ignore[no-untyped-def]
    match me.at:
        case "idle":
            newest = state.newest
            if me.runs:
                yield f"{index} begins in full", put(Verifier(me.runs - 1, "position", True, newest))
                if newest and newest.through is not None:
                    yield f"{index} begins since {newest}", put(Verifier(me.runs - 1, "position", False, newest))
        case "position":
            yield f"{index} reads position {state.mirror}", put(me._replace(at="compare", position=state.mirror))
        case "compare":
            found = state.wrong | set(range(me.position + 1, state.mirror + 1))
            if not me.full:
                assert me.base
                assert me.base.through is not None
                found &= set(range(me.base.through + 1, me.position + 1))
            yield f"{index} finds {sorted(found)}", put(me._replace(at="look again", found=frozenset(found)))
        case "look again":
            if me.found and state.mirror != me.position:
                yield f"{index} begins again", put(Verifier(me.runs))
                return
            version = me.position if rules.marks_position_of_mirror else rules.versions
            through: int | None = version
            if me.found and rules.differences_stop_the_mark:
                keeps = not me.full or not rules.differences_take_the_mark_away
                through = me.base.through if me.base and keeps else None
            number = (me.base.number if me.base else 0) + 1
            yield f"{index} decides {through}", put(me._replace(at="create", number=number, through=through))
        case "create":
            mark = Mark(me.number, me.through, f"{index}.{me.runs}.{me.attempts}{' 0' * (0 in me.found)}")
            after = _create(rules, state, mark)
            yield f"{index} creates {mark}", put(me._replace(at="read again"), after)
            if state.faults:
                less = state.faults - 1
                yield f"{index} creates {mark}: refused", put(me._replace(at="read again"), state._replace(faults=less))
                late = state._replace(faults=less, late=(*state.late, mark))
                yield f"{index} creates {mark}: late", put(me._replace(at="read again"), late)
        case "read again":
            newest = state.newest
            own = f"{index}.{me.runs}.{me.attempts}{' 0' * (0 in me.found)}"
            number = newest.number if newest else 0
            is_lost = number >= me.number and (
                rules.follows_the_mark_it_read if not me.found else not rules.differences_are_retried
            )
            if (newest and newest.by == own) or is_lost:
                reported = state.reported or (0 in me.found and 0 in state.wrong)
                yield f"{index} ends", put(Verifier(me.runs), state._replace(reported=reported))
                return
            through = me.through
            if me.found and newest and through is not None and rules.differences_stop_the_mark:
                through = None if newest.through is None else min(newest.through, through)
            again = me._replace(at="create", number=number + 1, through=through, attempts=me.attempts + 1)
            yield f"{index} tries again", put(again)


def _create(rules: MarkRules, state: State, mark: Mark) -> State:
    marks = state.marks
    if any(each.number == mark.number for each in marks):
        if rules.creates_if_absent:
            return state
        marks = frozenset(each for each in marks if each.number != mark.number)
    # Earlier marks are deleted. A late request may create one again, but it is never the newest.
    top = max((each.number for each in marks), default=0)
    marks = frozenset(each for each in marks | {mark} if each.number >= top)
    return state._replace(marks=marks)
