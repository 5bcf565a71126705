"""Histories of publishers of one table in a local folder, with faults at their system calls.

A program, because its process needs the library of `fixtures/system_call_faults.py`. It forks each publisher, so a
history takes a fraction of a second. A publisher is killed, a call of it fails, or it waits while others publish, the
source changes, the service takes files, or the folder is deleted. Clocks differ. After each history, the mirror must
equal the source.

    LD_PRELOAD=… python -m tests.publish.system_call_histories FOLDER FIRST_SEED COUNT
"""

from __future__ import annotations

import errno
import gc
import json
import os
import pickle
import shutil
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import NamedTuple

from fixtures.memory import MemoryStore
from fixtures.mirror import Mirror, canonical
from fixtures.system_call_faults import Fault, Mode, Surroundings, begin, end
from mirrorfeed.errors import LandingZoneError, TransientError
from mirrorfeed.publish.errors import RecordsMissingError, storage_clock_behind
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.source.snapshot_or_range import Facts, PublishedVersion
from mirrorfeed.storage.local_folder import FolderStore
from tests.support.entries import FOLDER, entry
from tests.support.tables import Table, TableFeed

_REFUSED_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
_ERRORS = (errno.EIO, errno.ENOSPC, errno.ESTALE, errno.ETIMEDOUT)
_FAILURES = [each for each in Mode if each not in (Mode.NOTHING, Mode.PAUSED)]
_CLOCKS = (0, 1, 30, -30, 3600, -3600)
"""Seconds by which clocks differ."""
_DISTURBANCES = 6


class Report(NamedTuple):
    """How a publisher ended."""

    calls: Mapping[str, int]
    """Its system calls and its fault by name. Empty if it was killed."""
    version: int | None = None
    """Published version, or None after an error."""
    error: str = ""
    """Traceback of an error that asks for a person."""


@dataclass(frozen=True)
class _CurrentFeed(TableFeed):
    """Feed of a table that another process changes: reads the versions from a file."""

    file: Path = Path()

    def facts(self, published: PublishedVersion | None, limit: int) -> Facts:
        self.table.versions = pickle.loads(self.file.read_bytes())
        return super().facts(published, limit)


