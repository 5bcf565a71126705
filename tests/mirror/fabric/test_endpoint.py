"""The SQL endpoint of a mirrored database, refreshed through the simulated API."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from fixtures.onelake import OneLake
from fixtures.onelake.faults import Fault, How
from mirrorfeed.landing.names import Target
from mirrorfeed.mirror.errors import (
    fabric_request_failed,
    fabric_unavailable,
    mirrored_database_missing,
    no_sql_endpoint,
)
from mirrorfeed.mirror.fabric import MirroredDatabase
from mirrorfeed.mirror.fabric.status_and_settings import TableSync, sync_of
from tests.raised import Expected, raises

AT = "2026-03-14T09:30:00.1234567Z"
SYNCS = [
    {"tableName": "orders", "status": "Success", "lastSuccessfulSyncDateTime": AT, "startDateTime": AT},
    {"tableName": "lines", "status": "NotRun", "lastSuccessfulSyncDateTime": AT},
    {"tableName": "old", "status": "Failure", "error": {"errorCode": "DeltaTableMissing", "message": "No log."}},
]
READ = [
    TableSync("orders", "Success", datetime(2026, 3, 14, 9, 30, 0, 123456, UTC)),
    TableSync("lines", "NotRun", datetime(2026, 3, 14, 9, 30, 0, 123456, UTC)),
    TableSync("old", "Failure", None, "DeltaTableMissing: No log."),
]


@pytest.mark.parametrize("looks", [0, 2])
def test_refresh_reports_each_table_at_once_or_when_finished(
    onelake: OneLake, database: MirroredDatabase, requests: Callable[[], list[str]], looks: int
) -> None:
    onelake.fabric.syncs, onelake.fabric.slow_refresh = SYNCS, looks
    assert database.refresh() == READ
    assert [each.ok for each in READ] == [True, True, False]
    assert requests() == ["get", "refreshMetadata", *["operation"] * (looks and looks + 1)]


def test_list_response_without_an_envelope_is_accepted(onelake: OneLake, database: MirroredDatabase) -> None:
    """The preview version of the API responded without an envelope."""
    onelake.fabric.syncs = SYNCS
    original = onelake.fabric.answer

    def bare(method: str, path: str, query: object, body: bytes) -> object:
        found = original(method, path, query, body)  # type: ignore[arg-type]
        found.body = found.body.get("value", found.body)
        return found

    onelake.fabric.answer = bare  # type: ignore[assignment,method-assign]
    assert database.refresh() == READ


def test_database_without_an_endpoint_is_reported(onelake: OneLake, database: MirroredDatabase) -> None:
    onelake.fabric.endpoint = None
    with raises(no_sql_endpoint) as error:
        database.refresh()
    assert error.value.item == str(database.item)


@pytest.mark.parametrize(
    ("verb", "how", "kind"),
    [("refreshMetadata", How.ANSWER, fabric_unavailable), ("get", How.DROP_BEFORE, fabric_unavailable)],
)
def test_endpoint_without_a_response_is_reported(
    onelake: OneLake, database: MirroredDatabase, verb: str, how: How, kind: Expected
) -> None:
    onelake.server.faults.add(Fault(f"fabric {verb}", how, 10_000))
    with raises(kind):
        database.refresh()


def test_refresh_that_fails_after_acceptance_is_reported(onelake: OneLake, database: MirroredDatabase) -> None:
    onelake.fabric.slow_refresh, onelake.fabric.fails_with = 1, "It is busy"
    with raises(fabric_request_failed, match=r"refresh the SQL endpoint \(.*It is busy"):
        database.refresh()


def test_missing_database_is_reported(onelake: OneLake, database: MirroredDatabase) -> None:
    onelake.fabric.databases.clear()
    with raises(mirrored_database_missing):
        database.refresh()


@pytest.mark.parametrize(
    ("name", "target", "others", "found"),
    [
        ("orders", "sales.orders", (), True),
        ("Orders", "sales.orders", (), True),
        ("sales.orders", "sales.orders", ("shop.orders",), True),
        ("[sales].[orders]", "sales.orders", ("shop.orders",), True),
        ("orders", "sales.orders", ("shop.orders",), False),
        ("dbo.orders", "orders", (), True),
        ("lines", "sales.orders", (), False),
    ],
)
def test_table_is_identified_by_a_unique_name(name: str, target: str, others: tuple[str, ...], found: bool) -> None:
    of = Target.parse(target)
    sync = sync_of([TableSync(name, "Success")], of, [of, *map(Target.parse, others)])
    assert (sync is not None) is found
