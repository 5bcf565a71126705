"""Errors about tables with archived files."""

from __future__ import annotations

from collections.abc import Mapping

from mirrorfeed.display.humanize import counted
from mirrorfeed.errors import Terminal, Transient


class BadNumber(Terminal):
    code = "MF5004"
    what = "The {named} for {table} is {value}, which is negative."
    fix = "Use a whole number that is not negative."


class NoSuchColumn(Terminal):
    code = "MF5005"
    what = "{table} has no column {column!r}."
    fix = "Its columns are {columns:list}."


class BadPredicate(Terminal):
    code = "MF5006"
    what = "The condition {predicate!r} for {table} {reason}."
    fix = (
        "Write a condition as after WHERE, on columns of the table, without subqueries and without functions such as"
        " rand() or uuid()."
    )


class NoSuchVersion(Terminal):
    code = "MF5009"
    what = "{table} cannot be read at version {version}. Its newest version is {newest}."
    fix = "Choose a version that DESCRIBE HISTORY shows."


class OnlyNewestVersion(Terminal):
    code = "MF5010"
    what = (
        "Databricks returns the archived files of {table} only for its newest version {newest}, not for version"
        " {version}."
    )
    fix = "Use the newest version, or read the older version with a normal query, which Databricks guards itself."


class TableByTable(Terminal):
    code = "MF5011"
    what = "On Databricks, a restore can be planned for only one table at a time."
    fix = "Run `mirrorfeed archive plan TABLE` for each table of the query, with --where for its condition."


class ActiveRowsUnavailable(Terminal):
    code = "MF5012"
    what = "The active rows of {table} cannot be selected on Databricks."
    fix = "Use LIMIT, or a condition that needs no archived file, such as on a partition column."


class SubqueryInStatement(Terminal):
    code = "MF5013"
    what = "The {kind} of {table} contains a subquery, which Delta does not support there: {text!r}."
    fix = "Use a merge, and join the data of the subquery to its source rows."


class UnknownFiles(Terminal):
    code = "MF5101"
    what = "The files that the query needs are unknown, because it reads {reads}. Nothing was read."
    fix = "Query the tables by name or path in one query. Write other rows to a table first, or checkpoint them."


class CannotBePlanned(Terminal):
    code = "MF5102"
    what = "The query cannot be planned: {reason:phrase}. Nothing was read."
    fix = "Correct the cause and run the query again."


class NoPlan(Terminal):
    code = "MF5103"
    what = "Spark Connect does not show the plan of a query on open source Delta. Nothing was read."
    fix = "Use classic Spark, or Databricks, which guards archived files itself."


class FileOfNoTable(Terminal):
    code = "MF5104"
    what = (
        "{table} has the file {uri}, which is in no table's folder, so nothing shows whether it is archived. Nothing"
        " was read."
    )
    fix = "Restore the table from which this shallow clone was created, or query a table that has its own files."


class CommitsElsewhere(Terminal):
    code = "MF5105"
    what = "{table} has the table feature {feature}, with which its _delta_log may not contain the newest commits."
    fix = "Query it on Databricks, which returns the archived files of such a table itself."


class FeedOnDatabricks(Terminal):
    code = "MF5201"
    what = "Databricks does not return the archived files that the change data feed of {table} needs."
    fix = "Plan with open source Spark on the path of the table, or publish before files are archived."


class RelativeWord(Terminal):
    code = "MF5204"
    what = "A plan cannot contain {word} in {text!r}, because it may have another value when the plan is carried out."
    fix = "Write the date or time itself, such as DATE '2026-01-31'."


class BadPlan(Terminal):
    code = "MF5205"
    what = "{path} is not a valid restore plan: {reason}."
    fix = "Create a new plan with `mirrorfeed archive plan`."


class PlanExists(Terminal):
    code = "MF5206"
    what = "{path} exists and was not overwritten."
    fix = "Carry out that plan with `mirrorfeed archive restore`, delete the file, or choose another file."


class PlanNotWritten(Terminal):
    code = "MF5207"
    what = "The plan cannot be written to {path}: {reason}."
    fix = "Create the folder, or choose a file in an existing folder."


class PlanOfAnotherTable(Terminal):
    code = "MF5208"
    what = "The plan is for another table than {table} is now: its id was {planned} and is {found}."
    fix = "Create a new plan with `mirrorfeed archive plan`."


class FilesGone(Terminal):
    code = "MF5209"
    what = "Files of {table} in the plan no longer exist: {uris:few}."
    fix = "VACUUM may have deleted them. Create a new plan for a newer version."


class CannotKeep(Terminal):
    code = "MF5210"
    what = (
        "Restored files of {table} cannot be kept for {days:count day}: in Azure they keep their creation time, so the"
        " lifecycle rule archives them again within about a day."
    )
    fix = (
        "Pause the rule (`mirrorfeed archive rule {table:argument} --merge EXPORTED --paused`; this can take a day) and"
        " restore without --keep, or copy the rows with --into."
    )


class OnlyHot(Terminal):
    code = "MF5211"
    what = "Files of {table} cannot be restored to {to.value}: S3 creates copies in its standard class."
    fix = "Omit --tier. Use --keep for the number of days to keep the copies."


class TargetExists(Terminal):
    code = "MF5213"
    what = "{table} exists and is not a {expected}. It was not changed."
    fix = "Choose another table for --into, or drop this one."


class OnlyRows(Terminal):
    code = "MF5214"
    what = "The plan for {table} has no rows to copy: it is for a range of the change data feed, or for files alone."
    fix = "Restore without --into, or plan with --where."


