"""Alerts sent to webhooks over HTTP and to mail servers over SMTP, and the errors when sending fails."""

from __future__ import annotations

import base64
import json
import logging
import socketserver
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

import pytest

from fixtures.local_server import serving
from fixtures.onelake import tls
from mirrorfeed.config.connections import Mail, Webhook
from mirrorfeed.config.loader import load
from mirrorfeed.errors import TerminalError, TransientError
from mirrorfeed.monitor import alert_channels
from mirrorfeed.monitor.alert_channels import (
    Alert,
    alert_channel_refused,
    alert_channel_unavailable,
    channels_of,
    post,
    send_mail,
    slack,
    teams,
    text,
)
from mirrorfeed.runtime.errors import InvalidProxyError
from mirrorfeed.storage.request_retries import RetryLimits
from tests.monitor.conftest import HIDDEN, Hook
from tests.raised import Expected, raises
from tests.support.clock import Time

NOW = datetime(2026, 3, 14, 9, 30, tzinfo=UTC)
FIX = "mirrorfeed rebuild sales.all_orders"
NEW = Alert("sales.all_orders", "GAP", "Versions <3> & 4 *are* gone.", FIX, NOW)
OVER = Alert("", "MIRRORING_PAUSED", "", "", NOW, NOW + timedelta(hours=2))

BRISK = RetryLimits(seconds=5, first_pause=0.001, longest_pause=0.002, response_seconds=5)


# Texts


def test_alert_text_has_problem_start_and_fix() -> None:
    assert text(NEW).splitlines() == [
        "sales.all_orders: GAP",
        "Versions <3> & 4 *are* gone.",
        "Since 2026-03-14 09:30 UTC.",
        "Fix: mirrorfeed rebuild sales.all_orders",
    ]
    assert text(OVER).splitlines() == [
        "The mirrored database: MIRRORING_PAUSED is resolved",
        "Resolved at 2026-03-14 11:30 UTC, after 2.0 h.",
    ]


def test_teams_message_is_a_card_without_markup() -> None:
    server_state = teams(NEW)
    (attachment,) = server_state["attachments"]
    card = attachment["content"]
    assert (server_state["type"], attachment["contentType"]) == ("message", "application/vnd.microsoft.card.adaptive")
    assert (card["type"], card["version"], card["fallbackText"]) == ("AdaptiveCard", "1.4", text(NEW))
    runs = [run for block in card["body"] for run in block["inlines"]]
    assert {block["type"] for block in card["body"]} == {"RichTextBlock"}
    assert [run["text"] for run in runs] == text(NEW).splitlines()
    assert runs[0]["color"] == "Attention"
    assert teams(OVER)["attachments"][0]["content"]["body"][0]["inlines"][0]["color"] == "Good"


def test_slack_message_is_plain_text_with_an_escaped_notification() -> None:
    server_state = slack(NEW)
    assert [block["type"] for block in server_state["blocks"]] == ["header", "section"]
    assert {block["text"]["type"] for block in server_state["blocks"]} == {"plain_text"}
    assert server_state["blocks"][0]["text"]["text"] == "sales.all_orders: GAP"
    assert server_state["blocks"][1]["text"]["text"].startswith("Versions <3> & 4 *are* gone.\nSince")
    assert "Versions &lt;3&gt; &amp; 4" in server_state["text"]


def test_too_long_alerts_are_truncated() -> None:
    long = Alert("t" * 300, "OTHER", "w" * 30_000, "mirrorfeed x", NOW)
    header, section = (block["text"]["text"] for block in slack(long)["blocks"])
    assert (len(header), header[-1]) == (150, "…")
    assert len(section) < 3000
    assert len(json.dumps(teams(long))) < 28_000


# Webhooks


def sent(url: str, kind: str = "slack") -> list[float]:
    """Pauses between the attempts."""
    time = Time()
    webhook = Webhook.model_validate({"name": "ops", "kind": kind, "url": {"env": "HOOK"}})
    with pytest.MonkeyPatch.context() as patch:
        time.replace_in_retries(patch)
        patch.setattr(alert_channels, "RETRY_LIMITS", BRISK)
        patch.setenv("HOOK", f" {url}\n")
        post(webhook, NEW)
    return time.pauses


