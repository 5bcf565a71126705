"""Errors of alerts, of the report and of the checks of a setup."""

from __future__ import annotations

from mirrorfeed.errors import MirrorfeedError, Terminal, Transient


class ExecutorsElsewhere(MirrorfeedError):
    code = "MF1305"
    what = "An executor wrote a file to {address}, but the driver cannot see the file."
    fix = "Use a landing zone that all machines of the cluster can access."


class NotAsExpected(Terminal):
    code = "MF1306"
    what = "The storage of the landing zone does not behave as publishing requires: {found}."
    fix = "Do not publish to this landing zone. Open an issue with this message."


class NoLedger(Terminal):
    code = "MF8001"
    what = "{path} sets no ledger, so there is nothing to report."
    fix = "Set `ledger` in this file, or use `mirrorfeed --ledger TABLE report`. Then publish: runs fill the ledger."


class ChannelUnavailable(Transient):
    code = "MF8103"
    what = "Alerts could not be sent: the {channel} is not available ({response})."
    fix = "The next run of `mirrorfeed check-alerts` sends them again."


class WebhookRefused(Terminal):
    code = "MF8104"
    what = "Alerts could not be sent: the webhook {name} does not accept them ({response})."
    fix = (
        "Create a new webhook: in Teams a workflow that posts when a webhook request is received, in Slack an incoming"
        " webhook. Store its address where `url` of the webhook refers to. The next run sends the alerts again."
    )


class MailRefused(Terminal):
    code = "MF8106"
    what = "An alert could not be sent: the mail server {server} rejected it ({response})."
    fix = "Correct `mail` of `alerts` in the configuration: server, port, tls, sender, recipients, user or password."


class AlertsNotRecorded(Transient):
    code = "MF8107"
    what = "Alerts were sent, but cannot be recorded in {address}: {reason}."
    fix = "Check that the folder of this file is writable. Until then, every run sends the same alerts again."
