"""Errors about tables with archived files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mirrorfeed.archive.file_index.log_file import LogFile, total
from mirrorfeed.display.humanize import counted
from mirrorfeed.errors import Terminal, Transient


class BadNumber(Terminal):
    code = "MF5004"
    what = "The {named} for {table} is {value}, less than zero."
    fix = "Give a whole number from zero on."


class NoSuchColumn(Terminal):
    code = "MF5005"
    what = "{table} has no column {column!r}."
    fix = "Its columns are {columns:list}."


class BadPredicate(Terminal):
    code = "MF5006"
    what = "The predicate {predicate!r} for {table} {reason}."
    fix = (
        "Write a condition as after WHERE, on the table's own columns, without subqueries and without functions"
        " such as rand() or uuid()."
    )


class NoSuchVersion(Terminal):
    code = "MF5009"
    what = "{table} cannot be read at version {version}: its newest is {newest}."
    fix = "Name a version that DESCRIBE HISTORY still shows; very old ones lose their log."


class OnlyNewestVersion(Terminal):
    code = "MF5010"
    what = (
        "Databricks names the archived files of the newest version of {table} only, which is {newest}, and"
        " {version} was asked for."
    )
    fix = "Ask for the newest version, or read the older one with a plain query: Databricks guards it itself."


class TableByTable(Terminal):
    code = "MF5011"
    what = "Databricks tells the archived files that a question needs of one table at a time."
    fix = "Plan each table that the query reads with `mirrorfeed archive plan TABLE`, with --where for its condition."


class OnlyOnOneMachine(Terminal):
    code = "MF5012"
    what = "The hot part of {table} cannot be cut out here: that takes Databricks, or Spark on one machine."
    fix = "Write a predicate that needs no archived file, for example on a partition column."


class SubqueryInStatement(Terminal):
    code = "MF5013"
    what = "The {kind} of {table} holds a subquery, which Delta does not take there: {text!r}."
    fix = "Join what it asks for to the rows of a merge, whose source may be any query."


class CannotBeJudged(Terminal):
    code = "MF5101"
    what = "Which files the query needs cannot be told, for it reads {reads}. Nothing was read."
    fix = (
        "Ask the tables themselves, by name or path, in one query; rows from elsewhere can be written to a table"
        " first, or checkpointed."
    )


class CannotBePlanned(Terminal):
    code = "MF5102"
    what = "The query cannot be planned: {reason:phrase}. Nothing was read."
    fix = "Correct what it names."


class NoPlanToLookAt(Terminal):
    code = "MF5103"
    what = "Over Spark Connect the plan of a query on open source Delta cannot be looked at, so nothing was read."
    fix = "Use classic Spark, as on this machine; or Databricks, which guards archived files itself."


class FileOfNoTable(Terminal):
    code = "MF5104"
    what = (
        "{table} has a file that lies in no table's folder, {uri}: whether it counts as archived cannot be told."
        " Nothing was read."
    )
    fix = "Bring back the table of which this one is a shallow clone, or ask a table that has files of its own."


class CommitsElsewhere(Terminal):
    code = "MF5105"
    what = (
        "{table} has the table feature {feature}: its newest commits may be known to its catalog alone, so what"
        " stands in its _delta_log is perhaps not all."
    )
    fix = "Ask on Databricks, where the engine itself names the archived files of such a table."


class FeedOnDatabricks(Terminal):
    code = "MF5201"
    what = "Databricks does not tell which archived files the change feed of {table} needs."
    fix = "Plan with open source Spark on the table's path, or publish before files reach the archive."


class RelativeWord(Terminal):
    code = "MF5204"
    what = "A plan cannot keep {word} in {text!r}, which may mean another time when it is carried out."
    fix = "Write the day or the time itself, such as DATE '2026-01-31'."


class BadPlan(Terminal):
    code = "MF5205"
    what = "{path} is no plan that can be carried out: {reason}."
    fix = "Make a new one with `mirrorfeed archive plan`."


class PlanInTheWay(Terminal):
    code = "MF5206"
    what = "{path} is there already and is left as it is."
    fix = "Carry it out with `mirrorfeed archive restore`, remove it, or name another file."


class NoPlaceForPlan(Terminal):
    code = "MF5207"
    what = "The plan cannot be written to {path}: {reason}."
    fix = "Make the folder, or name a file in one that is there."


class PlanOfAnotherTable(Terminal):
    code = "MF5208"
    what = "The plan is of another table than {table} is now: its id was {planned} and is {found}."
    fix = "Make a new plan with `mirrorfeed archive plan`."


class FilesGone(Terminal):
    code = "MF5209"
    what = "Files of {table} that the plan names are not there any more: {uris:few}."
    fix = "VACUUM may have removed them since: make a new plan, for a newer version."


class KeptByARule(Terminal):
    code = "MF5210"
    what = (
        "Files of {table} cannot be kept for {days:count day} by bringing them back: in Azure a file that is back"
        " keeps its creation time, so the rule archives it again at one of its next runs, which are daily."
    )
    fix = (
        "Pause the rule meanwhile (`mirrorfeed archive rule {table:argument} --merge EXPORTED --paused`; a change"
        " can take a day to hold) and restore without --keep, or copy the rows with --into."
    )


class OnlyHot(Terminal):
    code = "MF5211"
    what = "Files of {table} cannot be brought back to {to.value}: S3 lays a copy into its standard class."
    fix = "Leave --tier out, and say with --keep for how many days the copies are wanted."


class TargetThere(Terminal):
    code = "MF5213"
    what = "{table} is there already, and is no {expected}: it is left as it is."
    fix = "Name another table with --into, or drop that one."


class OnlyRows(Terminal):
    code = "MF5214"
    what = (
        "The plan for {table} is for a range of its change feed, which is not copied, or for files alone: --into"
        " takes rows."
    )
    fix = "Restore without --into and publish, or plan with --where."


class LongerInterval(Terminal):
    code = "MF5302"
    what = (
        "{table} counts files as archived from {now:count day}. To say {asked:count day} at once would make hot"
        " files of those that the cloud has moved already, for it brings none back."
    )
    fix = "Change the cloud's rule, then run `mirrorfeed archive change-interval {table:argument} --to '{asked} days'`."


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
    what = "{table} is at {location}, which is neither in Azure storage nor in S3: there is no lifecycle rule for it."
    fix = (
        "Name a table whose folder has an address such as abfss://container@account.dfs.core.windows.net/folder or"
        " s3://bucket/folder."
    )


class NoRules(Terminal):
    code = "MF5402"
    what = "This is no lifecycle policy of an Azure storage account: {reason}."
    fix = "Export it with `az storage account management-policy show`, or copy the code view of the portal."


class NoBucketRules(Terminal):
    code = "MF5405"
    what = "This is no lifecycle configuration of an S3 bucket: it holds no list `Rules` of rules."
    fix = "Export it with `aws s3api get-bucket-lifecycle-configuration --bucket BUCKET`."


class CannotLook(Terminal):
    code = "MF5501"
    what = "Whether the files of {table} are there cannot be told from here: {uri}."
    fix = "Use a table in Azure storage, on this machine, or on Databricks."


class CannotSimulate(Terminal):
    code = "MF5502"
    what = "An interval for {table} cannot be tried out here: {reason}."
    fix = (
        "It takes Spark that shows which files a query reads (not Connect, not serverless) and the right to read"
        " the table's _delta_log: name the table by its path, on a cluster that may read there."
    )


class NoConditions(Terminal):
    code = "MF5503"
    what = "{path} is no list of conditions ({reason})."
    fix = "Write a condition a line, as after WHERE, in UTF-8."


class NoHistory(Terminal):
    code = "MF5504"
    what = "The query history (system.query.history) does not tell what {table} was asked: {reason}."
    fix = (
        "On Databricks, name the table as in the catalog, and let an administrator give the right to read that"
        " system table; elsewhere give conditions with --where or --predicates."
    )


class NotEnoughFiles(Terminal):
    code = "MF5003"
    what = (
        "Not enough files to satisfy LIMIT: the files of {table} that are not in the archive hold {found:,} of"
        " {asked:,} rows; {missing} more would be needed."
    )
    fix = "Reduce the LIMIT, or restore the files."
    files: Sequence[LogFile]

    @property
    def missing(self) -> str:
        return total(self.files)


class BadStatement(Terminal):
    code = "MF5007"
    what = "{query!r} cannot be asked: {reason}."
    fix = "Write a query as for spark.sql, over tables and views that this session sees."
    statement: str

    @property
    def query(self) -> str:
        return " ".join(self.statement.split())


class NoQuery(Terminal):
    code = "MF5008"
    what = "The statement is not a query ({kind}), so it did not run: {query}."
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
    what = "The log of {table} has no range from version {first} to {end}: its newest is {newest}."
    fix = "Name versions that DESCRIBE HISTORY still shows, the first before the last."
    last: int | None

    @property
    def end(self) -> str:
        return "the newest version" if self.last is None else f"version {self.last}"


class NothingToBringBack(Terminal):
    code = "MF5203"
    what = "No file that {query!r} needs counts as archived, so there is nothing to plan."
    fix = "Run it as it is."
    statement: str

    @property
    def query(self) -> str:
        return " ".join(self.statement.split())


class NotTaken(Transient):
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


class NoPolicy(Terminal):
    code = "MF5301"
    what = "{table} has no archive: delta.timeUntilArchived is not set."
    fix = "Run `mirrorfeed archive set {table:argument} 'X days'` with the days of the cloud's lifecycle rule."


class NotUnderstood(Terminal):
    code = "MF5303"
    what = "The archive properties of {table} are invalid: {listed}."
    fix = (
        "Run `mirrorfeed archive set {table:argument} 'X days'` with the days of the cloud's rule. If no file is"
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
