"""Check all tables, and send alerts to Teams, to Slack and by mail. No error contains a secret."""

from __future__ import annotations

import base64
import smtplib
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from email.utils import formatdate, make_msgid, parseaddr
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from mirrorfeed.config.connections import MAIL, OUTPUT, Mail, Webhook
from mirrorfeed.config.model import Config, zone_of
from mirrorfeed.display.humanize import counted, duration
from mirrorfeed.display.redact import printable, redact_answer, remember
from mirrorfeed.display.rows import Row, row
from mirrorfeed.errors import MirrorfeedError, coded, first_line
from mirrorfeed.landing.names import LOG
from mirrorfeed.monitor.alert_state import FILE, REMIND_AFTER, Check, Message, Send, notify
from mirrorfeed.monitor.collector import Collector, database_facts
from mirrorfeed.monitor.errors import ChannelUnavailable, MailRefused, WebhookRefused
from mirrorfeed.monitor.findings import DatabaseFacts, TableFacts
from mirrorfeed.monitor.freshness import ENDPOINT_NOT_READ, LAG_STEPS, Step, mirror_times_of, read_endpoint
from mirrorfeed.monitor.rules import ALERT_RULES, TABLE_RULES, database_findings, table_findings
from mirrorfeed.runtime.addresses import check_proxy, is_host
from mirrorfeed.runtime.credentials import Secret
from mirrorfeed.runtime.errors import SecretUnreachable
from mirrorfeed.runtime.login import read_secret
from mirrorfeed.storage.retry import RETRYABLE_STATUS, RetryLimits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorfeed.config.model import Config
    from mirrorfeed.orchestration import ledger
    from mirrorfeed.source.catalog import Workspace
    from mirrorfeed.storage import Store


RETRY_LIMITS = RetryLimits(seconds=30.0, response_seconds=20.0)
"""Short limits, because the next run sends messages that this run cannot send."""
_LOCAL = ("localhost", "127.0.0.1", "::1")
_LONGEST_TEXT = 1_400
"""Maximum number of characters of each of the two texts in a message. Slack accepts 3,000 in a block, Teams 28 KB in
total."""
_LONGEST_TITLE = 150
"""Maximum number of characters of a title in Slack."""
_LONGEST_RESPONSE = 200


def channels_of(config: Config) -> dict[str, Send]:
    """Return the configured channels by name."""
    found: dict[str, Send] = {each.name: partial(post, each) for each in config.alerts.webhooks}
    if mail := config.alerts.mail:
        found[MAIL] = partial(send_mail, mail)
    return found


def title(message: Message) -> str:
    alert = message.alert
    resolved = " is resolved" if message.over else ""
    return printable(f"{alert.table or 'The mirrored database'}: {alert.kind}{resolved}", _LONGEST_TITLE)


def lines(message: Message) -> list[str]:
    """Return the lines below the title."""
    alert, problem = message.alert, message.problem
    if problem is None:
        over = alert.over or alert.since
        lasted = duration(max(0.0, (over - alert.since).total_seconds()))
        return [f"Resolved at {_time(over)}, after {lasted}."]
    what, fix = printable(problem.what, _LONGEST_TEXT), printable(problem.fix, _LONGEST_TEXT)
    return [what, f"Since {_time(alert.since)}.", f"Fix: {fix}"]


def text(message: Message) -> str:
    return "\n".join([title(message), *lines(message)])


def teams(message: Message) -> dict[str, Any]:
    """Return a card for a workflow that posts when a webhook request is received. Text runs have no markup."""
    colour = "Good" if message.over else "Attention"
    heading = {"type": "TextRun", "text": title(message), "weight": "Bolder", "size": "Medium", "color": colour}
    body = [heading, *({"type": "TextRun", "text": line} for line in lines(message))]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "fallbackText": text(message),
        "body": [{"type": "RichTextBlock", "inlines": [run]} for run in body],
    }
    content = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return {"type": "message", "attachments": [content]}


def slack(message: Message) -> dict[str, Any]:
    """Return blocks of plain text for an incoming webhook. Only the notification text has markup to escape."""
    escaped = text(message).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return {
        "text": escaped,
        "blocks": [
            {"type": "header", "text": {"type": "plain_text", "text": title(message), "emoji": False}},
            {"type": "section", "text": {"type": "plain_text", "text": "\n".join(lines(message)), "emoji": False}},
        ],
    }


FORMS: Mapping[str, Callable[[Message], dict[str, Any]]] = MappingProxyType({"teams": teams, "slack": slack})


