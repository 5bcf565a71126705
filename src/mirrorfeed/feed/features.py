"""Features of tables, by the names in their protocols. One that is not known here may change what is read."""

from __future__ import annotations

from collections.abc import Iterable

from mirrorfeed.errors import Terminal

_KNOWN = frozenset(
    {
        "adaptiveMetadata",
        "allowColumnDefaults",
        "appendOnly",
        "catalogManaged",
        "catalogOwned",
        "changeDataFeed",
        "checkConstraints",
        "checkpointProtection",
        "clustering",
        "collations",
        "columnMapping",
        "coordinatedCommits",
        "deletionVectors",
        "domainMetadata",
        "generatedColumns",
        "geospatial",
        "icebergCompatV1",
        "icebergCompatV2",
        "icebergCompatV3",
        "identityColumns",
        "inCommitTimestamp",
        "invariants",
        "materializePartitionColumns",
        "rowTracking",
        "timestampNtz",
        "typeWidening",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantShredding",
        "variantType",
    }
)
_STAGES = ("-preview", "-dev")


def unknown(features: Iterable[str]) -> tuple[str, ...]:
    """Those that nobody looked at when this was written. Previews of known ones are known."""
    found = {name: name for name in features}
    for name in found:
        for stage in _STAGES:
            found[name] = found[name].removesuffix(stage)
    return tuple(sorted(name for name, plain in found.items() if plain not in _KNOWN))


class UnknownFeatures(Terminal):
    def __init__(self, table: str, names: tuple[str, ...]) -> None:
        self.table, self.names = table, names

    def what(self) -> str:
        listed = ", ".join(self.names)
        return (
            f"{self.table} has table features that this release does not know: {listed}. What they change is unknown."
        )

    def next(self) -> str:
        return (
            "Install a newer release of mirrorfeed, or drop the features from the table (ALTER TABLE … DROP FEATURE)."
        )
