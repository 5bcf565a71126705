"""The tiers of files: where each is now, and bringing archived ones back. The one place that knows Azure's calls."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, Protocol

from azure.core.exceptions import AzureError, HttpResponseError
from azure.storage.blob import BlobProperties, ContainerClient, RehydratePriority

from mirrorfeed.errors import Terminal, Transient, first_line
from mirrorfeed.runtime.credentials import Credential, Default, token_credential
from mirrorfeed.storage.azure_retries import API_VERSION, Retries, transport
from mirrorfeed.storage.process_cache import keep
from mirrorfeed.storage.retry_budget import Patience

MOST_IN_A_BATCH = 256
COPY_DAYS = 7
"""How long copies are kept where the storage keeps copies, and nobody says otherwise."""


class Tier(Enum):
    """Where a file is, as far as reading it goes."""

    HOT = "hot"
    COOL = "cool"
    COLD = "cold"
    PENDING = "on its way back"
    ARCHIVE = "archive"
    MISSING = "not there"

    @property
    def is_readable(self) -> bool:
        return self in (Tier.HOT, Tier.COOL, Tier.COLD)


class Priority(Enum):
    STANDARD = "Standard"
    HIGH = "High"


@dataclass(frozen=True, slots=True)
class Facts:
    """What a storage tells of a file."""

    tier: Tier
    bytes: int | None = None
    since: datetime | None = None
    """When it came into its tier; None where that is not told."""
    until: datetime | None = None
    """When it goes again, for a copy that was brought back for some days."""


class TierStore(Protocol):
    """Files by their URIs, as Spark spells them. Raises `TiersUnavailable` when it cannot tell."""

    @property
    def keeps(self) -> bool:
        """Whether a file that is brought back is a copy for some days, beside the archive; otherwise it leaves the
        archive, until a rule moves it there again."""
        ...

    def facts(self, uris: Sequence[str]) -> dict[str, Facts]:
        """Of every one of these files."""
        ...

    def look(self, uris: Sequence[str]) -> dict[str, Tier]:
        """The tier of every one of these files."""
        ...

    def bring_back(
        self, uris: Sequence[str], priority: Priority, to: Tier = Tier.HOT, days: int | None = None
    ) -> dict[str, str]:
        """Asks for archived files, and returns at once; it takes hours. Those that were not taken, with the reason;
        asking again for one that is on its way, or back, does no harm. Days are for places that keep copies."""
        ...


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
    ca_file: str | None = None
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
        with self._faults("look at the tiers of files in"):
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
            raise OtherPlace(uri, self.root)
        return uri[len(self.root) :]

    @property
    def _blobs(self) -> ContainerClient:
        return keep(self, self._open)

    def _open(self) -> ContainerClient:
        return ContainerClient(
            self.account,
            self.container,
            credential=token_credential(self.credential, self.ca_file),
            retry_policy=Retries(self.patience),
            transport=transport(self.patience, self.ca_file),
            api_version=API_VERSION,
        )

    @contextmanager
    def _faults(self, action: str) -> Iterator[None]:
        try:
            yield
        except HttpResponseError as error:
            code = getattr(error.error_code, "value", error.error_code) if hasattr(error, "error_code") else ""
            raise TiersUnavailable(action, self.root, f"{error.status_code} {code or ''}".strip()) from error
        except AzureError as error:
            raise TiersUnavailable(action, self.root, first_line(str(error.message))) from error


def tier_of(blob: BlobProperties | Any) -> Tier:
    """While a blob is on its way back its tier still says Archive. One without a tier of its own has the account's,
    which is never Archive."""
    if str(blob.archive_status or "").startswith("rehydrate-pending"):
        return Tier.PENDING
    return {"Archive": Tier.ARCHIVE, "Cool": Tier.COOL, "Cold": Tier.COLD}.get(str(blob.blob_tier or ""), Tier.HOT)


def common_start(names: Iterable[str]) -> str:
    """What all these begin with, letter by letter."""
    first, last = min(names), max(names)
    end = next((i for i, letter in enumerate(first) if not last.startswith(letter, i)), len(first))
    return first[:end]


def _refusal(answer: Any) -> str:
    """Empty for a request that was taken. One that is on its way already answers with a conflict."""
    headers: Mapping[str, str] = answer.headers
    code = headers.get("x-ms-error-code", "")
    if answer.status_code in (200, 202) or code == "BlobBeingRehydrated":
        return ""
    return f"{answer.status_code} {code}".strip()


class TiersUnavailable(Transient):
    """The storage does not tell the tiers of files, or does not change them, for now or for this identity."""

    code = "MF5602"

    def __init__(self, action: str, place: str, reason: str) -> None:
        self.action, self.place, self.reason = action, place, reason

    def what(self) -> str:
        return f"Cannot {self.action} {self.place}: {self.reason}."

    def next(self) -> str:
        return (
            "Check that the place can be reached and that the identity may read and write there (in Azure Storage Blob"
            " Data Contributor, in S3 s3:ListBucket and s3:RestoreObject), then run the same command again."
        )


class OtherPlace(Terminal):
    """The table uses files of another container than its own, whose tiers are not asked for."""

    code = "MF5603"

    def __init__(self, uri: str, root: str) -> None:
        self.uri, self.root = uri, root

    def what(self) -> str:
        return f"The tier of {self.uri} cannot be told: it is not below {self.root}."

    def next(self) -> str:
        return (
            "Tables whose files are in several containers, such as shallow clones, are to be restored at their source."
        )
