"""A model of the protocol, written from its description and not from its code. All orders of steps are explored.

Two publishers make one storage call per step. Calls fail, lose their response, take effect late or are repeated by the
client. The network delivers a request a second time. Publishers are killed, the service consumes files, and the folder
is deleted, each at any moment. A listing takes two steps, or one step for each name.

A landing zone is a set of tuples: `("log", id)`, `("begun", id, number, batch)`, `("staged", id, number, batch,
whole)`, `("record", id, number, batch, follows, what)`, `("final", number, batch, whole)` and `("taken", number,
batch)`. Each record has one file. What a record publishes is `(plan, part, parts)` for a part of the first load, and
`(plan, version)` for a later version. Each publisher would divide the first load in another way, so a plan has the name
of the publisher that made it.

The folder may have file 1 of another publisher, `F`, at the start. A publisher in `adopters` continues it: its record 1
has no file of its own, and names the version that file 1 contains. The other publisher is not stopped in time: it
writes file 2 at any moment until the adoption is recorded."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

Thing = tuple[object, ...]
World = frozenset[Thing]
Call = tuple[str, Thing]


class Loss(AssertionError):
    """A record counts as published, but its file is missing or belongs to another record."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of the protocol, each of which prevents a known loss, and the number of events of each kind."""

    one_request_for_an_id: bool = True
    begins_anew_when_unfinished: bool = True
    second_listing: bool = True
    looks_after_the_record: bool = True
    creates_files_empty: bool = True
    begins_with_a_file: bool = True
    records_in_one_step: bool = True
    """Whether a record is created if absent. Otherwise the publisher looks first, and a rename then replaces."""
    continues_the_plan: bool = True
    """Whether a part of a first load follows the plan in the record before it. Otherwise a publisher makes a new plan,
    and counts the parts that are recorded."""
    compares_numbers: bool = True
    """Whether a publisher stops if the folder has a file with a later number than the newest record."""
    adopters: str = ""
    """Names of the publishers that continue a folder that another publisher has filled."""
    foreign: int = 0
    """Files that the other publisher still writes."""
    versions: int = 2
    """Number of records until everything is published, if the first load is not divided."""
    parts: tuple[int, ...] = (1, 1, 1)
    """Number of parts into which each publisher would divide the first load."""
    faults: int = 1
    deletions: int = 1
    kills: int = 0
    publishers: int = 2
    duplicates: int = 0
    """Requests that the network delivers a second time, at any later moment."""
    taken: int = 0
    """Files that the service consumes. Unlike the real service, it may consume the last file."""
    pages: bool = False
    """Whether a listing shows each name at a different moment, in any order."""


class Publisher(NamedTuple):
    name: str
    at: str = "read"
    tries: int = 0
    log: str | None = None
    left: World = frozenset()
    """Names that the listing has not reached."""
    staged: World = frozenset()
    records: World = frozenset()
    started: World = frozenset()
    batch: str = ""
    sent: int = 0
    """Number of the last record that it sent."""
    confirming: World | None = None
    """Records of the first listing, during the second listing."""
    stages: bool = False
    """Whether to stage a file if the two listings agree."""
    given: int = 0
    """Highest number in the listing of the folder, during the second listing of the log."""
    repeated: World = frozenset()
    """Empty staged files that a repeated request created after the file of the record was renamed."""
    what: Thing = ()
    """What the staged file has, and the record is to say."""

    @property
    def newest(self) -> Thing | None:
        return max(self.records, key=lambda each: each[2], default=None)

    @property
    def unfinished(self) -> Thing | None:
        newest = self.newest
        return next((each for each in self.staged if newest and each[1:4] == newest[1:4]), None)


class State(NamedTuple):
    world: World
    publishers: tuple[Publisher, ...]
    late: tuple[Call, ...]
    faults: int
    deletions: int
    kills: int
    duplicates: int
    taken: int
    foreign: int = 0


_FOREIGN = "F"
"""Batch of the files of the other publisher, and the plan that continues them."""


