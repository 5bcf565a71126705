"""The mirrored database in Fabric, through its REST API: made, started, stopped and watched."""

from mirrorfeed.mirror.fabric.client import Api
from mirrorfeed.mirror.fabric.database import (
    CreatedDatabase,
    DatabaseStatus,
    MirroredDatabase,
    TableState,
    api_of,
    create,
    database_of,
)
from mirrorfeed.mirror.fabric.endpoint import TableSync, refresh, sync_of
from mirrorfeed.mirror.fabric.errors import NotInFabric

__all__ = [
    "Api",
    "CreatedDatabase",
    "DatabaseStatus",
    "MirroredDatabase",
    "NotInFabric",
    "TableState",
    "TableSync",
    "api_of",
    "create",
    "database_of",
    "refresh",
    "sync_of",
]
