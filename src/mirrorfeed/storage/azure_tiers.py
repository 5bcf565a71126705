"""Access tiers of blobs in Azure storage."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from azure.core.exceptions import AzureError, HttpResponseError
from azure.storage.blob import BlobProperties, ContainerClient, RehydratePriority

from mirrorfeed.errors import first_line
from mirrorfeed.runtime.credentials import Credential, Default, token_credential
from mirrorfeed.storage.azure_retries import API_VERSION, Retries, transport
from mirrorfeed.storage.errors import OtherPlace, TiersUnavailable
from mirrorfeed.storage.process_cache import keep
from mirrorfeed.storage.retry_budget import Patience
from mirrorfeed.storage.tiers import Facts, Priority, Tier, common_start

MOST_IN_A_BATCH = 256

_CLOUDS = r"core\.windows\.net|core\.usgovcloudapi\.net|core\.chinacloudapi\.cn|storage\.azure\.net"
"""Suffixes of storage accounts. Other hosts get no token: the address of a table comes from its catalog or its log."""


@dataclass(frozen=True)
class AzureTiers:
    """The files of one container. Holds no secret and no connection."""

    account: str
    """The blob endpoint, such as https://account.blob.core.windows.net."""
    container: str
    root: str
    """What URIs in it begin with, up to the blob's name."""
    credential: Credential = field(default_factory=Default)
    ca_bundle: str | None = None
    patience: Patience = field(default_factory=Patience)

    @classmethod
    def at(cls, location: str, credential: Credential | None = None) -> AzureTiers | None:
        """For a table at this address; None where it is not in Azure storage."""
        found = re.match(rf"(?:abfss?|wasbs?)://([^@/]+)@([\w.-]+?)\.(?:dfs|blob)\.({_CLOUDS})/", location)
        if found is None:
            return None
        return cls(f"https://{found[2]}.blob.{found[3]}", found[1], found[0], credential or Default())

    @property
    def keeps(self) -> bool:
        return False

    def look(self, uris: Sequence[str]) -> dict[str, Tier]:
        return {uri: facts.tier for uri, facts in self.facts(uris).items()}

    def facts(self, uris: Sequence[str]) -> dict[str, Facts]:
        if not uris:
            return {}
        names = {self._name(uri): uri for uri in uris}
        found = dict.fromkeys(uris, Facts(Tier.MISSING))
        # A listing gives the tiers of thousands of blobs in a call; what they have in common keeps it short.
        with self._faults("read the access tiers of files in"):
            for blob in self._blobs.list_blobs(name_starts_with=common_start(names)):
                if blob.name in names:
                    found[names[blob.name]] = Facts(tier_of(blob), blob.size, blob.blob_tier_change_time)
        return found

    def bring_back(
        self, uris: Sequence[str], priority: Priority, to: Tier = Tier.HOT, days: int | None = None
    ) -> dict[str, str]:
        refused: dict[str, str] = {}
        for start in range(0, len(uris), MOST_IN_A_BATCH):
            batch = uris[start : start + MOST_IN_A_BATCH]
            with self._faults("set the tier of files in"):
                answers = self._blobs.set_standard_blob_tier_blobs(
                    to.name.capitalize(),
                    *(self._name(uri) for uri in batch),
                    rehydrate_priority=RehydratePriority(priority.value),
                    raise_on_any_failure=False,
                )
                for uri, answer in zip(batch, answers, strict=True):
                    if reason := _refusal(answer):
                        refused[uri] = reason
        return refused

    def _name(self, uri: str) -> str:
        if not uri.startswith(self.root):
            raise OtherPlace(uri=uri, root=self.root)
        return uri[len(self.root) :]

    @property
    def _blobs(self) -> ContainerClient:
        return keep(self, self._open)

    def _open(self) -> ContainerClient:
        return ContainerClient(
            self.account,
            self.container,
            credential=token_credential(self.credential, self.ca_bundle),
            retry_policy=Retries(self.patience),
            transport=transport(self.patience, self.ca_bundle),
            api_version=API_VERSION,
        )

    @contextmanager
    def _faults(self, action: str) -> Iterator[None]:
        try:
            yield
        except HttpResponseError as error:
            code = getattr(error.error_code, "value", error.error_code) if hasattr(error, "error_code") else ""
            raise TiersUnavailable(
                action=action, place=self.root, reason=f"{error.status_code} {code or ''}".strip()
            ) from error
        except AzureError as error:
            raise TiersUnavailable(action=action, place=self.root, reason=first_line(str(error.message))) from error


def tier_of(blob: BlobProperties | Any) -> Tier:
    """While a blob is on its way back its tier still says Archive. One without a tier of its own has the account's,
    which is never Archive."""
    if str(blob.archive_status or "").startswith("rehydrate-pending"):
        return Tier.PENDING
    return {"Archive": Tier.ARCHIVE, "Cool": Tier.COOL, "Cold": Tier.COLD}.get(str(blob.blob_tier or ""), Tier.HOT)


def _refusal(answer: Any) -> str:
    """Empty for a request that was taken. One that is on its way already answers with a conflict."""
    headers: Mapping[str, str] = answer.headers
    code = headers.get("x-ms-error-code", "")
    if answer.status_code in (200, 202) or code == "BlobBeingRehydrated":
        return ""
    return f"{answer.status_code} {code}".strip()
