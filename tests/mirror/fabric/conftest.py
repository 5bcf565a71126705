from __future__ import annotations

from collections.abc import Callable

import pytest

from fixtures.onelake import DATABASE, WORKSPACE, OneLake
from mirrorfeed.mirror.fabric import MirroredDatabase
from mirrorfeed.mirror.fabric.client import FabricClient, FabricItem
from mirrorfeed.runtime.login import token_credential
from mirrorfeed.storage.request_retries import RetryLimits
from tests.support.clock import Time


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time().replace_in_retries(monkeypatch)
    monkeypatch.setattr("mirrorfeed.mirror.fabric.client.time", time)
    return time


@pytest.fixture
def api(onelake: OneLake, time: Time) -> FabricClient:
    credential = token_credential(onelake.principal(), str(onelake.ca_bundle))
    retry_limits = RetryLimits(seconds=60, first_pause=1, longest_pause=1, response_seconds=5)
    return FabricClient(
        FabricItem(WORKSPACE, DATABASE),
        credential,
        f"https://{onelake.address}",
        str(onelake.ca_bundle),
        retry_limits,
    )


@pytest.fixture
def database(api: FabricClient) -> MirroredDatabase:
    return MirroredDatabase(api)


@pytest.fixture
def requests(onelake: OneLake) -> Callable[[], list[str]]:
    """Return the API calls so far."""
    return lambda: [verb.removeprefix("fabric ") for verb in onelake.verbs() if verb.startswith("fabric ")]
