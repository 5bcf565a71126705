"""Features of tables, by the names in their protocols. One that is not known here may change what is read."""

from __future__ import annotations

from collections.abc import Iterable

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
_COMMITS_ELSEWHERE = frozenset({"catalogManaged", "catalogOwned", "coordinatedCommits"})
_STAGES = ("-preview", "-dev")


def unknown(features: Iterable[str]) -> tuple[str, ...]:
    """Those that nobody looked at when this was written. Previews of known ones are known."""
    return tuple(sorted(name for name in features if _plain(name) not in _KNOWN))


def commits_elsewhere(features: Iterable[str]) -> tuple[str, ...]:
    """Those with which the newest commits may stand elsewhere than in the table's log."""
    return tuple(sorted(name for name in features if _plain(name) in _COMMITS_ELSEWHERE))


def _plain(name: str) -> str:
    for stage in _STAGES:
        name = name.removesuffix(stage)
    return name
