"""Errors about tables with archived files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from mirrorfeed.display.rows import counted
from mirrorfeed.errors import ArchiveError, Computed, TransientError, problem

if TYPE_CHECKING:
    from mirrorfeed.storage.tier_store import Tier


@problem(ArchiveError, "MF5004")
def negative_number(*, argument: str, table: str, value: int) -> None:
    """The {argument} for {table} is negative: {value}.

    Use 0 or a positive whole number.
    """


@problem(ArchiveError, "MF5005")
def column_missing(*, table: str, column: str, columns: Sequence[str]) -> None:
    """{table} has no column {column!r}.

    Use one of the columns of {table}: {columns:list}.
    """


class InvalidPredicateError(ArchiveError):
    code = "MF5006"
    what = "The {kind} {predicate!r} for {table} {reason}."
    fix = (
        "Write the {kind} as in {clause}. Use only columns of the table, no subqueries, and no functions with random"
        " results, such as rand() or uuid()."
    )
    predicate: str
    table: str
    reason: str
    kind: Literal["condition", "expression"] = "condition"

    @property
    def clause(self) -> str:
        return "a WHERE clause" if self.kind == "condition" else "the SET clause of an UPDATE"


class VersionMissingError(ArchiveError):
    code = "MF5009"
    what = "{table} cannot be read at {versions}. The newest version is {newest}."
    fix = "Choose versions that `DESCRIBE HISTORY` lists. A range must start before it ends."
    table: str
    versions: str
    newest: int


@problem(ArchiveError, "MF5010")
def only_newest_version(*, table: str, newest: int, version: int) -> None:
    """Databricks returns the archived files of {table} only for its newest version {newest}, not for version {version}.

    Use the newest version, or read version {version} with an ordinary query. Databricks itself checks such queries for
    archived files.
    """


@problem(ArchiveError, "MF5011")
def one_table_per_plan() -> None:
    """On Databricks, a restore can be planned for only one table at a time.

    Run `mirrorfeed archive plan TABLE` for each table of the query, with the condition on this table in --where. With
    open source Spark, one plan can be for any number of tables.
    """


@problem(ArchiveError, "MF5012")
def active_rows_unavailable(*, table: str) -> None:
    """On Databricks, the rows in active files of {table} cannot be selected (`recent`).

    Query with LIMIT, or with a condition that needs no archived file, such as a condition on a partition column.
    """


@problem(ArchiveError, "MF5013")
def subquery_in_statement(*, kind: str, table: str, text: str) -> None:
    """The {kind} of {table} contains a subquery: {text!r}. mirrorfeed cannot check which archived files a subquery in a
    statement needs.

    Use a merge, and join the data of the subquery to the source rows of the merge.
    """


@problem(ArchiveError, "MF5016")
def statement_failed(*, operation: str, table: str, reason: str) -> None:
    """{operation} of {table} failed, and nothing was changed: {reason:phrase}.

    Correct the conditions and the values of the statement, and run it again.
    """


class NeededFilesUnknownError(ArchiveError):
    """It cannot be determined which files a query needs."""


@problem(NeededFilesUnknownError, "MF5101")
def unknown_files(*, reads: str) -> None:
    """The files that the query needs are unknown, because it reads {reads}. Nothing was read.

    Query the tables by name or path in one query. Write rows from other sources to a table first.
    """


@problem(NeededFilesUnknownError, "MF5102")
def query_not_plannable(*, reason: str) -> None:
    """The query cannot be planned: {reason:phrase}. Nothing was read.

    Correct the query, and run it again.
    """


@problem(NeededFilesUnknownError, "MF5103")
def no_query_plan() -> None:
    """With Spark Connect and open source Delta, it cannot be determined which files a query needs, so archived files
    cannot be detected. Nothing was read.

    Use classic Spark, or Databricks. Databricks itself checks queries for archived files.
    """


@problem(ArchiveError, "MF5104")
def file_of_deleted_table(*, table: str, uri: str) -> None:
    """{table} is a clone that uses the file {uri}. The table to which the file belonged no longer exists, so it is
    unknown whether the file is archived. Nothing was read.

    Restore the table from which this shallow clone was created, or query a table that has its own files.
    """


@problem(ArchiveError, "MF5105")
def commits_outside_log(*, table: str, feature: str) -> None:
    """{table} has the table feature {feature}, so its _delta_log may not contain the newest commits.

    Query the table on Databricks. Databricks itself checks such tables for archived files.
    """


@problem(ArchiveError, "MF5201")
def archived_feed_unknown(*, table: str) -> None:
    """Databricks does not return the archived files that the change data feed of {table} needs.

    Create the plan with open source Spark and the path of the table. To avoid this error, publish changes before their
    files are archived.
    """


@problem(ArchiveError, "MF5204")
def relative_time_in_plan(*, word: str, text: str) -> None:
    """{word} in {text!r} cannot be part of a plan: its value may differ when the plan is carried out.

    Write the date or time itself, such as DATE '2026-01-31', or a function such as current_date().
    """


@problem(ArchiveError, "MF5205")
def invalid_plan(*, path: str, reason: str) -> None:
    """{path} is not a valid restore plan: {reason}.

    Create a new plan with `mirrorfeed archive plan`.
    """


@problem(ArchiveError, "MF5206")
def plan_file_exists(*, path: str) -> None:
    """The file {path} already exists, and was not overwritten.

    If {path} is a plan, carry it out with `mirrorfeed archive restore`. Otherwise delete the file, or choose another
    file.
    """


@problem(ArchiveError, "MF5207")
def plan_not_written(*, path: str, reason: str) -> None:
    """The plan cannot be written to {path}: {reason}.

    Create the folder, or choose a file in an existing folder.
    """


@problem(ArchiveError, "MF5208")
def plan_of_another_table(*, table: str, planned: str, found: str) -> None:
    """{table} is no longer the table of the plan: the id of the table was {planned} and is {found}.

    Create a new plan with `mirrorfeed archive plan`.
    """


@problem(ArchiveError, "MF5209")
def planned_files_deleted(*, table: str, uris: Sequence[str]) -> None:
    """Planned files of {table} no longer exist: {uris:few}.

    VACUUM may have deleted these files. Create a new plan for a newer version.
    """


@problem(ArchiveError, "MF5210")
def restore_cannot_last(*, table: str, days: int) -> None:
    """Restored files of {table} do not stay restored for {days:count day}: Azure does not change their creation time,
    so the lifecycle rule archives them again within about a day.

    Copy the rows with --into. Or print a policy with the rule paused (`mirrorfeed archive rule {table:argument} --merge
    EXPORTED --paused`), apply the policy, wait up to a day, and restore without --keep.
    """


@problem(ArchiveError, "MF5211")
def restore_tier_not_supported(*, table: str, to: Tier) -> None:
    """Files of {table} cannot be restored to {to.value}: S3 restores copies in its standard storage class.

    Omit --tier. Use --keep to set how many days the copies stay.
    """


@problem(ArchiveError, "MF5214")
def plan_without_rows(*, table: str) -> None:
    """The plan for {table} has no rows to copy, because it is for the change data feed or for files alone.

    Restore without --into, or create a plan with --where.
    """


@problem(ArchiveError, "MF5215")
def query_not_repeatable(*, reason: str) -> None:
    """The restore of this query cannot be planned, because its rows could change until then: {reason:phrase}.

    Query Delta tables by name or path. Replace a view by its query, and a variable by its value. Copy rows of other
    sources to a Delta table first.
    """


@problem(ArchiveError, "MF5216")
def rows_not_copyable(*, table: str, into: str, reasons: Sequence[str]) -> None:
    """The rows of the plan for {table} cannot be copied into {into}: {reasons:reasons}. No file was requested.

    Create a new plan with --sql, with a query that casts and renames these columns, or choose another table for --into.
    """


@problem(ArchiveError, "MF5302")
def interval_increase_too_early(*, table: str, now: int, wanted: int, rule: int) -> None:
    """The interval of {table} is {now:count day} and cannot be increased to {wanted:count day} at once: files that the
    lifecycle rule has archived after {rule:count day} would count as active.

    First change the lifecycle rule: export the policy to a file EXPORTED, run `mirrorfeed archive rule {table:argument}
    --merge EXPORTED --interval '{wanted} days'`, and apply the policy that it prints. Wait until it takes effect, in
    Azure for a day. Then run `mirrorfeed archive change-interval {table:argument} --to '{wanted} days' --rule-changed`.
    """


@problem(ArchiveError, "MF5304")
def files_still_archived(*, table: str) -> None:
    """Files of {table} may still be archived. Without an interval, queries that read them fail.

    Remove the lifecycle rule: export the policy to a file EXPORTED, run `mirrorfeed archive rule {table:argument}
    --merge EXPORTED --remove`, and apply the policy that it prints. Restore all files. Then run the command again with
    --nothing-archived.
    """


@problem(ArchiveError, "MF5402")
def invalid_lifecycle_policy(*, reason: str) -> None:
    """The exported lifecycle policy is invalid: {reason}.

    Export it with `az storage account management-policy show --output json`, from the code view of the Azure portal, or
    with `aws s3api get-bucket-lifecycle-configuration --bucket BUCKET`.
    """


@problem(ArchiveError, "MF5501")
def files_not_checkable(*, table: str, uri: str) -> None:
    """Files of {table} cannot be checked, because their storage is not supported, for example {uri}.

    Check only tables whose files are in Azure storage or S3, on this machine, or on Databricks.
    """


@problem(ArchiveError, "MF5502")
def simulation_impossible(*, table: str, reason: str) -> None:
    """Intervals for {table} cannot be simulated here: {reason}.

    Use open source Delta on classic Spark. Name the table by its path. The identity of the session must be able to read
    the _delta_log of the table.
    """


@problem(ArchiveError, "MF5503")
def invalid_conditions_file(*, path: str, reason: str) -> None:
    """{path} is not a list of conditions ({reason}).

    Write one condition per line, as in a WHERE clause, in UTF-8.
    """


class InvalidQueryError(ArchiveError):
    code = "MF5007"
    what = "{statement:query} is not a valid query: {reason}."
    fix = "Write a query as for spark.sql, on tables and views of this session."
    statement: str
    reason: str


@problem(ArchiveError, "MF5008")
def not_a_query(*, kind: str, statement: str) -> Computed:
    """The statement is not a query ({kind}) and did not run: {query}.

    Change tables with archived files through the methods of mirrorfeed.ArchiveAwareTable, and maintain them with
    `mirrorfeed archive maintain`. Run statements on tables without an archive with spark.sql.
    """
    return {"query": " ".join(statement.split())[:80]}


@problem(ArchiveError, "MF5203")
def nothing_to_restore(*, statement: str) -> None:
    """The query {statement:query} needs no archived file, so there is nothing to plan.

    Run the query without a plan.
    """


@problem(TransientError, "MF5212")
def restore_rejected(*, table: str, refused: Mapping[str, str]) -> Computed:
    """The storage rejected the request to restore {files} of {table}: {first}.

    Run the same command again later. Files that are being restored are not requested twice.
    """
    return {"files": counted(len(refused), "file"), "first": ": ".join(next(iter(refused.items())))}


@problem(ArchiveError, "MF5301")
def no_archive_interval(*, table: str) -> None:
    """{table} has no archive interval: delta.timeUntilArchived is not set.

    Run `mirrorfeed archive set {table:argument} 'X days'`, where X is the number of days in the lifecycle rule.
    """


class InvalidIntervalError(ArchiveError):
    code = "MF5303"
    what = "The archive properties of {table} are invalid: {listed}."
    fix = (
        "Run `mirrorfeed archive set {table:argument} 'X days'`, where X is the number of days in the lifecycle rule."
        " If no file is archived, run `mirrorfeed archive unset {table:argument} --nothing-archived`."
    )
    table: str
    properties: Mapping[str, str]

    @property
    def listed(self) -> str:
        return ", ".join(f"{name} = {value!r}" for name, value in self.properties.items())


@problem(ArchiveError, "MF5404")
def too_many_lifecycle_rules(*, owner: str, limit: int, needed: int, folder: str) -> None:
    """{owner} accepts at most {limit:,} lifecycle rules, and {needed:,} are needed to archive the table in {folder}.

    Merge other rules of this account or bucket into fewer, or move tables with column mapping or random file prefixes
    to another one. Files of such a table can start with any letter or digit, and each needs a rule.
    """