def explore(rules: Rules, most: int | None = None) -> int:
    """Return the number of states. Raise the first loss, with a shortest sequence of steps that leads to it."""
    names = "ABC"[: rules.publishers]
    world = frozenset({("final", 1, _FOREIGN, True)}) if rules.adopters else frozenset[Thing]()
    first = State(world, tuple(map(Publisher, names)), (), rules.faults, rules.deletions, rules.kills, 0, 0)
    first = first._replace(duplicates=rules.duplicates, taken=rules.taken, foreign=rules.foreign)
    predecessors: dict[State, tuple[State, str] | None] = {first: None}
    left, parts = deque([first]), dict[Hashable, Any]()
    while left and (most is None or len(predecessors) < most):
        state = left.popleft()
        for step, after in _steps(rules, state):
            if after not in predecessors:
                after = _with_shared_parts(after, parts)
                predecessors[after] = state, step
                if what := _lost(rules, after.world):
                    raise Loss("\n".join([*_path(predecessors, after), what]))
                left.append(after)
    return len(predecessors)


def _with_shared_parts(state: State, parts: dict[Hashable, Any]) -> State:
    """Return an equal state whose parts are objects in `parts`, so that millions of states fit into memory."""
    publishers = tuple(parts.setdefault(each, each) for each in state.publishers)
    return State(*(parts.setdefault(each, each) for each in state._replace(publishers=publishers)))


def _path(predecessors: dict[State, tuple[State, str] | None], state: State) -> list[str]:
    steps = []
    while before := predecessors[state]:
        state, step = before
        steps.append(step)
    return steps[::-1]


def _lost(rules: Rules, world: World) -> str | None:
    """Describe the loss of a file in the current log, if its records are consecutive from the first. None if there is
    none."""
    for _, log in (each for each in world if each[0] == "log"):
        records = sorted((each for each in world if each[0] == "record" and each[1] == log), key=lambda each: each[2])
        batches = [None, *(each[3] for each in records)]
        if [each[2] for each in records] != list(range(1, len(records) + 1)):
            return None
        if [each[4] for each in records] != batches[:-1]:
            return None
        if what := _lost_rows(rules, [each[5] for each in records]):
            return f"log {log} {what}"
        if rules.begins_with_a_file and len(records) == 1 and ("begun", *records[0][1:4]) not in world:
            return None
        if records and records[0][5][0] == _FOREIGN:
            batches[1] = _FOREIGN
        for number, batch in enumerate(batches[1:], 1):
            # An empty file has no rows. If its number is already used, it stays staged and the table waits.
            finals = [each[2] for each in world if each[:2] == ("final", number) and each[3]]
            taken = ("taken", number, batch) in world
            if finals not in ([], [batch]):
                return f"number {number} of log {log} holds another file than its record says"
            if finals and taken:
                return f"file {number} of log {log} was taken, and is published again"
            staged = ("staged", log, number, batch, True) in world
            if not finals and not taken and not (number == len(records) and staged):
                return f"record {number} of log {log} counts, and its file is gone"
    return None


def _lost_rows(rules: Rules, published: list[Any]) -> str | None:
    """Describe rows of the first load, or a version, that records miss or repeat. None if there are none."""
    if not published:
        return None
    plan, _, parts = published[0]
    wanted = [(plan, part, parts) for part in range(1, parts + 1)]
    wanted += [(plan, version) for version in range(2, rules.versions + 1)]
    return None if published == wanted[: len(published)] else f"has {published}, and not {wanted}"


