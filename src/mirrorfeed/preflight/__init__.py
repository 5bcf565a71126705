"""What a deployment needs, looked at before it is needed: rights, the credential, the landing zone, the feeds."""

from mirrorfeed.preflight.check import Check, State
from mirrorfeed.preflight.checks import preflight
from mirrorfeed.preflight.live import live

__all__ = ["Check", "State", "live", "preflight"]
