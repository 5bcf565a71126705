"""Storage tiers in S3, against moto and against responses from the AWS documentation."""

from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import SimpleNamespace
from typing import Any

import boto3
import botocore.session
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from botocore.stub import Stubber
from moto import mock_aws

from mirrorfeed.archive.lifecycle import RuleState, rules_of
from mirrorfeed.runtime.errors import service_credential_unreachable
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.table_info import TableInfo
from mirrorfeed.storage import tiers_at
from mirrorfeed.storage.azure_and_s3_tiers import AzureTiers, S3Tiers, facts_of
from mirrorfeed.storage.errors import FileOutsideStorageError, TiersUnavailableError, boto3_missing
from mirrorfeed.storage.request_retries import RetryLimits
from mirrorfeed.storage.tier_store import Priority, Tier, TierFacts
from tests.raised import raises

BUCKET = "lake"
ROOT = f"s3://{BUCKET}/"
KEYS = ["t/day=1/part-0", "t/day=a b/part-é%20#?&+.parquet", "t/deletion_vector_1.bin"]


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    with mock_aws():
        client = boto3.client("s3")
        client.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
        yield client


def put(s3: Any, kind: str, *keys: str) -> list[str]:
    for key in keys:
        s3.put_object(Bucket=BUCKET, Key=key, Body=b"data", StorageClass=kind)
    return [ROOT + key for key in keys]


def test_files_are_listed_by_folder(s3: Any) -> None:
    archived, deep = put(s3, "GLACIER", *KEYS), put(s3, "DEEP_ARCHIVE", "t/deep")
    others = [*put(s3, "STANDARD", "t/new"), *put(s3, "STANDARD_IA", "t/ia"), *put(s3, "GLACIER_IR", "t/instant")]
    found = S3Tiers(BUCKET).read_tiers([*archived, *deep, *others, ROOT + "t/gone"])
    assert [tier.name for tier in found.values()] == [*["ARCHIVE"] * 4, "HOT", "COOL", "COLD", "MISSING"]
    assert S3Tiers(BUCKET).facts(archived)[archived[0]].bytes == 4
    assert S3Tiers(BUCKET).read_tiers([]) == {}


def test_restore_creates_copies_for_the_requested_days(s3: Any) -> None:
    uris = put(s3, "GLACIER", *KEYS)
    tiers = S3Tiers(BUCKET)
    assert tiers.restores_copies
    assert tiers.restore(uris, Priority.STANDARD, days=3) == {}
    assert copy_of(s3) == ("GLACIER", 3)
    assert tiers.restore(uris, Priority.HIGH, days=9) == {}  # a second request is harmless
    assert copy_of(s3) == ("GLACIER", 9)


def copy_of(s3: Any) -> tuple[str, int]:
    """Storage class of the second file, and remaining days of its copy. Restores complete immediately here."""
    head = s3.head_object(Bucket=BUCKET, Key=KEYS[1])
    ongoing, until = re.findall('"(.*?)"', head["Restore"])
    assert ongoing == "false"
    return head["StorageClass"], round((parsedate_to_datetime(until) - datetime.now(UTC)).total_seconds() / 86_400)


def test_listing_request_and_response_match_the_aws_service_model(s3: Any) -> None:
    until = datetime(2026, 11, 9, tzinfo=UTC)
    uris = {"Bucket": BUCKET, "Prefix": "t/", "Delimiter": "/", "OptionalObjectAttributes": ["RestoreStatus"]}
    entries = [
        {"Key": "t/1", "StorageClass": "GLACIER", "Size": 4, "RestoreStatus": {"IsRestoreInProgress": True}},
        {"Key": "t/2", "StorageClass": "GLACIER", "Size": 4, "RestoreStatus": {"RestoreExpiryDate": until}},
        {"Key": "t/3", "StorageClass": "GLACIER", "Size": 4},
    ]
    with Stubber(s3) as stub, pytest.MonkeyPatch.context() as patched:
        patched.setattr(S3Tiers, "_client", s3)
        stub.add_response("list_objects_v2", {"Contents": entries, "IsTruncated": False}, uris)
        found = S3Tiers(BUCKET).facts([ROOT + str(entry["Key"]) for entry in entries])
    assert [(each.tier, each.until) for each in found.values()] == [
        (Tier.PENDING, None),
        (Tier.HOT, until),
        (Tier.ARCHIVE, None),
    ]


