from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.onelake import OneLake


@pytest.fixture
def onelake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OneLake]:
    """A simulated OneLake; its stores log in with a secret from the environment."""
    with OneLake(tmp_path / "certificates") as simulator:
        for name, value in simulator.environment.items():
            monkeypatch.setenv(name, value)
        yield simulator
