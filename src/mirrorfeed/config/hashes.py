"""Where the hashes of a source that is compared are kept: in a table beside the ledger."""

from __future__ import annotations

import hashlib
import re

from mirrorfeed.feed.source import Source
from mirrorfeed.landing.names import Target

_PREFIX = "hashes_"


def hashes_of(ledger: Source, target: Target) -> Source:
    """No two targets have the same."""
    known = hashlib.sha256("\0".join(target.fold()).encode()).hexdigest()[:8]
    words = re.sub(r"[^a-z0-9]+", "_", str(target).lower()).strip("_")
    return _beside(ledger, f"{_PREFIX}{words}_{known}")


def may_be_hashes(ledger: Source, source: Source) -> bool:
    """Whether a source has such a name in such a place."""
    name = source.parts[-1] if source.path is None else source.path.rstrip("/").rpartition("/")[2]
    return name.startswith(_PREFIX) and source.fold() == _beside(ledger, name).fold()


def _beside(ledger: Source, name: str) -> Source:
    if ledger.path is None:
        return Source((*ledger.parts[:-1], name))
    above, slash, _ = ledger.path.rstrip("/").rpartition("/")
    return Source(path=f"{above}{slash}{name}")