def _time(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def post(
    webhook: Webhook,
    message: Message,
    *,
    read: Callable[[Secret], str] = read_secret,
    retry_limits: RetryLimits = RETRY_LIMITS,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Send a message to a webhook. Raises `ChannelUnavailable` or `WebhookRefused`."""
    try:
        address = read(webhook.url).strip()
    except SecretUnreachable as error:
        raise WebhookRefused(name=webhook.name, response=_unreadable("its address", error)) from None
    remember(address)
    if not _is_https(address):
        raise WebhookRefused(name=webhook.name, response="its address is not an https address")
    check_proxy()
    from mirrorfeed.storage.http import HttpClient  # imported late: Azure's libraries, which most commands do not need

    unavailable = partial(ChannelUnavailable, channel=f"webhook {webhook.name}")
    answer = HttpClient(retry_limits, sleep=sleep).send(
        "POST", address, FORMS[webhook.kind](message), lambda reason: unavailable(response=reason)
    )
    if answer.status_code >= 300:
        content = first_line(redact_answer(answer.body().decode("utf-8", "replace"), address))[:_LONGEST_RESPONSE]
        response = f"{answer.status_code} {content}"
        if answer.status_code in RETRYABLE_STATUS:
            raise unavailable(response=response)
        raise WebhookRefused(name=webhook.name, response=response)


def _is_https(address: str) -> bool:
    """Return whether this is an HTTPS address, or an HTTP address of this machine."""
    try:
        parts = urlsplit(address)
        is_safe = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOCAL)
        return is_safe and is_host(parts.hostname or "") and parts.port != 0 and "@" not in parts.netloc
    except ValueError:  # the port is not a number, or a bracket is not closed
        return False


def send_mail(
    mail: Mail,
    message: Message,
    *,
    read: Callable[[Secret], str] = read_secret,
    context: Callable[[], ssl.SSLContext] = ssl.create_default_context,
) -> None:
    """Send a message by mail. Raises `ChannelUnavailable` or `MailRefused`."""
    server, seconds = f"{mail.server}:{mail.port}", RETRY_LIMITS.response_seconds
    channel = f"mail server {server}"
    try:
        password = read(mail.password) if mail.password else None
    except SecretUnreachable as error:
        raise MailRefused(server=server, response=_unreadable("its password", error)) from None
    sent = _as_sent(mail.user, password)
    remember(*sent)
    try:
        with (
            smtplib.SMTP_SSL(mail.server, mail.port, timeout=seconds, context=context())
            if mail.tls == "implicit"
            else smtplib.SMTP(mail.server, mail.port, timeout=seconds) as connection
        ):
            if mail.tls == "starttls":
                connection.starttls(context=context())
            if mail.user and password:
                connection.login(mail.user, password)
            refused = connection.send_message(_letter(mail, message))
    except smtplib.SMTPResponseException as error:  # not chained, because the error may contain the password
        reason = error.smtp_error.decode(errors="replace") if isinstance(error.smtp_error, bytes) else error.smtp_error
        response = f"{error.smtp_code} {first_line(redact_answer(reason, *sent))}"
        if error.smtp_code >= 500:
            raise MailRefused(server=server, response=response) from None
        raise ChannelUnavailable(channel=channel, response=response) from None
    except smtplib.SMTPRecipientsRefused as error:
        recipients = ", ".join(sorted(error.recipients))
        raise MailRefused(server=server, response=f"it accepts none of {recipients}") from None
    except smtplib.SMTPNotSupportedError as error:
        raise MailRefused(server=server, response=first_line(str(error))) from None
    except UnicodeEncodeError:
        raise MailRefused(server=server, response="user and password must be ASCII characters") from None
    except (OSError, smtplib.SMTPException) as error:
        response = f"{type(error).__name__}: {first_line(str(error))}"
        raise ChannelUnavailable(channel=channel, response=response) from None
    if refused:
        response = f"it does not accept {', '.join(sorted(refused))}; the other recipients have the mail"
        raise MailRefused(server=server, response=response)


def _letter(mail: Mail, message: Message) -> EmailMessage:
    letter = EmailMessage()
    letter["Subject"], letter["From"], letter["To"] = f"mirrorfeed: {title(message)}", mail.sender, ", ".join(mail.to)
    domain = parseaddr(mail.sender)[1].rpartition("@")[2]
    # Some servers treat mails without these headers as spam.
    letter["Date"], letter["Message-ID"] = formatdate(usegmt=True), make_msgid(domain=domain)
    letter.set_content(text(message))
    return letter


def _as_sent(user: str | None, password: str | None) -> tuple[str, ...]:
    """Return the password in every encoding that a login may send."""
    if not password:
        return ()
    return password, *(base64.b64encode(form.encode()).decode() for form in (password, f"\0{user}\0{password}"))


def _unreadable(what: str, error: SecretUnreachable) -> str:
    return f"{what} cannot be read from {error.secret}: {error.reason}"


_HIDING = frozenset({"MIRRORING_PAUSED", "CapacityPaused"})
"""Problems that hide all other problems."""


@row
class Alert(Row):
    """A current problem, or one that this check found resolved, with the channels that were notified now."""

    table: str
    """Target of the table. Empty for the mirrored database as a whole, and for an alert that was not sent."""
    name: str
    what: str
    fix: str = ""
    since: datetime | None = None
    over: datetime | None = None
    """Time when the problem was found resolved."""
    sent_to: tuple[str, ...] = ()
    error: MirrorfeedError | None = None
    """Reason why a channel was not notified, or why the file of sent alerts cannot be used."""

    @property
    def ok(self) -> bool:
        """True unless this is a new problem."""
        return self.error is None and (self.over is not None or OUTPUT not in self.sent_to)

    def remarks(self) -> Sequence[str]:
        if self.error:
            return (f"{f'{self.name}: ' if self.name else ''}{coded(self.error)}",)
        return tuple(self.what.splitlines()) if OUTPUT in self.sent_to else ()


def check_all(
    spark: Callable[[], SparkSession],
    config: Config,
    mirror: str | None = None,
    *,
    workspace: Callable[[], Workspace] | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> tuple[Check, list[TableFacts]]:
    """Check all tables. Errors are returned as findings, not raised. Spark is started only if a table needs it."""
    database = database_facts(config)
    refreshes = database.states is not None and config.alerts.sql_endpoint == "refresh"
    syncs = read_endpoint(config) if refreshes else ENDPOINT_NOT_READ
    times_of = mirror_times_of(config, database.states, syncs, mirror)
    collector = Collector(config, spark, True, database.states, times_of, workspace, now)
    facts = collector.collect(config.tables)
    patience = (config.alerts.max_lag_minutes.published or 0.0) * 60
    return check_of(database, facts, patience, timedelta(hours=config.alerts.remind_after_hours)), facts


def check_of(
    database: DatabaseFacts, tables: Sequence[TableFacts], patience: float = 0.0, remind_after: timedelta = REMIND_AFTER
) -> Check:
    """Return the problems that require an alert. Ignores notes and paused tables."""
    found = database_findings(database)
    unknown = {("", "")} if database.error else set()
    for facts in tables:
        if facts.paused or not facts.is_complete:
            unknown.add((facts.table, ""))
        if facts.paused:
            continue
        for rule, step in zip(ALERT_RULES, LAG_STEPS, strict=True):
            if facts.freshness is None or step in facts.freshness.unknown:
                unknown.add((facts.table, rule.name))
        found += table_findings(facts, (*TABLE_RULES, *ALERT_RULES))
    problems = {each.key: each for each in found if not each.ok}
    unknown |= {(each.table, "") for each in problems.values() if each.name in _HIDING}
    return Check(tuple(problems.values()), frozenset(unknown), patience, remind_after)


def send_alerts(config: Config, check: Check, clock: Callable[[], datetime]) -> list[Alert]:
    """Notify the channels of `alerts`, and return a row for each current or resolved problem."""
    store, path = state_of(config)
    channels = {OUTPUT: lambda _: None, **channels_of(config)}
    notified = notify(store, path, check, channels, clock)
    sent: dict[tuple[str, str], list[Message]] = {each.key: [] for each in check.problems}
    for message in notified.sent:
        sent.setdefault(message.alert.key, []).append(message)
    problems = {each.key: each for each in check.problems}
    rows = []
    for (table, name), messages in sent.items():
        to, problem = tuple(each.to for each in messages), problems.get((table, name))
        what = text(messages[0]) if messages else problem.what if problem else ""
        first = messages[0].alert if messages else None
        since = first.since if first else problem.since if problem else None
        rows.append(Alert(table, name, what, problem.fix if problem else "", since, first.over if first else None, to))
    rows += [Alert("", name, "", error=error) for name, error in notified.failed]
    return rows + [Alert("", "", "", error=error) for error in notified.warnings]


def summary_of(rows: Sequence[Alert]) -> str:
    """Return a summary, or an empty string if there is something new."""
    if any(OUTPUT in each.sent_to for each in rows):
        return ""
    known = sum(each.error is None for each in rows)
    return f"No new problem. {counted(known, 'problem')} reported before." if known else "No new problem."


def state_of(config: Config) -> tuple[Store, str]:
    """Return the store and the path of the file with sent alerts."""
    from mirrorfeed.storage import open_folder

    if config.alerts.state_path is not None:
        return open_folder(config.alerts.state_path), FILE
    return zone_of(config), f"{LOG}/{FILE}"


def ledger_rows(config: Config, facts: Sequence[TableFacts]) -> list[ledger.Row]:
    """Return a ledger row for each table whose freshness is known."""
    from mirrorfeed.orchestration import ledger

    targets = {str(table.target): table.freshness_target_minutes for table in config.tables}
    found = []
    for each in facts:
        if freshness := each.freshness:
            times: dict[str, Any] = {f"{step}_at": freshness.at(step) for step in Step}
            waits: dict[str, Any] = {f"{step}_lag_seconds": freshness.lag(step, each.at) for step in LAG_STEPS}
            within = targets.get(each.table)
            found.append(
                ledger.Row(each.at, each.table, ledger.WATCHED, freshness_target_minutes=within, **times, **waits)
            )
    return found
