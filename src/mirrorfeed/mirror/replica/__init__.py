"""A stand-in for the service: applies a landing zone to Delta tables, written from the specification alone."""

from mirrorfeed.mirror.replica.service import Replica, State, TableReport, follow

__all__ = ["Replica", "State", "TableReport", "follow"]
