"""How requests are retried, with a clock that the pauses advance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
from azure.core.exceptions import IncompleteReadError, ServiceRequestError, ServiceResponseError
from azure.core.pipeline import Pipeline
from azure.core.pipeline.transport import HttpRequest

import mirrorfeed
from mirrorfeed.runtime.errors import LoginUnavailableError
from mirrorfeed.storage import request_retries
from mirrorfeed.storage.http import FramedTransport, RetryPolicy, transport_options
from mirrorfeed.storage.onelake_errors import retry_after_seconds
from mirrorfeed.storage.request_retries import RetryLimits, retry_counter
from tests.support.clock import Time


@dataclass
class Reply:
    status_code: int
    headers: Mapping[str, str] = field(default_factory=dict)
    text: bytes = b""
    framed: bool = True
    reason: str = ""
    raw: Any = field(default_factory=SimpleNamespace)

    def __post_init__(self) -> None:
        if self.framed:
            self.headers = {**self.headers, "Content-Length": "0"}

    @property
    def content(self) -> bytes:
        return self.text


class Server:
    """Returns its responses in turn, and repeats the last one. Replaces the session of a transport."""

    def __init__(self, answers: list[Reply | Exception]) -> None:
        self.answers, self.requests = answers, 0

    def request(self, *_: object, **__: object) -> Any:
        answer = self.answers[min(self.requests, len(self.answers) - 1)]
        self.requests += 1
        if isinstance(answer, Exception):
            raise answer
        return answer


class Run:
    def __init__(self, answers: list[Reply | Exception], retry_limits: RetryLimits, **options: int) -> None:
        self.time, self.server = Time(), Server(answers)
        transport = FramedTransport(session=self.server, session_owner=False)
        pipeline: Pipeline[Any, Any] = Pipeline(transport, [RetryPolicy(retry_limits)])
        before = retry_counter().value
        with pytest.MonkeyPatch.context() as patch:
            self.time.replace_in_retries(patch)
            patch.setattr(request_retries, "random", SimpleNamespace(random=lambda: 1.0))
            try:
                request = HttpRequest("PUT", "https://localhost/")
                self.status = pipeline.run(request, **options).http_response.status_code
            except (ServiceRequestError, ServiceResponseError, LoginUnavailableError) as error:
                self.status = type(error)
        self.repeated = retry_counter().value - before


RETRY_LIMITS = RetryLimits(seconds=100, connections=3, first_pause=1, longest_pause=8)
BUSY, DONE = Reply(503), Reply(201)
LOST, UNREACHED = ServiceResponseError("lost"), ServiceRequestError("unreached")


@pytest.mark.parametrize(
    ("answers", "status", "pauses"),
    [
        ([DONE], 201, []),
        ([BUSY, BUSY, DONE], 201, [1, 2]),
        ([Reply(429, {"Retry-After": "7"}), DONE], 201, [8]),
        ([Reply(429, {"Retry-After": "90"}), Reply(429, {"Retry-After": "9"})], 429, [91]),
        ([Reply(429, {"Retry-After": "3600"})], 429, []),
        ([LOST, DONE], 201, [1]),
        ([LOST, LOST, LOST, LOST, LOST, LOST, DONE], 201, [1, 2, 4, 8, 8, 8]),
        ([UNREACHED], ServiceRequestError, [1, 2]),
        ([UNREACHED, LOST, UNREACHED, DONE], 201, [1, 2, 4]),
        ([LoginUnavailableError(reason="", reached=False)], LoginUnavailableError, [1, 2]),
        ([LoginUnavailableError(reason=""), LoginUnavailableError(reason=""), DONE], 201, [1, 2]),
        ([BUSY], 503, [1, 2, 4, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8]),
        ([Reply(200, framed=False), DONE], 201, [1]),
        ([Reply(200, {"Transfer-Encoding": "chunked"}, framed=False)], 200, []),
        ([Reply(200, {"Connection": "Close"}, framed=False)], 200, []),
        ([Reply(204, framed=False)], 204, []),
        ([Reply(206), Reply(206, {"Content-Range": "bytes 0-1/2"})], 206, [1]),
        ([IncompleteReadError("broken"), DONE], 201, [1]),
        ([Reply(404)], 404, []),
        ([Reply(409)], 409, []),
        ([Reply(400)], 400, []),
        ([Reply(408), Reply(500), Reply(502), Reply(504), DONE], 201, [1, 2, 4, 8]),
        ([Reply(429, {"x-ms-error-code": "CapacityNotActive", "Retry-After": "1"})], 429, []),
        ([Reply(429, text=b'{"error":{"message":"This Fabric capacity is currently paused."}}')], 429, []),
    ],
)
def test_call_is_retried_until_its_deadline(
    answers: list[Reply | Exception], status: object, pauses: list[float]
) -> None:
    run = Run(answers, RETRY_LIMITS)

    assert (run.status, run.time.pauses) == (status, pauses)
    assert run.server.requests == len(pauses) + 1
    assert run.repeated == len(pauses)
    assert run.time.now <= RETRY_LIMITS.seconds


@pytest.mark.parametrize("answer", [BUSY, LOST, UNREACHED, Reply(429, {"Retry-After": "1"})], ids=str)
def test_call_that_must_not_repeat_is_sent_once(answer: Reply | Exception) -> None:
    run = Run([answer, DONE], RETRY_LIMITS, retry_total=0)

    assert run.status == (answer.status_code if isinstance(answer, Reply) else type(answer))
    assert (run.server.requests, run.time.pauses, run.repeated) == (1, [], 0)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30.0),
        ("0", 0.0),
        ("1.5", 1.5),
        ("-3", 0.0),
        ("Sat, 21 Nov 2026 12:00:20 GMT", 20.0),
        ("Sat, 21 Nov 2026 11:00:00 GMT", 0.0),
        ("soon", None),
        ("", None),
    ],
)
def test_retry_after_header_is_parsed_to_seconds(text: str, seconds: float | None) -> None:
    assert retry_after_seconds({"Retry-After": text}, datetime(2026, 11, 21, 12, tzinfo=UTC)) == seconds


def test_missing_retry_after_header_returns_none() -> None:
    assert retry_after_seconds({}, datetime(2026, 11, 21, tzinfo=UTC)) is None


def test_interrupted_download_raises_and_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Short(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "100")
            self.end_headers()
            self.wfile.write(b"half")

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Short) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        request = HttpRequest("GET", f"http://127.0.0.1:{server.server_port}/")
        with FramedTransport(**transport_options(None, RETRY_LIMITS)) as azure, pytest.raises(IncompleteReadError):
            b"".join(azure.send(request, stream=True).stream_download(Pipeline(azure)))
        server.shutdown()
    assert not caplog.records


def test_one_loop_retries_http_requests() -> None:
    root = Path(mirrorfeed.__file__).parent
    code = {str(path.relative_to(root)): path.read_text(encoding="utf-8") for path in root.rglob("*.py")}

    # A second attempt creates files with new names, which is not the same request again.
    assert {path for path, text in code.items() if "RetryBudget(" in text} == {
        "storage/http.py",
        "storage/request_retries.py",
    }
    # This one checks once whether a host responds.
    assert {path for path, text in code.items() if "import requests" in text} == {"monitor/platform_checks.py"}
