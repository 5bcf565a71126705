"""Publishes Delta tables into Microsoft Fabric open mirroring, exactly once in effect.

    import mirrorfeed

    feed = mirrorfeed.load("mirrorfeed.yml", spark)
    feed.publish()
    feed.status()

The names in `__all__` here and in `mirrorfeed.api.results`, as the reference lists them, are public and stable. The
order of parameters and the fields of results do not change, and additions come last and have a default. Before a
public name is removed, a release warns with `DeprecationWarning`, and the changelog lists the removal. Everything else
can change with any release. Importing the package starts no Spark session and requests no token.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mirrorfeed.api.archive_table import ArchiveAwareTable
    from mirrorfeed.api.feed import Feed, load
    from mirrorfeed.api.notebook import deployed
    from mirrorfeed.archive.guard import guarded
    from mirrorfeed.errors import MirrorfeedError, Terminal, Transient

__all__ = [
    "ArchiveAwareTable",
    "Feed",
    "MirrorfeedError",
    "Terminal",
    "Transient",
    "deployed",
    "guarded",
    "load",
]

_HOMES = {
    "ArchiveAwareTable": "api.archive_table",
    "Feed": "api.feed",
    "MirrorfeedError": "errors",
    "Terminal": "errors",
    "Transient": "errors",
    "deployed": "api.notebook",
    "guarded": "archive.guard",
    "load": "api.feed",
}


def __getattr__(name: str) -> Any:
    """Each of them is imported when it is asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
