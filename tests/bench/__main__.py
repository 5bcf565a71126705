"""`make bench`: compare the product with the alternatives of its users, each case in a process of its own.

`python -m tests.bench --rows 200000 net_range` measures one case at another size. Seconds are shown, but the result is
a ratio within one run. All results are stored in `.bench/found.json`; a run of some cases replaces their results.
`bounds.py` has the greatest allowed ratios. The exit code is 1 if a ratio exceeds its bound, and 3 if the machine was
not quiet, so that nothing can be judged."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mirrorfeed.landing.output_format import Output
from mirrorfeed.runtime.spark_session import get_session
from tests.bench.bounds import judge, spread, unsteady
from tests.bench.file_sizes import histogram, sizes_in
from tests.bench.profile import profile
from tests.bench.race import Case, race, ratios

CASES = {
    "initial_load": ("initial_load", 2_000_000),
    "initial_load_20_million": ("initial_load", 20_000_000),
    "staged_load": ("staged_load", 2_000_000),
    "load_in_parts": ("load_in_parts", 20_000_000),
    "net_range": ("net_range", 2_000_000),
    "net_range_half_million": ("net_range", 500_000),
    "small_change": ("small_change", 2_000_000),
    "first_loads": ("first_loads", 60),
    "no_changes": ("no_changes", 40),
    "up_to_date": ("up_to_date", 1000),
    "fleet_changes": ("fleet_changes", 40),
    "deletion_vectors": ("deletion_vectors", 40),
    "growth": ("growth", 2_000_000),
    "commands": ("commands", 5),
    "cold_start": ("cold_start", 50),
}
"""Module and size of each case: rows of the table, tables, commits or times."""
TARGET = Output().target_file_size
FOUND = Path(".bench/found.json")
MAX_ATTEMPTS = 3
"""Number of times to measure a case whose rounds differ too much, because something else disturbed the machine."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("cases", nargs="*", metavar="case", help=", ".join(CASES))
    parser.add_argument("--rows", type=int, help="rows, tables, commits or times, instead of the size of the case")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measured(given.one, given.rows or CASES[given.one][1], given.rounds)))
        return
    found: dict[str, Any] = {"time": f"{datetime.now(UTC):%Y-%m-%d}", "machine": machine(), "versions": versions()}
    before = json.loads(FOUND.read_text(encoding="utf-8")) if given.cases and FOUND.is_file() else {"cases": {}}
    found["cases"] = before["cases"]
    for name in given.cases or CASES:
        for _ in range(MAX_ATTEMPTS):
            # Peak memory is a figure of the whole life of a process.
            size = given.rows or CASES[name][1]
            command = [sys.executable, "-m", "tests.bench", "--one", name, "--rows", str(size)]
            answer = subprocess.run(
                [*command, "--rounds", str(given.rounds)], check=True, stdout=subprocess.PIPE, text=True
            )
            found["cases"][name] = json.loads(answer.stdout)
            print("\n".join(lines(name, found["cases"][name])), flush=True)
            if not unsteady(found, name):
                break
        FOUND.parent.mkdir(parents=True, exist_ok=True)
        FOUND.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    code, reasons = judge(found)
    print("\n".join(reasons))
    sys.exit(code)


def measured(name: str, size: int, rounds: int) -> dict[str, Any]:
    module = importlib.import_module(f"tests.bench.{CASES[name][0]}")
    spark = get_session({"spark.driver.memory": "6g"})
    folder = Path(tempfile.mkdtemp(prefix="mirrorfeed-bench-"))
    try:
        case = module.case(spark, folder, size)
        times = race(case, rounds)
        driver = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        profiled = profile(spark, case)
        written = _newest_files(case)
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return {
        "title": (module.__doc__ or name).strip(),
        "facts": dict(case.facts),
        "is_full_size": size == CASES[name][1],
        "sides": {side: asdict(each) for side, each in times.items()},
        "driver_mib": driver,
        "profile": profiled,
        "file_sizes": written,
    }


def _newest_files(case: Case) -> str:
    """Return the sizes of the data files of the product's last publication, as text."""
    if case.zone is None:
        return ""
    case.between()
    before = sizes_in(case.zone)
    next(iter(case.sides.values()))()
    return histogram((size for path, size in sizes_in(case.zone).items() if path not in before), TARGET)


def lines(name: str, found: dict[str, Any]) -> list[str]:
    """What a person reads: of each side the medians, and what the product takes of them."""
    facts = ", ".join(f"{size:,} {fact.replace('_', ' ')}" for fact, size in found["facts"].items())
    shown = [f"{name}: {found['title']}", f"  {facts}; {found['driver_mib']:.0f} MiB in the driver's Python"]
    if sizes := found.get("file_sizes"):
        shown.append(f"  {sizes}")
    shown.append(f"  {'':<28}{'s':>8}{'CPU s':>8}   {'product / side':<24}{'in CPU':<22}")
    product = next(iter(found["sides"].values()))
    for side, times in found["sides"].items():
        figures = [statistics.median(times[kind]) for kind in ("seconds", "cpu_seconds")]
        shares = [spread(*ratios(product[kind], times[kind])) for kind in ("seconds", "cpu_seconds")]
        shown.append(f"  {side:<28}{figures[0]:>8.2f}{figures[1]:>8.2f}   {shares[0]:<24}{shares[1]:<22}".rstrip())
    return shown


def machine() -> dict[str, Any]:
    return {
        "system": platform.platform(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load": os.getloadavg(),
    }


def versions() -> dict[str, str]:
    packages = {name: importlib.metadata.version(name) for name in ("mirrorfeed", "pyspark", "delta-spark", "pyarrow")}
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {"python": platform.python_version(), **packages, "commit": commit.stdout.strip()}


if __name__ == "__main__":
    main()