def refusal(url: str, kind: Expected) -> str:
    with raises(kind) as caught:
        sent(url)
    assert HIDDEN not in repr((caught.value, str(caught.value), caught.value.__dict__, caught.value.__cause__))
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return str(caught.value)


@pytest.mark.parametrize(("kind", "form"), [("slack", slack), ("teams", teams)])
@pytest.mark.parametrize("status", [200, 202])
def test_alert_is_posted_once_in_the_format_of_the_webhook(
    hook: Hook, caplog: pytest.LogCaptureFixture, kind: str, form: Any, status: int
) -> None:
    caplog.set_level(logging.DEBUG)
    hook.answers = [(status, {}, b"ok")]
    assert sent(hook.url, kind) == []
    assert "POST (not shown) HTTP" in caplog.text
    assert HIDDEN not in caplog.text
    assert hook.requests == [(f"/services/{HIDDEN}?sig={HIDDEN}", form(NEW))]


def test_retry_after_of_a_webhook_is_respected(hook: Hook) -> None:
    hook.answers = [(429, {"Retry-After": "2"}, b"slow down"), (503, {}, b""), (200, {}, b"ok")]
    first, second = sent(hook.url)
    assert 2 <= first < 2.01
    assert second < 0.01
    assert len(hook.requests) == 3


def test_webhook_with_long_retry_after_is_left_to_the_next_run(hook: Hook) -> None:
    hook.answers = [(429, {"Retry-After": "3600"}, b"slow down")]
    assert "Alerts could not be sent: the webhook ops is not available (429 slow down)." in refusal(
        hook.url, alert_channel_unavailable
    )
    assert len(hook.requests) == 1


@pytest.mark.parametrize(
    ("part", "response"),
    [
        ("%2Ftriggers%2Bhush1%3D", "the workflow /triggers+hush1= is off"),
        ("%2Ftriggers%2Bhush1%3D", "the workflow %2ftriggers%2bhush1%3d is off"),
        ("hush1+hush2=", "the workflow hush1%2Bhush2%3D is off"),
        ("a%2Bb%26c", f"{'x' * 290} a+b&c"),
    ],
)
def test_percent_decoded_webhook_address_is_redacted_too(hook: Hook, part: str, response: str) -> None:
    hook.answers = [(404, {}, response.encode())]
    assert "(404 (not shown))" in refusal(hook.url.replace("?sig=", f"?sig={part}&x="), alert_channel_refused)


@pytest.mark.parametrize(
    "address", ["https://a..b", "https://[::1", "https://.", "https://a:b", "https://user:word@host", "http://host"]
)
def test_invalid_webhook_address_is_refused(address: str) -> None:
    assert "(its address is not an https address)" in refusal(address, alert_channel_refused)


def test_invalid_proxy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "a..b")
    with pytest.raises(InvalidProxyError, match="HTTPS_PROXY is not the address of a proxy"):
        sent("https://host.invalid")


def test_unreachable_webhook_is_reported_without_its_address() -> None:
    response = refusal(f"http://127.0.0.1:1/{HIDDEN}", alert_channel_unavailable)
    assert response.startswith(
        "Alerts could not be sent: the webhook ops is not available (Failed to establish a new connection: [Errno 111]"
    )


@pytest.mark.parametrize(
    ("status", "response", "shown"),
    [
        (404, b"no_service", "404 no_service"),
        (400, b"invalid_payload", "400 invalid_payload"),
        (302, b"", "302 no reason was given"),
        (403, f"{HIDDEN} is no token".encode(), "403 (not shown)"),
    ],
)
def test_webhook_refusal_is_reported_and_not_retried(hook: Hook, status: int, response: bytes, shown: str) -> None:
    hook.answers = [(status, {"Location": f"{hook.url}/other"}, response)]
    assert f"Alerts could not be sent: the webhook ops does not accept them ({shown})." in refusal(
        hook.url, alert_channel_refused
    )
    assert len(hook.requests) == 1


