"""Errors and warnings about publishing many tables, and about the ledger."""

from __future__ import annotations

from collections.abc import Sequence

from mirrorfeed.errors import (
    Computed,
    ConfigurationError,
    LandingZoneError,
    MirrorfeedError,
    MirrorfeedWarning,
    TransientError,
    problem,
)


@problem(MirrorfeedWarning, "MF3212")
def leftovers_not_deleted(*, table: str, cause: MirrorfeedError) -> None:
    """Leftover files of {table} were not deleted: {cause.problem}

    No action is needed. The next run tries again.
    """


@problem(MirrorfeedWarning, "MF3213")
def files_rewritten(*, tables: Sequence[str], differed: str) -> None:
    """Spark wrote data files for {tables:few} with an unexpected schema ({differed}). The files were written again with
    the schema of the table.

    No action is needed, but publishing takes longer.
    """


class TableTimeoutError(TransientError):
    code = "MF3215"
    what = "Publishing {table} was stopped after {limit}: {done}.{failure:more}"
    fix = "The next run continues. If this happens often, increase `table_timeout_minutes` or publish more often."
    table: str
    minutes: float
    published: int | None
    latest: int | None
    cause: MirrorfeedError | None
    load: str = ""
    """Published share of a first load that is not complete. Otherwise empty."""

    @property
    def limit(self) -> str:
        return "1 minute" if self.minutes == 1 else f"{self.minutes:g} minutes"

    @property
    def done(self) -> str:
        if self.load:
            return f"{self.load} of the first load are published"
        newest = "" if self.latest is None else f", the newest is {self.latest}"
        return "nothing is published" if self.published is None else f"version {self.published} is published{newest}"

    @property
    def failure(self) -> str:
        return f"The last attempt failed: {self.cause.problem}" if self.cause else ""


@problem(ConfigurationError, "MF3401")
def still_configured(*, table: str, path: str) -> None:
    """{table} is still in {path}, so the next run would publish the table again.

    Remove the table from the configuration first. To reload the table instead, run `mirrorfeed rebuild`.
    """


@problem(ConfigurationError, "MF3402")
def not_published_here(*, place: str, table: str) -> None:
    """{place} does not exist, or mirrorfeed did not publish {table} there.

    Run `mirrorfeed status` to list the tables that can be dropped.
    """


@problem(LandingZoneError, "MF3404")
def rebuild_required(*, table: str, reason: str) -> None:
    """{table} cannot be repaired row by row: {reason}.

    Run `mirrorfeed rebuild {table:argument}`.
    """


@problem(ConfigurationError, "MF3405")
def too_many_to_repair(*, table: str, keys: int, at_most: int) -> None:
    """{table} has {keys:count key} to repair, but `auto_repair_max_keys` allows only {at_most:,}. Nothing was repaired.

    Find the cause first: `mirrorfeed log {table:argument}` compares the published files with the log. Then run
    `mirrorfeed repair {table:argument}`, or increase `auto_repair_max_keys`.
    """


@problem(
    MirrorfeedWarning,
    "MF3408",
    meaning=(
        "Tables are published, but the configuration does not select them: an entry was removed, a target was"
        " renamed, or a pattern no longer matches a source. The tables stay in Fabric, and get no new rows."
    ),
)
def orphaned_tables(*, path: str, targets: Sequence[str]) -> Computed:
    """The landing zone has published tables that {path} no longer selects: {targets:list}. They stay in Fabric, and get
    no new rows.

    If other configurations publish to this landing zone, set `shared_landing_zone: true`. If a table is no longer
    needed, remove it from Fabric with `mirrorfeed drop {first:argument}`.
    """
    return {"first": targets[0]}


class LedgerNotWrittenError(TransientError):
    code = "MF8002"
    what = "The ledger {ledger} was not written: {reason}."
    fix = (
        "Check `ledger` in the configuration, and the privileges on the table. Publications do not depend on the"
        " ledger."
    )
    ledger: str
    reason: str


@problem(ConfigurationError, "MF8003")
def ledger_unreadable(*, ledger: str, reason: str) -> None:
    """The ledger {ledger} cannot be read: {reason}.

    Check `ledger` in the configuration, and the SELECT privilege on the table. The first publication creates the table.
    """
