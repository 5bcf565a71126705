"""`python -m tests.bench.memory --rows 20000000`: peaks of memory and of the staging area, of first loads and ranges.

Measures Parquet and delimited text, in a folder that Spark shares and through a staging path. Each pair of a first load
and a range, which changes a tenth of the rows, has a process of its own. Another process looks at its memory and at the
staging area five times a second. Prints the rows of a table in Markdown."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import psutil

from mirrorfeed.landing.output_format import Delimited, Output
from mirrorfeed.publish.change_sources.delta_feed import DeltaFeed
from mirrorfeed.publish.files.staging_area import IN_ZONE
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.runtime.spark_session import get_session
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.versions import newest_version
from mirrorfeed.storage.local_folder import FolderStore
from tests.bench import tables
from tests.bench.race import cpu_seconds
from tests.bench.staged_load import Apart
from tests.support.entries import entry

FORMATS = {
    "Parquet": Output(),
    "text": Output(delimited=Delimited(undeclared_types="string")),
}
STAGING = ("shared folder", "staging path")
_BYTES_PER_ROW = 200
"""Disk space that a row needs at most: in the source and its changes, in the landing zone, and in the staging area."""
_PAUSE = 0.2
_HEADINGS = (
    *("Publication", "Rows", "Files", "Staging", "Seconds", "CPU seconds per million rows", "Driver's Python, MiB"),
    *("JVM, MiB", "Staging area, MiB", "Data files, MiB", "Staging / data files"),
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.memory")
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--heap", default="6g", help="maximum heap of the JVM")
    parser.add_argument("--part-mib", type=int, default=32 * 1024, help="load_part_size")
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        _run(given, *given.run)
        return
    folder = Path(tempfile.mkdtemp(prefix="mirrorfeed-bench-"))
    free, needed = shutil.disk_usage(folder).free, given.rows * _BYTES_PER_ROW
    try:
        if free < needed:
            sys.exit(
                f"{given.rows:,} rows need {needed / 2**30:.0f} GiB in {folder.parent}, and {free / 2**30:.0f} are free"
            )
        _watch(given, folder, "create", "")
        print(f"heap of the JVM: {given.heap}; load_part_size: {given.part_mib} MiB")
        print(f"| {' | '.join(_HEADINGS)} |\n|{'---|' * len(_HEADINGS)}")
        for name in FORMATS:
            for staging in STAGING:
                _watch(given, folder, name, staging)
                for leftover in ("zone", "staging"):
                    shutil.rmtree(folder / leftover, ignore_errors=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _watch(given: argparse.Namespace, folder: Path, name: str, staging: str) -> None:
    """Run a process and look at it. Print one line for each of its publications."""
    options = f"--rows={given.rows}", f"--heap={given.heap}", f"--part-mib={given.part_mib}", f"--folder={folder}"
    command = [sys.executable, "-m", "tests.bench.memory", *options, "--run", name, staging]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    peaks: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    while process.poll() is None:
        with suppress(FileNotFoundError, psutil.NoSuchProcess):
            of_phase = peaks[(folder / "phase").read_text()]
            for kind, size in _sizes(psutil.Process(process.pid), folder).items():
                of_phase[kind] = max(of_phase[kind], size)
        time.sleep(_PAUSE)
    assert process.stdout is not None
    if process.returncode:
        sys.exit(process.returncode)
    for line in process.stdout:
        phase, rows, seconds, cpu, data = line.rstrip("\n").split("\t")
        peak = peaks[phase]
        shown = [
            *(phase, f"{int(rows):,}", name, staging, f"{float(seconds):.1f}", f"{float(cpu) / int(rows) * 1e6:.2f}"),
            *(f"{peak[kind] / 2**20:,.0f}" for kind in ("python", "java", "staging")),
            *(f"{int(data) / 2**20:,.0f}", f"{peak['staging'] / int(data):.2f}"),
        ]
        print(f"| {' | '.join(shown)} |", flush=True)


def _sizes(process: psutil.Process, folder: Path) -> dict[str, int]:
    found = {"python": process.memory_info().rss, "java": 0}
    for child in process.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if child.name() == "java":
                found["java"] += child.memory_info().rss
    places = folder / "staging", folder / "zone" / IN_ZONE
    found["staging"] = sum(
        _size(Path(root, name)) for place in places for root, _, names in os.walk(place) for name in names
    )
    return found


def _size(file: Path) -> int:
    with suppress(FileNotFoundError):
        return file.stat().st_size
    return 0


def _run(given: argparse.Namespace, name: str, staging: str) -> None:
    folder, source = given.folder, Source(path=str(given.folder / "source"))
    spark = get_session({"spark.driver.memory": given.heap})
    if name == "create":
        tables.create(spark, source, given.rows, files=16)
        return
    is_apart = staging == STAGING[1]
    zone = (Apart if is_apart else FolderStore)(str(folder / "zone"))
    feed = DeltaFeed(spark, source, str(folder / "staging") if is_apart else None)
    plan = entry(source, "bench", output=FORMATS[name], load_part_size=given.part_mib * 2**20)
    for phase in ("First load", "Range"):
        if phase == "Range":
            tables.merge(spark, source, newest_version(spark, source), given.rows // 10, given.rows)
        (folder / "phase").write_text(phase)
        cpu, started = cpu_seconds(), time.monotonic()
        records = publish(feed, zone, plan).records
        seconds, cpu = time.monotonic() - started, cpu_seconds() - cpu
        (folder / "phase").write_text("")
        files = [file for record in records for file in record.files]
        rows, data = (sum(each) for each in zip(*((sum(f.rows.values()), f.bytes) for f in files), strict=True))
        print(phase, rows, seconds, cpu, data, sep="\t")
    spark.stop()


if __name__ == "__main__":
    main()