def _what_is_next(rules: Rules, me: Publisher) -> Thing | None:
    """Return what the next record publishes, or None if everything is published."""
    own, newest = rules.parts["ABC".index(me.name)], me.newest
    if newest is None:
        return (_FOREIGN, 1, 1) if me.name in rules.adopters else (me.name, 1, own)
    plan, at, *parts = newest[5]
    if not parts:
        return (plan, at + 1) if at < rules.versions else None
    if not rules.continues_the_plan:
        plan, parts = me.name, [own]
    if at < parts[0]:
        return plan, at + 1, parts[0]
    return (plan, 2) if rules.versions > 1 else None


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
        if publisher.at == "list" and publisher.left:
            for name in publisher.left if rules.pages else [_first_half(publisher.left)]:
                names = name if isinstance(name, frozenset) else frozenset({name})
                new = _seen(state.world, publisher, names)
                if not new.left:
                    new = _think(rules, _next(rules, state.world, new)[2](None))
                yield f"{publisher.name} lists {sorted(names)}", put(state.world, new)
            continue
        call, once, next_state = _next(rules, state.world, publisher)
        if call is None:
            yield f"{publisher.name} {publisher.at}", put(state.world, _think(rules, next_state(None)))
            continue
        next_state = _with_thinking(rules, next_state)
        step_name = f"{publisher.name} {call[0]} {call[1]}"
        world, succeeded = _effect(state.world, call)
        yield step_name, put(world, next_state(succeeded))
        if state.faults:
            less = state.faults - 1
            yield f"{step_name}: refused", put(state.world, next_state(None), faults=less)
            yield f"{step_name}: answer lost", put(world, next_state(None), faults=less)
            yield f"{step_name}: late", put(state.world, next_state(None), faults=less, late=_with(state.late, call))
            if not once:
                yield (
                    f"{step_name}: sent twice",
                    put(world, next_state(succeeded), faults=less, late=_with(state.late, call)),
                )
        if state.duplicates:
            late = _with(state.late, call)
            yield (
                f"{step_name}: delivered twice",
                put(world, next_state(succeeded), duplicates=state.duplicates - 1, late=late),
            )
    for call in dict.fromkeys(state.late):
        left = list(state.late)
        left.remove(call)
        yield f"late: {call[0]} {call[1]}", state._replace(world=_effect(state.world, call)[0], late=tuple(left))
    if state.deletions and state.world:
        yield "the folder is deleted", state._replace(world=frozenset(), deletions=state.deletions - 1)
    finals = sorted((each for each in state.world if each[0] == "final"), key=lambda each: each[1])
    if state.taken and finals:
        world = (state.world - {finals[0]}) | {("taken", *finals[0][1:3])}
        yield f"the service takes {finals[0][1]}", state._replace(world=world, taken=state.taken - 1)
    if state.foreign and finals and all(each[0] != "record" for each in state.world):
        world = state.world | {("final", finals[-1][1] + 1, _FOREIGN, True)}
        yield f"another publisher writes {finals[-1][1] + 1}", state._replace(world=world, foreign=state.foreign - 1)


def _first_half(left: World) -> World:
    """Without pages, staged files are listed at one moment and records at a later one."""
    return frozenset(each for each in left if each[0] != "record") or left


def _seen(world: World, me: Publisher, names: World) -> Publisher:
    """One step of a listing."""
    seen = frozenset(each for each in world if (each[0], each[2:3]) in {(name[0], name[1:2]) for name in names})
    return me._replace(
        left=me.left - names,
        staged=me.staged | {each for each in seen if each[:2] == ("staged", me.log)},
        records=me.records | {each for each in seen if each[:2] == ("record", me.log)},
        started=me.started | {each for each in seen if each[:2] == ("begun", me.log)},
    )


_THOUGHT = ("listed", "tidy", "decide", "confirm", "list again")
"""Steps that only read or clean up. They do not count as separate steps."""


def _think(rules: Rules, new: Publisher) -> Publisher:
    while new.at in _THOUGHT:
        call, _, next_state = _next(rules, frozenset(), new)
        if call is not None:
            return new
        new = next_state(None)
    return new


def _with_thinking(rules: Rules, next_state):
    return lambda succeeded: _think(rules, next_state(succeeded))


