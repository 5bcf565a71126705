"""The feed and the settings of a deployed notebook."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrorfeed.api.feed import Feed
from mirrorfeed.config import loader
from mirrorfeed.display.redact import printable
from mirrorfeed.runtime.version import this_build

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEPLOYED = "deployed/deployment.json"
"""Path in the folder of the notebooks. The bundle writes this file when it is built."""


def deployed(dbutils: Any, spark: SparkSession) -> Feed:
    """Return the feed with the settings of this notebook's deployment.

    The settings are configuration, landing zone, ledger, mirror, and tables with an archive. The notebook's fields
    `config`, `landing_zone`, `mirror` and `table` override the settings unless they are empty. Prints the
    configuration, the landing zone and the build.

    Raises `MirrorfeedError` with all mistakes in the configuration and their lines.
    """

    def field(name: str) -> str:
        try:
            return str(dbutils.widgets.get(name))
        except Exception:  # the field does not exist; the class of the error differs by runtime
            return ""

    folder = folder_of_notebook(dbutils)
    facts = deployment_settings(folder)
    mirror, archive_tables = facts.pop("mirror", ""), tuple(facts.pop("archive_tables", ()))
    given = {name: field(name) or value for name, value in facts.items()}
    if zone := field("landing_zone"):
        given["landing_zone"] = zone
    loaded = loader.load(os.path.normpath(folder / field("config")), **given)
    print(printable(f"mirrorfeed {this_build()}, {loaded.path}, landing zone {loaded.landing_zone}"))
    archived = next((name for name in (field("table"), *archive_tables) if name), None)
    return Feed(loaded, spark, field("mirror") or mirror or None, archived)


def folder_of_notebook(dbutils: Any) -> Path:
    """Return the folder of the notebook, which can differ from the working directory."""
    context = dbutils.notebook.entry_point.getDbutils().notebook().getContext()
    path = Path(context.notebookPath().get())
    below = Path("/Workspace") / path.relative_to("/")
    return below.parent if below.parent.is_dir() else path.parent


def deployment_settings(folder: Path) -> dict[str, Any]:
    """Return the settings of the deployment. Empty if the notebook is not deployed."""
    try:
        found: dict[str, Any] = json.loads((folder / DEPLOYED).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return found
