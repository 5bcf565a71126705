"""The command that writes an example of the configuration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mirrorfeed import FILE
from mirrorfeed.cli.main import main
from mirrorfeed.display.rows import Row, row
from mirrorfeed.errors import Terminal

if TYPE_CHECKING:
    from mirrorfeed.api.results import Result


class FileInTheWay(Terminal):
    """`mirrorfeed init` writes an example and overwrites nothing."""

    code = "MF1003"

    def __init__(self, path: str) -> None:
        self.path = path

    def what(self) -> str:
        return f"{self.path} is there already and is left as it is."

    def next(self) -> str:
        return "Name another file: `mirrorfeed init FILE`."


class FileNotWritten(Terminal):
    """`mirrorfeed init` cannot write where it was told to."""

    code = "MF1009"

    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = path, reason

    def what(self) -> str:
        return f"{self.path} cannot be written: {self.reason}."

    def next(self) -> str:
        return "Name a file in a folder that is there and can be written: `mirrorfeed init FILE`."


@row
class Example(Row):
    """An example of the configuration."""

    file: str

    def remarks(self) -> Sequence[str]:
        return (f"Wrote {self.file}. Edit it, then run `mirrorfeed enable` and `mirrorfeed publish`.",)


@main.command()
@click.argument("file", default=FILE)
def init(file: str) -> Result[Example]:
    """Write an example of the configuration, with comments."""
    from mirrorfeed.api.results import Result
    from mirrorfeed.config import EXAMPLE

    try:
        with Path(file).open("x", encoding="utf-8") as target:
            target.write(EXAMPLE)
    except FileExistsError as error:
        raise FileInTheWay(file) from error
    except OSError as error:
        raise FileNotWritten(file, error.strerror or str(error)) from error
    return Result((Example(file),))