def _follows_on(rules: Rules, me: Publisher) -> bool:
    newest = me.newest
    if newest is None:
        return True
    if newest[2] == 1:
        return not rules.begins_with_a_file or any(each[1:] == newest[1:4] for each in me.started)
    return any(each[2:4] == (newest[2] - 1, newest[4]) for each in me.records)


def _with(late: tuple[Call, ...], call: Call) -> tuple[Call, ...]:
    return tuple(sorted((*late, call), key=repr))


def _effect(world: World, call: Call) -> tuple[World, bool]:
    verb, thing = call
    if verb == "remove":
        return frozenset(each for each in world if each[:4] != thing[:4]), True
    if verb == "replace":
        return frozenset(each for each in world if each[:3] != thing[:3]) | {thing}, True
    if verb == "fill":
        empty = (*thing[:4], False)
        return ((world - {empty}) | {thing}, True) if empty in world else (world, False)
    if verb == "rename":
        _, _, number, batch = thing[:4]
        found = next((each for each in world if each[:4] == thing[:4]), None)
        if found is None or any(each[:2] == ("final", number) for each in world):
            return world, False
        return (world - {found}) | {("final", number, batch, found[4])}, True
    name = thing[: {"log": 1, "record": 3, "staged": 4}.get(str(thing[0]), len(thing))]
    if any(each[: len(name)] == name for each in world):
        return world, False
    return world | {thing}, True


