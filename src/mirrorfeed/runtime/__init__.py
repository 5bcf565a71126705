"""The process's environment: Spark session, Databricks, logins, server addresses, version."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(module: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a module's `__getattr__` for names that other modules of the package define.

    A home is a module, followed by a colon and the name there if it differs.
    """

    def __getattr__(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, _, other = homes[name].partition(":")
        return getattr(import_module(f"mirrorfeed.{home}"), other or name)

    return __getattr__
