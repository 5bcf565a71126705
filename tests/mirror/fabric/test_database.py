"""The mirrored database against the simulated API, also when calls fail."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest

from fixtures.onelake import DATABASE, LAKEHOUSE, WORKSPACE, OneLake
from fixtures.onelake.fabric import SQL_MIRROR, Database
from fixtures.onelake.faults import Fault, How
from mirrorfeed.config.connections import FabricOptions
from mirrorfeed.landing.names import Target
from mirrorfeed.mirror.errors import (
    DatabaseNameTakenError,
    database_not_listed,
    fabric_permission_missing,
    fabric_request_failed,
    fabric_token_refused,
    fabric_unavailable,
    fabric_workspace_missing,
    mirrored_database_missing,
    mirroring_not_changed,
    not_an_open_mirror,
    table_not_dropped,
)
from mirrorfeed.mirror.fabric import MirroredDatabase, create
from mirrorfeed.mirror.fabric.client import FabricClient, FabricItem
from mirrorfeed.mirror.fabric.status_and_settings import CreatedDatabase, TableState
from mirrorfeed.runtime.credentials import Secret, ServicePrincipal
from mirrorfeed.runtime.errors import CredentialRefusedError, LoginUnavailableError
from mirrorfeed.runtime.login import token_credential
from mirrorfeed.storage.onelake_errors import capacity_paused
from mirrorfeed.storage.request_retries import RetryLimits
from tests.raised import Expected, raises
from tests.support.clock import Time

Requests = Callable[[], list[str]]
OTHER = "99999999-9999-4999-8999-999999999999"
MANY = 10_000


def fail(onelake: OneLake, verb: str, how: How, times: int = 1, **facts: object) -> Fault:
    return onelake.server.faults.add(Fault(f"fabric {verb}", how, times, **facts))  # type: ignore[arg-type]


def ignore_status(_: str) -> None: ...


# Create


def test_database_is_created_once(onelake: OneLake, api: FabricClient, requests: Requests) -> None:
    found = create(api, "orders", FabricOptions())
    assert found.created
    assert requests() == ["list", "create", "list"]
    created = found.landing_zone.rpartition("/")[2]
    assert onelake.fabric.databases[created].source == "GenericMirror"
    assert onelake.store(item=created).list("") == []

    assert create(api, "Orders", FabricOptions()) == CreatedDatabase("Orders", False, found.landing_zone)
    assert requests()[3:] == ["list", "getDefinition"]


def test_database_name_is_searched_on_every_page(onelake: OneLake, api: FabricClient, requests: Requests) -> None:
    for number in range(5):
        onelake.fabric.databases[f"id {number}"] = Database(f"orders {number}")
    onelake.fabric.page_size = 2

    assert create(api, "orders 4", FabricOptions()) == CreatedDatabase("orders 4", False, f"onelake://{WORKSPACE}/id 4")
    assert requests() == ["list"] * 4 + ["getDefinition"]


def test_slow_creation_is_polled_by_its_operation_id(
    onelake: OneLake, api: FabricClient, requests: Requests, time: Time
) -> None:
    onelake.fabric.slow_looks = 3

    assert create(api, "orders", FabricOptions()).created
    assert requests() == ["list", "create", *["operation"] * 3, "list"]
    assert time.pauses == [20, 20, 20]


def test_creation_that_fails_after_acceptance_is_reported(onelake: OneLake, api: FabricClient) -> None:
    onelake.fabric.fails_with = "No more items fit"
    with raises(fabric_request_failed) as failed:
        create(api, "orders", FabricOptions())
    assert (failed.value.action, failed.value.response) == ("create 'orders'", "UnknownError: No more items fit")


@pytest.mark.parametrize("how", [How.ANSWER, How.DROP_BEFORE, How.DROP_AFTER])
def test_creation_with_one_failed_response_creates_one_database(onelake: OneLake, api: FabricClient, how: How) -> None:
    fail(onelake, "create", how)
    created = create(api, "orders", FabricOptions()).landing_zone.rpartition("/")[2]

    assert [each.name for each in onelake.fabric.databases.values()].count("orders") == 1
    assert onelake.fabric.databases[created].name == "orders"


def test_database_that_mirrors_another_source_is_refused(api: FabricClient) -> None:
    with raises(not_an_open_mirror) as caught:
        create(api, "crm", FabricOptions())
    assert (caught.value.name, caught.value.kind) == ("crm", "AzureSqlDatabase")
    assert caught.value.item == str(FabricItem(WORKSPACE, SQL_MIRROR))


def test_name_used_by_an_unlisted_item_is_reported(onelake: OneLake, api: FabricClient) -> None:
    fail(onelake, "create", How.ANSWER, MANY, status=409, code="ItemDisplayNameAlreadyInUse", message="In use.")
    with pytest.raises(DatabaseNameTakenError):
        create(api, "orders", FabricOptions())


def test_database_that_is_not_listed_yet_is_reported(onelake: OneLake, api: FabricClient) -> None:
    onelake.fabric.lists_new = False
    with raises(database_not_listed) as error:
        create(api, "orders", FabricOptions())
    assert error.value.name == "orders"


# Start and stop


@pytest.mark.parametrize(
    ("status", "next_states", "seen"),
    [
        ("Initialized", [], ["Initialized", "Starting", "Running"]),
        ("Initializing", ["Initializing", "Initialized"], ["Initializing", "Initialized", "Starting", "Running"]),
        ("Stopped", [], ["Stopped", "Starting", "Running"]),
        ("Stopping", ["Stopping", "Stopped"], ["Stopping", "Stopped", "Starting", "Running"]),
        ("Paused", [], ["Paused", "Starting", "Running"]),
    ],
)
def test_mirroring_is_started_when_possible_and_awaited(
    onelake: OneLake,
    database: MirroredDatabase,
    requests: Requests,
    status: str,
    next_states: list[str],
    seen: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    onelake.fabric.databases[DATABASE].status, onelake.fabric.databases[DATABASE].next = status, next_states
    caplog.set_level(logging.INFO, "mirrorfeed.progress")
    assert database.start(60).status == "Running"

    assert caplog.messages == [f"The mirrored database is {each}" for each in seen]
    assert requests().count("startMirroring") == 1


def test_running_mirroring_is_not_started_again(
    onelake: OneLake, database: MirroredDatabase, requests: Requests
) -> None:
    onelake.fabric.databases[DATABASE].status = "Running"
    database.start(60)

    assert requests() == ["getMirroringStatus"]


@pytest.mark.parametrize(("status", "stops"), [("Running", 1), ("Stopped", 0), ("Initialized", 0)])
def test_mirroring_is_stopped_only_if_running(
    onelake: OneLake, database: MirroredDatabase, requests: Requests, status: str, stops: int
) -> None:
    onelake.fabric.databases[DATABASE].status = status
    database.stop(60)

    assert requests().count("stopMirroring") == stops
    assert database.status() in ("Stopped", "Initialized")


def test_start_without_effect_is_reported_after_the_wait(
    onelake: OneLake, database: MirroredDatabase, time: Time
) -> None:
    onelake.fabric.databases[DATABASE].next = ["Starting"] * 100
    with raises(mirroring_not_changed) as error:
        database.start(60)

    assert (error.value.verb, error.value.seconds, error.value.status) == ("startMirroring", 60, "Starting")
    assert time.now == 60


def test_resume_never_starts_mirroring_that_stops_in_between(
    onelake: OneLake, database: MirroredDatabase, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    statuses = iter(["Paused"])
    monkeypatch.setattr(MirroredDatabase, "status", lambda _: next(statuses, "Stopped"))
    with raises(mirroring_not_changed) as error:
        database.resume(60)

    assert error.value.status == "Stopped"
    assert not [verb for verb in onelake.verbs() if "startMirroring" in verb]


# Tables


def test_table_states_are_read_from_all_pages_with_errors(
    onelake: OneLake, database: MirroredDatabase, requests: Requests
) -> None:
    error = {"errorCode": "SchemaChange", "message": "Column v changed its type."}
    onelake.fabric.page_size = 1
    onelake.fabric.databases[DATABASE].tables = {
        ("sales", "orders"): {"status": "Replicating", "metrics": {"processedRows": 1200, "processedBytes": 1}},
        ("sales", "lines"): {"status": "Failed", "error": error},
        ("dbo", "plain"): {"status": "Snapshotting", "error": "text"},
    }

    assert database.tables() == [
        TableState("dbo.plain", "Snapshotting", None, "text"),
        TableState("sales.lines", "Failed", None, "SchemaChange: Column v changed its type."),
        TableState("sales.orders", "Replicating", 1200, None),
    ]
    assert [table.in_words for table in database.tables()] == [
        "Snapshotting: text",
        "Failed: SchemaChange: Column v changed its type.",
        "Replicating, 1,200 rows",
    ]
    assert requests() == ["getTablesMirroringStatus"] * 6


@pytest.mark.parametrize(
    ("schema", "table", "target", "same"),
    [
        ("sales", "orders", "sales.orders", True),
        ("Sales", "ORDERS", "sales.orders", True),
        ("dbo", "orders", "orders", True),
        ("sales", "orders", "orders", False),
        ("sales", "lines", "sales.orders", False),
    ],
)
def test_table_is_identified_by_its_target(schema: str, table: str, target: str, same: bool) -> None:
    assert TableState(f"{schema}.{table}", "Replicating").is_of(Target.parse(target)) is same


def test_dropping_a_table_is_awaited(onelake: OneLake, database: MirroredDatabase) -> None:
    onelake.fabric.databases[DATABASE].status = "Running"
    onelake.fabric.databases[DATABASE].tables = {("sales", "orders"): {"status": "Replicating"}}
    onelake.fabric.drop_looks = 3
    messages: list[str] = []
    database.wait_until_dropped(Target("sales", "orders"), messages.append, 60)

    assert messages == ["Replicating"]
    assert database.tables() == []


def test_stopped_database_drops_nothing_and_is_not_awaited(onelake: OneLake, database: MirroredDatabase) -> None:
    onelake.fabric.databases[DATABASE].status = "Stopped"
    onelake.fabric.databases[DATABASE].tables = {("sales", "orders"): {"status": "Stopped"}}
    database.wait_until_dropped(Target("sales", "orders"), ignore_status, 60)

    assert len(database.tables()) == 1


def test_table_that_is_not_dropped_is_reported_after_the_wait(onelake: OneLake, database: MirroredDatabase) -> None:
    onelake.fabric.databases[DATABASE].status = "Running"
    onelake.fabric.databases[DATABASE].tables = {("sales", "orders"): {"status": "Replicating"}}
    onelake.fabric.drop_looks = MANY
    with raises(table_not_dropped) as error:
        database.wait_until_dropped(Target("sales", "orders"), ignore_status, 60)

    assert (error.value.table, error.value.seconds, error.value.state) == ("sales.orders", 60, "Replicating")


# Failing calls


@pytest.mark.parametrize("how", [How.ANSWER, How.DROP_BEFORE, How.DROP_AFTER, How.CUT])
@pytest.mark.parametrize("verb", ["getMirroringStatus", "getTablesMirroringStatus", "startMirroring"])
def test_failed_call_is_retried(onelake: OneLake, database: MirroredDatabase, verb: str, how: How) -> None:
    fail(onelake, verb, how)
    database.start(60)

    assert database.tables() == []


def test_retry_after_header_is_respected(onelake: OneLake, database: MirroredDatabase, time: Time) -> None:
    fail(onelake, "getMirroringStatus", How.ANSWER, 2, status=429, code="RequestBlocked", retry_after="12")
    assert database.status() == "Initialized"

    assert [int(pause) for pause in time.pauses] == [12, 12]


@pytest.mark.parametrize(
    ("retry_after", "shown"),
    [("3600", "retry after 3600 s"), ("Fri, 31 Dec 2100 23:59:59 GMT", r"retry after \d+ s\)")],
)
def test_wait_longer_than_the_retry_limit_is_not_attempted(
    onelake: OneLake, database: MirroredDatabase, time: Time, retry_after: str, shown: str
) -> None:
    fail(onelake, "getMirroringStatus", How.ANSWER, MANY, status=429, code="RequestBlocked", retry_after=retry_after)
    with raises(fabric_unavailable, match=shown):
        database.status()

    assert time.pauses == []


def test_host_that_drops_packets_is_reported_after_a_few_attempts(api: FabricClient, time: Time, dropping: str) -> None:
    api.endpoint, api.retry_limits = (
        dropping,
        RetryLimits(connect_seconds=0.02, connections=3, first_pause=1, longest_pause=1),
    )
    with raises(fabric_unavailable, match=r": Connection to localhost timed out"):
        api.call("count", "mirroredDatabases")
    assert len(time.pauses) == 2


def test_address_without_a_server_is_reported_soon(onelake: OneLake, api: FabricClient, time: Time) -> None:
    api.endpoint = "https://localhost:1"
    with raises(fabric_unavailable, match=r": [^<]*Connection refused"):
        MirroredDatabase(api).status()

    assert len(time.pauses) == 3


def test_server_with_an_unknown_certificate_gets_no_token(onelake: OneLake, api: FabricClient) -> None:
    api.ca_bundle = None
    with raises(fabric_unavailable, match="CERTIFICATE_VERIFY_FAILED"):
        MirroredDatabase(api).status()

    assert not any(verb.startswith("fabric ") for verb in onelake.verbs())


# Wrong ids or identity


@pytest.mark.parametrize(
    ("item", "kind"),
    [
        (FabricItem(OTHER, DATABASE), fabric_workspace_missing),
        (FabricItem(WORKSPACE, OTHER), mirrored_database_missing),
        (FabricItem(WORKSPACE, LAKEHOUSE), mirrored_database_missing),
    ],
)
def test_ids_without_a_mirrored_database_are_reported(api: FabricClient, item: FabricItem, kind: Expected) -> None:
    with raises(kind):
        MirroredDatabase(replace(api, item=item)).status()


def test_missing_workspace_is_reported_before_anything_is_created(api: FabricClient, requests: Requests) -> None:
    with raises(fabric_workspace_missing):
        create(replace(api, item=FabricItem(OTHER)), "orders", FabricOptions())
    assert requests() == ["list"]


def test_identity_without_a_role_is_reported(onelake: OneLake, database: MirroredDatabase) -> None:
    onelake.server.forbidden = True
    with raises(fabric_permission_missing):
        database.status()


def test_token_for_another_audience_is_reported(onelake: OneLake, database: MirroredDatabase) -> None:
    onelake.authority.audience = "https://storage.azure.com"
    with raises(fabric_token_refused, match=r"the audience https://storage\.azure\.com is not https://api\.fabric"):
        database.status()


def test_expired_secret_is_reported(onelake: OneLake, database: MirroredDatabase, time: Time) -> None:
    onelake.authority.expired = True
    with pytest.raises(CredentialRefusedError, match=r"has expired \(AADSTS7000222\)\. Create a new secret"):
        database.status()
    assert time.pauses == []


@pytest.mark.parametrize("dead", ["authority", "proxy"])
def test_unreachable_login_is_retried_like_any_unreachable_server(
    onelake: OneLake, time: Time, monkeypatch: pytest.MonkeyPatch, dead: str
) -> None:
    if dead == "proxy":
        monkeypatch.setenv("HTTPS_PROXY", "http://localhost:1")
    principal = onelake.principal(authority="https://localhost:1") if dead == "authority" else onelake.principal()
    login = token_credential(principal, str(onelake.ca_bundle))
    api = FabricClient(FabricItem(WORKSPACE), login, f"https://{onelake.address}", str(onelake.ca_bundle))
    with pytest.raises(LoginUnavailableError, match=r"cannot log in: .*Failed to establish a new connection"):
        api.call("list", "mirroredDatabases")
    assert len(time.pauses) == 3


def test_failing_login_service_is_retried_and_then_reported(
    onelake: OneLake, database: MirroredDatabase, time: Time
) -> None:
    onelake.server.faults.add(Fault("token", How.ANSWER, MANY))
    with pytest.raises(LoginUnavailableError, match=r"at the moment: .* cannot log in: .* Check that this machine"):
        database.status()
    assert 50 < time.now <= 60


def test_paused_capacity_is_reported_at_once(onelake: OneLake, database: MirroredDatabase, time: Time) -> None:
    message = "The capacity is currently paused."
    fail(onelake, "getMirroringStatus", How.ANSWER, MANY, status=429, code="X", message=message, retry_after="1")
    with raises(capacity_paused, match="Resume the capacity in the Azure portal"):
        database.status()
    assert time.pauses == []


def test_no_error_contains_a_secret(onelake: OneLake, database: MirroredDatabase) -> None:
    database.status()
    fail(onelake, "getMirroringStatus", How.DROP_BEFORE, MANY)
    with raises(fabric_unavailable) as caught:
        database.status()

    text = repr((caught.value, caught.value.__dict__, caught.value.__cause__, database))
    assert isinstance(onelake.principal(), ServicePrincipal)
    assert onelake.principal().secret == Secret(env="MIRRORFEED_SIMULATOR_SECRET")
    for hidden in (onelake.authority.secret, *onelake.authority.tokens):
        assert hidden not in text
