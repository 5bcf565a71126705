"""Name the configuration file in commands that messages print for the user to run."""

from __future__ import annotations

import os
import re

from mirrorfeed.config import FILE
from mirrorfeed.display.redact import shell_argument

_IN_QUOTES = re.compile(r"`(mirrorfeed [^`]+)`")
_READS_CONFIG = re.compile(r"mirrorfeed (?!init\b|explain\b)(?!.* --config\b)")
"""Start of a command that can have the option --config, and does not have it yet."""


def name_config(text: str, path: str) -> str:
    """Return `text` in which each command in backticks reads the configuration file `path`.

    Changes nothing if `path` is the file that commands read by default.
    """
    return _IN_QUOTES.sub(lambda match: f"`{name_config_in_command(match[1], path)}`", text)


def name_config_in_command(command: str, path: str) -> str:
    """Return a shell command, or several joined with `&&`, with the option --config for the configuration file `path`.

    Changes nothing if `path` is the file that commands read by default, or if `command` is not a command of mirrorfeed.
    """
    if path == FILE or os.path.abspath(path) == os.path.abspath(FILE):
        return command
    option = f" --config {shell_argument(path)}"
    return " && ".join(each + option if _READS_CONFIG.match(each) else each for each in command.split(" && "))
