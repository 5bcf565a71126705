"""Below which folder the mirrors of a configuration's tables are."""

from __future__ import annotations

from urllib.parse import urlsplit

from mirrorfeed.config import Config
from mirrorfeed.errors import Terminal


def folder_of(config: Config, named: str | None) -> str:
    """The one that is named, or else the tables of the mirrored database in OneLake; or `MirrorNotNamed`."""
    if named:
        return named
    workspace, database = config.onelake or (None, None)
    if workspace is None or database is None:
        raise MirrorNotNamed(config.landing_zone)
    from mirrorfeed.stores.onelake import ENDPOINT

    return tables_in_onelake(workspace, database, config.endpoint or ENDPOINT)


def tables_in_onelake(workspace: str, database: str, endpoint: str) -> str:
    """Where the service keeps the tables of a mirrored database: beside its files."""
    return f"abfss://{workspace}@{urlsplit(endpoint).netloc}/{database}/Tables"


class MirrorNotNamed(Terminal):
    """The landing zone is a folder, so where its mirror is has to be said."""

    code = "MF7105"

    def __init__(self, landing_zone: str) -> None:
        self.landing_zone = landing_zone

    def what(self) -> str:
        return f"Where the mirror of {self.landing_zone} is, is not known."

    def next(self) -> str:
        return (
            "Name it with --mirror, in a notebook in the field `mirror`, or for a deployment in the variable `mirror`:"
            " the folder that `mirrorfeed replicate` writes to."
        )
