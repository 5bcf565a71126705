"""Errors of calls that cannot be carried out as they were made."""

from __future__ import annotations

from mirrorfeed.errors import Terminal


class NothingToMirror(Terminal):
    """Mirroring is not started while tables lack a first file: Fabric would fail these after some days."""

    code = "MF4216"

    def __init__(self, tables: tuple[str, ...]) -> None:
        self.tables = tables

    def what(self) -> str:
        return f"These tables have no first file in the landing zone: {', '.join(self.tables)}."

    def next(self) -> str:
        return "Run `mirrorfeed publish` first, so that mirroring begins with whole tables; or start with --force."


class NoLandingZone(Terminal):
    """The command reads a landing zone, and there is no folder of that name."""

    code = "MF1004"

    def __init__(self, path: str) -> None:
        self.path = path

    def what(self) -> str:
        return f"There is no landing zone at {self.path}."

    def next(self) -> str:
        return "Name the folder, or the address in OneLake, that `landing_zone` in the configuration names."


class ReplicaMissing(Terminal):
    """The replica stands in for Fabric on this machine. It needs packages that publishing does not need, and one is
    missing."""

    code = "MF1005"

    def __init__(self, module: str) -> None:
        self.module = module

    def what(self) -> str:
        return f"The replica needs the package {self.module}, which is not installed."

    def next(self) -> str:
        return (
            "Install the extra `replica` of mirrorfeed: in the project `uv tool install '.[replica]'` or `make setup`."
        )


class ConditionMissing(Terminal):
    """Without reading the mirror nobody knows which rows of it are wrong, so you have to say which to publish once
    more."""

    code = "MF1006"

    def what(self) -> str:
        return "--source-only does not read the mirror, so it cannot tell which rows differ."

    def next(self) -> str:
        return "Say with --where which rows to publish once more; --where true takes all."
