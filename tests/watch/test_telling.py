"""One message a trouble, and one when it is over: as decided, and as written down by runs that fail, die and meet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fixtures.faults import Crash, FaultyStore, faults_at
from fixtures.memory import MemoryStore
from mirrorfeed.errors import MirrorfeedError
from mirrorfeed.stores import Store
from mirrorfeed.watch.book import FOLDER, LEASE, PageUnreadable, Told, tell
from mirrorfeed.watch.channels import WebhookUnavailable
from mirrorfeed.watch.telling import Entry, Message, after, messages, observe
from mirrorfeed.watch.troubles import Look, Trouble

NOW = datetime(2026, 3, 14, 9, 30, tzinfo=UTC)
ONE, TWO = Trouble("a", "GAP", "What.", "mirrorfeed x"), Trouble("b", "BEHIND_SEEN", "Late.", "mirrorfeed y")
BOTH = ["ops", "team"]


def minutes(count: float) -> datetime:
    return NOW + timedelta(minutes=count)


class Life:
    """Looks, one after the other, each ten minutes later, and what is told after each."""

    def __init__(self) -> None:
        self.entries: tuple[Entry, ...] = ()
        self.now = NOW

    def look(self, *troubles: Trouble, to: list[str] | None = None, deaf: str = "", **look: Any) -> list[str]:
        names = BOTH if to is None else to
        self.entries = observe(self.entries, Look(troubles, **look), self.now)
        sent = [each for each in messages(self.entries, names, self.now) if each.to != deaf]
        self.entries = after(self.entries, sent, names)
        self.now += timedelta(minutes=10)
        return [f"{each.to} {each.entry.kind}{' over' if each.over else ''}" for each in sent]


def test_each_is_told_once_and_once_more_when_it_is_over() -> None:
    life = Life()
    assert life.look(ONE) == ["ops GAP", "team GAP"]
    assert life.look(ONE) == []
    assert life.look(ONE, TWO) == ["ops BEHIND_SEEN", "team BEHIND_SEEN"]
    assert life.look(TWO) == ["ops GAP over", "team GAP over"]
    assert life.look(TWO) == []
    assert life.look() == ["ops BEHIND_SEEN over", "team BEHIND_SEEN over"]
    assert life.look() == []
    assert life.entries == ()
    assert life.look(ONE) == ["ops GAP", "team GAP"]


def test_who_could_not_be_told_is_told_later_and_of_the_end_only_if_it_knew() -> None:
    life = Life()
    assert life.look(ONE, deaf="team") == ["ops GAP"]
    assert life.look(ONE) == ["team GAP"]
    assert life.look(deaf="ops") == ["team GAP over"]
    assert life.look() == ["ops GAP over"]
    assert life.look(TWO, deaf="team") == ["ops BEHIND_SEEN"]
    assert life.look() == ["ops BEHIND_SEEN over"]
    assert life.entries == ()


def test_what_comes_back_before_its_end_is_told_is_the_same_trouble() -> None:
    life = Life()
    life.look(ONE, to=["ops"])
    assert life.look(to=["ops"], deaf="ops") == []
    assert life.look(ONE, to=["ops"]) == []
    assert life.look(to=["ops"]) == ["ops GAP over"]


def test_what_a_look_cannot_see_is_neither_over_nor_told_again() -> None:
    life = Life()
    life.look(ONE, TWO)
    assert life.look(TWO, doubtful=frozenset({("a", "")})) == []
    assert life.look(doubtful=frozenset({("", "")})) == []
    assert life.look(ONE, TWO) == []


def test_what_may_pass_is_told_once_it_has_lasted_and_not_at_all_if_it_passed() -> None:
    slow = Trouble("a", "UNREACHABLE", "No answer.", "mirrorfeed x", lasting=1000.0)
    life = Life()
    assert [life.look(slow), life.look(slow), life.look(slow)] == [[], [], ["ops UNREACHABLE", "team UNREACHABLE"]]
    assert life.look() == ["ops UNREACHABLE over", "team UNREACHABLE over"]
    assert [life.look(slow), life.look(), life.look(slow)] == [[], [], []]


def test_who_comes_later_is_told_what_is_there_and_who_is_gone_is_waited_for_by_nobody() -> None:
    life = Life()
    life.look(ONE, to=["ops"])
    assert life.look(ONE) == ["team GAP"]
    assert life.look(to=["team"]) == ["team GAP over"]
    assert life.entries == ()


# The book


class Desk:
    """Runs over one store; each keeps what it sent."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.sent: list[str] = []
        self.now = NOW
        self.runs = 0

    def run(
        self, *troubles: Trouble, store: Store | None = None, send: Callable[[Message], None] | None = None
    ) -> Told:
        self.runs += 1
        to = dict.fromkeys(BOTH, send or self.keep)
        return tell(store or self.store, Look(troubles), to, f"run {self.runs}", lambda: self.now)

    def keep(self, message: Message) -> None:
        self.sent.append(f"{message.to} {message.entry.kind}{' over' if message.over else ''}")

    @property
    def pages(self) -> int:
        return len(self.store.list(FOLDER))


