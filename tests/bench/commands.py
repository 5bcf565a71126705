"""The list of commands, beside Python alone and the libraries that a configuration takes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from tests.bench.race import Case


def case(_spark: SparkSession, _folder: Path, times: int) -> Case:
    """Each as many times, for one takes less than a clock tells well."""

    def run(*arguments: str) -> Callable[[], None]:
        def runs() -> None:
            for _ in range(times):
                subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)

        return runs

    return Case(
        {
            "mirrorfeed --help": run("-m", "mirrorfeed.cli", "--help"),
            "Python alone": run("-c", "pass"),
            "import click": run("-c", "import click"),
            "import pydantic, rich, yaml": run("-c", "import pydantic, rich.console, yaml"),
        },
        facts={"times": times},
    )
