"""The protocol as a small machine, written from its description and not from its code, so that all orders of steps can
be tried: two publishers, each storage call a step of its own, calls that fail, lose their answer, take effect late or
are sent again by the client, publishers that are killed, and a folder that is deleted at any moment.

A landing zone is a set of things: `("log", id)`, `("meta",)`, `("staged", id, number, batch)`, `("record", id, number,
batch, follows)` and `("final", number, batch)`. A record has one file, and there are as many records as versions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

Thing = tuple[object, ...]
World = frozenset[Thing]
Call = tuple[str, Thing]


class Loss(AssertionError):
    """A record counts as published, and its file is gone or another's."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What the protocol does against each known way to lose something; and how much may happen."""

    one_request_for_an_id: bool = True
    begins_anew_when_unfinished: bool = True
    second_listing: bool = True
    looks_after_the_record: bool = True
    versions: int = 2
    faults: int = 1
    deletions: int = 1
    kills: int = 0
    publishers: int = 2


class Publisher(NamedTuple):
    name: str
    at: str = "read"
    tries: int = 0
    log: str | None = None
    staged: World = frozenset()
    records: World = frozenset()
    linked: bool = True
    """Of a first record: whether what it needs beside it was seen."""
    batch: str = ""
    sent: int = 0
    """The number of the record that it sent last."""
    confirming: tuple[World, bool] | None = None
    """The records that the first listing showed, while the second is made, and whether their link was seen."""
    stages: bool = False
    """Whether something is to be staged if the two agree."""

    @property
    def newest(self) -> Thing | None:
        return max(self.records, key=lambda each: each[2], default=None)

    @property
    def unfinished(self) -> Thing | None:
        newest = self.newest
        return next((each for each in self.staged if newest and each[1:] == newest[1:4]), None)

    @property
    def follows_on(self) -> bool:
        newest = self.newest
        if newest is None:
            return True
        if newest[4] is None:
            return self.linked
        return any(each[2:4] == (newest[2] - 1, newest[4]) for each in self.records)


class State(NamedTuple):
    world: World
    publishers: tuple[Publisher, ...]
    late: tuple[Call, ...]
    faults: int
    deletions: int
    kills: int


def explore(rules: Rules, most: int | None = None) -> int:
    """How many states there are; raises the first loss, which is one of the shortest, with the steps to it."""
    names = "ABC"[: rules.publishers]
    first = State(frozenset(), tuple(map(Publisher, names)), (), rules.faults, rules.deletions, rules.kills)
    came: dict[State, tuple[State, str] | None] = {first: None}
    left = deque([first])
    while left and (most is None or len(came) < most):
        state = left.popleft()
        for step, after in _steps(rules, state):
            if after not in came:
                came[after] = state, step
                if what := _lost(after.world):
                    raise Loss("\n".join([*_way(came, after), what]))
                left.append(after)
    return len(came)


def _way(came: dict[State, tuple[State, str] | None], state: State) -> list[str]:
    steps = []
    while before := came[state]:
        state, step = before
        steps.append(step)
    return steps[::-1]


def _lost(world: World) -> str | None:
    """Of the log in force, whose records follow one another from the first: what is not there."""
    for _, log in (each for each in world if each[0] == "log"):
        records = sorted((each for each in world if each[0] == "record" and each[1] == log), key=lambda each: each[2])
        batches = [None, *(each[3] for each in records)]
        if [each[2] for each in records] != list(range(1, len(records) + 1)) or ("meta",) not in world:
            return None
        if [each[4] for each in records] != batches[:-1]:
            return None
        for number, batch in enumerate(batches[1:], 1):
            finals = [each[2] for each in world if each[:2] == ("final", number)]
            if finals not in ([], [batch]):
                return f"number {number} of log {log} holds another file than its record says"
            if not finals and not (number == len(records) and ("staged", log, number, batch) in world):
                return f"record {number} of log {log} counts, and its file is gone"
    return None


def _steps(rules: Rules, state: State) -> Iterator[tuple[str, State]]:
    for index, publisher in enumerate(state.publishers):

        def put(world: World, new: Publisher, index: int = index, **other: object) -> State:
            publishers = (*state.publishers[:index], new, *state.publishers[index + 1 :])
            return state._replace(world=world, publishers=publishers, **other)

        if publisher.at in ("done", "stuck"):
            continue
        if state.kills:
            again = Publisher(publisher.name, tries=publisher.tries + 1)
            yield f"{publisher.name} is killed", put(state.world, again, kills=state.kills - 1)
        call, once, then = _next(rules, state.world, publisher)
        if call is None:
            yield f"{publisher.name} {publisher.at}", put(state.world, _think(rules, then(None)))
            continue
        then = _thinking(rules, then)
        said = f"{publisher.name} {call[0]} {call[1]}"
        world, well = _effect(state.world, call)
        yield said, put(world, then(well))
        if state.faults:
            less = state.faults - 1
            yield f"{said}: refused", put(state.world, then(None), faults=less)
            yield f"{said}: answer lost", put(world, then(None), faults=less)
            yield f"{said}: late", put(state.world, then(None), faults=less, late=_with(state.late, call))
            if not once:
                yield f"{said}: sent twice", put(world, then(well), faults=less, late=_with(state.late, call))
    for call in dict.fromkeys(state.late):
        left = list(state.late)
        left.remove(call)
        yield f"late: {call[0]} {call[1]}", state._replace(world=_effect(state.world, call)[0], late=tuple(left))
    if state.deletions and state.world:
        yield "the folder is deleted", state._replace(world=frozenset(), deletions=state.deletions - 1)


_THOUGHT = ("listed", "tidy", "decide", "confirm", "list again")
"""Steps that ask and change nothing, but for what is tidied: they take no turn of their own."""