def test_runs_remember_what_was_told_and_write_nothing_where_nothing_is_new() -> None:
    desk = Desk()
    desk.run()
    assert desk.pages == 0
    desk.run(ONE)
    pages = desk.pages
    desk.run(ONE)
    assert (desk.sent, desk.pages) == (["ops GAP", "team GAP"], pages)
    desk.run()
    assert desk.sent[2:] == ["ops GAP over", "team GAP over"]


def test_old_pages_are_removed_and_the_newest_stay() -> None:
    desk = Desk()
    for _ in range(10):
        desk.run(ONE)
        desk.run()
    assert desk.pages == 10
    assert len(desk.sent) == 40


def test_two_runs_at_once_send_each_message_once() -> None:
    desk = Desk()

    def meanwhile(message: Message) -> None:
        desk.keep(message)
        assert desk.run(ONE, TWO).other

    desk.run(ONE, send=meanwhile)
    assert desk.sent == ["ops GAP", "team GAP"]
    assert not desk.run(ONE, TWO).other
    assert desk.sent[2:] == ["ops BEHIND_SEEN", "team BEHIND_SEEN"]


def test_of_two_that_begin_at_once_one_tells() -> None:
    desk = Desk()
    others: list[Told] = []

    def before(verb: str) -> None:
        if verb == "create" and not others:
            others.append(desk.run(ONE))

    assert desk.run(ONE, store=FaultyStore(desk.store, before=before)).other
    assert desk.sent == ["ops GAP", "team GAP"]


@pytest.mark.parametrize("failure", [WebhookUnavailable("ops", "503"), ValueError("nobody thought of this")])
def test_a_webhook_that_fails_holds_up_nobody_else_and_is_told_later(failure: Exception) -> None:
    desk = Desk()

    def send(message: Message) -> None:
        if message.to == "ops":
            raise failure
        desk.keep(message)

    told = desk.run(ONE, TWO, send=send)
    assert [name for name, _ in told.failed] == ["ops"]
    assert desk.sent == ["team GAP", "team BEHIND_SEEN"]
    desk.run(ONE, TWO)
    assert desk.sent[2:] == ["ops GAP", "ops BEHIND_SEEN"]


def test_a_run_that_died_while_it_sent_is_taken_over_when_its_time_is_over() -> None:
    desk = Desk()

    def die(message: Message) -> None:
        desk.keep(message)
        raise Crash

    with pytest.raises(Crash):
        desk.run(ONE, send=die)
    assert desk.run(ONE).other
    desk.now += LEASE
    desk.run(ONE)
    assert Counter(desk.sent) == {"ops GAP": 2, "team GAP": 1}


def test_a_sender_that_takes_long_ends_before_its_time_does() -> None:
    desk = Desk()

    def slow(message: Message) -> None:
        desk.keep(message)
        desk.now += LEASE - timedelta(seconds=90)

    desk.run(ONE, send=slow)
    assert desk.sent == ["ops GAP"]
    desk.run(ONE)
    assert desk.sent == ["ops GAP", "team GAP"]


def test_whatever_call_fails_in_whatever_way_each_is_told_once_or_by_a_death_twice() -> None:
    played = 0
    for first in range(12):
        calls = Desk()
        watched = FaultyStore(calls.store)
        calls.run(ONE, store=watched)
        if first >= len(watched.verbs):
            break
        for fault in faults_at(first, watched.verbs[first], [0, 1, None]):
            desk = Desk()
            faulty = FaultyStore(desk.store, [fault])
            with suppress(MirrorfeedError, Crash):
                desk.run(ONE, store=faulty)
            faulty.deliver()
            for _ in range(3):
                desk.now += LEASE
                desk.run(ONE)
            told = Counter(desk.sent)
            assert set(told) == {"ops GAP", "team GAP"}, fault
            assert max(told.values()) <= 2, fault
            before = len(desk.sent)
            desk.run()
            assert sorted(desk.sent[before:]) == ["ops GAP over", "team GAP over"], fault
            played += 1
    assert played > 30


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"format": 2}', b"\xff"])
def test_a_page_that_cannot_be_read_is_told_with_what_to_do(data: bytes) -> None:
    desk = Desk()
    desk.store.create(f"{FOLDER}/{1:020d}.json", data)
    with pytest.raises(PageUnreadable) as told:
        desk.run(ONE)
    assert "which says who was told of which trouble, cannot be read: " in str(told.value)
    assert str(told.value).endswith(
        "Remove the folder that it is in: what is in trouble then is told once more, and nothing else is lost."
    )
