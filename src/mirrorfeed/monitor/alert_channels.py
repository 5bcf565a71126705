"""The ways to those who are told: webhooks, and mail. None of them names the secret that it uses."""

from __future__ import annotations

import base64
import smtplib
import ssl
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import formatdate, make_msgid, parseaddr
from functools import partial
from urllib.parse import urlsplit

import requests

from mirrorfeed.config import Config
from mirrorfeed.config.alerts import MAIL, Mail, Webhook
from mirrorfeed.display.redact import redact_answer, remember
from mirrorfeed.errors import MirrorfeedError, Terminal, Transient, first_line
from mirrorfeed.monitor.alert_messages import FORMS, text, title
from mirrorfeed.monitor.alert_state import Message, Send
from mirrorfeed.runtime.addresses import check_proxy, is_host
from mirrorfeed.runtime.credentials import Secret, SecretUnreachable, read_secret
from mirrorfeed.storage.retry_budget import WORTH_REPEATING, Patience, Tries, retry_after

PATIENCE = Patience(seconds=30.0, first_pause=1.0, longest_pause=10.0, answer_seconds=20.0)
"""Little, for a later run tells what this one cannot."""
_HERE = ("localhost", "127.0.0.1", "::1")
_SHOWN = 200
"""Characters of what a webhook answered."""


def channels_of(config: Config) -> dict[str, Send]:
    """Those of the configuration, by their names."""
    found: dict[str, Send] = {each.name: partial(post, each) for each in config.alerts.webhooks}
    if mail := config.alerts.mail:
        found[MAIL] = partial(send_mail, mail)
    return found