class LongerInterval(Terminal):
    code = "MF5302"
    what = (
        "{table} counts files as archived after {now:count day}. With {asked:count day}, files that the cloud has"
        " already moved would count as active."
    )
    fix = (
        "Change the lifecycle rule, then run `mirrorfeed archive change-interval {table:argument} --to '{asked} days'`."
    )


class StillArchived(Terminal):
    code = "MF5304"
    what = "Without an interval, files of {table} in the archive tier count as readable, and queries on them fail."
    fix = (
        "Remove the lifecycle rule (`mirrorfeed archive rule {table:argument} --merge EXPORTED --remove`) and restore"
        " all files. Then run the command again with --nothing-archived."
    )


class RuleFirst(Terminal):
    code = "MF5305"
    what = (
        "The interval of {table} cannot be increased to {asked:count day} while the lifecycle rule archives files"
        " after {rule:count day}."
    )
    fix = (
        "Change the rule first (`mirrorfeed archive rule {table:argument} --merge EXPORTED --interval '{asked} days'`)."
        " Wait until it applies, in Azure for a day. Then run the command again with --rule-changed."
    )


class NoJson(Terminal):
    code = "MF5407"
    what = "{path} is not valid JSON ({reason})."
    fix = (
        "Export the policy with `az storage account management-policy show --output json` or `aws s3api"
        " get-bucket-lifecycle-configuration`."
    )


class NoLifecycle(Terminal):
    code = "MF5401"
    what = "{table} is at {location}, which is neither in Azure storage nor in S3, so it has no lifecycle rules."
    fix = (
        "Choose a table whose folder has an address such as abfss://container@account.dfs.core.windows.net/folder or"
        " s3://bucket/folder."
    )


class NoRules(Terminal):
    code = "MF5402"
    what = "The file is not a lifecycle policy of an Azure storage account: {reason}."
    fix = "Export it with `az storage account management-policy show`, or copy the code view of the portal."


class NoBucketRules(Terminal):
    code = "MF5405"
    what = "The file is not a lifecycle configuration of an S3 bucket: it has no valid list `Rules`."
    fix = "Export it with `aws s3api get-bucket-lifecycle-configuration --bucket BUCKET`."


class CannotCheckFiles(Terminal):
    code = "MF5501"
    what = "The files of {table} cannot be checked from here, for example {uri}."
    fix = "Check a table in Azure storage, in S3, on this machine or on Databricks."


class CannotSimulate(Terminal):
    code = "MF5502"
    what = "An interval for {table} cannot be simulated here: {reason}."
    fix = (
        "Use classic Spark, which shows the files that a query reads (Spark Connect and serverless compute do not). It"
        " must be able to read the _delta_log of the table. Name the table by its path."
    )


class NoConditions(Terminal):
    code = "MF5503"
    what = "{path} is not a list of conditions ({reason})."
    fix = "Write one condition per line, as after WHERE, in UTF-8."


class NoHistory(Terminal):
    code = "MF5504"
    what = "The query history (system.query.history) does not contain the queries of {table}: {reason}."
    fix = (
        "On Databricks, use the catalog name of the table, and ask an administrator for the right to read this system"
        " table. Elsewhere, use --where or --predicates."
    )


class BadStatement(Terminal):
    code = "MF5007"
    what = "{statement:query} is not a valid query: {reason}."
    fix = "Write a query as for spark.sql, on tables and views of this session."


class NoQuery(Terminal):
    code = "MF5008"
    what = "The statement is not a query ({kind}) and did not run: {query}."
    fix = (
        "Change tables with archived files through the methods of mirrorfeed.ArchiveAwareTable, and maintain them with"
        " `mirrorfeed archive maintain`. Run statements on tables without an archive with spark.sql."
    )
    statement: str

    @property
    def query(self) -> str:
        return " ".join(self.statement.split())[:80]


class NoSuchRange(Terminal):
    code = "MF5202"
    what = "{table} has no versions {first} to {end}. Its newest version is {newest}."
    fix = "Choose versions that DESCRIBE HISTORY shows, the first before the last."
    last: int | None

    @property
    def end(self) -> str:
        return "the newest" if self.last is None else str(self.last)


class NothingToRestore(Terminal):
    code = "MF5203"
    what = "The query {statement:query} needs no archived file, so there is nothing to plan."
    fix = "Run the query."


class RestoreRejected(Transient):
    code = "MF5212"
    what = "The storage rejected the restore of {files} of {table}: {first}."
    fix = "Run the same command again later. Files that are being restored are not requested twice."
    refused: Mapping[str, str]

    @property
    def files(self) -> str:
        return counted(len(self.refused), "file")

    @property
    def first(self) -> str:
        return ": ".join(next(iter(self.refused.items())))


class NoInterval(Terminal):
    code = "MF5301"
    what = "{table} has no archive interval: delta.timeUntilArchived is not set."
    fix = "Run `mirrorfeed archive set {table:argument} 'X days'` with the days of the lifecycle rule."


class InvalidInterval(Terminal):
    code = "MF5303"
    what = "The archive properties of {table} are invalid: {listed}."
    fix = (
        "Run `mirrorfeed archive set {table:argument} 'X days'` with the days of the lifecycle rule. If no file is"
        " archived, run `mirrorfeed archive unset {table:argument} --nothing-archived`."
    )
    properties: Mapping[str, str]

    @property
    def listed(self) -> str:
        return ", ".join(f"{name} = {value!r}" for name, value in self.properties.items())


class TooManyRules(Terminal):
    code = "MF5404"
    what = (
        "{owner} accepts at most {limit:,} lifecycle rules, and {needed:,} are needed to archive the table in {folder}."
    )
    fix = (
        "Combine other rules, or move tables whose files have random names (column mapping) to another account or"
        " bucket: each needs several rules."
    )
