"""Errors of alerts, of the report and of the checks of a setup."""

from __future__ import annotations

from mirrorfeed.errors import MirrorfeedError, Terminal, Transient


class ExecutorsElsewhere(MirrorfeedError):
    code = "MF1305"
    what = "The driver cannot see a file that an executor wrote to {address}."
    fix = "Use a landing zone that all machines of the cluster share."


class NotAsExpected(Terminal):
    code = "MF1306"
    what = "The storage of the landing zone does not behave as publishing requires: {found}."
    fix = "Do not publish there, and report this problem."


class NoLedger(Terminal):
    code = "MF8001"
    what = "{path} configures no ledger, so there is nothing to report."
    fix = "Set `ledger` in this file, or pass `--ledger` before the command. Then publish."


class ChannelUnavailable(Transient):
    code = "MF8103"
    what = "The {channel} is not available ({response})."
    fix = "The next run of `mirrorfeed check-alerts` sends the alerts that were not delivered."


class WebhookRefused(Terminal):
    code = "MF8104"
    what = "The webhook {name} does not accept alerts ({response})."
    fix = (
        "Create its address again and store it where `url` refers to: in Teams as a workflow that posts when a webhook"
        " request is received, in Slack as an incoming webhook. The next run sends the alerts that were not delivered."
    )


class MailRefused(Terminal):
    code = "MF8106"
    what = "The mail server {server} rejected an alert ({response})."
    fix = "Check `mail` below `alerts`: server, port, tls, sender, recipients, user and password."


class AlertsNotRecorded(Transient):
    code = "MF8107"
    what = "The alerts that this run sent are not recorded in {address}: {reason}."
    fix = "Check that the folder is writable. The next run sends these alerts again."
