from __future__ import annotations

from datetime import UTC, datetime

import pytest

from mirrorfeed.errors import UnexpectedError
from mirrorfeed.landing.errors import invalid_condition
from mirrorfeed.landing.selection import Selection
from mirrorfeed.publish.publication_errors import operations_in, publication_errors
from mirrorfeed.source.snapshot_or_range import Commit, Range, Snapshot
from mirrorfeed.storage.errors import PathMissingError
from tests.raised import raises

COMMITS = [
    Commit(version, datetime(2026, 1, 1, tzinfo=UTC), operation)
    for version, operation in enumerate(("CREATE TABLE", "WRITE", "MERGE", "WRITE", "RESTORE", "UPDATE"))
]


@pytest.mark.parametrize(
    ("range_", "operations"),
    [(Range(0, 4), "2 WRITE, MERGE, RESTORE"), (Range(3, 5), "RESTORE, UPDATE"), (Range(1, 2), "MERGE")],
)
def test_operations_of_a_range_are_listed_in_order(range_: Range, operations: str) -> None:
    assert operations_in(range_, COMMITS) == operations


def test_unexpected_error_has_versions_operations_and_a_fix() -> None:
    with pytest.raises(UnexpectedError) as caught, publication_errors("main.sales.orders", Range(0, 4), COMMITS):
        raise ZeroDivisionError("[ODD] no one knows it")
    assert caught.value.problem == (
        "Publishing versions 1 to 4 of main.sales.orders (2 WRITE, MERGE, RESTORE) failed with ZeroDivisionError:"
        " [ODD] no one knows it"
    )
    assert caught.value.solution.endswith(
        " `mirrorfeed rebuild` reloads the table from a snapshot, without reading these changes."
    )


def test_unexpected_error_of_a_snapshot_has_its_version() -> None:
    with pytest.raises(UnexpectedError) as caught, publication_errors("main.sales.orders", Snapshot(7), COMMITS):
        raise ZeroDivisionError("odd")
    assert caught.value.problem == "Publishing version 7 of main.sales.orders failed with ZeroDivisionError: odd"
    assert "rebuild" not in str(caught.value)


def test_known_errors_are_not_changed() -> None:
    with pytest.raises(PathMissingError), publication_errors("main.sales.orders", Snapshot(7), COMMITS):
        raise PathMissingError(address="zone/a")


def test_value_error_of_a_condition_is_reported_as_bad_condition() -> None:
    message = (
        "An error in o1.x.\n: [CAST_INVALID_INPUT] The value 'b' is malformed. Correct it. SQLSTATE: 22018\n\tat java"
    )
    with (
        raises(invalid_condition) as caught,
        publication_errors("main.sales.orders", Snapshot(7), COMMITS, Selection(where="customer > 2")),
    ):
        raise RuntimeError(message)
    assert caught.value.problem == (
        "The condition 'customer > 2' is not valid for the rows of main.sales.orders: [CAST_INVALID_INPUT] The value"
        " 'b' is malformed. Correct it."
    )
    with pytest.raises(UnexpectedError), publication_errors("main.sales.orders", Snapshot(7), COMMITS):
        raise RuntimeError(message)
