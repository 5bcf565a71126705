from __future__ import annotations

import logging
import pickle

import pytest

from mirrorfeed.errors import named
from mirrorfeed.stores import NotThere


def test_an_error_of_ours_stays_as_it_is() -> None:
    error = NotThere("zone/a")
    assert named("Publishing a", error) is error


def test_a_failure_without_a_name_says_what_was_done_and_its_traceback_goes_to_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cause = ValueError("first line\n\n  second line\n" + "more\n" * 50)
    with caplog.at_level(logging.ERROR):
        error = named("Publishing a", cause)
    assert str(pickle.loads(pickle.dumps(error))) == (
        "Publishing a failed with ValueError: first line second line more"
        " Nothing is lost or doubled by it. Try again; if it repeats, look at the whole message in the log."
    )
    (logged,) = caplog.records
    assert logged.getMessage() == "Publishing a failed"
    assert logged.exc_info is not None
    assert logged.exc_info[1] is cause
