"""What all tests share: one Spark session, an order, and the frame in which notebooks run."""

from __future__ import annotations

import os
import shutil
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from fixtures.onelake import SECRET, OneLake
from mirrorfeed.session import get_session

settings.register_profile("ci", max_examples=30, deadline=None, derandomize=True, database=None)
settings.register_profile("soak", max_examples=3000, deadline=None, database=None, print_blob=True)
settings.load_profile(os.environ.get("MIRRORFEED_HYPOTHESIS", "ci"))

ROOT = Path(__file__).parent.parent
COUNTED = pytest.StashKey[Counter[str]]()


@pytest.fixture(scope="session")
def counted(request: pytest.FixtureRequest) -> Counter[str]:
    """How many cases of each kind the proofs played, by its name; the last lines of a run tell."""
    return request.config.stash.setdefault(COUNTED, Counter())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for kind, count in sorted(config.stash.get(COUNTED, Counter()).items()):
        terminalreporter.write_line(f"{count} {kind}")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one session of a run. Tests that use it come after those that do not."""
    os.environ.setdefault(SECRET, uuid.uuid4().hex)  # of all simulators from now on, for its workers to find
    warehouse = tmp_path_factory.mktemp("warehouse")
    options = {"spark.sql.shuffle.partitions": "2", "spark.sql.warehouse.dir": warehouse.as_uri()}
    session = get_session(options=options)
    yield session
    session.stop()


@pytest.fixture
def onelake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OneLake]:
    """A simulated OneLake; its clients log in with a secret from the environment."""
    with OneLake(tmp_path / "certificates") as simulator:
        for name, value in simulator.environment.items():
            monkeypatch.setenv(name, value)
        yield simulator


@pytest.fixture(scope="session", autouse=True)
def _notebooks_find_what_databricks_gives_them(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """IPython writes beside its profile, so it gets a copy."""
    folder = tmp_path_factory.mktemp("ipython")
    shutil.copytree(ROOT / "fixtures/ipython", folder / "profile_default/startup")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IPYTHONDIR", str(folder))
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])))
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What fails fast comes first: pure tests, then those with Spark, then notebooks with a Spark of their own."""
    items.sort(key=lambda item: (item.path.suffix == ".ipynb", "spark" in getattr(item, "fixturenames", ())))
