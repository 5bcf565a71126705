"""The commands. Each reads the configuration, calls one function of the package and shows what it returned."""

from mirrorfeed.cli import (
    archive,
    archive_fleet,
    archive_interval,
    archive_rules,
    deployment,
    doctor,
    fabric,
    history,
    log,
    mirror,
    partner,
    publish,
    repair,
    watch,
)
from mirrorfeed.cli.root import main

__all__ = [
    "archive",
    "archive_fleet",
    "archive_interval",
    "archive_rules",
    "deployment",
    "doctor",
    "fabric",
    "history",
    "log",
    "main",
    "mirror",
    "partner",
    "publish",
    "repair",
    "watch",
]
