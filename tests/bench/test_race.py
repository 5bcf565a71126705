from __future__ import annotations

import sys
from importlib.util import find_spec
from itertools import pairwise
from subprocess import PIPE, Popen

import pytest

from tests.bench.__main__ import CASES, lines
from tests.bench.file_sizes import histogram
from tests.bench.race import Case, cpu_seconds, race, ratios, turns


def test_every_side_runs_equally_often_after_the_same_preparation() -> None:
    done: list[str] = []
    case = Case({name: lambda name=name: done.append(name) for name in "abc"}, lambda: done.append("-"))
    times = race(case, rounds=3, warm_ups=1)
    assert done == [*"-a-b-c", *"-c-b-a", *"-a-b-c", *"-c-b-a"]
    assert [len(each.seconds) for each in times.values()] == [3, 3, 3]
    assert [len(each.cpu_seconds) for each in times.values()] == [3, 3, 3]


def test_every_case_is_a_module() -> None:
    assert [name for name, _ in CASES.values() if find_spec(f"tests.bench.{name}") is None] == []


def test_failing_side_stops_the_case() -> None:
    with pytest.raises(ZeroDivisionError):
        race(Case({"publish": lambda: 1 / 0}), rounds=1)


_DAEMON = """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
if worker := os.fork():
    input()
    os.kill(worker, signal.SIGKILL)
    while os.path.exists(f"/proc/{worker}"):
        time.sleep(0.01)
    print("ended", flush=True)
    input()
else:
    while time.process_time() < 0.5:  # the system counts in hundredths, and not each of them
        pass
    print("worked", flush=True)
    signal.pause()
"""


@pytest.mark.process
def test_cpu_time_of_a_finished_worker_is_counted() -> None:
    before = cpu_seconds()
    command = [sys.executable, "-c", _DAEMON, "pyspark.daemon"]
    with Popen(command, stdin=PIPE, stdout=PIPE, text=True, bufsize=1) as daemon:
        assert daemon.stdin
        assert daemon.stdout
        assert daemon.stdout.readline() == "worked\n"
        there = cpu_seconds()
        daemon.stdin.write("\n")
        assert daemon.stdout.readline() == "ended\n"
        assert cpu_seconds() >= there >= before + 0.3
        daemon.stdin.write("\n")


def test_order_of_the_sides_changes_in_every_round() -> None:
    orders = [turns(["a", "b"], number) for number in range(-2, 4)]
    assert all(one != other for one, other in pairwise(orders))


def test_ratios_are_computed_per_round() -> None:
    # A machine that becomes four times slower from one round to the next leaves the ratio alone.
    assert ratios([2.0, 8.0, 3.0], [1.0, 4.0, 1.0]) == (2.0, 2.0, 3.0)
    assert ratios([1.0], [0.0]) == (float("inf"),) * 3


def test_case_is_printed_with_medians_and_ratios() -> None:
    sides = {
        "publish": {"seconds": [2.0, 4.0, 3.0], "cpu_seconds": [6.0, 6.0, 6.0]},
        "other": {"seconds": [1.0, 4.0, 2.0], "cpu_seconds": [3.0, 3.0, 3.0]},
    }
    found = {"title": "This beside that.", "facts": {"table_rows": 2000}, "sides": sides, "driver_mib": 99.6}
    title, facts, _, _, other = lines("this", found)
    assert title == "this: This beside that."
    assert facts == "  2,000 table rows; 100 MiB in the driver's Python"
    assert " ".join(other.split()) == "other 2.00 3.00 1.50 (1.00 to 2.00) 2.00 (2.00 to 2.00)"


def test_histogram_counts_files_by_share_of_the_target_size() -> None:
    shown = histogram([25, 26, 70, 71, 130, 131, 900], 100)
    assert shown == "7 files, by share of the target size: to 0.25: 1, to 0.7: 2, to 1.3: 2, above: 2"
