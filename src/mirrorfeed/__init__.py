"""Publishes Delta tables into Microsoft Fabric open mirroring, exactly once in effect.

    import mirrorfeed

    feed = mirrorfeed.load("mirrorfeed.yml", spark)
    feed.publish()
    feed.status()

What `__all__` names here and in `mirrorfeed.results`, with what the reference lists of it, is public and stays: names,
the order of parameters and the fields of results are kept, and what is added comes last and has a default. Before a
public name goes, a release warns of it with `DeprecationWarning`, and the changelog says so. Everything else, each
module below this one and what begins with an underscore, may change with any release. To import this starts no Spark
and logs in nowhere.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mirrorfeed.archive.guard.statement import guarded
    from mirrorfeed.errors import MirrorfeedError, Terminal, Transient
    from mirrorfeed.face.archive import ArchiveAwareTable
    from mirrorfeed.face.feed import Feed, deployed, load

FILE = "mirrorfeed.yml"
"""The configuration, where no other is named."""

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
    "ArchiveAwareTable": "face.archive",
    "Feed": "face.feed",
    "MirrorfeedError": "errors",
    "Terminal": "errors",
    "Transient": "errors",
    "deployed": "face.feed",
    "guarded": "archive.guard.statement",
    "load": "face.feed",
}


def __getattr__(name: str) -> Any:
    """Each of them is imported when it is asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