def test_bucket_accepts_and_exports_the_rules_of_a_table(s3: Any) -> None:
    table = TableInfo("id", "s3://lake/sales/orders", {}, ("day",), 0, 0)
    rules = rules_of(Source.parse("main.sales.orders"), table)
    logs = {"ID": "logs", "Filter": {"Prefix": "logs/"}, "Status": "Enabled", "Expiration": {"Days": 30}}
    s3.put_bucket_lifecycle_configuration(Bucket=BUCKET, LifecycleConfiguration={"Rules": [logs]})
    for state, problems in [(RuleState.ON, 0), (RuleState.PAUSED, 1), (RuleState.ON, 0), (RuleState.GONE, 1)]:
        policy = rules.policy(60, state, s3.get_bucket_lifecycle_configuration(Bucket=BUCKET))
        s3.put_bucket_lifecycle_configuration(Bucket=BUCKET, LifecycleConfiguration=policy)
        exported = s3.get_bucket_lifecycle_configuration(Bucket=BUCKET)
        assert len(rules.check(exported, 60)) == problems
        assert exported["Rules"][0]["ID"] == "logs"


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"StorageClass": "GLACIER", "Size": 4}, TierFacts(Tier.ARCHIVE, 4)),
        ({"StorageClass": "GLACIER", "RestoreStatus": {"IsRestoreInProgress": True}}, TierFacts(Tier.PENDING)),
        (
            {
                "StorageClass": "DEEP_ARCHIVE",
                "RestoreStatus": {"IsRestoreInProgress": False, "RestoreExpiryDate": datetime(2026, 11, 9, tzinfo=UTC)},
            },
            TierFacts(Tier.HOT, until=datetime(2026, 11, 9, tzinfo=UTC)),
        ),
        ({"StorageClass": "GLACIER", "RestoreStatus": {"IsRestoreInProgress": False}}, TierFacts(Tier.ARCHIVE)),
        ({"Size": 1}, TierFacts(Tier.HOT, 1)),
    ],
)
def test_listing_entry_shows_whether_a_restored_copy_exists(entry: dict[str, Any], expected: TierFacts) -> None:
    assert facts_of(entry) == expected


class Refusing:
    """A client whose restore requests are refused."""

    def __init__(self, code: str, status: int) -> None:
        self.error = {"Error": {"Code": code, "Message": "Why."}, "ResponseMetadata": {"HTTPStatusCode": status}}

    def restore_object(self, **_: Any) -> None:
        raise ClientError(self.error, "RestoreObject")


@pytest.mark.parametrize(
    ("code", "status", "expected"),
    [
        ("RestoreAlreadyInProgress", 409, {}),
        ("InvalidObjectState", 403, {}),
        (
            "GlacierExpeditedRetrievalNotAvailable",
            503,
            {f"{ROOT}t/1": "503 GlacierExpeditedRetrievalNotAvailable: Why"},
        ),
        ("NoSuchKey", 404, {f"{ROOT}t/1": "404 NoSuchKey: Why"}),
    ],
)
def test_refused_files_are_returned_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, code: str, status: int, expected: dict[str, str]
) -> None:
    monkeypatch.setattr(S3Tiers, "_client", Refusing(code, status))
    assert S3Tiers(BUCKET).restore([f"{ROOT}t/1"], Priority.HIGH) == expected


