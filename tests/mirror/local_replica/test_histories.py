"""Random files applied in random passes, compared with a table that is updated row by row."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from mirrorfeed.mirror.local_replica import State
from tests.mirror.local_replica.conftest import World, marked, plain
from tests.mirror.local_replica.test_net_change import bag, row_by_row

markers = st.sampled_from([0, 1, 2, 4])
keys = st.sampled_from([None, 1, 2, 3])
names = st.sampled_from([None, "a", "b", "c"])
files = st.tuples(st.booleans(), st.lists(st.tuples(keys, names, markers), max_size=6), st.booleans())


@given(st.lists(files, max_size=6), st.booleans())
def test_mirror_equals_the_files_applied_row_by_row(
    history: list[tuple[bool, list[tuple[int | None, str | None, int]], bool]], upsert_by_default: bool
) -> None:
    expected: list[tuple[int | None, str | None]] = []
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        world.metadata(keyColumns=["id"], isUpsertDefaultRowMarker=upsert_by_default)
        for number, (with_marker, rows, pass_now) in enumerate(history, start=1):
            if with_marker:
                world.put("orders", number, marked(*rows))
                steps = [(marker, (key, name)) for key, name, marker in rows]
            else:
                world.put("orders", number, plain(*((key, name) for key, name, _ in rows)))
                steps = [(4 if upsert_by_default else 0, (key, name)) for key, name, _ in rows]
            expected = row_by_row(expected, steps, 1)
            if pass_now:
                assert world.step().state is State.REPLICATING
                assert bag(world.rows()) == bag(expected)
        assert world.step().state is State.REPLICATING
        assert bag(world.rows() if history else []) == bag(expected)
