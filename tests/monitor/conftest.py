"""An HTTP server that receives webhooks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from fixtures.local_server import serving
from tests.publish.conftest import configured

__all__ = ["configured"]

HIDDEN = "T000-B000-s3cret"
"""Secret part of the webhook URL."""


@dataclass
class Hook:
    """A server that returns the given responses, and then repeats the last one."""

    answers: list[tuple[int, dict[str, str], bytes]] = field(default_factory=lambda: [(200, {}, b"ok")])
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    url: str = ""

    def answer(self, path: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        self.requests.append((path, json.loads(body)))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.fixture
def hook() -> Iterator[Hook]:
    server_hook = Hook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, headers, content = server_hook.answer(self.path, body)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with serving(server):
        server_hook.url = f"http://127.0.0.1:{server.server_port}/services/{HIDDEN}?sig={HIDDEN}"
        yield server_hook
