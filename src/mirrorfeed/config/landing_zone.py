"""Open the landing zone of a configuration."""

from __future__ import annotations

from mirrorfeed.config.errors import DatabaseNotNamed
from mirrorfeed.config.model import Config, Table
from mirrorfeed.landing.names import data_number
from mirrorfeed.storage import Store
from mirrorfeed.storage.volume import open_folder


def zone_of(config: Config) -> Store:
    """Return the store of the landing zone. Raises `DatabaseNotNamed`."""
    if config.onelake is None:
        return open_folder(config.landing_zone)
    workspace, database = config.onelake
    if database is None:
        raise DatabaseNotNamed(landing_zone=config.landing_zone)
    from mirrorfeed.storage.onelake import ENDPOINT, OneLakeStore  # takes a second to import, and folders never need it

    return OneLakeStore(workspace, database, config.credential, config.endpoint or ENDPOINT, config.ca_bundle)


def without_files(config: Config) -> list[str]:
    """Return the configured tables that have no data file in the landing zone."""
    store = zone_of(config)

    def lacks(table: Table) -> bool:
        return not any(data_number(entry.name, None) for entry in store.list(table.target.folder))

    return [str(table.target) for table in config.tables if lacks(table)]
