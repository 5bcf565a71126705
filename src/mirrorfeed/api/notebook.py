"""For notebooks: what their deployment says."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mirrorfeed import config
from mirrorfeed.config import Config
from mirrorfeed.display.printable import printable
from mirrorfeed.runtime.version import this_build

DEPLOYED = "deployed/deployment.json"
"""Beside the notebooks; written when the bundle is built."""


@dataclass(frozen=True)
class Setting:
    """What a notebook works with: the fields that were filled in, and for the others what the deployment says."""

    config: Config
    mirror: str | None
    """The folder of the mirrored tables, if one is named."""
    archived: str | None
    """The table with an archive that is named, or else the first of the deployment's, if there is one."""


def setting(dbutils: Any) -> Setting:
    """Says in one line which configuration, landing zone and build the notebook uses, and gives all that it needs."""

    def field(name: str) -> str:
        try:
            return str(dbutils.widgets.get(name))
        except Exception:  # a notebook has the fields that it needs; the class differs by runtime
            return ""

    folder = folder_of_notebook(dbutils)
    facts = told(folder)
    mirror, archive_tables = facts.pop("mirror", ""), tuple(facts.pop("archive_tables", ()))
    given = {name: field(name) or value for name, value in facts.items()}
    if zone := field("landing_zone"):
        given["landing_zone"] = zone
    loaded = config.load(os.path.normpath(folder / field("config")), **given)
    print(printable(f"mirrorfeed {this_build()}, {loaded.path}, landing zone {loaded.landing_zone}"))
    archived = next((name for name in (field("table"), *archive_tables) if name), None)
    return Setting(loaded, field("mirror") or mirror or None, archived)


def folder_of_notebook(dbutils: Any) -> Path:
    """Where the notebook lies; the working directory may be any."""
    context = dbutils.notebook.entry_point.getDbutils().notebook().getContext()
    path = Path(context.notebookPath().get())
    below = Path("/Workspace") / path.relative_to("/")
    return below.parent if below.parent.is_dir() else path.parent


def told(folder: Path) -> dict[str, Any]:
    """What the deployment says; nothing where the notebook is not deployed."""
    try:
        found: dict[str, Any] = json.loads((folder / DEPLOYED).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return found
