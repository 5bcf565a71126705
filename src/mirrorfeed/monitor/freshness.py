"""How far what was committed has come, on its way to those who read it: five times, and what waits. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from mirrorfeed.display.rows import as_json

if TYPE_CHECKING:
    from mirrorfeed.landing.record import Record


class Step(StrEnum):
    COMMITTED = "committed"
    PUBLISHED = "published"
    CONSUMED = "consumed"
    MIRRORED = "mirrored"
    QUERYABLE = "queryable"


AHEAD = (Step.PUBLISHED, Step.CONSUMED, Step.MIRRORED, Step.QUERYABLE)
"""The steps that something can wait for."""
NOTHING_PUBLISHED = "nothing of it is published yet"
NOT_ASKED = "Fabric was not asked"


@dataclass(frozen=True, slots=True)
class Beyond:
    """What is known of a mirror and of its SQL endpoint, which no landing zone tells."""

    mirrored: datetime | None = None
    """When the mirror was last brought up to date; None where it has no such table yet."""
    queryable: datetime | None = None
    """When the SQL endpoint last took up what is new in it."""
    refused: bool = False
    """Whether the endpoint was just asked to, and failed. Otherwise nothing waits for it, whatever time it tells."""
    unknown: Mapping[Step, str] = field(default_factory=dict)
    """The steps that nobody could be asked about, and why."""


UNASKED = Beyond(unknown={Step.MIRRORED: NOT_ASKED, Step.QUERYABLE: NOT_ASKED})


@dataclass(frozen=True, slots=True)
class Freshness:
    committed: datetime | None = None
    """When the newest version of the source was committed."""
    published: datetime | None = None
    """When the newest files became visible to the service: the time of their record."""
    consumed: datetime | None = None
    """When the newest files that it has taken had become visible. Of all files it leaves the last one, which counts as
    taken: a folder does not tell."""
    mirrored: datetime | None = None
    """When the mirror was last brought up to date."""
    queryable: datetime | None = None
    """When its SQL endpoint last took up what is new."""
    since: Mapping[Step, datetime] = field(default_factory=dict)
    """The steps for which something waits, and since when."""
    unknown: Mapping[Step, str] = field(default_factory=dict)
    """The steps of which nothing can be told, and why."""

    def __str__(self) -> str:
        """For people, in UTC."""

        def said(step: Step) -> str:
            at = self.at(step)
            time = "not known" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
            return f"{step} {time}{' (something waits)' if step in self.since else ''}"

        return ", ".join(map(said, Step))

    def at(self, step: Step) -> datetime | None:
        found: datetime | None = getattr(self, step.value)
        return found

    def behind(self, step: Step, now: datetime) -> float | None:
        """The seconds for which something has waited for a step: 0 if nothing does, None if that is not known."""
        if step in self.unknown:
            return None
        since = self.since.get(step)
        return 0.0 if since is None else max(0.0, (now - since).total_seconds())

    def to_dict(self) -> dict[str, Any]:
        """The times, and since when changes wait for each step, as JSON values."""
        times: dict[str, Any] = {step.value: self.at(step) for step in Step}
        waiting = {step.value: self.since.get(step) for step in AHEAD}
        found: dict[str, Any] = as_json({**times, "waiting_since": waiting, "unknown": self.unknown})
        return found


def freshness(
    newest_first: Iterable[Record],
    left: Sequence[int],
    committed: datetime | None,
    unpublished: datetime | None,
    *,
    unfinished: bool = False,
    beyond: Beyond = UNASKED,
) -> Freshness:
    """From the records of a table, of which no more are read than are needed; the numbers of the data files that are
    left; when the newest version, and the oldest that no record has, were committed; and whether the newest record's
    files are still to be renamed."""
    unknown = dict(beyond.unknown)
    if committed is None:
        unknown |= {Step.COMMITTED: "the commit's file is not at hand"}
    waiting = sorted(left)[1:2]  # the oldest may have been taken; those after it have not
    since: dict[Step, datetime] = {} if unpublished is None else {Step.PUBLISHED: unpublished}
    published = consumed = after = oldest = None
    for at, record in enumerate(newest_first):
        if unfinished and not at:
            since[Step.PUBLISHED] = min(record.at, since.get(Step.PUBLISHED, record.at))
            after = record.at
            continue
        oldest = record.at
        if not record.files:
            continue
        published = published or record.at
        if consumed is None and not (waiting and record.next_file_number > waiting[0]):
            consumed = record.at
            if waiting and after:
                since[Step.CONSUMED] = after
        if Step.MIRRORED not in unknown and (beyond.mirrored is None or record.at > beyond.mirrored):
            since[Step.MIRRORED] = record.at
        elif consumed:
            break
        after = record.at
    if oldest is None:
        unknown = {step: NOTHING_PUBLISHED for step in AHEAD if step not in since} | unknown
        return Freshness(committed, since=since, unknown=unknown)
    if waiting and consumed is None:  # its record is gone: for so long at the least
        since[Step.CONSUMED] = after or oldest
    if beyond.refused and beyond.mirrored and (beyond.queryable is None or beyond.queryable < beyond.mirrored):
        since[Step.QUERYABLE] = beyond.mirrored
    return Freshness(committed, published, consumed, beyond.mirrored, beyond.queryable, since, unknown)