@pytest.mark.parametrize(
    "url", [f"http://example.com/{HIDDEN}", HIDDEN, "", f"ftp://localhost/{HIDDEN}", f"https://[{HIDDEN}"]
)
def test_webhook_without_https_gets_no_alert(url: str) -> None:
    assert "(its address is not an https address)" in refusal(url, alert_channel_refused)


def test_unreadable_webhook_address_is_reported_with_its_location() -> None:
    webhook = Webhook.model_validate({"name": "ops", "kind": "slack", "url": {"env": "HOOK"}})
    with raises(
        alert_channel_refused, match="its address cannot be read from the environment variable HOOK: it is not"
    ):
        post(webhook, NEW)


# Mail


@dataclass
class MailServer:
    """An SMTP server with TLS or STARTTLS. It accepts mails, or answers a command or a line with the given response."""

    port: int
    ca_bundle: Path | None
    received: list[tuple[list[str], bytes]] = field(default_factory=list)
    responses: dict[str, str] = field(default_factory=dict)
    commands: list[str] = field(default_factory=list)
    tls: str = "implicit"


@pytest.fixture
def mail_server(tmp_path: Path) -> Iterator[MailServer]:
    context, trusted = tls.make(tmp_path / "certificates")

    class Handler(socketserver.StreamRequestHandler):
        def setup(self) -> None:
            if server_state.tls == "implicit":
                self.request = context.wrap_socket(self.request, server_side=True)
            super().setup()

        def handle(self) -> None:
            self.respond("220 here")
            to: list[str] = []
            while line := self.rfile.readline().decode().strip():
                command = line.split()[0].upper()
                server_state.commands.append(command)
                if answer := server_state.responses.get(line, server_state.responses.get(command)):
                    self.respond(answer)
                elif command == "EHLO":
                    encrypted = isinstance(self.request, ssl.SSLSocket)
                    self.respond(f"250-here\r\n250 {'AUTH PLAIN' if encrypted else 'STARTTLS'}")
                elif command == "STARTTLS":
                    self.respond("220 go on")
                    self.request = context.wrap_socket(self.request, server_side=True)
                    super().setup()
                elif command == "AUTH":
                    self.respond("235 in")
                elif command == "RCPT":
                    to.append(line.partition("<")[2].rstrip(">"))
                    self.respond("250 ok")
                elif command == "DATA":
                    self.respond("354 go on")
                    lines = []
                    while (each := self.rfile.readline()) != b".\r\n":
                        lines.append(each)
                    server_state.received.append((to, b"".join(lines)))
                    self.respond("250 taken")
                else:
                    self.respond("221 bye" if command == "QUIT" else "250 ok")
                    if command == "QUIT":
                        return

        def respond(self, answer: str) -> None:
            self.wfile.write(f"{answer}\r\n".encode())

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Ignore clients that do not trust the server."""

    server = Server(("127.0.0.1", 0), Handler)
    server_state = MailServer(server.server_address[1], trusted)
    with serving(server):
        yield server_state


AS_SENT = base64.b64encode(f"\0feed\0{HIDDEN}".encode()).decode()
"""Login by AUTH PLAIN."""


def mail_to(mail_server: MailServer, password: str = HIDDEN) -> None:
    facts = {
        "server": "localhost", "port": mail_server.port, "tls": mail_server.tls, "sender": "feed@example.com",
        "to": ["a@example.com", "b@example.com"], "user": "feed", "password": {"env": "MAIL"},
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MAIL", password)
        if mail_server.ca_bundle:
            patch.setenv("SSL_CERT_FILE", str(mail_server.ca_bundle))
        send_mail(Mail.model_validate(facts), NEW)


@pytest.mark.parametrize("tls_", ["implicit", "starttls"])
def test_one_mail_is_sent_to_all_recipients(mail_server: MailServer, tls_: str) -> None:
    mail_server.tls = tls_
    mail_to(mail_server)
    ((to, data),) = mail_server.received
    mail = message_from_bytes(data, policy=policy.default)
    assert to == ["a@example.com", "b@example.com"]
    assert (mail["Subject"], mail["From"]) == ("mirrorfeed: sales.all_orders: GAP", "feed@example.com")
    assert abs(mail["Date"].datetime - datetime.now(UTC)) < timedelta(minutes=1)
    assert mail["Message-ID"].endswith("@example.com>")
    assert mail.get_content().splitlines() == text(NEW).splitlines()
    assert "AUTH" in mail_server.commands


@pytest.mark.parametrize(
    ("responses", "kind", "words"),
    [
        ({"AUTH": f"535 {HIDDEN} is wrong"}, alert_channel_refused, "does not accept them (535 (not shown))"),
        ({"AUTH": f"535 {AS_SENT} is wrong"}, alert_channel_refused, "does not accept them (535 (not shown))"),
        ({"MAIL": "451 later"}, alert_channel_unavailable, "is not available (451 later)"),
        ({"DATA": "554 no"}, alert_channel_refused, "does not accept them (554 no)."),
        ({"RCPT": "550 unknown"}, alert_channel_refused, "(it accepts none of a@example.com, b@example.com)."),
    ],
)
def test_mail_server_refusal_is_reported_without_the_password(
    mail_server: MailServer, responses: dict[str, str], kind: Expected, words: str
) -> None:
    mail_server.responses = responses
    with raises(kind) as caught:
        mail_to(mail_server)
    assert words in str(caught.value)
    assert HIDDEN not in repr((caught.value, caught.value.__dict__, caught.value.__cause__))
    assert mail_server.received == []


def test_refused_recipient_is_reported_and_the_others_receive_the_mail(mail_server: MailServer) -> None:
    mail_server.responses = {"rcpt TO:<b@example.com>": "550 unknown"}
    with raises(alert_channel_refused) as caught:
        mail_to(mail_server)
    assert "(it does not accept b@example.com; the other recipients received the mail)." in str(caught.value)
    assert [to for to, _ in mail_server.received] == [["a@example.com"]]


def test_password_that_is_not_ascii_is_reported_without_it(mail_server: MailServer) -> None:
    with raises(alert_channel_refused, match="user and password can contain only ASCII characters") as caught:
        mail_to(mail_server, password=f"{HIDDEN}é")
    assert HIDDEN not in repr((caught.value, caught.value.__dict__, caught.value.__cause__))
    assert caught.value.__suppress_context__
    assert mail_server.received == []


def test_mail_server_without_tls_gets_no_password(mail_server: MailServer) -> None:
    mail_server.tls, mail_server.responses = "starttls", {"STARTTLS": "454 not now"}
    with raises(alert_channel_unavailable, match=r"\(454 not now\)"):
        mail_to(mail_server)
    assert "AUTH" not in mail_server.commands


def test_mail_server_with_unknown_certificate_gets_no_password(mail_server: MailServer) -> None:
    mail_server.ca_bundle = None
    with raises(alert_channel_unavailable, match="SSLCertVerificationError"):
        mail_to(mail_server)
    assert mail_server.commands == []


def test_unreachable_mail_server_is_reported(mail_server: MailServer) -> None:
    mail_server.port = 1
    with raises(alert_channel_unavailable, match=r"server localhost:1 is not available \(ConnectionRefusedError"):
        mail_to(mail_server)


# Configuration


def test_channels_are_created_from_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "mirrorfeed.yml").write_text(
        "landing_zone: ./zone\n"
        "alerts:\n"
        "  webhooks: [{name: team, kind: teams, url: {scope: s, key: k}}, {name: ops, kind: slack, url: {env: HOOK}}]\n"
        "  mail: {server: smtp.example.com, sender: a@example.com, to: [b@example.com]}\n"
        "  state_path: ./told\n"
        "tables: [{source: ./a, target: b}]\n"
    )
    config = load(tmp_path / "mirrorfeed.yml")
    assert list(channels_of(config)) == ["team", "ops", "mail"]
    assert config.alerts.state_path == str(tmp_path / "told")
    assert issubclass(alert_channel_refused.kind, TerminalError)
    assert issubclass(alert_channel_unavailable.kind, TransientError)
