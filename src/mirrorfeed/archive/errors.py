"""Errors about tables with archived files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from mirrorfeed.display.rows import counted
from mirrorfeed.errors import Terminal, Transient


class BadNumber(Terminal):
    code = "MF5004"
    what = "The {argument} for {table} is negative: {value}."
    fix = "Use 0 or a positive whole number."


class NoSuchColumn(Terminal):
    code = "MF5005"
    what = "{table} has no column {column!r}."
    fix = "Use one of the columns of {table}: {columns:list}."


class BadPredicate(Terminal):
    code = "MF5006"
    what = "The {kind} {predicate!r} for {table} {reason}."
    fix = (
        "Write the {kind} as in {clause}. Use only columns of the table, no subqueries, and no functions with random"
        " results, such as rand() or uuid()."
    )
    reason: str
    kind: Literal["condition", "expression"] = "condition"

    @property
    def clause(self) -> str:
        return "a WHERE clause" if self.kind == "condition" else "the SET clause of an UPDATE"


class NoSuchVersion(Terminal):
    code = "MF5009"
    what = "{table} cannot be read at {versions}. The newest version is {newest}."
    fix = "Choose versions that `DESCRIBE HISTORY` lists. A range must start before it ends."


class OnlyNewestVersion(Terminal):
    code = "MF5010"
    what = (
        "Databricks returns the archived files of {table} only for its newest version {newest}, not for version"
        " {version}."
    )
    fix = (
        "Use the newest version, or read version {version} with an ordinary query. Databricks itself checks such"
        " queries for archived files."
    )


class TableByTable(Terminal):
    code = "MF5011"
    what = "On Databricks, a restore can be planned for only one table at a time."
    fix = (
        "Run `mirrorfeed archive plan TABLE` for each table of the query, with the condition on this table in --where."
        " With open source Spark, one plan can be for any number of tables."
    )


class ActiveRowsUnavailable(Terminal):
    code = "MF5012"
    what = "On Databricks, the rows in active files of {table} cannot be selected (`recent`)."
    fix = (
        "Query with LIMIT, or with a condition that needs no archived file, such as a condition on a partition column."
    )


class SubqueryInStatement(Terminal):
    code = "MF5013"
    what = (
        "The {kind} of {table} contains a subquery: {text!r}. mirrorfeed cannot check which archived files a subquery"
        " in a statement needs."
    )
    fix = "Use a merge, and join the data of the subquery to the source rows of the merge."


class StatementFailed(Terminal):
    code = "MF5016"
    what = "{operation} of {table} failed, and nothing was changed: {reason:phrase}."
    fix = "Correct the conditions and the values of the statement, and run it again."


class UnknownFiles(Terminal):
    code = "MF5101"
    what = "The files that the query needs are unknown, because it reads {reads}. Nothing was read."
    fix = "Query the tables by name or path in one query. Write rows from other sources to a table first."


class CannotBePlanned(Terminal):
    code = "MF5102"
    what = "The query cannot be planned: {reason:phrase}. Nothing was read."
    fix = "Correct the query, and run it again."


class NoPlan(Terminal):
    code = "MF5103"
    what = (
        "With Spark Connect and open source Delta, it cannot be determined which files a query needs, so archived files"
        " cannot be detected. Nothing was read."
    )
    fix = "Use classic Spark, or Databricks. Databricks itself checks queries for archived files."


class FileOfNoTable(Terminal):
    code = "MF5104"
    what = (
        "{table} is a clone that uses the file {uri}. The table to which the file belonged no longer exists, so it is"
        " unknown whether the file is archived. Nothing was read."
    )
    fix = "Restore the table from which this shallow clone was created, or query a table that has its own files."


class CommitsElsewhere(Terminal):
    code = "MF5105"
    what = "{table} has the table feature {feature}, so its _delta_log may not contain the newest commits."
    fix = "Query the table on Databricks. Databricks itself checks such tables for archived files."


class FeedOnDatabricks(Terminal):
    code = "MF5201"
    what = "Databricks does not return the archived files that the change data feed of {table} needs."
    fix = (
        "Create the plan with open source Spark and the path of the table. To avoid this error, publish changes before"
        " their files are archived."
    )


class RelativeWord(Terminal):
    code = "MF5204"
    what = "{word} in {text!r} cannot be part of a plan: its value may differ when the plan is carried out."
    fix = "Write the date or time itself, such as DATE '2026-01-31', or a function such as current_date()."


class BadPlan(Terminal):
    code = "MF5205"
    what = "{path} is not a valid restore plan: {reason}."
    fix = "Create a new plan with `mirrorfeed archive plan`."


class PlanExists(Terminal):
    code = "MF5206"
    what = "The file {path} already exists, and was not overwritten."
    fix = (
        "If {path} is a plan, carry it out with `mirrorfeed archive restore`. Otherwise delete the file, or choose"
        " another file."
    )


class PlanNotWritten(Terminal):
    code = "MF5207"
    what = "The plan cannot be written to {path}: {reason}."
    fix = "Create the folder, or choose a file in an existing folder."


class PlanOfAnotherTable(Terminal):
    code = "MF5208"
    what = "{table} is no longer the table of the plan: the id of the table was {planned} and is {found}."
    fix = "Create a new plan with `mirrorfeed archive plan`."


class FilesGone(Terminal):
    code = "MF5209"
    what = "Planned files of {table} no longer exist: {uris:few}."
    fix = "VACUUM may have deleted these files. Create a new plan for a newer version."


class CannotKeep(Terminal):
    code = "MF5210"
    what = (
        "Restored files of {table} do not stay restored for {days:count day}: Azure does not change their creation"
        " time, so the lifecycle rule archives them again within about a day."
    )
    fix = (
        "Copy the rows with --into. Or print a policy with the rule paused (`mirrorfeed archive rule {table:argument}"
        " --merge EXPORTED --paused`), apply the policy, wait up to a day, and restore without --keep."
    )


class OnlyHot(Terminal):
    code = "MF5211"
    what = "Files of {table} cannot be restored to {to.value}: S3 restores copies in its standard storage class."
    fix = "Omit --tier. Use --keep to set how many days the copies stay."


class OnlyRows(Terminal):
    code = "MF5214"
    what = "The plan for {table} has no rows to copy, because it is for the change data feed or for files alone."
    fix = "Restore without --into, or create a plan with --where."


class CannotBePinned(Terminal):
    code = "MF5215"
    what = "The restore of this query cannot be planned, because its rows could change until then: {reason:phrase}."
    fix = (
        "Query Delta tables by name or path. Replace a view by its query, and a variable by its value. Copy rows of"
        " other sources to a Delta table first."
    )


class CannotBeCopied(Terminal):
    code = "MF5216"
    what = "The rows of the plan for {table} cannot be copied into {into}: {reasons:reasons}. No file was requested."
    fix = (
        "Create a new plan with --sql, with a query that casts and renames these columns, or choose another table for"
        " --into."
    )


class LongerInterval(Terminal):
    code = "MF5302"
    what = (
        "The interval of {table} is {now:count day} and cannot be increased to {wanted:count day} at once: files that"
        " the lifecycle rule has archived after {rule:count day} would count as active."
    )
    fix = (
        "First change the lifecycle rule: export the policy to a file EXPORTED, run `mirrorfeed archive rule"
        " {table:argument} --merge EXPORTED --interval '{wanted} days'`, and apply the policy that it prints. Wait"
        " until it takes effect, in Azure for a day. Then run `mirrorfeed archive change-interval {table:argument} --to"
        " '{wanted} days' --rule-changed`."
    )


class StillArchived(Terminal):
    code = "MF5304"
    what = "Files of {table} may still be archived. Without an interval, queries that read them fail."
    fix = (
        "Remove the lifecycle rule: export the policy to a file EXPORTED, run `mirrorfeed archive rule"
        " {table:argument} --merge EXPORTED --remove`, and apply the policy that it prints. Restore all files. Then run"
        " the command again with --nothing-archived."
    )


class InvalidPolicy(Terminal):
    code = "MF5402"
    what = "The exported lifecycle policy is invalid: {reason}."
    fix = (
        "Export it with `az storage account management-policy show --output json`, from the code view of the Azure"
        " portal, or with `aws s3api get-bucket-lifecycle-configuration --bucket BUCKET`."
    )


class CannotCheckFiles(Terminal):
    code = "MF5501"
    what = "Files of {table} cannot be checked, because their storage is not supported, for example {uri}."
    fix = "Check only tables whose files are in Azure storage or S3, on this machine, or on Databricks."


class CannotSimulate(Terminal):
    code = "MF5502"
    what = "Intervals for {table} cannot be simulated here: {reason}."
    fix = (
        "Use open source Delta on classic Spark. Name the table by its path. The identity of the session must be able"
        " to read the _delta_log of the table."
    )


class NoConditions(Terminal):
    code = "MF5503"
    what = "{path} is not a list of conditions ({reason})."
    fix = "Write one condition per line, as in a WHERE clause, in UTF-8."


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


class NothingToRestore(Terminal):
    code = "MF5203"
    what = "The query {statement:query} needs no archived file, so there is nothing to plan."
    fix = "Run the query without a plan."


class RestoreRejected(Transient):
    code = "MF5212"
    what = "The storage rejected the request to restore {files} of {table}: {first}."
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
    fix = "Run `mirrorfeed archive set {table:argument} 'X days'`, where X is the number of days in the lifecycle rule."


class InvalidInterval(Terminal):
    code = "MF5303"
    what = "The archive properties of {table} are invalid: {listed}."
    fix = (
        "Run `mirrorfeed archive set {table:argument} 'X days'`, where X is the number of days in the lifecycle rule."
        " If no file is archived, run `mirrorfeed archive unset {table:argument} --nothing-archived`."
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
        "Merge other rules of this account or bucket into fewer, or move tables with column mapping or random file"
        " prefixes to another one. Files of such a table can start with any letter or digit, and each needs a rule."
    )
