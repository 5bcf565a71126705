"""Access tiers and restores of files in Azure storage and S3. boto3 is imported only for S3."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from azure.core.exceptions import AzureError, HttpResponseError
from azure.core.paging import ItemPaged
from azure.storage.blob import BlobProperties, ContainerClient, RehydratePriority

from mirrorfeed.errors import first_line
from mirrorfeed.runtime.credentials import Credential, Default
from mirrorfeed.runtime.errors import LoginUnavailableError
from mirrorfeed.runtime.login import service_credential
from mirrorfeed.storage import per_process
from mirrorfeed.storage.errors import FileOutsideStorageError, TiersUnavailableError, boto3_missing
from mirrorfeed.storage.http import client_options, shorten_reason
from mirrorfeed.storage.onelake_errors import parse_response
from mirrorfeed.storage.request_retries import RetryLimits
from mirrorfeed.storage.tier_listing import MAX_PARALLEL_REQUESTS, Page, find_facts
from mirrorfeed.storage.tier_store import DEFAULT_COPY_DAYS, Priority, Tier, TierFacts, TierStore

BATCH_SIZE = 256
"""Maximum number of blobs in one request to Azure."""
_ACCOUNT_SUFFIXES = r"core\.windows\.net|core\.usgovcloudapi\.net|core\.chinacloudapi\.cn|storage\.azure\.net"
"""Domains of Azure storage accounts, as a regular expression. A host in another domain receives no token."""
_S3_BUCKET = re.compile(r"s3[an]?://([^/]+)/", re.IGNORECASE)
_ARCHIVE_CLASSES = ("GLACIER", "DEEP_ARCHIVE")
_OTHER_CLASSES = {"STANDARD_IA": Tier.COOL, "ONEZONE_IA": Tier.COOL, "GLACIER_IR": Tier.COLD}
_RESTORE_SPEEDS = {Priority.STANDARD: "Standard", Priority.HIGH: "Expedited"}
_NO_RESTORE_NEEDED = ("RestoreAlreadyInProgress", "InvalidObjectState")
"""S3 error codes for objects whose restore is pending, or that are not archived."""
_SERVICE_CREDENTIAL = "DATABRICKS_DEFAULT_SERVICE_CREDENTIAL_NAME"
"""Environment variable in which Databricks puts the name of a Unity Catalog service credential."""


@dataclass(frozen=True)
class AzureTiers(TierStore):
    """Access tiers and restores of the files in one Azure container. Contains no secret and no connection."""

    account: str
    """Blob endpoint, such as https://account.blob.core.windows.net."""
    container: str
    root: str
    """Prefix of the URIs of all files, such as abfss://container@account.dfs.core.windows.net/."""
    credential: Credential = field(default_factory=Default)
    ca_bundle: str | None = None
    retry_limits: RetryLimits = field(default_factory=RetryLimits)
    restores_copies: ClassVar[bool] = False

    @classmethod
    def at(cls, location: str) -> AzureTiers | None:
        """Return the `AzureTiers` for the URI of a table or file, or None if the URI is not in Azure storage."""
        match = re.match(rf"(?:abfss?|wasbs?)://([^@/]+)@([\w.-]+?)\.(?:dfs|blob)\.({_ACCOUNT_SUFFIXES})/", location)
        return cls(f"https://{match[2]}.blob.{match[3]}", match[1], match[0]) if match else None

    def facts(self, uris: Sequence[str]) -> dict[str, TierFacts]:
        if not uris:
            return {}
        names = {uri: self._name(uri) for uri in uris}
        with self._errors("read the access tiers of files in"):
            found = find_facts(set(names.values()), self._pages)
        return {uri: found.get(name, TierFacts(Tier.MISSING)) for uri, name in names.items()}

    def _pages(self, prefix: str, delimiter: str) -> Iterator[Page]:
        client = self._client
        if delimiter:
            blobs: ItemPaged[Any] = client.walk_blobs(name_starts_with=prefix, delimiter=delimiter)
        else:
            blobs = client.list_blobs(name_starts_with=prefix)
        for page in blobs.by_page():
            yield {
                blob.name: TierFacts(tier_of(blob), blob.size, blob.blob_tier_change_time)
                for blob in page
                if isinstance(blob, BlobProperties)  # not a subfolder
            }

    def restore(
        self, uris: Sequence[str], priority: Priority, to: Tier = Tier.HOT, days: int | None = None
    ) -> dict[str, str]:
        refused: dict[str, str] = {}
        for start in range(0, len(uris), BATCH_SIZE):
            batch = uris[start : start + BATCH_SIZE]
            with self._errors("set the tier of files in"):
                responses = self._client.set_standard_blob_tier_blobs(
                    to.name.capitalize(),
                    *(self._name(uri) for uri in batch),
                    rehydrate_priority=RehydratePriority(priority.value),
                    raise_on_any_failure=False,
                )
                for uri, response in zip(batch, responses, strict=True):
                    code = response.headers.get("x-ms-error-code", "")
                    if response.status_code not in (200, 202) and code != "BlobBeingRehydrated":
                        refused[uri] = f"{response.status_code} {code}".strip()
        return refused

    def _name(self, uri: str) -> str:
        if not uri.startswith(self.root):
            raise FileOutsideStorageError(uri=uri, root=self.root)
        return uri[len(self.root) :]

    @property
    def _client(self) -> ContainerClient:
        return per_process(self, self._connect)

    def _connect(self) -> ContainerClient:
        options = client_options(self.credential, self.ca_bundle, self.retry_limits)
        return ContainerClient(self.account, self.container, **options)

    @contextmanager
    def _errors(self, action: str) -> Iterator[None]:
        try:
            yield
        except HttpResponseError as error:
            reason = f"{error.status_code} {parse_response(error).code}".strip()
            raise TiersUnavailableError(action=action, place=self.root, reason=reason) from error
        except LoginUnavailableError as error:
            raise TiersUnavailableError(action=action, place=self.root, reason=error.reason) from error
        except AzureError as error:
            raise TiersUnavailableError(action=action, place=self.root, reason=shorten_reason(error)) from error


