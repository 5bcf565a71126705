"""What the guard asks of the two worlds: of Databricks, whose engine knows archived files itself, and of open source
Delta, whose plans are looked at here. `world.py` chooses, once for a session.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Protocol

from pyspark.sql import DataFrame

from mirrorfeed.archive.file_index.log_file import LogFile
from mirrorfeed.archive.interval_policy import Policy
from mirrorfeed.source.identifier import Source


@dataclass(frozen=True, slots=True)
class Answer:
    """What a question needs of a table at a version."""

    archived: tuple[LogFile, ...]
    hot: int | None
    """How many other files it needs; None where only Databricks knows, and for several reads of the table."""
    version: int


@dataclass(frozen=True, slots=True)
class Facts:
    """Of the newest version of a table."""

    table_id: str
    columns: tuple[str, ...]
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Need:
    """The files that count as archived and that something reads, of one table at one version."""

    table: str
    table_id: str
    location: str
    version: int
    files: Mapping[str, Sequence[LogFile]]
    """By the folder of the table in which they lie, be it this one or another."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A query that is planned and not run."""

    rows: DataFrame
    needs: Sequence[Need]


class World(Protocol):
    guards_itself: ClassVar[bool]
    """Whether the engine guards what it is asked when it runs, and leaves archived files out where a LIMIT may."""

    def table(self, source: Source) -> FileIndex: ...

    def judges(self, statement: str) -> bool:
        """Whether it is a query, whose rows are to be judged; not so for what reads no rows, and where the engine
        judges. `NoQuery` for what reads rows and is none."""
        ...

    def query(self, statement: str) -> DataFrame:
        """A query that is understood and not run."""
        ...

    def judged(self, frame: DataFrame, now: datetime) -> Judged:
        """The same rows, and what they need; nothing where the engine sees to that when it runs."""
        ...

    def looked_into(self, source: Source, statement: str, now: datetime) -> Sequence[Need]:
        """What a DELETE, UPDATE or MERGE of a table needs: all files in which it looks for rows."""
        ...


class FileIndex(Protocol):
    guards_itself: ClassVar[bool]
    """As its world."""

    def facts(self) -> Facts: ...

    def needed(self, predicate: str | None, policy: Policy | None, now: datetime, version: int | None) -> Answer:
        """The archived files that must be read to know which rows match; too many rather than too few. Without a
        version: the newest. Reads no data file. Without a policy, no file is archived."""
        ...

    def location(self) -> str: ...

    def newest_version(self) -> int: ...

    def rows(self, version: int) -> DataFrame: ...

    def partitions(self, version: int | None) -> list[dict[str, str | None]]: ...

    def changed(self, first: int) -> Sequence[LogFile]:
        """The files that the changes from this version on need, up to the newest."""
        ...

    def without(self, left_out: Collection[str], version: int) -> DataFrame:
        """The rows that are in no file of these; or `OnlyOnOneMachine`."""
        ...
