"""Errors and warnings about publishing many tables, and about the ledger."""

from __future__ import annotations

from collections.abc import Sequence

from mirrorfeed.errors import MirrorfeedError, Terminal, Transient


class LeftoversNotDeleted(Transient):
    code = "MF3212"
    what = "Leftover files of {table} were not deleted: {cause.problem}"
    fix = "No action is needed. The next run tries again."
    is_warning = True
    table: str
    cause: MirrorfeedError


class FilesRewritten(Transient):
    code = "MF3213"
    what = (
        "Spark wrote data files for {tables:few} with an unexpected schema ({differed}). The files were written again"
        " with the schema of the table."
    )
    fix = "No action is needed, but publishing takes longer."
    is_warning = True


class TableTimeout(Transient):
    code = "MF3215"
    what = "Publishing {table} was stopped after {limit}: {done}.{failure:more}"
    fix = "The next run continues. If this happens often, increase `table_timeout_minutes` or publish more often."
    table: str
    minutes: float
    published: int | None
    latest: int | None
    cause: MirrorfeedError | None

    @property
    def limit(self) -> str:
        return "1 minute" if self.minutes == 1 else f"{self.minutes:g} minutes"

    @property
    def done(self) -> str:
        newest = "" if self.latest is None else f", the newest is {self.latest}"
        return "nothing is published" if self.published is None else f"version {self.published} is published{newest}"

    @property
    def failure(self) -> str:
        return f"The last attempt failed: {self.cause.problem}" if self.cause else ""


class StillConfigured(Terminal):
    code = "MF3401"
    what = "{table} is still in {path}, so the next run would publish the table again."
    fix = "Remove the table from the configuration first. To reload the table instead, run `mirrorfeed rebuild`."


class NotPublishedHere(Terminal):
    code = "MF3402"
    what = "{place} does not exist, or mirrorfeed did not publish {table} there."
    fix = "Run `mirrorfeed status` to list the tables that can be dropped."


class RebuildRequired(Terminal):
    code = "MF3404"
    what = "{table} cannot be repaired row by row: {reason}."
    fix = "Run `mirrorfeed rebuild {table:argument}`."


class TooManyToRepair(Terminal):
    code = "MF3405"
    what = (
        "{table} has {keys:count key} to repair, but `auto_repair_max_keys` allows only {at_most:,}. Nothing was"
        " repaired."
    )
    fix = (
        "Find the cause first: `mirrorfeed log {table:argument}` compares the published files with the log. Then run"
        " `mirrorfeed repair {table:argument}`, or increase `auto_repair_max_keys`."
    )


class OrphanedTables(Terminal):
    code = "MF3408"
    what = (
        "The landing zone has published tables that {path} no longer selects: {targets:list}. They stay in Fabric, and"
        " get no new rows."
    )
    fix = (
        "If other configurations publish to this landing zone, set `shared_landing_zone: true`. If a table is no longer"
        " needed, remove it from Fabric with `mirrorfeed drop {first:argument}`."
    )
    meaning = (
        "Tables are published, but the configuration does not select them: an entry was removed, a target was renamed,"
        " or a pattern no longer matches a source. The tables stay in Fabric, and get no new rows."
    )
    is_warning = True
    targets: Sequence[str]

    @property
    def first(self) -> str:
        return self.targets[0]


class LedgerNotWritten(Transient):
    code = "MF8002"
    what = "The ledger {ledger} was not written: {reason}."
    fix = (
        "Check `ledger` in the configuration, and the privileges on the table. Publications do not depend on the"
        " ledger."
    )


class LedgerUnreadable(Terminal):
    code = "MF8003"
    what = "The ledger {ledger} cannot be read: {reason}."
    fix = (
        "Check `ledger` in the configuration, and the SELECT privilege on the table. The first publication creates the"
        " table."
    )
