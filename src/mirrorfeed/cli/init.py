"""The command that writes an example of the configuration."""

from __future__ import annotations

from pathlib import Path

import click

from mirrorfeed import FILE
from mirrorfeed.cli.root import main, say, say_result
from mirrorfeed.errors import Terminal


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


@main.command()
@click.argument("file", default=FILE)
def init(file: str) -> None:
    """Write a commented example of the configuration."""
    from mirrorfeed.config import EXAMPLE

    try:
        with Path(file).open("x", encoding="utf-8") as target:
            target.write(EXAMPLE)
    except FileExistsError as error:
        raise FileInTheWay(file) from error
    except OSError as error:
        raise FileNotWritten(file, error.strerror or str(error)) from error
    say_result({"file": file})
    say(f"Wrote {file}. Edit it, then run `mirrorfeed enable` and `mirrorfeed publish`.")
