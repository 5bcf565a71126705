"""The list of commands, compared with starting Python and importing the libraries that a configuration needs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from tests.bench.race import Case


def python(*arguments: str, times: int = 1, place: Path | None = None) -> Callable[[], None]:
    """What runs Python in a process of its own, so many times."""

    def runs() -> None:
        for _ in range(times):
            subprocess.run([sys.executable, *arguments], cwd=place, check=True, stdout=subprocess.DEVNULL)

    return runs


def case(_spark: SparkSession, _folder: Path, times: int) -> Case:
    """Each as many times, for one takes less than a clock tells well."""
    return Case(
        {
            "mirrorfeed --help": python("-m", "mirrorfeed.cli", "--help", times=times),
            "Python alone": python("-c", "pass", times=times),
            "import click": python("-c", "import click", times=times),
            "import pydantic, rich, yaml": python("-c", "import pydantic, rich.console, yaml", times=times),
        },
        facts={"times": times},
    )
