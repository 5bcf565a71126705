"""Access tiers of blobs in Azure storage."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from azure.core.exceptions import AzureError, HttpResponseError
from azure.storage.blob import BlobProperties, ContainerClient, RehydratePriority

from mirrorfeed.runtime.credentials import Credential, Default
from mirrorfeed.runtime.errors import LoginUnavailable
from mirrorfeed.storage.errors import OtherPlace, TiersUnavailable
from mirrorfeed.storage.http import client_options, reason_of
from mirrorfeed.storage.process_cache import per_process
from mirrorfeed.storage.retry_budget import RetryLimits
from mirrorfeed.storage.tiers import Facts, Priority, Tier, TierStore, common_prefix

BATCH_SIZE = 256
"""The largest number of blobs in one request."""
_ACCOUNT_SUFFIXES = r"core\.windows\.net|core\.usgovcloudapi\.net|core\.chinacloudapi\.cn|storage\.azure\.net"
"""Other hosts get no token, because the address of a table comes from its catalog or its log."""


@dataclass(frozen=True)
class AzureTiers(TierStore):
    """The files of one container. Holds no secret and no connection."""

    account: str
    """The blob endpoint, such as https://account.blob.core.windows.net."""
    container: str
    root: str
    """What URIs in it start with, up to the blob's name."""
    credential: Credential = field(default_factory=Default)
    ca_bundle: str | None = None
    retry_limits: RetryLimits = field(default_factory=RetryLimits)

    @classmethod
    def at(cls, location: str, credential: Credential | None = None) -> AzureTiers | None:
        """The store for a table at this address. None if it is not in Azure storage."""
        found = re.match(rf"(?:abfss?|wasbs?)://([^@/]+)@([\w.-]+?)\.(?:dfs|blob)\.({_ACCOUNT_SUFFIXES})/", location)
        if found is None:
            return None
        return cls(f"https://{found[2]}.blob.{found[3]}", found[1], found[0], credential or Default())

    @property
    def restores_copies(self) -> bool:
        return False

    def facts(self, uris: Sequence[str]) -> dict[str, Facts]:
        if not uris:
            return {}
        names = {self._name(uri): uri for uri in uris}
        found = dict.fromkeys(uris, Facts(Tier.MISSING))
        # One listing request returns thousands of blobs. The common prefix keeps the listing short.
        with self._errors("read the access tiers of files in"):
            for blob in self._client.list_blobs(name_starts_with=common_prefix(names)):
                if blob.name in names:
                    found[names[blob.name]] = Facts(tier_of(blob), blob.size, blob.blob_tier_change_time)
        return found

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
            raise OtherPlace(uri=uri, root=self.root)
        return uri[len(self.root) :]

    @property
    def _client(self) -> ContainerClient:
        def connect() -> ContainerClient:
            options = client_options(self.credential, self.ca_bundle, self.retry_limits)
            return ContainerClient(self.account, self.container, **options)

        return per_process(self, connect)

    @contextmanager
    def _errors(self, action: str) -> Iterator[None]:
        try:
            yield
        except HttpResponseError as error:
            code = getattr(error, "error_code", None)
            reason = f"{error.status_code} {getattr(code, 'value', code) or ''}".strip()
            raise TiersUnavailable(action=action, place=self.root, reason=reason) from error
        except LoginUnavailable as error:
            raise TiersUnavailable(action=action, place=self.root, reason=error.reason) from error
        except AzureError as error:
            raise TiersUnavailable(action=action, place=self.root, reason=reason_of(error)) from error


def tier_of(blob: BlobProperties | Any) -> Tier:
    """The tier of a blob. A blob without a tier of its own has the default of the account, which is never Archive."""
    if str(blob.archive_status or "").startswith("rehydrate-pending"):  # its tier is still Archive
        return Tier.PENDING
    return {"Archive": Tier.ARCHIVE, "Cool": Tier.COOL, "Cold": Tier.COLD}.get(str(blob.blob_tier or ""), Tier.HOT)