def post(
    webhook: Webhook,
    message: Message,
    *,
    read: Callable[[Secret], str] = read_secret,
    patience: Patience = PATIENCE,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Sends a message to a webhook, or `WebhookUnavailable`, `WebhookRefused`, or why its address is not known."""
    try:
        address = read(webhook.url).strip()
    except SecretUnreachable as error:
        raise WebhookRefused(webhook.name, _unread("its address", error)) from None
    remember(address)
    try:
        parts = urlsplit(address)
        fit = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _HERE)
        # `port` raises ValueError if it is no number.
        fit = fit and is_host(parts.hostname or "") and parts.port != 0 and "@" not in parts.netloc
    except ValueError:  # as for a bracket that is not closed
        fit = False
    if not fit:
        raise WebhookRefused(webhook.name, "its address is no https address")
    check_proxy()
    body, tries = FORMS[webhook.kind](message), Tries(patience)
    while True:
        asked, reached = None, True
        failure: MirrorfeedError
        try:
            answer = requests.post(
                address,
                json=body,
                timeout=(patience.connect_seconds, patience.answer_seconds),
                allow_redirects=False,
            )
        except requests.RequestException as error:  # not chained: it holds the address
            reached = not isinstance(error, requests.ConnectionError)
            failure = WebhookUnavailable(webhook.name, type(error).__name__)
        else:
            if answer.status_code < 300:
                return
            said = f"{answer.status_code} {first_line(redact_answer(answer.text, address))[:_SHOWN]}"
            asked = retry_after(answer.headers, datetime.now(UTC))
            passing = answer.status_code in WORTH_REPEATING
            failure = (WebhookUnavailable if passing else WebhookRefused)(webhook.name, said)
        pause = tries.pause(asked, reached=reached) if isinstance(failure, Transient) else None
        if pause is None:
            raise failure
        sleep(pause)


def send_mail(
    mail: Mail,
    message: Message,
    *,
    read: Callable[[Secret], str] = read_secret,
    context: Callable[[], ssl.SSLContext] = ssl.create_default_context,
) -> None:
    """Gives one mail to the server, which takes it on; or `MailUnavailable`, `MailRefused`."""
    letter = EmailMessage()
    letter["Subject"], letter["From"], letter["To"] = f"mirrorfeed: {title(message)}", mail.sender, ", ".join(mail.to)
    domain = parseaddr(mail.sender)[1].rpartition("@")[2]
    # Without these two some servers take it for what nobody asked for.
    letter["Date"], letter["Message-ID"] = formatdate(usegmt=True), make_msgid(domain=domain)
    letter.set_content(text(message))
    place, seconds = f"{mail.server}:{mail.port}", PATIENCE.answer_seconds
    try:
        password = read(mail.password) if mail.password else None
    except SecretUnreachable as error:
        raise MailRefused(place, _unread("its password", error)) from None
    remember(*_as_sent(mail.user, password))
    try:
        with (
            smtplib.SMTP_SSL(mail.server, mail.port, timeout=seconds, context=context())
            if mail.tls == "implicit"
            else smtplib.SMTP(mail.server, mail.port, timeout=seconds) as server
        ):
            if mail.tls == "starttls":
                server.starttls(context=context())
            if mail.user and password:
                server.login(mail.user, password)
            refused = server.send_message(letter)
    except smtplib.SMTPResponseException as error:  # not chained: a refused login may repeat what was sent
        said = first_line(redact_answer(_decoded(error.smtp_error), *_as_sent(mail.user, password)))
        kind = MailRefused if error.smtp_code >= 500 else MailUnavailable
        raise kind(place, f"{error.smtp_code} {said}") from None
    except smtplib.SMTPRecipientsRefused as error:
        raise MailRefused(place, f"it takes none of {', '.join(sorted(error.recipients))}") from None
    except smtplib.SMTPNotSupportedError as error:
        raise MailRefused(place, first_line(str(error))) from None
    except UnicodeEncodeError:
        raise MailRefused(place, "user and password have to be of ASCII characters") from None
    except (OSError, smtplib.SMTPException) as error:
        raise MailUnavailable(place, f"{type(error).__name__}: {first_line(str(error))}") from None
    if refused:
        raise MailRefused(place, f"it does not take {', '.join(sorted(refused))}, and took the others")


def _as_sent(user: str | None, password: str | None) -> tuple[str, ...]:
    """A password in the forms that a login gives it."""
    if not password:
        return ()
    return password, *(base64.b64encode(form.encode()).decode() for form in (password, f"\0{user}\0{password}"))


def _unread(what: str, error: SecretUnreachable) -> str:
    return f"{what} cannot be read from {error.secret}: {error.reason}"


def _decoded(said: bytes | str) -> str:
    return said.decode(errors="replace") if isinstance(said, bytes) else said


class WebhookUnavailable(Transient):
    """A webhook does not answer for now. What it missed is told by the next run."""

    code = "MF8103"

    def __init__(self, name: str, said: str) -> None:
        self.name, self.said = name, said

    def what(self) -> str:
        return f"The webhook {self.name} does not answer for now ({self.said})."

    def next(self) -> str:
        return "The next run of `mirrorfeed watch` tells it what it has missed."


class WebhookRefused(Terminal):
    """A webhook does not take messages, and will not later."""

    code = "MF8104"

    def __init__(self, name: str, said: str) -> None:
        self.name, self.said = name, said

    def what(self) -> str:
        return f"The webhook {self.name} does not take a message ({self.said})."

    def next(self) -> str:
        return (
            "Make its address anew, in Teams as a workflow that posts when a webhook request is received, in Slack as"
            " an incoming webhook, and put it where `url` says. The next run tells what was missed."
        )


class MailUnavailable(Transient):
    """The mail server takes no message for now. What was missed is sent by the next run."""

    code = "MF8105"

    def __init__(self, place: str, said: str) -> None:
        self.place, self.said = place, said

    def what(self) -> str:
        return f"The mail server {self.place} takes no message for now ({self.said})."

    def next(self) -> str:
        return "The next run of `mirrorfeed watch` sends what was missed."


class MailRefused(Terminal):
    """The mail server refuses the message, and will again."""

    code = "MF8106"

    def __init__(self, place: str, said: str) -> None:
        self.place, self.said = place, said

    def what(self) -> str:
        return f"The mail server {self.place} refuses the message ({self.said})."

    def next(self) -> str:
        return "Check `mail` below `alerts`: server, port, tls, sender, addresses, and user with password."
