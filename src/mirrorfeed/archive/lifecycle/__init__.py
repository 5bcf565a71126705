"""Lifecycle rules of a table in Azure or S3: check an exported policy, or merge the table's rules into the policy.

A policy contains all lifecycle rules of a storage account or bucket.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from pyspark.sql import SparkSession

from mirrorfeed.archive import archive_interval
from mirrorfeed.archive.errors import invalid_lifecycle_policy, too_many_lifecycle_rules
from mirrorfeed.display.rows import Row, counted, first_names, row, shown
from mirrorfeed.landing.strict_json import parse_json
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.table_info import TableInfo, read_table_info
from mirrorfeed.storage.errors import no_access_tiers


class RuleState(Enum):
    ON = "on"
    PAUSED = "paused"
    """The rules are disabled, so that restored files are not archived again."""
    GONE = "gone"
    """The rules are removed."""


def file_prefixes(partition_columns: Sequence[str], random_names: bool) -> list[str]:
    """Return name prefixes that match all files in a table's folder, except the Delta log.

    If `random_names` is True, file names can start with any letter or digit. Delta uses random names for a table with
    column mapping, or with the property `delta.randomizeFilePrefixes`.
    """
    if random_names:
        return [*string.ascii_letters, *string.digits, "_change_data/"]
    return [f"{partition_columns[0]}=" if partition_columns else "part-", "deletion_vector_", "_change_data/"]


def prefixes_overlap(prefix: str, folder: str) -> bool:
    """Return whether `folder` can contain paths that start with `prefix`."""
    return folder.startswith(prefix) or prefix.startswith(folder)


@row
class Lifecycle(Row):
    """Result of checking a lifecycle policy for a table, or of merging the table's rules into the policy."""

    table: str = shown("table")
    days: int = shown("interval", lambda days: counted(days, "day"), right=True)
    problems: tuple[str, ...]
    """Messages about differences between the policy and the rules that the table needs."""
    policy: Any = None
    """Policy to apply. None if an exported policy was only checked."""
    apply: str = ""
    """Instructions to apply the policy."""
    rules_of_others: tuple[str, ...] = ()
    """Names of rules that are only for this table and that mirrorfeed did not write."""

    @property
    def ok(self) -> bool:
        return not self.problems

    def remarks(self) -> Sequence[str]:
        return self.problems or ["The rules archive the files of the table at the age of its interval."]


def read_policy(path: str) -> Any:
    """Return the exported policy in a JSON file, in UTF-8 or UTF-16. Raises `invalid_lifecycle_policy` if it cannot be
    read.
    """
    try:
        raw = Path(path).read_bytes()
        return parse_json(raw.decode(json.detect_encoding(raw)))
    except (OSError, ValueError) as error:
        raise invalid_lifecycle_policy(reason=f"{path}: {getattr(error, 'strerror', None) or error}") from error


class PolicyRule(NamedTuple):
    """An enabled rule of an exported policy, in the same form for Azure and S3."""

    name: str
    prefixes: Sequence[str]
    problems: Sequence[str]
    """Messages about what is wrong with the rule. The field `wrong_age` has another message."""
    archives: bool
    by_tag: bool
    wrong_age: str | None
    """Message if the rule archives files at another age than the table needs, otherwise None."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Checks and creates the lifecycle rules of one table in the policy of its storage account or bucket."""

    folder: str
    """Folder of the table, with a slash at the end. In Azure, it starts with the container."""
    prefixes: Sequence[str]
    """Prefixes of the paths of all files of the table, except the Delta log. Each prefix starts with `folder`."""

    cloud: ClassVar[str]
    owner: ClassVar[str]
    key: ClassVar[str]
    """Name of the list of rules in a policy."""
    name_key: ClassVar[str]
    limit: ClassVar[int]
    """Maximum number of rules in a policy."""
    delete_command: ClassVar[str]
    apply_command: ClassVar[str]

    def apply(self, policy: Any, exported: Any = None) -> str:
        """Return instructions and a command to apply `policy`. `exported` is the existing policy, None if unknown."""
        if not policy[self.key]:
            return (
                f"{self.cloud} does not accept a policy without rules. Delete the existing one with"
                f" `{self.delete_command}`."
            )
        return (
            f"Applying this policy replaces the existing one of the {self.owner}. With `--merge`, it includes the"
            f" exported rules. Apply it with `{self.apply_command}{self.options(exported)}`."
        )

    def options(self, exported: Any) -> str:
        """Return options for the command that applies a policy, or an empty text if no option is needed.

        `exported` is the existing policy. The command needs options to keep settings of `exported` outside the rules.
        """
        return ""

    def policy(self, days: int, state: RuleState = RuleState.ON, exported: Any = None, take_over: bool = False) -> Any:
        """Return the exported policy, or a new one, with rules that archive this table's files after `days` days.

        The new rules replace older rules of mirrorfeed for this table. If `take_over` is True, the new rules also
        replace rules that mirrorfeed did not write and that are only for this table. The rest of `exported` is
        preserved. `state` can disable or omit the new rules. Raises `too_many_lifecycle_rules` if the policy would have
        more than `self.limit` rules, and `invalid_lifecycle_policy` if `exported` is invalid.
        """
        raise NotImplementedError

    def enabled_rules(self, policy: Any, days: int) -> Iterator[PolicyRule]:
        raise NotImplementedError

    def all_rules(self, exported: Any) -> list[dict[str, Any]]:
        """Return the rules of an exported policy. Raises `invalid_lifecycle_policy` if the policy is invalid."""
        raise NotImplementedError

    def archived_prefixes(self, rule: Mapping[str, Any]) -> list[str]:
        """Return the prefixes of a rule that only archives files by age. Empty for other rules."""
        raise NotImplementedError

    def name_of(self, rule: Mapping[str, Any]) -> str:
        return str(rule.get(self.name_key) or "a rule without a name")

    def is_own(self, rule: Mapping[str, Any]) -> bool:
        return _NAME.fullmatch(self.name_of(rule)) is not None

    def is_for_table(self, rule: Mapping[str, Any]) -> bool:
        """Return whether a rule is only for this table: it archives files of the table by age and does nothing else."""
        prefixes = self.archived_prefixes(rule)
        return bool(prefixes) and all(prefix.startswith(self.folder) for prefix in prefixes)

    def foreign_rules(self, exported: Any) -> list[str]:
        """Return the names of rules that are only for this table and that mirrorfeed did not write."""
        existing = self.all_rules(exported or {self.key: []})
        return [self.name_of(rule) for rule in existing if self.is_for_table(rule) and not self.is_own(rule)]

    def check(self, policy: Any, days: int, state: RuleState = RuleState.ON) -> list[str]:
        """Return messages about wrong or missing rules in a policy that should archive this table after `days` days.

        Missing rules are a problem only if `state` is ON.
        """
        problems: list[str] = []
        covered: set[str] = set()
        for rule in self.enabled_rules(policy, days):
            touching = [prefix for prefix in rule.prefixes if prefixes_overlap(prefix, self.folder)]
            faults = list(rule.problems)
            if rule.archives:
                if any(prefixes_overlap(prefix, f"{self.folder}_delta_log/") for prefix in touching):
                    faults.append("archives the table's _delta_log, so that the table can no longer be read")
                if rule.by_tag:
                    faults.append("selects files by tag, but the Delta log has no tags")
                else:
                    faults += [rule.wrong_age] if rule.wrong_age else []
                    covered |= {prefix for prefix in self.prefixes if prefix.startswith(tuple(touching))}
            problems += [f"{rule.name}: {fault}" for fault in faults if touching]
        missing = [prefix for prefix in self.prefixes if prefix not in covered]
        if missing and state is RuleState.ON:
            problems.append(f"no rule archives {first_names(missing)}")
        return problems

    def policy_of(self, rules: list[dict[str, Any]]) -> dict[str, Any]:
        """Return a policy with `rules`. Raises `too_many_lifecycle_rules` if there are more rules than `self.limit`."""
        if len(rules) > self.limit:
            raise too_many_lifecycle_rules(
                owner=f"A {self.owner}", limit=self.limit, needed=len(rules), folder=self.folder
            )
        return {self.key: rules}


