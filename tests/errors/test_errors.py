from __future__ import annotations

import json
import logging
import pickle
import socket
from datetime import UTC, datetime
from pathlib import PurePosixPath

import pytest
from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JNetworkError

from mirrorfeed.archive.data_files import DataFile
from mirrorfeed.display.rows import as_json
from mirrorfeed.errors import SparkSessionLostError, UnexpectedError, wrap_error
from mirrorfeed.history.errors import history_interrupted
from mirrorfeed.runtime.credentials import Secret
from mirrorfeed.runtime.errors import SecretUnreachableError
from mirrorfeed.source.errors import FeedGapError, SourceRecreatedError
from mirrorfeed.source.snapshot_or_range import Range
from mirrorfeed.storage.errors import PathMissingError, StorageUnavailableError


def test_known_error_is_not_wrapped() -> None:
    error = PathMissingError(address="zone/a")
    assert wrap_error("Publishing a", error) is error


def test_unexpected_error_names_the_action_and_logs_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cause = ValueError("first line\n\n  second line\n" + "more\n" * 50)
    with caplog.at_level(logging.ERROR):
        error = wrap_error("Publishing a", cause)
    assert str(pickle.loads(pickle.dumps(error))) == (
        "Publishing a failed with ValueError: first line second line more No data is lost or duplicated. Run the same"
        " command again. If it fails again, see the log for the full message."
    )
    (logged,) = caplog.records
    assert logged.getMessage() == "Publishing a failed"
    assert logged.exc_info is not None
    assert logged.exc_info[1] is cause


def test_ended_spark_is_recognized_among_refused_connections(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    gateways = (
        JavaGateway(gateway_parameters=GatewayParameters(port=port)),
        ClientServer(JavaParameters(port=port), PythonParameters(port=0, eager_load=False)),
    )
    for gateway in gateways:
        with pytest.raises((ConnectionRefusedError, Py4JNetworkError)) as ended:
            gateway.jvm.java.lang.System.nanoTime()
        error = wrap_error("Publishing a", ended.value)
        assert isinstance(error, SparkSessionLostError)
    assert not [each for each in caplog.records if each.name.startswith("mirrorfeed")]
    with pytest.raises(ConnectionRefusedError) as other:
        socket.create_connection(("127.0.0.1", port))
    assert isinstance(wrap_error("Sending an alert", other.value), UnexpectedError)


def test_error_can_be_serialized() -> None:
    error = FeedGapError(table="a.b.orders", published=5, where=Range(5, 7), reason="the feed was off")
    assert json.loads(json.dumps(pickle.loads(pickle.dumps(error)).to_dict())) == {
        "code": "MF2102",
        "what": "The changes of a.b.orders after version 5 cannot be read: in versions 6 to 7 the feed was off.",
        "next": error.solution,
        "facts": {"table": "a.b.orders", "published": 5, "where": "versions 6 to 7", "reason": "the feed was off"},
    }


def test_nested_error_is_serialized() -> None:
    inner = SourceRecreatedError(table="a.b.orders", published_id="x", found_id="y", published=3, latest=9)
    assert (
        history_interrupted(table="a.b.orders", history="history", version=3, finding=inner).to_dict()["facts"][
            "finding"
        ]
        == inner.to_dict()
    )


def test_token_in_a_fact_is_redacted() -> None:
    token = "eyJ0eXAiOiJKV1QifQ.eyJhIjoxfQ.c2ln"
    error = StorageUnavailableError(action="read", address="zone/a", reason=f"401 Bearer {token}")
    assert "(not shown)" in str(error)
    assert token not in f"{error} {error.to_dict()}"


def test_token_in_a_fact_that_is_no_text_is_redacted() -> None:
    token = "eyJ0eXAiOiJKV1QifQ.eyJhIjoxfQ.c2ln"
    error = StorageUnavailableError(
        action="read", address=PurePosixPath(f"zone/{token}"), reason={f"Bearer {token}": 1}
    )
    assert token not in json.dumps(error.to_dict()["facts"])


def test_facts_are_converted_to_json_values() -> None:
    at = datetime(2026, 1, 31, 12, tzinfo=UTC)
    file = DataFile("a/b", 5, created=at, partition={"day": None})
    unknown = dict.fromkeys(("rows", "age_days", "deletion_vector", "why", "tier"))
    assert as_json({1: (file, {"a"}, at)}) == {
        "1": [{"uri": "a/b", "bytes": 5, "partition": {"day": None}, **unknown}, ["a"], "2026-01-31T12:00:00+00:00"]
    }


def test_secret_in_place_of_a_variable_name_is_redacted() -> None:
    error = SecretUnreachableError(secret=Secret(env="hunter2-as-it-is"), reason="it is not set")
    assert "hunter2" not in json.dumps(error.to_dict())
