"""The process's environment: Spark session, Databricks, logins, server addresses, version."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_names(module: str, names: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Return a `__getattr__` for the module `module`, which imports names from other modules when they are first used.

    Each key of `names` is a module without the prefix `mirrorfeed.`, and the value lists names in this module.
    """
    homes = {name: home for home in names for name in names[home]}

    def __getattr__(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return getattr(import_module(f"mirrorfeed.{homes[name]}"), name)

    return __getattr__
