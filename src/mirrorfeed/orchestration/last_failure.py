"""The last failure of each table, for display only.

A run writes a small file for each table that fails, and deletes the file when the table succeeds. The files are in
`_mirrorfeed/failures` in the landing zone, which Fabric ignores. Nothing that decides a publication reads them.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field, TypeAdapter

from mirrorfeed.display.rows import as_json
from mirrorfeed.errors import MirrorfeedError, UnexpectedError, catalogue
from mirrorfeed.landing.names import LOG, Target
from mirrorfeed.landing.strict_json import CONFIG, Count, UtcTime, parse_json, validate
from mirrorfeed.publish.table_result import TableResult
from mirrorfeed.source.errors import PublicationBlockedError
from mirrorfeed.storage import Store
from mirrorfeed.storage.errors import StorageUnavailableError

FOLDER = f"{LOG}/failures"


@dataclass(frozen=True, slots=True)
class Failure:
    """Content of the file of a table that failed."""

    __pydantic_config__: ClassVar = CONFIG
    table: str
    code: Annotated[str, Field(pattern=r"^MF[0-9]{3,4}$")]
    what: str
    fix: str
    since: UtcTime
    """Time of the first of the consecutive failures with this code and published version."""
    published: Count | None
    """Published version of the source at the time of the failure. None if nothing was published."""
    step: str = ""
    """Publication that failed, such as `versions 4 to 7`. Empty if nothing was decided."""
    format: Literal[1] = 1


_FILE: Final = TypeAdapter(Failure)


class LastRunError(MirrorfeedError):
    """Error that stopped the last run for a table. Has the code and the texts of the original error."""

    failure: Failure

    def __init__(self, failure: Failure) -> None:
        self.__dict__.update(code=failure.code, failure=failure)

    @property
    def is_temporary(self) -> bool:
        """True if the next run can succeed although nobody acts."""
        entry = catalogue().get(self.code)
        return entry is None or entry.kind != "terminal" or entry.code == UnexpectedError.code

    @property
    def problem(self) -> str:
        return f"The last run failed, since {self.failure.since:%Y-%m-%d %H:%M} UTC: {self.failure.what}"

    @property
    def solution(self) -> str:
        return self.failure.fix

    def to_dict(self) -> dict[str, Any]:
        """Return `code`, `what` and `next` as any error, and as `facts` when and where the table failed."""
        facts = {name: getattr(self.failure, name) for name in ("table", "since", "published", "step")}
        return MirrorfeedError.to_dict(self) | {"facts": as_json(facts)}

    def with_catalogued_text(self) -> LastRunError:
        """Return a copy without the texts of the file, which everybody who can write to the landing zone can change."""
        entry = catalogue().get(self.code)
        what, fix = (entry.means, entry.next.partition("\n")[0]) if entry else ("", "")
        return LastRunError(replace(self.failure, what=what, fix=fix))


@dataclass
class LastFailures:
    """The files with the last failures of the tables in a landing zone. No method raises an error."""

    store: Store
    _files: set[str] | None = field(default=None, init=False)
    """Names of the existing files. None if they were not listed."""

    def read(self, target: Target, published: int | None) -> LastRunError | None:
        """Return the last failure of a table, or None. Ignores a failure at another version than `published`."""
        failure = self._read(target)
        return LastRunError(failure) if failure and failure.published == published else None

    def contains(self, target: Target) -> bool:
        """Return whether the last run of a table failed."""
        with suppress(Exception):
            return _name(target) in self._listed()
        return False

    def update(self, target: Target, result: TableResult) -> None:
        """Write the file of a table that failed, or delete the file of a table that succeeded."""
        # While the storage does not respond, an attempt to write would only take time. The file is for display only, so
        # no error in its content may end the run.
        with suppress(Exception):
            if result.error and not isinstance(result.error, StorageUnavailableError):
                self._write(target, result, result.error)
            elif result.ok:
                self.remove(target)

    def remove(self, target: Target) -> None:
        with suppress(Exception):
            if (name := _name(target)) in self._listed():
                self.store.remove(f"{FOLDER}/{name}")
                self._listed().discard(name)

    def _write(self, target: Target, result: TableResult, error: MirrorfeedError) -> None:
        shown = error.to_dict()
        new = Failure(
            table=str(target),
            code=error.code,
            what=shown["what"],
            fix=shown["next"],
            since=datetime.now(UTC),
            published=result.published_version,
            step="" if isinstance(error, PublicationBlockedError) else result.decision,
        )
        before = self._read(target)
        if before and (before.code, before.published) == (new.code, new.published):
            new = replace(new, since=before.since)
        if new != before:
            self.store.replace(f"{FOLDER}/{_name(target)}", json.dumps(asdict(new), default=_text, indent=1).encode())
            self._listed().add(_name(target))

    def _read(self, target: Target) -> Failure | None:
        with suppress(Exception):  # a damaged file, or one of a later version, is ignored
            if (name := _name(target)) in self._listed():
                return validate(_FILE, parse_json(self.store.read(f"{FOLDER}/{name}")))
        return None

    def _listed(self) -> set[str]:
        if self._files is None:
            self._files = {entry.name for entry in self.store.list(FOLDER)}
        return self._files


def _name(target: Target) -> str:
    """Return a file name that differs for any two targets. Names of targets can be too long for a file name."""
    return f"{hashlib.sha256('.'.join(target.fold()).encode()).hexdigest()[:32]}.json"


def _text(value: Any) -> str:
    assert isinstance(value, datetime)
    return value.isoformat()