def tier_of(blob: BlobProperties | Any) -> Tier:
    """Return the tier of a blob, or `Tier.PENDING` while it is being restored.
    Returns `Tier.HOT` for a blob without a tier: it has the default tier of its account, and this is never Archive."""
    if str(blob.archive_status or "").startswith("rehydrate-pending"):  # the tier of a pending blob is still Archive
        return Tier.PENDING
    return {"Archive": Tier.ARCHIVE, "Cool": Tier.COOL, "Cold": Tier.COLD}.get(str(blob.blob_tier or ""), Tier.HOT)


@dataclass(frozen=True)
class S3Tiers(TierStore):
    """Storage classes and restores of the objects in one S3 bucket. Contains no secret and no connection.

    Logs in with the service credential that Databricks configures, or with the credentials that boto3 finds.
    """

    bucket: str
    endpoint: str | None = None
    """Endpoint URL. None means the endpoint of AWS."""
    retry_limits: RetryLimits = field(default_factory=RetryLimits)
    restores_copies: ClassVar[bool] = True

    @classmethod
    def at(cls, location: str) -> S3Tiers | None:
        """Return the `S3Tiers` for the URI of a table or file, or None if the URI is not in S3."""
        match = _S3_BUCKET.match(location)
        return cls(match[1]) if match else None

    def facts(self, uris: Sequence[str]) -> dict[str, TierFacts]:
        if not uris:
            return {}
        keys = {uri: self._key(uri) for uri in uris}
        pages = partial(_object_pages, self._client, self.bucket)
        with self._errors("read the storage classes of files in"):
            found = find_facts(set(keys.values()), pages)
        return {uri: found.get(key, TierFacts(Tier.MISSING)) for uri, key in keys.items()}

    def restore(
        self, uris: Sequence[str], priority: Priority, to: Tier = Tier.HOT, days: int | None = None
    ) -> dict[str, str]:
        """Request copies of archived objects for `days` days (None means 7). Return the reason for each refused URI.

        For an existing copy, only the expiry time changes. `to` has no effect: copies have the storage class STANDARD.
        """
        client = self._client
        request = {"Days": days or DEFAULT_COPY_DAYS, "GlacierJobParameters": {"Tier": _RESTORE_SPEEDS[priority]}}
        from botocore.exceptions import ClientError  # only after the check that boto3 is installed

        def refusal(uri: str) -> str:
            try:
                client.restore_object(Bucket=self.bucket, Key=self._key(uri), RestoreRequest=request)
            except ClientError as error:
                if error.response.get("Error", {}).get("Code") not in _NO_RESTORE_NEEDED:
                    return _reason(error.response)
            return ""

        with self._errors("restore files in"), ThreadPoolExecutor(MAX_PARALLEL_REQUESTS) as threads:
            reasons = zip(uris, threads.map(refusal, uris), strict=True)
            return {uri: reason for uri, reason in reasons if reason}

    def _key(self, uri: str) -> str:
        match = _S3_BUCKET.match(uri)
        if match is None or match[1] != self.bucket:
            raise FileOutsideStorageError(uri=uri, root=f"s3://{self.bucket}/")
        return uri[match.end() :]

    @property
    def _client(self) -> Any:
        return per_process(self, self._connect)

    def _connect(self) -> Any:
        try:
            import boto3
            from botocore.config import Config
        except ImportError as error:
            raise boto3_missing(bucket=self.bucket) from error
        limits = self.retry_limits
        retries = {"mode": "standard", "max_attempts": limits.connections}
        config = Config(read_timeout=limits.response_seconds, connect_timeout=limits.connect_seconds, retries=retries)
        name = os.environ.get(_SERVICE_CREDENTIAL)
        session = boto3.Session(botocore_session=service_credential(name, "AWS")) if name else boto3
        with self._errors("connect to"):
            return session.client("s3", endpoint_url=self.endpoint, config=config)

    @contextmanager
    def _errors(self, action: str) -> Iterator[None]:
        from botocore.exceptions import BotoCoreError, ClientError

        place = f"s3://{self.bucket}/"
        try:
            yield
        except ClientError as error:
            raise TiersUnavailableError(action=action, place=place, reason=_reason(error.response)) from error
        except BotoCoreError as error:
            raise TiersUnavailableError(action=action, place=place, reason=first_line(str(error))) from error


