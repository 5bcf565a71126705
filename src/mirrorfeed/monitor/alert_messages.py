"""What a message says, in plain text, as a card for Teams, and as blocks for Slack. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from mirrorfeed.display.humanize import duration
from mirrorfeed.display.printable import printable
from mirrorfeed.monitor.alert_state import Message

_LONGEST = 1_400
"""Characters of each of the two texts in a message: Slack takes 3,000 in a block, Teams 28 KB in all."""
_HEADER = 150
"""Characters of a title, as Slack takes them."""


def title(message: Message) -> str:
    alert = message.alert
    table = alert.table or "The mirrored database"
    return printable(f"{table}: {alert.kind}{' is over' if message.over else ''}", _HEADER)


def lines(message: Message) -> list[str]:
    """Below the title."""
    alert, problem = message.alert, message.problem
    if problem is None:
        over = alert.over or alert.since
        lasted = duration(max(0.0, (over - alert.since).total_seconds()))
        return [f"Over since {_moment(over)}, after {lasted}."]
    what, fix = printable(problem.what, _LONGEST), printable(problem.fix, _LONGEST)
    return [what, f"Since {_moment(alert.since)}.", f"Fix: {fix}"]


def text(message: Message) -> str:
    return "\n".join([title(message), *lines(message)])


def teams(message: Message) -> dict[str, Any]:
    """For a workflow that posts when a webhook request is received. Its texts are runs, in which nothing is markup."""
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
    """For an incoming webhook. Blocks of plain text are shown as they are; in the text for notifications, what Slack
    would take for markup is escaped."""
    escaped = text(message).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return {
        "text": escaped,
        "blocks": [
            {"type": "header", "text": {"type": "plain_text", "text": title(message), "emoji": False}},
            {"type": "section", "text": {"type": "plain_text", "text": "\n".join(lines(message)), "emoji": False}},
        ],
    }


FORMS: Mapping[str, Callable[[Message], dict[str, Any]]] = MappingProxyType({"teams": teams, "slack": slack})


def _moment(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