def test_restore_request_has_days_and_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []

    class Taking:
        def restore_object(self, **request: Any) -> None:
            seen.append(request)

    monkeypatch.setattr(S3Tiers, "_client", Taking())
    S3Tiers(BUCKET).restore([f"{ROOT}t/1"], Priority.HIGH, days=2)
    S3Tiers(BUCKET).restore([f"{ROOT}t/1"], Priority.STANDARD)
    assert [each["RestoreRequest"] for each in seen] == [
        {"Days": 2, "GlacierJobParameters": {"Tier": "Expedited"}},
        {"Days": 7, "GlacierJobParameters": {"Tier": "Standard"}},
    ]


def test_unreadable_bucket_is_reported(s3: Any) -> None:
    with pytest.raises(TiersUnavailableError) as caught:
        S3Tiers("elsewhere").read_tiers(["s3://elsewhere/t/1"])
    assert str(caught.value).startswith(
        "Cannot read the storage classes of files in s3://elsewhere/: 404 NoSuchBucket: The specified bucket does"
        " not exist. Check that the storage can be reached"
    )


def test_unreachable_service_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    class Away:
        def get_paginator(self, _: str) -> Any:
            raise EndpointConnectionError(endpoint_url="https://s3")

    monkeypatch.setattr(S3Tiers, "_client", Away())
    with pytest.raises(TiersUnavailableError, match=r'Could not connect to the endpoint URL: "https://s3"\. Check'):
        S3Tiers(BUCKET).read_tiers([f"{ROOT}t/1"])


def test_files_of_another_bucket_are_refused_but_other_schemes_accepted(s3: Any) -> None:
    put(s3, "STANDARD", "t/1")
    assert S3Tiers(BUCKET).read_tiers(["s3a://lake/t/1"]) == {"s3a://lake/t/1": Tier.HOT}
    with pytest.raises(FileOutsideStorageError):
        S3Tiers(BUCKET).read_tiers(["s3://other/t/1"])


def test_missing_boto3_is_reported_with_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name == "boto3":
            raise ImportError(name)
        return usual(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with raises(boto3_missing) as caught:
        S3Tiers("never-opened").read_tiers(["s3://never-opened/t/1"])
    assert caught.value.facts == {"bucket": "never-opened"}


def test_service_credential_of_databricks_is_used_if_the_environment_names_one(
    s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (archived,) = put(s3, "GLACIER", "t/1")
    session = botocore.session.get_session()
    session.set_credentials("of-unity-catalog", "secret")
    requested: list[str] = []
    provider = SimpleNamespace(getServiceCredentialsProvider=lambda name: requested.append(name) or session)
    _in_databricks(monkeypatch, provider)
    tiers = S3Tiers(BUCKET, retry_limits=RetryLimits(connections=2))
    assert tiers.read_tiers([archived]) == {archived: Tier.ARCHIVE}
    assert requested == ["tiers"]
    assert tiers._client._request_signer._credentials.access_key == "of-unity-catalog"


def test_service_credential_of_azure_is_refused_for_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    of_azure = SimpleNamespace(get_token=lambda scope: "token")
    _in_databricks(monkeypatch, SimpleNamespace(getServiceCredentialsProvider=lambda name: of_azure))
    with raises(service_credential_unreachable, match="it is not a credential of AWS"):
        S3Tiers("refused").read_tiers(["s3://refused/t/1"])


def _in_databricks(monkeypatch: pytest.MonkeyPatch, credentials: Any) -> None:
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    monkeypatch.setenv("DATABRICKS_DEFAULT_SERVICE_CREDENTIAL_NAME", "tiers")
    runtime = SimpleNamespace(dbutils=SimpleNamespace(credentials=credentials))
    monkeypatch.setitem(sys.modules, "databricks.sdk.runtime", runtime)


def test_location_of_a_table_selects_its_tiers() -> None:
    assert tiers_at("s3a://lake/t") == S3Tiers("lake")
    assert isinstance(tiers_at("abfss://c@acct.dfs.core.windows.net/t"), AzureTiers)
    assert tiers_at("file:/tmp/t") is None
