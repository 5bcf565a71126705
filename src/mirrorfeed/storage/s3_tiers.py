"""Tiers in S3: objects in Glacier Flexible Retrieval and Deep Archive, of which a restore lays a copy beside for some
days. The one place that knows S3's calls. boto3 is asked for only where a table is in S3; Databricks has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from mirrorfeed.errors import first_line
from mirrorfeed.storage.errors import NoBoto, OtherPlace, TiersUnavailable
from mirrorfeed.storage.process_cache import keep
from mirrorfeed.storage.retry_budget import Patience
from mirrorfeed.storage.tiers import COPY_DAYS, Facts, Priority, Tier, common_start

_ADDRESS = re.compile(r"s3[an]?://([^/]+)/", re.IGNORECASE)
_ARCHIVES = ("GLACIER", "DEEP_ARCHIVE")
_OTHERS = {"STANDARD_IA": Tier.COOL, "ONEZONE_IA": Tier.COOL, "GLACIER_IR": Tier.COLD}
_SPEEDS = {Priority.STANDARD: "Standard", Priority.HIGH: "Expedited"}
_TAKEN = ("RestoreAlreadyInProgress", "InvalidObjectState")
"""It is on its way, or in no archive: asking again does no harm."""
_AT_ONCE = 16


@dataclass(frozen=True)
class S3Tiers:
    """The objects of one bucket, with whatever credentials boto3 finds. Holds no secret and no connection."""

    bucket: str
    endpoint: str | None = None
    """None: that of AWS."""
    patience: Patience = field(default_factory=Patience)

    @classmethod
    def at(cls, location: str) -> S3Tiers | None:
        """For a table at this address; None where it is not in S3."""
        found = _ADDRESS.match(location)
        return cls(found[1]) if found else None

    @property
    def keeps(self) -> bool:
        return True

    def look(self, uris: Sequence[str]) -> dict[str, Tier]:
        return {uri: facts.tier for uri, facts in self.facts(uris).items()}

    def facts(self, uris: Sequence[str]) -> dict[str, Facts]:
        if not uris:
            return {}
        keys = {self._key(uri): uri for uri in uris}
        found, client = dict.fromkeys(uris, Facts(Tier.MISSING)), self._client
        # A listing tells of a thousand objects in a call; what they have in common keeps it short.
        with self._faults("read the storage classes of files in"):
            pages = client.get_paginator("list_objects_v2").paginate(
                Bucket=self.bucket, Prefix=common_start(keys), OptionalObjectAttributes=["RestoreStatus"]
            )
            for page in pages:
                for each in page.get("Contents", ()):
                    if each["Key"] in keys:
                        found[keys[each["Key"]]] = facts_of(each)
        return found

    def bring_back(
        self, uris: Sequence[str], priority: Priority, to: Tier = Tier.HOT, days: int | None = None
    ) -> dict[str, str]:
        """Copies are in the standard class, whatever `to` says; one that is there gets the new number of days."""
        request = {"Days": days or COPY_DAYS, "GlacierJobParameters": {"Tier": _SPEEDS[priority]}}
        client = self._client

        def ask(uri: str) -> str:
            from botocore.exceptions import ClientError

            try:
                client.restore_object(Bucket=self.bucket, Key=self._key(uri), RestoreRequest=request)
            except ClientError as error:
                return _refusal(error.response)
            return ""

        with self._faults("restore files in"), ThreadPoolExecutor(_AT_ONCE) as threads:
            answers = dict(zip(uris, threads.map(ask, uris), strict=True))
        return {uri: reason for uri, reason in answers.items() if reason}

    def _key(self, uri: str) -> str:
        found = _ADDRESS.match(uri)
        if found is None or found[1] != self.bucket:
            raise OtherPlace(uri=uri, root=f"s3://{self.bucket}/")
        return uri[found.end() :]

    @property
    def _client(self) -> Any:
        return keep(self, self._open)

    def _open(self) -> Any:
        try:
            import boto3
            from botocore.config import Config
        except ImportError as error:
            raise NoBoto(bucket=self.bucket) from error
        waits = Config(read_timeout=self.patience.answer_seconds, retries={"mode": "standard", "max_attempts": 5})
        with self._faults("connect to"):
            return boto3.client("s3", endpoint_url=self.endpoint, config=waits)

    @contextmanager
    def _faults(self, action: str) -> Iterator[None]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except ClientError as error:
            raise TiersUnavailable(
                action=action, place=f"s3://{self.bucket}/", reason=_refusal(error.response)
            ) from error
        except BotoCoreError as error:
            raise TiersUnavailable(
                action=action, place=f"s3://{self.bucket}/", reason=first_line(str(error))
            ) from error


def facts_of(entry: Mapping[str, Any]) -> Facts:
    """Of an object in a listing. A copy does not change its class; that it is there is told by when it goes."""
    kind = entry.get("StorageClass", "STANDARD")
    size = entry.get("Size")
    if kind not in _ARCHIVES:
        return Facts(_OTHERS.get(kind, Tier.HOT), size)
    status = entry.get("RestoreStatus") or {}
    if status.get("IsRestoreInProgress"):
        return Facts(Tier.PENDING, size)
    if until := status.get("RestoreExpiryDate"):
        return Facts(Tier.HOT, size, until=until)
    return Facts(Tier.ARCHIVE, size)


def _refusal(response: Mapping[str, Any]) -> str:
    """Empty for a request that need not be made."""
    error = response.get("Error", {})
    if error.get("Code") in _TAKEN:
        return ""
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", "")
    return f"{status} {error.get('Code', '')}: {first_line(str(error.get('Message', '')))}".strip()
