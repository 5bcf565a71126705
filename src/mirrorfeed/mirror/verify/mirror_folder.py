"""Below which folder the mirrors of a configuration's tables are."""

from __future__ import annotations

from urllib.parse import urlsplit

from mirrorfeed.config import Config
from mirrorfeed.mirror.verify.errors import MirrorNotNamed


def folder_of(config: Config, named: str | None) -> str:
    """The one that is named, or else the tables of the mirrored database in OneLake; or `MirrorNotNamed`."""
    if named:
        return named
    workspace, database = config.onelake or (None, None)
    if workspace is None or database is None:
        raise MirrorNotNamed(landing_zone=config.landing_zone)
    from mirrorfeed.storage.onelake import ENDPOINT

    return tables_in_onelake(workspace, database, config.endpoint or ENDPOINT)


def tables_in_onelake(workspace: str, database: str, endpoint: str) -> str:
    """Where the service keeps the tables of a mirrored database: beside its files."""
    return f"abfss://{workspace}@{urlsplit(endpoint).netloc}/{database}/Tables"
