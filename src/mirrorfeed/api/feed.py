"""The feed of a configuration: what a notebook or a job does with its tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mirrorfeed import FILE
from mirrorfeed.api.results import (
    Changes,
    Chart,
    Comparison,
    Decision,
    Enabled,
    Finding,
    History,
    Kept,
    Listed,
    Mirrored,
    Publication,
    Record,
    Repair,
    Result,
    Setting,
    Status,
)
from mirrorfeed.display.rows import Row, row, shown
from mirrorfeed.errors import MirrorfeedError, named

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mirrorfeed.api.archive_table import ArchiveAwareTable
    from mirrorfeed.config import Config, Table


def load(
    path: str | Path = FILE,
    spark: SparkSession | None = None,
    *,
    landing_zone: str | None = None,
    ledger: str | None = None,
    handover: str | None = None,
) -> Feed:
    """Reads a configuration, and gives the feed of its tables. Nothing is published, and no session is started.

    `spark` is the session to work with; without it one is started, or taken over, where it is first needed.
    `landing_zone`, `ledger` and `handover` take the place of the file's, so that one file does for several deployments.

    Raises `MirrorfeedError` with every mistake in the file, each with its line.
    """
    from mirrorfeed import config

    return Feed(config.load(path, landing_zone=landing_zone, ledger=ledger, handover=handover), spark)


def deployed(dbutils: Any, spark: SparkSession) -> Feed:
    """The feed as the deployment of this notebook has it, which the first line says: configuration, landing zone,
    ledger, mirror, and tables with an archive. The notebook's fields `config`, `landing_zone`, `mirror` and `table` go
    before, as far as it has them and they are filled in.

    Raises `MirrorfeedError` with every mistake in the configuration, each with its line.
    """
    from mirrorfeed.api.notebook import setting

    found = setting(dbutils)
    return Feed(found.config, spark, found.mirror, found.archived)


@row
class Configured(Row):
    """An entry of the configuration."""

    table: str = shown("table")
    source: str = shown("source")
    keys: tuple[str, ...] = shown("keys")


@dataclass(frozen=True, repr=False, eq=False)
class Feed:
    """The tables of a configuration. `load` makes one.

    Methods that take `tables` take targets, as `sales.orders`, or sources; without any they are about all tables of the
    configuration, and raise `MirrorfeedError` for a name that it does not have. The failure of one table never stops
    the others: it stands in the row of that table, and `check` of the result raises it.
    """

    _written: Config
    _session: SparkSession | None = None
    _mirror: str | None = None
    _archived: str | None = None

    @property
    def tables(self) -> tuple[str, ...]:
        """The targets, in the order of the configuration; behind them those of its patterns, which are asked for."""
        return tuple(str(table.target) for table in self._config.tables)

    @property
    def landing_zone(self) -> str:
        """Where the tables are published."""
        return self._written.landing_zone

    def sources(self) -> Result[Listed]:
        """Each table that the configuration names or that one of its patterns matches: why it is in or out, its keys,
        and which changes it takes. What patterns match, and keys that are left out, is asked for now.

        Raises `MirrorfeedError` where a pattern matches nothing, or two tables meet in one target.
        """
        from mirrorfeed.api.listing import listed
        from mirrorfeed.config.expansion import expanded

        return listed(expanded(self._written, lambda: self._spark))

    def publish(self, *tables: str) -> Result[Publication]:
        """Publishes what is new, and gives back a row a table when all is published.

        What is published already is not published again, so this may be called at any time, after any failure too:
        what an earlier run left unfinished is finished first. What may pass by itself is tried again, with pauses.

        Raises `MirrorfeedError` where the landing zone cannot be asked at all.
        """
        from mirrorfeed.api.came import publications
        from mirrorfeed.publish.fleet import Fleet, publish_tables

        notes: list[MirrorfeedError] = []
        return publications(publish_tables(Fleet(self._spark, self._config, on_trouble=notes.append), tables), notes)

    def publisher(self, *tables: str) -> Callable[[DataFrame, int], None]:
        """The same for `foreachBatch` of any stream, in whose process it publishes. The rows of the batch are not read:
        what is published follows what is published before, whatever the stream has to tell. A failure fails the batch,
        which Spark then repeats."""
        from mirrorfeed.publish.stream import publisher

        return publisher(self._written, *tables)

    def dry_run(self, *tables: str) -> Result[Decision]:
        """What `publish` would do next for each table, or why it cannot go on. Touches nothing.

        Raises `MirrorfeedError` where the landing zone cannot be asked at all.
        """
        from mirrorfeed.publish.decisions import decisions

        return Result(
            tuple(
                Decision(table, "cannot go on", found) if isinstance(found, MirrorfeedError) else Decision(table, found)
                for table, found in decisions(self._spark, self._config, tables)
            )
        )

    def status(self, *tables: str) -> Result[Status]:
        """How far each table is: what is published, what is newer in the source, and what waits in the landing zone.
        Changes nothing.

        Raises `MirrorfeedError` where the landing zone cannot be asked at all.
        """
        from mirrorfeed.api.came import status
        from mirrorfeed.monitor.status import statuses

        return Result(tuple(map(status, statuses(self._spark, self._config, tables))))

    def verify(self, mirror: str | None = None, *tables: str, shown: int = 5) -> Result[Comparison]:
        """Compares each source, at the version at which its mirror stands, with the mirror, row for row; tells the
        ledger, where there is one. Changes nothing else.

        `mirror` is the folder of the replicated tables; None: that of the deployment, or the tables of the mirrored
        database in OneLake. Of each table the first differences are given, as many as `shown`.

        Raises `MirrorfeedError` where nobody says where the mirror is.
        """
        from mirrorfeed.api.verifying import comparisons
        from mirrorfeed.verify.place import folder_of

        config = self._config
        return comparisons(self._spark, config, tables, folder_of(config, mirror or self._mirror), shown)

    def repair(self, table: str, mirror: str | None = None, where: str | None = None) -> Result[Repair]:
        """Publishes the rows of a table that differ in its mirror once more, without the table vanishing for readers.
        With `where`, a condition in SQL, all rows that fulfil it.

        `mirror` is as for `verify`. What a repair does not mend stands in the row's `error`.

        Raises `MirrorfeedError` where nothing of the table is published, or only `rebuild` helps.
        """
        from mirrorfeed.api.came import repair
        from mirrorfeed.repair import repair_table
        from mirrorfeed.verify.place import folder_of

        notes: list[MirrorfeedError] = []
        config = self._config
        folder = folder_of(config, mirror or self._mirror)
        rows = [
            repair(each, repair_table(self._spark, config, each, folder, where, on_trouble=notes.append))
            for each in config.select([table])
        ]
        return Result(tuple(rows), tuple(map(str, notes)))

    def rebuild(self, table: str) -> Result[Publication]:
        """Publishes a table anew: deletes its folder in the landing zone, waits until Fabric has dropped the table, and
        publishes a snapshot. Until then readers in Fabric do not have the table. After a failure call it again.

        Raises `MirrorfeedError` for what is in the way of it before anything is deleted, and where Fabric does not drop
        the table in time.
        """
        from mirrorfeed.api.came import publications
        from mirrorfeed.publish.fleet import Fleet, rebuild_table

        notes: list[MirrorfeedError] = []
        fleet = Fleet(self._spark, self._config, on_trouble=notes.append)
        return publications([rebuild_table(fleet, each) for each in fleet.config.select([table])], notes)

    def log(self, table: str) -> Result[Record]:
        """The publications of a target that its log has, the newest first, and whether the files of the newest are what
        its record says: these are read whole. Changes nothing, and needs no Spark.

        Raises `MirrorfeedError` where the log cannot be read.
        """
        from mirrorfeed.api.came import records
        from mirrorfeed.config.landing_zone import zone_of
        from mirrorfeed.landing.names import Target
        from mirrorfeed.publish.examine import examine

        target = Target.parse(table)
        return records(str(target), examine(zone_of(self._written), target.folder))

    def lint(self) -> Result[Finding]:
        """What in the landing zone is not as Fabric expects it, in any table and of any publisher. Changes nothing, and
        needs no Spark.

        Raises `MirrorfeedError` where the landing zone cannot be read.
        """
        from mirrorfeed.config.landing_zone import zone_of
        from mirrorfeed.lint.linter import lint

        found = lint(zone_of(self._written)).findings
        rows = tuple(Finding(each.code, each.severity.value, each.file, each.what, each.next) for each in found)
        return Result(rows, summary="" if rows else "Nothing is found.")

    def doctor(self, *tables: str) -> Result[Finding]:
        """What is wrong with the tables, or soon will be, from their sources to Fabric, each with what helps. Changes
        nothing.
        """
        from mirrorfeed.api.came import finding
        from mirrorfeed.monitor.doctor import findings_of
        from mirrorfeed.monitor.findings import NOTHING

        rows = tuple(map(finding, findings_of(self._spark, self._config, tables)))
        return Result(rows, summary="" if rows else NOTHING)

    def enable(self, *tables: str) -> Result[Enabled]:
        """Switches the change data feed on for the sources, where it is not on. Changes made before are not in it."""
        return Result(tuple(map(self._enabled, self._config.select(tables))))

    def changes(
        self,
        table: str,
        start: str | int | None = None,
        end: str | int | None = None,
        past_end: Literal["error", "empty"] = "error",
    ) -> Changes:
        """The change data feed of a source from a version or time to another, both included. Without a start, from
        where the feed begins; without an end, to the newest version. Past the newest it is an error, or, with `empty`,
        what there is.

        Raises `MirrorfeedError` where the history does not go so far, or its changes cannot be read.
        """
        from mirrorfeed.api.changes import changes

        return changes(self._spark, self._config.select([table])[0].source, start, end, past_end)

    def keep(self, *tables: str) -> Result[Kept]:
        """Appends what is new to the permanent histories of the tables that have one.

        Raises `MirrorfeedError` where none of them has one, or one that is named has none.
        """
        from mirrorfeed.api.came import kept
        from mirrorfeed.keep.fleet import keep_tables

        return Result(tuple(map(kept, keep_tables(self._spark, self._config, tables))))

    def history(self, *tables: str) -> Result[History]:
        """Which versions of the tables their permanent histories keep, and how far these are behind. Changes nothing.

        Raises `MirrorfeedError` where none of them has one, or one that is named has none.
        """
        from mirrorfeed.api.came import history
        from mirrorfeed.keep.fleet import statuses

        return Result(tuple(map(history, statuses(self._spark, self._config, tables))))

    def chart(self) -> Chart:
        """What the ledger tells, drawn: how old changes were when they were published, and rows a day by what they do.
        Nothing is drawn where the configuration names no ledger."""
        from mirrorfeed.publish import ledger
        from mirrorfeed.report.page import lag_chart, marker_chart, titled

        place = self._written.ledger
        told = ledger.read(self._spark, place) if place else []
        rows = titled("Rows a day, by what they do", marker_chart(told))
        return Chart("Lag: from a commit to its publication", lag_chart(told) + rows)

    def fabric_status(self) -> Result[Mirrored]:
        """What Fabric says of the mirrored database, which is a note, and of each of its tables. Changes nothing, and
        needs no Spark.

        Raises `MirrorfeedError` where the landing zone is no mirrored database, or Fabric cannot be asked.
        """
        from mirrorfeed.api.came import mirrored
        from mirrorfeed.fabric import database_of

        return mirrored(database_of(self._written))

    def fabric_plan(self) -> Result[Setting]:
        """What in the definition of the mirrored database differs from what `fabric` in the configuration says. Changes
        nothing, and needs no Spark.

        Raises `MirrorfeedError` as `fabric_status` does.
        """
        from mirrorfeed.api.came import settings
        from mirrorfeed.fabric import database_of
        from mirrorfeed.fabric.definition import differences, read

        database = database_of(self._written)
        found = differences(read(database.api, database.place).content, self._written.fabric)
        return settings(found, "Nothing differs from the configuration.")

    def fabric_apply(self) -> Result[Setting]:
        """Changes in the definition what `fabric_plan` shows, as far as it can be changed, and nothing else. Gives back
        what was changed.

        Raises `MirrorfeedError` as `fabric_status` does, and where Fabric does not show the change.
        """
        from mirrorfeed.api.came import settings
        from mirrorfeed.fabric import database_of
        from mirrorfeed.fabric.definition import apply

        database = database_of(self._written)
        found = apply(database.api, database.place, self._written.fabric)
        return settings([each for each in found if each.changes], "Nothing was to be changed.")

    def fabric_refresh(self) -> Result[Mirrored]:
        """Lets the SQL endpoint take up what is new in the mirror, as after a rebuild or a new column, and gives back
        what it says of each table. It costs capacity.

        Raises `MirrorfeedError` as `fabric_status` does, and where the database has no SQL endpoint yet.
        """
        from mirrorfeed.api.came import synced
        from mirrorfeed.fabric import database_of, refresh

        return synced(refresh(database_of(self._written)))

    def fabric_resume(self, minutes: float = 10.0) -> Result[Mirrored]:
        """Starts mirroring where it is Paused, as a capacity leaves it that was paused and resumed, and waits until it
        runs. Gives back what `fabric_status` does.

        Raises `MirrorfeedError` as that does, where mirroring is stopped, and where it does not run in time.
        """
        from mirrorfeed.api.came import mirrored
        from mirrorfeed.fabric import database_of

        database = database_of(self._written)
        database.resume(lambda _: None, minutes * 60)
        return mirrored(database)

    def archive(self, table: str | None = None) -> ArchiveAwareTable:
        """A table whose old files are in an archive tier: by a target or a source of the configuration, or by any other
        name or path; None: the deployment's first.

        Raises `MirrorfeedError` where none is named.
        """
        from mirrorfeed.api.archive_table import ArchiveAwareTable
        from mirrorfeed.api.notebook import NoArchiveNamed
        from mirrorfeed.config import UnknownTable

        name = table or self._archived
        if name is None:
            raise NoArchiveNamed()
        try:
            return ArchiveAwareTable(self._spark, self._config.select([name])[0].source)
        except UnknownTable:
            return ArchiveAwareTable(self._spark, name)

    def _enabled(self, table: Table) -> Enabled:
        from mirrorfeed.feed.enable import enable
        from mirrorfeed.publish.compared import COMPARED

        name, source = str(table.target), str(table.source)
        if table.changes == "compare":
            return Enabled(name, source, COMPARED)
        try:
            return Enabled(name, source, enable(self._spark, table.source).value)
        except Exception as error:
            return Enabled(name, source, None, named(f"Enabling the feed of {source}", error))

    @property
    def _config(self) -> Config:
        """With all tables that it stands for now: asked once in each method."""
        from mirrorfeed.config.expansion import expanded

        return expanded(self._written, lambda: self._spark).config

    @property
    def _spark(self) -> SparkSession:
        if self._session is not None:
            return self._session
        from mirrorfeed.session import get_session

        return get_session()

    def __repr__(self) -> str:
        names = [str(each) for each in (*(table.target for table in self._written.tables), *self._patterns())]
        return f"<the feed of {self._written.path}: {', '.join(names)}, into {self.landing_zone}>"

    def _repr_html_(self) -> str:
        from mirrorfeed.display.render import html_of

        return html_of([*self._entries()], (f"{self._written.path}, into {self.landing_zone}",))

    def _entries(self) -> Iterator[Configured]:
        """The entries of the file; patterns are not expanded."""
        entries = [(str(table.target), str(table.source), table.keys) for table in self._written.tables]
        entries += [(each.target, str(each.sources), each.keys) for each in self._written.patterns]
        for target, source, keys in entries:
            yield Configured(target, source, ("those of Unity Catalog",) if keys is None else keys)

    def _patterns(self) -> Iterator[str]:
        return (str(each.sources) for each in self._written.patterns)
