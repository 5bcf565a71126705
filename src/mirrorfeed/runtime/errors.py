"""Errors of the place where the process runs."""

from __future__ import annotations

from mirrorfeed.errors import Terminal


class SettingFixed(Terminal):
    code = "MF2207"
    what = "The Spark session does not allow changing {name} = {value}, which can make published rows wrong."
    fix = "Set {name} to {wanted} in the Spark configuration of the compute."