def _think(rules: Rules, new: Publisher) -> Publisher:
    while new.at in _THOUGHT:
        call, _, then = _next(rules, frozenset(), new)
        if call is not None:
            return new
        new = then(None)
    return new


def _thinking(rules: Rules, then):
    return lambda well: _think(rules, then(well))


def _with(late: tuple[Call, ...], call: Call) -> tuple[Call, ...]:
    return tuple(sorted((*late, call), key=repr))


def _effect(world: World, call: Call) -> tuple[World, bool]:
    verb, thing = call
    if verb == "remove":
        return world - {thing}, True
    if verb == "rename":
        _, _, number, batch = thing
        if thing not in world or any(each[:2] == ("final", number) for each in world):
            return world, False
        return (world - {thing}) | {("final", number, batch)}, True
    name = thing[:1] if thing[0] == "log" else thing[:3] if thing[0] == "record" else thing
    if any(each[: len(name)] == name for each in world):
        return world, False
    return world | {thing}, True


def _next(rules: Rules, world: World, me: Publisher):
    """The call that comes next, if it changes something, whether it is one request, and what follows its answer (True
    or False, or None where none came). A step without a call reads what it needs."""
    me_log = next((str(each[1]) for each in world if each[0] == "log"), None)

    def read(new: Publisher):
        return None, True, lambda _: new

    def change(call: Call, once: bool, then):
        return call, once, then

    mine = [each for each in world if each[0] in ("staged", "record") and each[1] == me.log]
    match me.at:
        case "read":
            if me_log is None:
                return read(Publisher(me.name, "begin", me.tries))
            return read(Publisher(me.name, "list staged", me.tries, me_log))
        case "begin":
            new = f"{me.name}{me.tries}"
            begun = me._replace(at="decide", log=new, tries=me.tries + 1, linked=True)
            again = Publisher(me.name, tries=me.tries + 1)
            return change(("create", ("log", new)), rules.one_request_for_an_id, lambda well: begun if well else again)
        case "list staged":
            return read(me._replace(at="list records", staged=frozenset(each for each in mine if each[0] == "staged")))
        case "list records":
            seen = me._replace(records=frozenset(each for each in mine if each[0] == "record"))
            newest = seen.newest
            if me.confirming is not None:
                return read(seen._replace(at="read id"))
            return read(seen._replace(at="link" if newest and newest[4] is None else "listed"))
        case "link":
            return read(me._replace(at="link id", linked=("meta",) in world))
        case "link id":
            return read(me._replace(at="listed", linked=me.linked and me_log == me.log))
        case "listed":
            if me.sent or not me.follows_on or me.unfinished:
                return read(me._replace(at="confirm"))
            return read(me._replace(at="tidy"))
        case "tidy":
            newest = me.newest
            for each in sorted(me.staged, key=repr):
                if newest and each[2] <= newest[2] and each[1:] != newest[1:4]:
                    tidier = me._replace(staged=me.staged - {each})
                    return change(("remove", each), False, lambda _: tidier)  # noqa: B023 - the loop ends with it
            return read(me._replace(at="decide", staged=frozenset()))
        case "decide":
            newest = me.newest
            if newest and newest[2] == rules.versions:
                return read(Publisher(me.name, "done"))
            return read(me._replace(at="confirm", stages=True))
        case "confirm":
            if not rules.second_listing and not me.unfinished and not me.sent:
                return read(me._replace(at="stage"))
            confirming = me.records, me.linked
            return read(me._replace(at="list staged", staged=frozenset(), records=frozenset(), confirming=confirming))
        case "read id":
            assert me.confirming is not None
            before, linked = me.confirming
            new = me._replace(confirming=None, linked=linked)
            if before != me.records or me_log != me.log:
                return read(Publisher(me.name, tries=me.tries))
            if not new.follows_on:
                return read(Publisher(me.name, "stuck"))
            if me.sent:
                number = new.newest[2] if new.newest else 0
                if number < me.sent:
                    return read(Publisher(me.name, "stuck"))
                new = new._replace(sent=0)
                return read(new._replace(at="rename" if new.unfinished else "tidy"))
            if new.unfinished and (rules.begins_anew_when_unfinished or not me.stages):
                return read(new._replace(at="rename", stages=False))
            if not me.stages:
                return read(new._replace(at="tidy"))
            new = new._replace(staged=frozenset(), stages=False)
            return read(new._replace(at="stage"))
        case "rename":
            assert me.unfinished is not None
            return change(("rename", me.unfinished), False, lambda _: me._replace(at="list again"))
        case "list again":
            return read(Publisher(me.name, "list staged", me.tries, me.log))
        case "stage":
            newest = me.newest
            number = (newest[2] if newest else 0) + 1
            batch = f"{me.name}{me.tries}"
            after = "record" if newest else "describe"
            staged = me._replace(at=after, batch=batch, tries=me.tries + 1)
            again = me._replace(tries=me.tries + 1)
            call = "create", ("staged", me.log, number, batch)
            return change(call, True, lambda well: staged if well else again)
        case "describe":
            there = me._replace(at="record")
            return change(("create", ("meta",)), False, lambda well: me if well is None else there)
        case "record":
            newest = me.newest
            number = (newest[2] if newest else 0) + 1
            record = ("record", me.log, number, me.batch, newest[3] if newest else None)
            if rules.looks_after_the_record:
                sent = Publisher(me.name, "list staged", me.tries, me.log, sent=number)
            else:
                own = frozenset({("staged", me.log, number, me.batch)})
                sent = me._replace(at="rename", records=me.records | {record}, staged=own)
            return change(("create", record), False, lambda _: sent)
    raise AssertionError(me.at)
