"""Shared part of the state machines that publish at random: the landing zone, the service, and the checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fixtures.faults import Crash, Fault, FaultyStore
from fixtures.memory import MemoryStore
from fixtures.mirror import Audit, Mirror, canonical
from mirrorfeed.config.model import Table
from mirrorfeed.errors import TransientError
from mirrorfeed.publish.change_sources import ChangeSource
from mirrorfeed.publish.table_publisher import publish
from tests.support.entries import FOLDER


class Published(RuleBasedStateMachine):
    """A landing zone of one table, the service, and an audit."""

    plan: Table

    def begin_zone(self) -> None:
        self.zone = MemoryStore()
        self.audit, self.mirror = Audit(self.zone, FOLDER), Mirror(self.zone, FOLDER)

    def rows_at(self, version: int) -> Iterable[Mapping[str, Any]]:
        """Published rows of the source at `version`."""
        raise NotImplementedError

    def decided(self, rows: Iterable[Mapping[str, Any]], version: int) -> Iterable[Mapping[str, Any]]:
        """Rows that must be equal in the mirror and in the source at this version."""
        return rows

    def publish_disturbed(self, feed: ChangeSource, fault: Fault) -> FaultyStore:
        """Run once with a fault. The returned store can still deliver late calls."""
        store = FaultyStore(self.zone, [fault], delete=lambda: self.zone.remove_folder(FOLDER))
        with suppress(TransientError, Crash):
            publish(feed, store, self.plan)
        return store

    @rule(most=st.integers(1, 3))
    def the_service_takes_files(self, most: int) -> None:
        self.mirror.take(most)

    @rule()
    def the_folder_is_deleted(self) -> None:
        self.zone.remove_folder(FOLDER)

    @invariant()
    def a_mirror_that_has_taken_every_file_equals_the_published_version(self) -> None:
        if self.audit.published >= 0 and self.mirror.has_the_folder and self.audit.finished == self.mirror.last:
            version = self.audit.published
            rows_at_version = self.rows_at(version)
            assert canonical(self.decided(self.mirror.rows, version)) == canonical(
                self.decided(rows_at_version, version)
            )