def _next(rules: Rules, world: World, me: Publisher):
    """Return the next call that changes something, whether it is one request, and what follows its response.

    The response is True, False, or None if none arrives. A step without a call reads the state that it needs."""
    me_log = next((str(each[1]) for each in world if each[0] == "log"), None)

    def read(new: Publisher):
        return None, True, lambda _: new

    def change(call: Call, once: bool, next_state):
        return call, once, next_state

    most = max(rules.parts) + rules.versions - 1
    names = frozenset((kind, number) for kind in ("staged", "record") for number in range(1, most + 1))
    names |= {("begun", 1)}
    match me.at:
        case "read":
            if me_log is None:
                return read(Publisher(me.name, "look for others", me.tries))
            return read(Publisher(me.name, "list", me.tries, me_log, names))
        case "look for others":
            others = me_log is None and any(each[0] in ("final", "taken") for each in world)
            adopts = me.name in rules.adopters
            return read(Publisher(me.name, "begin" if others is adopts else "stuck", me.tries))
        case "begin":
            new = f"{me.name}{me.tries}"
            started = me._replace(at="decide", log=new, tries=me.tries + 1)
            again = Publisher(me.name, tries=me.tries + 1)
            return change(
                ("create", ("log", new)), rules.one_request_for_an_id, lambda succeeded: started if succeeded else again
            )
        case "list":
            if me.confirming is not None:
                return read(me._replace(at="read id"))
            return read(me._replace(at="listed"))
        case "listed":
            if me.sent or not _follows_on(rules, me) or me.unfinished:
                return read(me._replace(at="confirm"))
            return read(me._replace(at="tidy"))
        case "tidy":
            newest = me.newest
            for each in sorted(me.started, key=repr):
                if newest and (newest[2] > 1 or each[1:] != newest[1:4]):
                    tidier = me._replace(started=me.started - {each})
                    return change(("remove", each), False, lambda _: tidier)  # noqa: B023 - the loop ends with it
            for each in sorted(me.staged | me.repeated, key=repr):
                if each in me.repeated or (newest and each[2] <= newest[2] and each[1:4] != newest[1:4]):
                    tidier = me._replace(staged=me.staged - {each}, repeated=me.repeated - {each})
                    return change(("remove", each), False, lambda _: tidier)  # noqa: B023 - the loop ends with it
            return read(me._replace(at="decide", staged=frozenset(), repeated=frozenset()))
        case "decide":
            if _what_is_next(rules, me) is None:
                return read(Publisher(me.name, "done"))
            return read(me._replace(at="confirm", stages=True))
        case "confirm":
            if not rules.second_listing and not me.unfinished and not me.sent:
                begins = rules.begins_with_a_file and me.newest is None
                return read(me._replace(at="mark" if begins else "stage", batch=f"{me.name}{me.tries}"))
            empty: World = frozenset()
            return read(me._replace(at="list data", staged=empty, records=empty, started=empty, confirming=me.records))
        case "list data":
            given = max((each[1] for each in world if each[0] in ("final", "taken")), default=0)
            return read(me._replace(at="list", left=names, given=given))
        case "read id":
            assert me.confirming is not None
            new = me._replace(confirming=None, given=0)
            if me.confirming != me.records or me_log != me.log:
                return read(Publisher(me.name, tries=me.tries))
            if not _follows_on(rules, new):
                return read(Publisher(me.name, "stuck"))
            adopts = new.newest is None and me.name in rules.adopters
            if adopts and me.given != 1:  # the version is that of file 1
                return read(Publisher(me.name, "stuck"))
            if rules.compares_numbers and me.given > (1 if adopts else new.newest[2] if new.newest else 0):
                return read(Publisher(me.name, "stuck"))
            if new.unfinished and not new.unfinished[4]:
                if new.unfinished[2] > me.given:
                    return read(Publisher(me.name, "stuck"))
                new = new._replace(repeated=new.repeated | {new.unfinished}, staged=new.staged - {new.unfinished})
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
            new = new._replace(staged=frozenset(), started=frozenset(), stages=False)
            begins = rules.begins_with_a_file and new.newest is None
            new = new._replace(at="mark" if begins else "stage", batch=f"{me.name}{me.tries}")
            if adopts and not begins:
                new = new._replace(at="record", what=(_FOREIGN, 1, 1))
            return read(new)
        case "mark":
            adopts = me.newest is None and me.name in rules.adopters
            marked = me._replace(at="record", what=(_FOREIGN, 1, 1)) if adopts else me._replace(at="stage")
            again = me._replace(batch=f"{me.name}{me.tries + 1}", tries=me.tries + 1)
            return change(
                ("create", ("begun", me.log, 1, me.batch)), True, lambda succeeded: marked if succeeded else again
            )
        case "rename":
            assert me.unfinished is not None
            return change(("rename", me.unfinished), False, lambda _: me._replace(at="list again"))
        case "list again":
            return read(Publisher(me.name, "list", me.tries, me.log, names))
        case "stage":
            newest = me.newest
            number = (newest[2] if newest else 0) + 1
            what = _what_is_next(rules, me)
            if what is None:
                return read(Publisher(me.name, "done"))
            staged = me._replace(at="fill" if rules.creates_files_empty else "record", tries=me.tries + 1, what=what)
            again = Publisher(me.name, tries=me.tries + 1)
            call = "create", ("staged", me.log, number, me.batch, not rules.creates_files_empty)
            return change(call, True, lambda succeeded: staged if succeeded else again)
        case "fill":
            newest = me.newest
            number = (newest[2] if newest else 0) + 1
            filled = me._replace(at="record")
            again = Publisher(me.name, tries=me.tries + 1)
            call = "fill", ("staged", me.log, number, me.batch, True)
            return change(call, True, lambda succeeded: filled if succeeded else again)
        case "record" | "replace record":
            newest = me.newest
            number = (newest[2] if newest else 0) + 1
            record = ("record", me.log, number, me.batch, newest[3] if newest else None, me.what)
            if not rules.records_in_one_step and me.at == "record":
                is_there = any(each[:3] == record[:3] for each in world)
                sent = Publisher(me.name, "list", me.tries, me.log, names, sent=number)
                return read(sent if is_there else me._replace(at="replace record"))
            if rules.looks_after_the_record:
                sent = Publisher(me.name, "list", me.tries, me.log, names, sent=number)
            else:
                own = frozenset({("staged", me.log, number, me.batch, True)})
                sent = me._replace(at="rename", records=me.records | {record}, staged=own)
            verb = "create" if rules.records_in_one_step else "replace"
            return change((verb, record), False, lambda _: sent)
    raise AssertionError(me.at)
