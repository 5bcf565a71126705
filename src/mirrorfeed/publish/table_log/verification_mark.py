"""The mark of a table's verifications: the source version up to which the mirror was equal. Publishing never reads it.

A mark is a small file next to the records of the log. Each verification creates the next one if it is absent, and then
deletes older ones. So the mark ends with its log, and two verifications at the same time cannot both move it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Annotated, ClassVar, Final

from pydantic import Field, TypeAdapter

from mirrorfeed.errors import MirrorfeedError
from mirrorfeed.landing import names
from mirrorfeed.landing.errors import DamagedFileError, RecordTooNewError
from mirrorfeed.landing.strict_json import CONFIG, Count, TimeText, format_of, parse_json, validate
from mirrorfeed.publish.errors import concurrent_changes
from mirrorfeed.publish.table_log import TableLog
from mirrorfeed.publish.table_log.view import View, marks_in
from mirrorfeed.storage.errors import PathMissingError
from mirrorfeed.storage.request_retries import try_write

_ATTEMPTS = 20
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class VerificationMark:
    """Result of a verification of a table, and the version up to which source and mirror were equal."""

    __pydantic_config__: ClassVar = CONFIG
    id: str
    """Random id of the verification. With it, a verification recognizes its own mark."""
    time: TimeText
    compared_version: Count
    """Version of the source that was compared. The mirror had this version."""
    equal: bool
    verified_through: Count | None = None
    """Newest version at which source and mirror were equal. None if only a full verification can set it again, because
    rows differ that did not change since the mark before."""
    verified_at: TimeText | None = None
    """Time of the verification that found source and mirror equal at `verified_through`."""
    source_id: str = ""
    number: Annotated[int, Field(ge=0)] = 0
    format: int = _FORMAT

    @property
    def at(self) -> datetime | None:
        """Time of `verified_through`, or None."""
        return datetime.fromisoformat(self.verified_at) if self.verified_at else None


_MARK: Final = TypeAdapter(VerificationMark)


def read_mark(log: TableLog, view: View) -> VerificationMark | None:
    """Return the newest mark of a log, or None if it has none. Reads nothing if `view` has no mark."""
    numbers = view.marks
    for _ in range(_ATTEMPTS):
        if not numbers:
            return None
        path = _path(log, view, max(numbers))
        try:
            value = parse_json(log.store.read(path))
            if (found := format_of(value)) > _FORMAT:
                raise RecordTooNewError(address=log.store.address(path), found=found, known=_FORMAT)
            return validate(_MARK, value)
        except PathMissingError:  # another verification created a newer mark, or the folder was deleted
            numbers = marks_in(log.entries(view.log_id))
        except ValueError as error:
            raise DamagedFileError(address=log.store.address(path), reason=str(error)) from error
    raise concurrent_changes(address=log.store.address(log.folder))


def equal_at(version: int, source_id: str, now: datetime) -> VerificationMark:
    """Return the mark of a verification that found source and mirror equal at a version."""
    time = now.isoformat()
    return VerificationMark(uuid.uuid4().hex, time, version, True, version, time, source_id)


def different_at(version: int, source_id: str, now: datetime, kept: VerificationMark | None = None) -> VerificationMark:
    """Return the mark of a verification that found differences at a version.

    `kept` is the mark since which the differing rows changed. A later verification reads these changes again, so its
    version stays verified. None if other rows differ, too.
    """
    through, at = (kept.verified_through, kept.verified_at) if kept else (None, None)
    return VerificationMark(uuid.uuid4().hex, now.isoformat(), version, False, through, at, source_id)


def write_mark(
    log: TableLog, view: View, base: VerificationMark | None, new: VerificationMark
) -> VerificationMark | None:
    """Create the next mark and return it. Return None if it was not created, because another verification was faster.

    `base` is the mark that the verification read before it compared rows. A mark that says equal only follows `base`,
    because a difference that was found in the meantime must not be forgotten. A mark with differences follows any mark.
    Does nothing and returns None if the log was deleted. Raises an error if the mark cannot be created.
    """
    number, failure = base.number if base else 0, None
    for _ in range(_ATTEMPTS):
        if log.current_id() != view.log_id:  # a file of a deleted log would create the table's folder again
            return None
        new = replace(new, number=number + 1)
        content = json.dumps(asdict(new), indent=1).encode()
        failure = try_write(log.store.create, _path(log, view, new.number), content)
        listed = marks_in(log.entries(view.log_id))
        newest = read_mark(log, replace(view, marks=listed))
        if newest and newest.id == new.id:
            _remove_older(log, view, new.number, listed)
            return newest
        if newest and newest.number > number:
            if new.equal:
                return None
            if new.verified_through is not None:
                through = newest.verified_through
                if through is None or through < new.verified_through:
                    new = replace(new, verified_through=through, verified_at=newest.verified_at)
            number = newest.number
    raise failure or concurrent_changes(address=log.store.address(log.folder))


def _remove_older(log: TableLog, view: View, number: int, listed: Sequence[int]) -> None:
    with suppress(MirrorfeedError):  # an older mark has no effect
        for older in listed:
            if older < number:
                log.store.remove(_path(log, view, older))


def _path(log: TableLog, view: View, number: int) -> str:
    return f"{log.folder}/{names.log_folder(view.log_id)}/{names.data_name(number, 'verified')}"
