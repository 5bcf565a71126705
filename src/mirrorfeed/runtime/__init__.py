"""The process's environment: Spark session, Databricks, logins, server addresses, version."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(module: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a module's `__getattr__`, which imports names from other modules of the package when they are used.

    `homes` has the defining module of each name. If the module defines it under another name, `:` and this name follow.
    """

    def __getattr__(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, _, original_name = homes[name].partition(":")
        return getattr(import_module(f"mirrorfeed.{home}"), original_name or name)

    return __getattr__
