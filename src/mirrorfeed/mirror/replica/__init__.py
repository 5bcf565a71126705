"""A stand-in for Fabric: applies a landing zone to Delta tables, written from the specification alone."""

from mirrorfeed.mirror.replica.service import Replica, State, TableReport, follow

__all__ = ["Replica", "State", "TableReport", "follow"]
