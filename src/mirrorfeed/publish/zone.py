"""The place that a configuration publishes to."""

from __future__ import annotations

from mirrorfeed.config import Config
from mirrorfeed.errors import Terminal
from mirrorfeed.stores import FolderStore, Store


def zone_of(config: Config) -> Store:
    """The place that the configuration's landing zone names."""
    if config.onelake is None:
        return FolderStore(config.landing_zone)
    workspace, database = config.onelake
    if database is None:
        raise DatabaseNotNamed(config.landing_zone)
    from mirrorfeed.stores.onelake import ENDPOINT, OneLakeStore  # takes a second to import, and folders never need it

    return OneLakeStore(workspace, database, config.credential, config.endpoint or ENDPOINT, config.ca_file)


class DatabaseNotNamed(Terminal):
    def __init__(self, landing_zone: str) -> None:
        self.landing_zone = landing_zone

    def what(self) -> str:
        return f"The landing zone {self.landing_zone} names a workspace and no mirrored database."

    def next(self) -> str:
        return (
            "Add the database's id, onelake://<workspace id>/<mirrored database id>; `mirrorfeed fabric create NAME`"
            " makes a database and prints the line."
        )
