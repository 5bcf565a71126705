"""A name whose create request did not succeed is abandoned, with a clock that the pauses advance."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count

import pytest

from fixtures.memory import MemoryStore
from mirrorfeed.storage import Writer
from mirrorfeed.storage.errors import PathExistsError, PathMissingError, StorageUnavailableError
from mirrorfeed.storage.request_retries import NewFile, RetryLimits, retry_counter
from tests.support.clock import Time

RETRY_LIMITS = RetryLimits(seconds=100, first_pause=1, longest_pause=8)
LOST, TAKEN = (
    StorageUnavailableError(action="write", address="at/x", reason="no answer"),
    PathExistsError(address="at/x"),
)
BUSY = StorageUnavailableError(action="write", address="at/x", reason="429", retry_after=60)


@dataclass
class Refusing(MemoryStore):
    """Returns these responses to create calls in turn, then accepts calls."""

    answers: list[Exception]
    retry_limits: RetryLimits = RETRY_LIMITS
    requests: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def open_write(self, path: str) -> Writer:
        self.requests.append(path)
        if self.answers:
            raise self.answers.pop(0)
        return super().open_write(path)


@pytest.fixture(autouse=True)
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    return Time().replace_in_retries(monkeypatch)


def create(store: Refusing) -> str:
    names = count(1)
    with NewFile(store, lambda: f"t/{next(names)}") as file:
        return file.path


@pytest.mark.parametrize(
    ("answers", "path", "shortest"),
    [
        ([], "t/1", []),
        ([LOST], "t/2", [0.5]),
        ([TAKEN], "t/2", [0.5]),
        ([LOST, TAKEN, LOST], "t/4", [0.5, 1, 2]),
        ([BUSY], "t/2", [60.5]),
    ],
)
def test_every_attempt_uses_a_new_name(time: Time, answers: list[Exception], path: str, shortest: list[float]) -> None:
    store, before = Refusing(list(answers)), retry_counter().value

    assert create(store) == path
    assert len(set(store.requests)) == len(store.requests) == len(answers) + 1
    assert [least <= pause <= least * 2 for least, pause in zip(shortest, time.pauses, strict=True)] == [
        True for _ in shortest
    ]
    assert retry_counter().value - before == len(answers)


@pytest.mark.parametrize(("answer", "reason"), [(LOST, "no answer"), (TAKEN, "the name was already taken")])
def test_last_error_is_raised_as_transient_after_the_retry_limit(answer: Exception, reason: str) -> None:
    store = Refusing([answer] * 1000)
    with pytest.raises(StorageUnavailableError, match=rf"^Cannot write at/x: {reason}\."):
        create(store)

    assert 10 < len(store.requests) < 40


def test_wait_longer_than_the_retry_limit_is_not_attempted() -> None:
    store = Refusing([BUSY], replace(RETRY_LIMITS, seconds=30))
    with pytest.raises(StorageUnavailableError):
        create(store)

    assert store.requests == ["t/1"]


def test_permanent_error_is_raised_at_once() -> None:
    store = Refusing([PathMissingError(address="at/x")])
    with pytest.raises(PathMissingError):
        create(store)

    assert store.requests == ["t/1"]


def test_store_without_retry_limits_raises_at_once(time: Time) -> None:
    calls: list[str] = []

    class Hasty(MemoryStore):
        def open_write(self, path: str) -> Writer:
            calls.append(path)
            raise LOST

    with pytest.raises(StorageUnavailableError):
        NewFile(Hasty(), lambda: "t/1")
    assert (calls, time.pauses) == (["t/1"], [])


def test_new_file_is_created_empty_and_then_filled() -> None:
    names, store = count(1), Refusing([LOST, TAKEN])
    with NewFile(store, lambda: f"t/{next(names)}") as file:
        file.write(b"12345")
        file.write(b"67890")

    assert (file.path, file.name) == ("t/3", "3")
    assert store.read("t/3") == b"1234567890"
    assert len(store.list("t")) == 1
