"""The lifecycle rules of the place where a table is, in whichever cloud: one port, chosen by the table's address."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pyspark.sql import SparkSession

from mirrorfeed.archive.errors import NoLifecycle
from mirrorfeed.archive.lifecycle import azure as lifecycle
from mirrorfeed.archive.lifecycle import azure_policy as account
from mirrorfeed.archive.lifecycle import s3 as glacier
from mirrorfeed.archive.lifecycle.azure import Place
from mirrorfeed.archive.lifecycle.finding import Finding, Wanted, starts
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.table_info import detail_of


class Rules(Protocol):
    """Those of one table, in a policy that it shares with all others of its account or bucket."""

    def apply(self, policy: Any, exported: Any = None) -> str:
        """How a policy is applied, for people; one without rules is taken by no cloud."""
        ...

    def policy(self, days: int, wanted: Wanted = Wanted.ON, exported: Any = None, take_over: bool = False) -> Any:
        """What is to be applied: what was exported, with this table's rules in it; what others wrote is kept, or those
        of it are taken over that `of_others` names."""
        ...

    def of_others(self, exported: Any) -> list[str]:
        """The rules in it that others wrote and that archive this table's files alone, as ours do."""
        ...

    def check(self, policy: Any, days: int) -> list[Finding]:
        """What in it does not fit this table; empty if it fits."""
        ...


@dataclass(frozen=True, slots=True)
class AzureRules:
    place: Place
    listed: Sequence[str]
    """What the names of the table's files begin with, from the container on."""

    def apply(self, policy: Any, exported: Any = None) -> str:
        if not policy["rules"]:
            return (
                "Azure does not accept a policy without rules. Delete the existing policy with `az storage account"
                " management-policy delete`."
            )
        return (
            "An account has one policy, and applying this replaces it: `--merge` puts it into the exported one. Apply"
            " it with `az storage account management-policy create --policy @FILE`."
        )

    def policy(self, days: int, wanted: Wanted = Wanted.ON, exported: Any = None, take_over: bool = False) -> Any:
        return account.policy(self.place, self.listed, days, wanted, exported, take_over)

    def of_others(self, exported: Any) -> list[str]:
        return account.of_others(self.place, exported)

    def check(self, policy: Any, days: int) -> list[Finding]:
        return lifecycle.check(policy, self.place, self.listed, days)


@dataclass(frozen=True, slots=True)
class S3Rules:
    folder: str
    listed: Sequence[str]
    """What the keys of the table's files begin with."""

    def apply(self, policy: Any, exported: Any = None) -> str:
        if not policy["Rules"]:
            return (
                "S3 takes no configuration without rules, so delete the one that is there: `aws s3api"
                " delete-bucket-lifecycle`."
            )
        return (
            "A bucket has one lifecycle configuration, and applying this replaces it: `--merge` puts it into the"
            " exported one. Apply it with `aws s3api put-bucket-lifecycle-configuration --lifecycle-configuration"
            f" file://FILE{glacier.option(exported)}`."
        )

    def policy(self, days: int, wanted: Wanted = Wanted.ON, exported: Any = None, take_over: bool = False) -> Any:
        return glacier.policy(self.folder, self.listed, days, wanted, exported, take_over)

    def of_others(self, exported: Any) -> list[str]:
        return glacier.of_others(self.folder, exported)

    def check(self, policy: Any, days: int) -> list[Finding]:
        return glacier.check(policy, self.folder, self.listed, days)


def rules_at(location: str, partition_columns: Sequence[str], random_names: bool) -> Rules | None:
    """None for a place that has no such rules."""
    begins = starts(partition_columns, random_names)
    if place := lifecycle.place_of(location):
        return AzureRules(place, [place.prefix + start for start in begins])
    if bucket := glacier.place_of(location):
        return S3Rules(bucket[1], [f"{bucket[1]}/{start}" for start in begins])
    return None


def rules_of(spark: SparkSession, source: Source) -> Rules:
    """Those of a table, or `NoLifecycle`."""
    found = detail_of(spark, source)
    names = ("delta.columnMapping.mode", "delta.randomizeFilePrefixes")
    random_names = any(found.properties.get(name, "none") not in ("none", "false") for name in names)
    if rules := rules_at(found.location, found.partition_columns, random_names):
        return rules
    raise NoLifecycle(table=str(source), location=found.location)
