"""Create the `Feed` of a notebook that the Databricks bundle deployed."""

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
"""File with the settings of the deployment, relative to the folder of the notebooks. The bundle's build writes it."""


def deployed(dbutils: Any, spark: SparkSession) -> Feed:
    """Return the `Feed` of a configuration file, with the settings of this notebook's deployment.

    The notebook's widget `config` must contain the path of the file, relative to the folder of the notebook. The
    deployment sets landing zone, ledger, staging path, secret scope, variables of the file, folder of the mirrored
    tables, and default table of `feed.archive.table`. A widget that is not empty overrides the setting with the same
    name, such as `landing_zone` or `mirror` (folder of the mirrored tables). The widget `table` overrides the default
    table of `feed.archive.table`. Prints the version, the path of the file and the landing zone. Raises
    `MirrorfeedError` with all mistakes in the configuration and their lines.
    """

    def field(name: str) -> str:
        try:
            return str(dbutils.widgets.get(name))
        except Exception:  # the widget does not exist; the class of the error differs by runtime
            return ""

    folder = folder_of_notebook(dbutils)
    deployment = folder / DEPLOYED
    settings: dict[str, Any] = json.loads(deployment.read_text(encoding="utf-8")) if deployment.is_file() else {}
    mirror, archive_tables = settings.pop("mirror", ""), settings.pop("archive_tables", ())
    variables = settings.pop("variables", {})
    overrides = {name: field(name) or value for name, value in {"landing_zone": None, **settings}.items()}
    config = loader.load(os.path.normpath(folder / field("config")), variables=variables, **overrides)
    print(printable(f"mirrorfeed {this_build()}, {config.path}, landing zone {config.landing_zone}"))
    archived_table = next((name for name in (field("table"), *archive_tables) if name), None)
    return Feed(config, spark, field("mirror") or mirror or None, archived_table)


def folder_of_notebook(dbutils: Any) -> Path:
    """Return the folder of the notebook, which can differ from the working directory.

    Returns the working directory if `dbutils` does not report the path. From serverless environment 5, the gateway
    behind `entry_point` is off. Databricks documents that `getContext` still works, but not what the context contains.
    """
    try:
        context = dbutils.notebook.entry_point.getDbutils().notebook().getContext()
        path = Path(context.notebookPath().get())
    except Exception:  # the class of the error differs by environment
        return Path.cwd()
    folder = Path("/Workspace") / path.parent.relative_to("/")
    return folder if folder.is_dir() else path.parent
