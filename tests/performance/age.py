"""`make age`: compare each command on tables of a year with the same command on fresh tables.

`python -m tests.performance.age --share 0.1` builds a tenth of a year. Each command runs in a process of its own, in
turns on both states, and the shortest time counts. The exit code is 1 if a command takes more than `_BOUND` times as
much time or memory as on fresh tables.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

from tests.performance.aged import Age, build
from tests.support.commits import commit

_TABLES = 2
_YEAR = Age(commits=100_000, records=100_000, waiting_files=50_000, ledger_days=365, rows_per_day=27_400)
"""With ten million rows in the ledger: 19 publications a minute."""
_FRESH = Age(commits=20, records=10, waiting_files=20, ledger_days=90, rows_per_day=27_400)
"""With as many records as a log keeps, and with all rows that a report reads."""
_BOUND = 1.3
_UP_TO_DATE = ("publish", "publish --dry-run", "status", "log sales.t0", "log sales.t1", "doctor")
_WITH_CHANGES = ("publish sales.t1", "publish sales.t0")
_OTHER = ("check-alerts", "report")
_SAMPLE_SECONDS = 0.05


class Cost(NamedTuple):
    seconds: float
    mib: float
    """Largest memory of the command's processes at one moment."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.performance.age")
    parser.add_argument("--share", type=float, default=1.0, help="part of a year")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("commands", nargs="*", help="instead of all commands")
    given = parser.parse_args()
    year = Age(**{name: max(1, round(value * given.share)) for name, value in asdict(_YEAR).items()})
    days = _FRESH.ledger_days + round((_YEAR.ledger_days - _FRESH.ledger_days) * given.share)
    year = replace(year, ledger_days=days, rows_per_day=_YEAR.rows_per_day)
    too_much = []
    with tempfile.TemporaryDirectory() as place:
        configs = {}
        for name, age in (("fresh", _FRESH), ("aged", year)):
            started = time.monotonic()
            (folder := Path(place, name)).mkdir()
            configs[name] = build(folder, _TABLES, age)
            print(f"{name}: {age}, built in {time.monotonic() - started:.0f} s", flush=True)
        print(f"{'command':24}{'fresh s':>10}{'aged s':>10}{'ratio':>8}{'fresh MiB':>12}{'aged MiB':>12}{'ratio':>8}")
        for command in given.commands or (*_UP_TO_DATE, *_WITH_CHANGES, *_OTHER):
            fresh, aged = (_cheapest(command, configs[name], given.rounds) for name in ("fresh", "aged"))
            ratios = [new / old for new, old in zip(aged, fresh, strict=True)]
            print(
                f"{command:24}{fresh.seconds:>10.2f}{aged.seconds:>10.2f}{ratios[0]:>8.2f}"
                f"{fresh.mib:>12.0f}{aged.mib:>12.0f}{ratios[1]:>8.2f}",
                flush=True,
            )
            if max(ratios) > _BOUND:
                too_much.append(command)
    if too_much:
        sys.exit(f"More than {_BOUND} times as much as on fresh tables: {', '.join(too_much)}")


def _cheapest(command: str, config: Path, rounds: int) -> Cost:
    def change() -> None:
        if command in _WITH_CHANGES:
            source = config.parent / command.rpartition(".")[2]
            assert commit(source, f"UPDATE {{}} SET v = '{time.time_ns()}' WHERE id < 10")

    costs = [_measure(command, config, change) for _ in range(rounds)]
    return Cost(min(cost.seconds for cost in costs), min(cost.mib for cost in costs))


def _measure(command: str, config: Path, prepare: Callable[[], None]) -> Cost:
    prepare()
    started, highest, ended = time.monotonic(), [0], threading.Event()
    arguments = [Path(sys.executable).with_name("mirrorfeed"), *command.split(), "--config", str(config)]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(arguments, stdout=output, stderr=output, start_new_session=True)

        def sample() -> None:
            while not ended.wait(_SAMPLE_SECONDS):
                highest[0] = max(highest[0], _memory(process.pid))

        sampler = threading.Thread(target=sample)
        sampler.start()
        code = process.wait()
        seconds = time.monotonic() - started
        ended.set()
        sampler.join()
        if code:
            output.seek(0)
            sys.exit(f"{command} on {config}: {output.read().decode()}")
    return Cost(seconds, highest[0] / 2**20)


def _memory(session: int) -> int:
    """Return the resident memory in bytes of all processes of a session."""
    pages = 0
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            pages += int(fields[21]) if int(fields[3]) == session else 0
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
