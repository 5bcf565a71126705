"""The folder in which alerts and measurements keep small files between two runs."""

from __future__ import annotations

from mirrorfeed.config.model import Config, zone_of
from mirrorfeed.landing.names import LOG
from mirrorfeed.storage import Store, open_folder


def open_state(config: Config, file: str) -> tuple[Store, str]:
    """Return the store of the folder, and the path of `file` in this store."""
    if config.alerts.state_path is not None:
        return open_folder(config.alerts.state_path), file
    return zone_of(config), f"{LOG}/{file}"
