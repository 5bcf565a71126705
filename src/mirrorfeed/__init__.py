"""Replicate Delta tables from Databricks to Microsoft Fabric.

    import mirrorfeed

    feed = mirrorfeed.load("mirrorfeed.yml", spark)
    feed.publish()
    feed.status()

The names in `__all__` of `mirrorfeed` and of `mirrorfeed.api.results` are public and stable. Existing parameters keep
their order, and existing fields of results do not change. New parameters and fields come last and have a default.
Before a public name is removed, a release warns with `DeprecationWarning`, and the changelog lists the removal. All
other names can change with any release. Importing the package starts no Spark session and requests no token.
"""

from itertools import chain
from typing import TYPE_CHECKING

from mirrorfeed.runtime import lazy_names

if TYPE_CHECKING:
    from mirrorfeed.api.archive_table import ArchiveAwareTable as ArchiveAwareTable
    from mirrorfeed.api.feed import Feed as Feed
    from mirrorfeed.api.feed import load as load
    from mirrorfeed.api.notebook import deployed as deployed
    from mirrorfeed.archive.archived_files import ArchivedFilesNeededError as ArchivedFilesNeededError
    from mirrorfeed.archive.guard import guarded as guarded
    from mirrorfeed.errors import ArchiveError as ArchiveError
    from mirrorfeed.errors import ConcurrentPublisherError as ConcurrentPublisherError
    from mirrorfeed.errors import ConfigurationError as ConfigurationError
    from mirrorfeed.errors import CredentialsError as CredentialsError
    from mirrorfeed.errors import FabricError as FabricError
    from mirrorfeed.errors import HistoryError as HistoryError
    from mirrorfeed.errors import LandingZoneError as LandingZoneError
    from mirrorfeed.errors import MirrorError as MirrorError
    from mirrorfeed.errors import MirrorfeedError as MirrorfeedError
    from mirrorfeed.errors import SourceError as SourceError
    from mirrorfeed.errors import SparkError as SparkError
    from mirrorfeed.errors import SparkSessionLostError as SparkSessionLostError
    from mirrorfeed.errors import StorageError as StorageError
    from mirrorfeed.errors import TerminalError as TerminalError
    from mirrorfeed.errors import TransientError as TransientError
    from mirrorfeed.errors import UnexpectedError as UnexpectedError
    from mirrorfeed.publish.errors import RowsRefusedError as RowsRefusedError

_HOMES = {
    "api.archive_table": ["ArchiveAwareTable"],
    "api.feed": ["Feed", "load"],
    "api.notebook": ["deployed"],
    "archive.archived_files": ["ArchivedFilesNeededError"],
    "archive.guard": ["guarded"],
    "errors": [
        "ArchiveError",
        "ConcurrentPublisherError",
        "ConfigurationError",
        "CredentialsError",
        "FabricError",
        "HistoryError",
        "LandingZoneError",
        "MirrorError",
        "MirrorfeedError",
        "SourceError",
        "SparkError",
        "SparkSessionLostError",
        "StorageError",
        "TerminalError",
        "TransientError",
        "UnexpectedError",
    ],
    "publish.errors": ["RowsRefusedError"],
}
__all__ = [*sorted(chain.from_iterable(_HOMES.values()))]
__getattr__ = lazy_names(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
