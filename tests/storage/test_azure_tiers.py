"""Storage tiers in Azure: calls to the blob endpoint, and the behavior when calls fail."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from azure.storage.blob import BlobProperties

from fixtures.onelake import WORKSPACE, OneLake
from fixtures.onelake.blobs import Blob
from fixtures.onelake.faults import Fault, How
from mirrorfeed.runtime.credentials import Default
from mirrorfeed.storage.azure_and_s3_tiers import AzureTiers, tier_of
from mirrorfeed.storage.errors import FileOutsideStorageError, TiersUnavailableError
from mirrorfeed.storage.tier_store import Priority, Tier, TierFacts

ROOT = f"abfss://{WORKSPACE}@lake.dfs.core.windows.net/"
NAMES = ["t/day=1/part-0", "t/day=a b/part-é%20#?&.parquet", "t/deletion_vector_1.bin"]


def tiers_of(onelake: OneLake) -> AzureTiers:
    store = onelake.store()
    return AzureTiers(onelake.blob, WORKSPACE, ROOT, store.credential, store.ca_bundle, store.retry_limits)


def uris(names: list[str] = NAMES) -> list[str]:
    return [ROOT + name for name in names]


def archived(onelake: OneLake, names: list[str] = NAMES) -> dict[str, Blob]:
    onelake.server.blobs.blobs |= {name: Blob("Archive") for name in names}
    return onelake.server.blobs.blobs


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("abfss://c@acct.dfs.core.windows.net/t", ("https://acct.blob.core.windows.net", "c")),
        ("wasbs://c@acct.blob.core.windows.net/t", ("https://acct.blob.core.windows.net", "c")),
        ("abfss://c@acct.dfs.core.chinacloudapi.cn/t", ("https://acct.blob.core.chinacloudapi.cn", "c")),
    ],
)
def test_location_of_a_table_gives_account_and_container(location: str, expected: tuple[str, str]) -> None:
    found = AzureTiers.at(location)
    assert found is not None
    assert (found.account, found.container, found.credential) == (*expected, Default())
    assert location.startswith(found.root)


@pytest.mark.parametrize(
    "location",
    [
        "file:/tmp/t",
        "abfss://c@acct.dfs.example.com/t",
        "abfss://c@acct.dfs.core.windows.net.example.com/t",
        "abfss://c@example.com?x.dfs.core.windows.net/t",
    ],
)
def test_location_outside_azure_has_no_tiers_and_gets_no_token(location: str) -> None:
    assert AzureTiers.at(location) is None


@pytest.mark.parametrize(
    ("tier", "status", "expected"),
    [
        ("Hot", None, Tier.HOT),
        ("Cool", None, Tier.COOL),
        ("Cold", None, Tier.COLD),
        ("Archive", None, Tier.ARCHIVE),
        ("Archive", "rehydrate-pending-to-hot", Tier.PENDING),
        ("Archive", "rehydrate-pending-to-cold", Tier.PENDING),
        (None, None, Tier.HOT),
    ],
)
def test_blob_properties_give_the_tier(tier: Any, status: str | None, expected: Tier) -> None:
    blob = BlobProperties()
    blob.blob_tier, blob.archive_status = tier, status
    assert tier_of(blob) is expected
    assert expected.is_readable == (expected in (Tier.HOT, Tier.COOL, Tier.COLD))


def test_files_are_listed_by_folder(onelake: OneLake) -> None:
    blobs = archived(onelake)
    blobs |= {f"t/day=2/part-{i}": Blob() for i in range(5)} | {"other/x": Blob()}
    blobs["t/day=2/part-4"] = Blob("Archive", "High")
    requested = uris([*NAMES, "t/day=2/part-0", "t/day=2/part-4", "t/gone"])
    found = tiers_of(onelake).read_tiers(requested)
    assert list(found) == requested
    assert [tier.name for tier in found.values()] == ["ARCHIVE", "ARCHIVE", "ARCHIVE", "HOT", "PENDING", "MISSING"]
    listed = [
        (call.query["prefix"], call.query.get("delimiter")) for call in onelake.calls if call.verb == "list blobs"
    ]
    assert sorted(listed) == [
        (prefix, "/")
        for prefix in ("t/", NAMES[0], "t/day=2/part-", "t/day=2/part-4", NAMES[1], "t/deletion_vector_1.bin", "t/gone")
    ]
    assert tiers_of(onelake).read_tiers([]) == {}


def test_files_between_distant_partitions_are_not_listed(onelake: OneLake) -> None:
    names = [f"t/day={day:03}/part-{i}" for day in range(200) for i in range(2)]
    archived(onelake, names)
    assert set(tiers_of(onelake).read_tiers(uris([names[0], names[-1]])).values()) == {Tier.ARCHIVE}
    assert [call.verb for call in onelake.calls].count("list blobs") == 2


def test_partitions_are_listed_together_if_this_needs_fewer_requests(onelake: OneLake) -> None:
    names = [f"t/day={day:03}/part-{i}" for day in range(200) for i in range(2)]
    archived(onelake, names)
    onelake.server.blobs.page = 100
    assert set(tiers_of(onelake).read_tiers(uris(names)).values()) == {Tier.ARCHIVE}
    listed = [call.query["prefix"] for call in onelake.calls if call.verb == "list blobs"]
    assert listed == ["t/day="] * 4


def test_archived_files_are_requested_and_restored_later(onelake: OneLake) -> None:
    archived(onelake)
    tiers = tiers_of(onelake)
    assert tiers.restore(uris(), Priority.HIGH) == {}
    assert {blob.priority for blob in onelake.server.blobs.blobs.values()} == {"High"}
    assert set(tiers.read_tiers(uris()).values()) == {Tier.PENDING}
    assert tiers.restore(uris(), Priority.STANDARD) == {}  # a second request is harmless
    onelake.server.blobs.arrive()
    assert set(tiers.read_tiers(uris()).values()) == {Tier.HOT}
    assert tiers.restore(uris(), Priority.STANDARD) == {}


def test_archived_files_are_restored_to_the_requested_tier(onelake: OneLake) -> None:
    blobs = archived(onelake)
    tiers = tiers_of(onelake)
    assert tiers.restore(uris(), Priority.STANDARD, Tier.COOL) == {}
    assert {blob.status for blob in blobs.values()} == {"rehydrate-pending-to-cool"}
    onelake.server.blobs.arrive()
    assert set(tiers.read_tiers(uris()).values()) == {Tier.COOL}


def test_facts_have_sizes_and_time_of_the_last_tier_change(onelake: OneLake) -> None:
    archived(onelake)[NAMES[0]].since = "Tue, 06 Oct 2026 10:00:00 GMT"
    found = tiers_of(onelake).facts(uris())
    assert found[uris()[0]] == TierFacts(Tier.ARCHIVE, 1, datetime(2026, 10, 6, 10, tzinfo=UTC))
    assert found[uris()[1]] == TierFacts(Tier.ARCHIVE, 1)


def test_batches_have_at_most_256_files(onelake: OneLake) -> None:
    names = [f"t/part-{i:04d}" for i in range(600)]
    archived(onelake, names)
    assert tiers_of(onelake).restore(uris(names), Priority.STANDARD) == {}
    assert onelake.server.blobs.batches == [256, 256, 88]
    assert all(blob.status for blob in onelake.server.blobs.blobs.values())


def test_refused_files_are_returned_with_the_reason(onelake: OneLake) -> None:
    archived(onelake)
    onelake.server.blobs.refuse = {NAMES[1]: (503, "ServerBusy")}
    tiers, requested = tiers_of(onelake), [*uris(), ROOT + "t/gone"]
    assert tiers.restore(requested, Priority.STANDARD) == {
        requested[1]: "503 ServerBusy",
        requested[3]: "404 BlobNotFound",
    }
    assert tiers.read_tiers(requested)[requested[0]] is Tier.PENDING


def test_busy_service_is_retried(onelake: OneLake) -> None:
    archived(onelake)
    for verb in ("list blobs", "set tiers"):
        onelake.server.faults.add(Fault(verb, How.ANSWER, 2, status=503, code="ServerBusy"))
    tiers = tiers_of(onelake)
    assert tiers.restore(uris(), Priority.STANDARD) == {}
    assert set(tiers.read_tiers(uris()).values()) == {Tier.PENDING}


def test_refused_listing_is_reported_as_unavailable(onelake: OneLake) -> None:
    onelake.server.faults.add(Fault("list blobs", How.ANSWER, 99, status=403, code="AuthorizationPermissionMismatch"))
    with pytest.raises(TiersUnavailableError) as caught:
        tiers_of(onelake).read_tiers(uris())
    reason = "403 AuthorizationPermissionMismatch"
    assert caught.value.problem == f"Cannot read the access tiers of files in {ROOT}: {reason}."


def test_files_of_another_container_are_refused(onelake: OneLake) -> None:
    with pytest.raises(FileOutsideStorageError) as caught:
        tiers_of(onelake).read_tiers(["abfss://other@lake.dfs.core.windows.net/t/part-0"])
    uri = "abfss://other@lake.dfs.core.windows.net/t/part-0"
    assert caught.value.facts == {"uri": uri, "root": ROOT}
