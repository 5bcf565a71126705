"""Send alerts to Teams and Slack webhooks and by mail. Secrets are removed from all error messages."""

from __future__ import annotations

import base64
import smtplib
import ssl
from collections.abc import Callable, Sequence
from datetime import datetime
from email.message import EmailMessage
from email.utils import formatdate, make_msgid, parseaddr
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from mirrorfeed.config.connections import MAIL, OUTPUT, Mail, Webhook
from mirrorfeed.display.grid import utc_minute
from mirrorfeed.display.redact import printable, redact_answer, remember
from mirrorfeed.display.rows import Row, duration, row
from mirrorfeed.errors import ConfigurationError, MirrorfeedError, TransientError, first_line, problem, with_code
from mirrorfeed.runtime.credentials import check_proxy, is_host
from mirrorfeed.runtime.errors import SecretUnreachableError
from mirrorfeed.runtime.login import read_secret
from mirrorfeed.storage.request_retries import RETRYABLE_STATUS, RetryLimits

if TYPE_CHECKING:
    from mirrorfeed.config.model import Config


@row
class Alert(Row):
    """Result of an alert check: a current or resolved problem, or a failure of a channel or of the alert file."""

    table: str
    """Target of the table. Empty for the mirrored database as a whole, and for a failed channel or alert file."""
    name: str
    """Name of the problem, or of the channel that failed. Empty if the alert file failed."""
    what: str
    """Text of the alert if it was sent, otherwise the text of the problem."""
    fix: str = ""
    since: datetime | None = None
    resolved_at: datetime | None = None
    """Time of the first check that did not find the problem again. None for a current problem."""
    sent_to: tuple[str, ...] = ()
    """Names of the channels that received the alert. The channel `output` is the output of `check-alerts`."""
    error: MirrorfeedError | None = None
    """Reason why a channel was not notified, or why the alert file cannot be read or written."""

    @property
    def ok(self) -> bool:
        """False if `error` is set, or if an alert about a current problem was sent to the channel `output`."""
        return self.error is None and (self.resolved_at is not None or OUTPUT not in self.sent_to)

    def remarks(self) -> Sequence[str]:
        if self.error:
            return (f"{f'{self.name}: ' if self.name else ''}{with_code(self.error)}",)
        return tuple(self.what.splitlines()) if OUTPUT in self.sent_to else ()


Send = Callable[[Alert], None]
"""Function that sends an alert to one channel, or raises an error."""
RETRY_LIMITS = RetryLimits(seconds=30.0, response_seconds=20.0)
"""Time limits of a request to a webhook or mail server. They are short, because the next run retries failed alerts."""
_LOCAL = ("localhost", "127.0.0.1", "::1")
_LONGEST_TEXT = 1_400
"""Maximum characters of the problem, and of the fix, in a message, because Slack and Teams limit its size."""
_LONGEST_TITLE = 150
_LONGEST_RESPONSE = 200


@problem(TransientError, "MF8103")
def alert_channel_unavailable(*, channel: str, response: str) -> None:
    """Alerts could not be sent: the {channel} is not available ({response}).

    The next run of `mirrorfeed check-alerts` sends them again.
    """


@problem(ConfigurationError, "MF8104")
def alert_channel_refused(*, channel: str, response: str) -> None:
    """Alerts could not be sent: the {channel} does not accept them ({response}).

    Correct the settings of this channel in `alerts` of the configuration, or the secret that they refer to. If a
    webhook was deleted, create it again: in Teams a workflow that posts when a webhook request is received, in Slack an
    incoming webhook. The next run sends the alerts again.
    """


def channels_of(config: Config) -> dict[str, Send]:
    """Return the configured channels: a dictionary from channel name to the function that sends an alert."""
    channels: dict[str, Send] = {each.name: partial(post, each) for each in config.alerts.webhooks}
    if mail := config.alerts.mail:
        channels[MAIL] = partial(send_mail, mail)
    return channels


def title(alert: Alert) -> str:
    resolved = " is resolved" if alert.resolved_at else ""
    return printable(f"{alert.table or 'The mirrored database'}: {alert.name}{resolved}", _LONGEST_TITLE)


def lines(alert: Alert) -> list[str]:
    """Return the text of an alert as lines, without the title."""
    if alert.resolved_at:
        lasted = duration(max(0.0, (alert.resolved_at - (alert.since or alert.resolved_at)).total_seconds()))
        return [f"Resolved at {utc_minute(alert.resolved_at)} UTC, after {lasted}."]
    since = [f"Since {utc_minute(alert.since)} UTC."] if alert.since else []
    return [printable(alert.what, _LONGEST_TEXT), *since, f"Fix: {printable(alert.fix, _LONGEST_TEXT)}"]


def text(alert: Alert) -> str:
    return "\n".join([title(alert), *lines(alert)])


def teams(alert: Alert) -> dict[str, Any]:
    """Return the request body for a Teams webhook: an adaptive card as JSON."""
    colour = "Good" if alert.resolved_at else "Attention"
    heading = {"type": "TextRun", "text": title(alert), "weight": "Bolder", "size": "Medium", "color": colour}
    body = [heading, *({"type": "TextRun", "text": line} for line in lines(alert))]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "fallbackText": text(alert),
        "body": [{"type": "RichTextBlock", "inlines": [run]} for run in body],
    }
    content = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return {"type": "message", "attachments": [content]}