_NAME = re.compile(r"mirrorfeed\d+days(paused)?\d+")


def free_names(days: int, on: bool, used: Collection[object]) -> Iterator[str]:
    """Return an endless iterator of rule names, such as "mirrorfeed60days1", without the names in `used`."""
    names = (f"mirrorfeed{days}days{'' if on else 'paused'}{number}" for number in count(1))
    return (name for name in names if name not in used)


def rules_of(source: Source, table: TableInfo) -> Rules:
    """Return the `Rules` object for the storage of a table. Raises `no_access_tiers` if it is not Azure or S3."""
    from mirrorfeed.archive.lifecycle import azure, s3  # both import this module

    names = ("delta.columnMapping.mode", "delta.randomizeFilePrefixes")
    random_names = any(table.properties.get(name, "none") not in ("none", "false") for name in names)
    prefixes = file_prefixes(table.partition_columns, random_names)
    if folder := azure.folder_of(table.location):
        return azure.AzureRules(folder, [folder + prefix for prefix in prefixes])
    if folder := s3.folder_of(table.location):
        return s3.S3Rules(folder, [folder + prefix for prefix in prefixes])
    raise no_access_tiers(table=str(source), location=table.location)


def merge_rules(
    spark: SparkSession, source: Source, exported: str | None, state: RuleState, take_over: bool, days: int | None
) -> Lifecycle:
    """Return a policy with mirrorfeed's rules for a table. The policy keeps other rules from the file `exported`.

    If `days` is None, the rules have the archive interval of the table. `state` says if the rules are on, paused or
    gone. If `take_over` is True, the policy does not keep rules that others wrote only for this table.

    Raises `invalid_lifecycle_policy` if the file `exported` is invalid, `no_access_tiers` if the table is not in Azure
    storage or S3, `too_many_lifecycle_rules` if the policy needs too many rules, and `no_archive_interval` if `days` is
    None and the table has no interval.
    """
    existing = read_policy(exported) if exported else None
    table = read_table_info(spark, source)
    days = days or archive_interval.required(spark, source, table).rule
    rules = rules_of(source, table)
    policy = rules.policy(days, state, existing, take_over)
    problems, foreign_rules = tuple(rules.check(policy, days, state)), tuple(rules.foreign_rules(existing))
    return Lifecycle(str(source), days, problems, policy, rules.apply(policy, existing), foreign_rules)


def compare_rules(spark: SparkSession, source: Source, exported: str) -> Lifecycle:
    """Return the differences between the policy in the file `exported` and the rules that a table needs.

    Raises `invalid_lifecycle_policy` if the file is invalid, `no_access_tiers` if the table is not in Azure storage or
    S3, and `no_archive_interval` if the table has no archive interval.
    """
    policy, table = read_policy(exported), read_table_info(spark, source)
    days = archive_interval.required(spark, source, table).rule
    return Lifecycle(str(source), days, tuple(rules_of(source, table).check(policy, days)))
