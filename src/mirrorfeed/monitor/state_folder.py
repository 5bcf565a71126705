"""The folder in which alerts and measurements keep small files between two runs."""

from __future__ import annotations

import hashlib
from pathlib import PurePosixPath

from mirrorfeed.config.model import Config, zone_of
from mirrorfeed.landing.names import LOG
from mirrorfeed.storage import Store, open_folder


def open_state(config: Config, file: str) -> tuple[Store, str]:
    """Return the store of the folder, and the path of `file` in this store.

    In `alerts.state_path`, the name also has eight characters that distinguish landing zones, because several
    configurations can have the same folder.
    """
    if config.alerts.state_path is None:
        return zone_of(config), f"{LOG}/{file}"
    name, digest = PurePosixPath(file), hashlib.sha256(config.landing_zone.encode()).hexdigest()[:8]
    return open_folder(config.alerts.state_path), f"{name.stem}_{digest}{name.suffix}"