def _object_pages(client: Any, bucket: str, prefix: str, delimiter: str) -> Iterator[Page]:
    pages = client.get_paginator("list_objects_v2").paginate(
        Bucket=bucket, Prefix=prefix, Delimiter=delimiter, OptionalObjectAttributes=["RestoreStatus"]
    )
    for page in pages:
        yield {entry["Key"]: facts_of(entry) for entry in page.get("Contents", ())}


def facts_of(entry: Mapping[str, Any]) -> TierFacts:
    """Return tier, size and expiry time of an object from its entry in an S3 listing.

    An archived object with a restored copy has the tier `Tier.HOT` and the expiry time of the copy.
    """
    storage_class, size = entry.get("StorageClass", "STANDARD"), entry.get("Size")
    if storage_class not in _ARCHIVE_CLASSES:
        return TierFacts(_OTHER_CLASSES.get(storage_class, Tier.HOT), size)
    status = entry.get("RestoreStatus") or {}
    if status.get("IsRestoreInProgress"):
        return TierFacts(Tier.PENDING, size)
    if until := status.get("RestoreExpiryDate"):
        return TierFacts(Tier.HOT, size, until=until)
    return TierFacts(Tier.ARCHIVE, size)


def _reason(response: Mapping[str, Any]) -> str:
    error = response.get("Error", {})
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", "")
    return f"{status} {error.get('Code', '')}: {first_line(str(error.get('Message', '')))}".strip()
