from __future__ import annotations

import json
from pathlib import Path

import pytest

from fixtures.memory import MemoryStore
from mirrorfeed.config.loader import load
from mirrorfeed.config.model import Config
from mirrorfeed.errors import TerminalError
from mirrorfeed.landing.errors import foreign_partner_events
from mirrorfeed.lint.linter import lint
from mirrorfeed.orchestration import run_context
from mirrorfeed.orchestration.publish_run import publish_tables
from mirrorfeed.orchestration.run_context import Callbacks, RunContext
from mirrorfeed.publish.change_sources import NO_SPARK
from mirrorfeed.publish.table_log.metadata_files import write_partner_events
from mirrorfeed.storage.errors import StorageUnavailableError
from tests.raised import raises

PARTNER = "partner: {name: us, source_type: Delta, source_version: '4.0', information: {region: west}}\n"
EXPECTED = {
    "partnerName": "us",
    "sourceInfo": {"sourceType": "Delta", "sourceVersion": "4.0", "additionalInformation": {"region": "west"}},
}
FILE = "_partnerEvents.json"


@pytest.fixture
def config(tmp_path: Path) -> Config:
    text = f"landing_zone: ./zone\n{PARTNER}tables: [{{source: a, target: a}}]\n"
    (tmp_path / "mirrorfeed.yml").write_text(text)
    return load(tmp_path / "mirrorfeed.yml")


def test_partner_events_file_is_written_once_and_lints_clean(config: Config) -> None:
    store = MemoryStore()
    assert [write_partner_events(store, config) for _ in range(2)] == [True, False]
    assert json.loads(store.read(FILE)) == EXPECTED
    assert lint(store)[0] == []


def test_partner_events_file_with_other_layout_is_not_changed(config: Config) -> None:
    store = MemoryStore()
    data = json.dumps(dict(reversed(EXPECTED.items())), indent=4).encode()
    store.create(FILE, data)
    assert not write_partner_events(store, config, force=True)
    assert store.read(FILE) == data


def test_partner_events_file_is_written_again_if_it_is_deleted_meanwhile(config: Config) -> None:
    class Deleting(MemoryStore):
        def read(self, path: str) -> bytes:
            self.remove(path)
            return super().read(path)

    store = Deleting()
    store.create(FILE, b"theirs")
    assert write_partner_events(store, config)
    assert json.loads(MemoryStore.read(store, FILE)) == EXPECTED


def problems_of_a_run(store: MemoryStore, config: Config) -> list[str]:
    """Problems that a run reports before the first table. They do not stop the run."""
    problems: list[str] = []
    context = RunContext(
        NO_SPARK, config, Callbacks(on_problem=lambda problem: problems.append(str(problem)), stop=lambda: True)
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(run_context, "zone_of", lambda _: store)
        assert publish_tables(context) == []
    return problems


@pytest.mark.parametrize("content", [b'{"partnerName": "them"}', b"not JSON", b"[" * 100_000])
def test_foreign_partner_events_file_is_replaced_only_by_force(config: Config, content: bytes) -> None:
    store = MemoryStore()
    store.create(FILE, content)
    with raises(foreign_partner_events) as foreign:
        write_partner_events(store, config)
    assert isinstance(foreign.value, TerminalError)
    assert foreign.value.facts == {"address": "memory:/_partnerEvents.json", "content": content.decode()[:200]}
    assert problems_of_a_run(store, config) == [str(foreign.value)]
    assert store.read(FILE) == content
    assert write_partner_events(store, config, force=True)
    assert json.loads(store.read(FILE)) == EXPECTED


class Closed(MemoryStore):
    def create(self, path: str, data: bytes) -> None:
        raise StorageUnavailableError(action="create", address=self.address(path), reason="503")


def test_unavailable_landing_zone_is_a_problem_of_the_run(config: Config) -> None:
    with pytest.raises(StorageUnavailableError) as unavailable:
        write_partner_events(Closed(), config)
    assert problems_of_a_run(Closed(), config) == [str(unavailable.value)]
