"""The tiers of files that lie in several tables' folders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mirrorfeed.storage.errors import OtherPlace
from mirrorfeed.storage.tiers import Facts, Priority, Tier, TierStore, tiers_at


@dataclass(frozen=True)
class TiersOfTables:
    """Files of several tables, each where its own address says."""

    uris: tuple[str, ...]
    """All that it is asked about."""
    at: Callable[[str], TierStore | None] = tiers_at

    @property
    def keeps(self) -> bool:
        return all(store.keeps for store, _ in self._parts(self.uris))

    def facts(self, uris: Sequence[str]) -> dict[str, Facts]:
        return {uri: facts for store, part in self._parts(uris) for uri, facts in store.facts(part).items()}

    def look(self, uris: Sequence[str]) -> dict[str, Tier]:
        return {uri: tier for store, part in self._parts(uris) for uri, tier in store.look(part).items()}

    def bring_back(
        self, uris: Sequence[str], priority: Priority, to: Tier = Tier.HOT, days: int | None = None
    ) -> dict[str, str]:
        answers = (store.bring_back(part, priority, to, days) for store, part in self._parts(uris))
        return {uri: why for refused in answers for uri, why in refused.items()}

    def _parts(self, uris: Sequence[str]) -> list[tuple[TierStore, list[str]]]:
        found: list[tuple[TierStore, list[str]]] = []
        for uri in uris:
            store = self.at(uri)
            if store is None:
                raise OtherPlace(uri=uri, root="a place whose tiers are known")
            same = next((part for other, part in found if other == store), None)
            if same is None:
                found.append((store, [uri]))
            else:
                same.append(uri)
        return found