def slack(alert: Alert) -> dict[str, Any]:
    """Return the request body for a Slack webhook as JSON. Its `text` is escaped, because Slack reads it as markup."""
    escaped = text(alert).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return {
        "text": escaped,
        "blocks": [
            {"type": "header", "text": {"type": "plain_text", "text": title(alert), "emoji": False}},
            {"type": "section", "text": {"type": "plain_text", "text": "\n".join(lines(alert)), "emoji": False}},
        ],
    }


def post(webhook: Webhook, alert: Alert) -> None:
    """Send an alert to a webhook. Raises `InvalidProxyError` if the proxy settings are invalid,
    `alert_channel_unavailable` if a later attempt may succeed, and `alert_channel_refused` for all other failures.
    """
    channel = f"webhook {webhook.name}"
    try:
        address = read_secret(webhook.url).strip()
    except SecretUnreachableError as error:
        reason = f"its address cannot be read from {error.secret}: {error.reason}"
        raise alert_channel_refused(channel=channel, response=reason) from None
    remember(address)
    if not _is_https(address):
        raise alert_channel_refused(channel=channel, response="its address is not an https address")
    check_proxy()
    from mirrorfeed.storage.http import HttpClient  # Azure's libraries, which most commands do not need

    unavailable = partial(alert_channel_unavailable, channel=channel)
    message = teams(alert) if webhook.kind == "teams" else slack(alert)
    client = HttpClient(RETRY_LIMITS)
    response = client.send("POST", address, message, lambda reason: unavailable(response=reason))
    if response.status_code >= 300:
        content = first_line(redact_answer(response.body().decode("utf-8", "replace"), address))[:_LONGEST_RESPONSE]
        shown = f"{response.status_code} {content}"
        if response.status_code in RETRYABLE_STATUS:
            raise unavailable(response=shown)
        raise alert_channel_refused(channel=channel, response=shown)


def _is_https(address: str) -> bool:
    """Return whether a URL is valid, has no user name and uses HTTPS. A URL of this machine can also use HTTP."""
    try:
        parts = urlsplit(address)
        is_safe = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOCAL)
        return is_safe and is_host(parts.hostname or "") and parts.port != 0 and "@" not in parts.netloc
    except ValueError:  # the port is not a number, or a bracket is not closed
        return False


def send_mail(mail: Mail, alert: Alert) -> None:
    """Send an alert by mail to all recipients. Raises `alert_channel_unavailable` if a later attempt may succeed, and
    `alert_channel_refused` for all other failures, also if the server refuses only some recipients."""
    channel, seconds = f"mail server {mail.server}:{mail.port}", RETRY_LIMITS.response_seconds
    try:
        password = read_secret(mail.password) if mail.password else None
    except SecretUnreachableError as error:
        response = f"its password cannot be read from {error.secret}: {error.reason}"
        raise alert_channel_refused(channel=channel, response=response) from None
    # A login sends the password as text or in one of two forms in Base64.
    forms = (password, f"\0{mail.user}\0{password}") if password else ()
    sent = [*forms[:1], *(base64.b64encode(form.encode()).decode() for form in forms)]
    remember(*sent)
    try:
        with (
            smtplib.SMTP_SSL(mail.server, mail.port, timeout=seconds, context=ssl.create_default_context())
            if mail.tls == "implicit"
            else smtplib.SMTP(mail.server, mail.port, timeout=seconds) as connection
        ):
            if mail.tls == "starttls":
                connection.starttls(context=ssl.create_default_context())
            if mail.user and password:
                connection.login(mail.user, password)
            refused = connection.send_message(_message(mail, alert))
    except smtplib.SMTPResponseException as error:  # not chained, because it may repeat the password
        reason = error.smtp_error.decode(errors="replace") if isinstance(error.smtp_error, bytes) else error.smtp_error
        response = f"{error.smtp_code} {first_line(redact_answer(reason, *sent))}"
        if error.smtp_code >= 500:
            raise alert_channel_refused(channel=channel, response=response) from None
        raise alert_channel_unavailable(channel=channel, response=response) from None
    except smtplib.SMTPRecipientsRefused as error:
        recipients = ", ".join(sorted(error.recipients))
        raise alert_channel_refused(channel=channel, response=f"it accepts none of {recipients}") from None
    except smtplib.SMTPNotSupportedError as error:
        raise alert_channel_refused(channel=channel, response=first_line(str(error))) from None
    except UnicodeEncodeError:
        raise alert_channel_refused(
            channel=channel, response="user and password can contain only ASCII characters"
        ) from None
    except (OSError, smtplib.SMTPException) as error:
        response = f"{type(error).__name__}: {first_line(str(error))}"
        raise alert_channel_unavailable(channel=channel, response=response) from None
    if refused:
        response = f"it does not accept {', '.join(sorted(refused))}; the other recipients received the mail"
        raise alert_channel_refused(channel=channel, response=response)


def _message(mail: Mail, alert: Alert) -> EmailMessage:
    message = EmailMessage()
    message["Subject"], message["From"], message["To"] = f"mirrorfeed: {title(alert)}", mail.sender, ", ".join(mail.to)
    domain = parseaddr(mail.sender)[1].rpartition("@")[2]
    # Some servers treat mails without these headers as spam.
    message["Date"], message["Message-ID"] = formatdate(usegmt=True), make_msgid(domain=domain)
    message.set_content(text(alert))
    return message