class History:
    """A random history of one table. The file system of each second one has no hard links."""

    def __init__(self, zone: Path, seed: int) -> None:
        self.random, self.faults, self.calls = Random(seed), Counter[str](), Counter[str]()
        self._zone, self._store = str(zone), FolderStore(str(zone))
        self._error_of_links = self.random.choice(_REFUSED_LINKS) if seed % 2 else 0
        self._has_keys, self._deletes = self.random.random() < 0.8, self.random.random() < 0.3
        self._by_time = self.random.random() < 0.2
        self._clocks = _CLOCKS if self.random.random() < 0.3 else (0,)
        keys = ("id",) if self._has_keys else ()
        changes = "net" if self._by_time else self.random.choice(("net", "full"))
        self.table = Table({"id": "long", "status": "string"}, keys)
        self._plan = entry(
            keys=keys,
            target_file_size=1,
            compression="none",
            changes=changes,
            row_markers=self.random.choice(("upsert", "exact")) if changes == "full" else "upsert",
            file_order="modified_time" if self._by_time else "sequence",
            log_retention_records=self.random.choice((2, 3, 10)),
            max_versions_per_publication=self.random.choice((1, 2, 500)),
        )
        self._source = zone.with_suffix(".source")
        self._feed = _CurrentFeed(
            self.table, self.random.choice((1, 2)), self.random.choice((1, 2, 100)), file=self._source
        )
        self._mirror = Mirror(self._store, FOLDER)
        self._naming = ("rename", "renameat2" if self._error_of_links else "link")
        """Calls that give files their names."""
        self._usual: Mapping[str, int] = {
            "open": 15,
            "write": 4,
            "list": 5,
            "mkdir": 5,
            **dict.fromkeys(self._naming, 3),
        }
        """Calls of the last publisher that published something, by name."""
        self._change()

    def play(self) -> None:
        for _ in range(self.random.randrange(2, _DISTURBANCES + 1)):
            self._disturb()
        self._settle()

    def _disturb(self) -> None:
        if self.random.random() < 0.9:
            self._change()
        fault = self._choose_fault([*_FAILURES, Mode.PAUSED, Mode.PAUSED, Mode.PAUSED, Mode.PAUSED])
        report = self._run(fault, self._meanwhile)
        self._expect(report)
        if not report.calls or "fault" in report.calls:  # otherwise it made fewer calls
            self.faults[fault.mode.name.lower().replace("_", " ")] += 1
        if self.random.random() < 0.3:
            self._mirror.take(self.random.randrange(1, 4))

    def _choose_fault(self, modes: list[Mode]) -> Fault:
        """Choose the name of a call first, because most calls are `stat`. A few calls give files their names."""
        name = self.random.choice(self._naming if self.random.random() < 0.4 else sorted(self._usual))
        return Fault(
            name, self.random.randrange(self._usual[name]), self.random.choice(modes), self.random.choice(_ERRORS)
        )

    def _meanwhile(self) -> None:
        """Let others act while a publisher waits."""
        for _ in range(self.random.randrange(1, 4)):
            act = self.random.choice([self._publish, self._publish, self._publish_and_fail, self._change, self._take])
            act()
        if self._deletes and self.random.random() < 0.4:
            self._store.remove_folder(FOLDER)
            if self.random.random() < 0.7:
                self._publish()

    def _publish(self) -> None:
        self._expect(self._run(Fault()))

    def _publish_and_fail(self) -> None:
        self._expect(self._run(self._choose_fault(_FAILURES)))

    def _take(self) -> None:
        self._mirror.take(self.random.randrange(1, 4))

    def _change(self) -> None:
        """Make one to three commits."""
        for _ in range(self.random.randrange(1, 4)):
            ids = self.random.sample(range(8), self.random.randrange(1, 4))
            rows = [{"id": id_, "status": f"version {self.table.latest + 1}"} for id_ in ids]
            if not self._has_keys:
                self.table.insert(*rows)
            elif self.random.random() < 0.3:
                self.table.delete(*ids)
            else:
                self.table.merge(*rows)
        self._source.write_bytes(pickle.dumps(self.table.versions))

    def _expect(self, report: Report) -> None:
        """A publisher may fail for a moment. No error may ask for a person."""
        if report.error:
            raise AssertionError(f"a publisher ended with\n{report.error}")

    def _settle(self) -> None:
        """Publish without faults after all clocks have caught up, and compare the mirror with the source."""
        self._clocks = (2 * max(self._clocks),)
        for _ in range(5 if self._by_time else 1):  # files of the same time are published by the next run
            report = self._run(Fault())
            self._expect(report)
            if report.version == self.table.latest:
                break
        assert report.version == self.table.latest, f"published is {report.version}, and not {self.table.latest}"
        self._mirror.take()
        rows = canonical(self.table.at(self.table.latest))
        assert canonical(self._mirror.rows) == rows, f"the mirror has {self._mirror.rows}"

    def _run(self, fault: Fault, meanwhile: Callable[[], None] = lambda: None) -> Report:
        """Run one publisher in a forked process. If it waits, call `meanwhile`, and let it continue."""
        clock = self.random.choice(self._clocks)
        read, report = os.pipe()
        wait, resume = os.pipe()
        child = os.fork()
        if not child:
            self._run_forked(fault, Surroundings(self._error_of_links, clock, report, wait))
        os.close(report)
        os.close(wait)
        text = b""
        try:
            while part := os.read(read, 65536):
                text += part
                if text == b"p":
                    text = b""
                    meanwhile()
                    os.write(resume, b"r")
        finally:
            os.close(read)
            os.close(resume)  # a publisher that still waits ends
            os.waitpid(child, 0)
        if not text:
            return Report({})
        found = Report(*json.loads(text))
        if set(self._naming) <= set(found.calls):
            self._usual = {name: number for name, number in found.calls.items() if name != "fault"}
        self.calls.update(found.calls)
        return found

    def _run_forked(self, fault: Fault, surroundings: Surroundings) -> None:
        version, error = None, ""
        try:
            begin(self._zone, fault, surroundings)
            version = self._publish_table()
        except TransientError:
            pass
        except LandingZoneError as caught:
            is_expected = storage_clock_behind.matches(caught) and len(self._clocks) > 1
            error = "" if is_expected else traceback.format_exc()
        except BaseException:
            error = traceback.format_exc()
        os.write(surroundings.pause_out, json.dumps(Report(Counter(end()), version, error)).encode())
        os._exit(0)

    def _publish_table(self) -> int | None:
        try:
            return publish(self._feed, self._store, self._plan).published_version
        except RecordsMissingError:
            if not self._deletes:
                raise
            self._store.remove_folder(FOLDER)
            return publish(self._feed, self._store, self._plan).published_version


def main(folder: str, first: str, count: str) -> None:
    """Play histories. Print the errors of the seeds that failed, and how often each fault and call was met, as JSON."""
    table = Table({"id": "long"}, ("id",))
    table.insert({"id": 1})
    publish(TableFeed(table), MemoryStore(), entry())  # imports everything before the first fork
    gc.collect()
    gc.freeze()
    failed, faults, calls = dict[int, str](), Counter[str](), Counter[str]()
    for seed in range(int(first), int(first) + int(count)):
        zone = Path(folder, str(seed))
        history = History(zone, seed)
        try:
            history.play()
        except Exception:
            failed[seed] = traceback.format_exc()
        else:
            shutil.rmtree(zone)
        faults.update(history.faults)
        calls.update(history.calls)
    print(json.dumps({"failed": failed, "faults": faults, "calls": calls}))


if __name__ == "__main__":
    main(*sys.argv[1:])
