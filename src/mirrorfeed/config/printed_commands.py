"""Name the configuration file and its variables in commands that messages print for the user to run."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from types import MappingProxyType

from mirrorfeed.config import FILE
from mirrorfeed.display.redact import shell_argument

_IN_QUOTES = re.compile(r"`(mirrorfeed [^`]+)`")
_READS_CONFIG = re.compile(r"mirrorfeed (?!init\b|explain\b)(?!.* --(?:config|var)\b)")
"""Start of a command that can have the options --config and --var, and has neither yet."""


def name_config(text: str, path: str, variables: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return `text` in which each command in backticks reads the configuration file `path` with `variables`.

    Changes nothing if `path` is the file that commands read by default and there are no variables.
    """
    return _IN_QUOTES.sub(lambda match: f"`{name_config_in_command(match[1], path, variables)}`", text)


def name_config_in_command(command: str, path: str, variables: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return a shell command, or several joined with `&&`, with the options --config and --var.

    Omits --config if `path` is the file that commands read by default. Changes nothing if `command` is not a command of
    mirrorfeed.
    """
    is_default = path == FILE or os.path.abspath(path) == os.path.abspath(FILE)
    options = "" if is_default else f" --config {shell_argument(path)}"
    options += "".join(f" --var {shell_argument(f'{name}={text}')}" for name, text in variables.items())
    return " && ".join(each + options if _READS_CONFIG.match(each) else each for each in command.split(" && "))
