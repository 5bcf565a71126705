"""Errors of calls with invalid or missing arguments."""

from __future__ import annotations

from mirrorfeed.errors import Terminal


class NoLandingZone(Terminal):
    code = "MF1004"
    what = "There is no landing zone at {path}."
    fix = "Use the folder or the OneLake address in `landing_zone` of the configuration."


class ReplicaMissing(Terminal):
    code = "MF1005"
    what = "The replica requires the package {module}, which is not installed."
    fix = "Install the extra `replica`, with `uv tool install '.[replica]'` or `make setup` in the project."


class ConditionMissing(Terminal):
    code = "MF1006"
    what = "Without reading the mirror, the rows that differ are unknown."
    fix = "Select the rows to publish again with `where` (--where). To publish all rows again, use `--where true`."
    meaning = "A repair from the source alone (--source-only) needs a condition."


class NoArchiveNamed(Terminal):
    code = "MF1304"
    what = (
        "No table with an archive is named, neither in the notebook field `table` nor in the variable `archive_tables`."
    )
    fix = "Name a table. Run `mirrorfeed archive set` to define the archive of a table."


class NothingToMirror(Terminal):
    code = "MF4216"
    what = "Tables without a file in the landing zone: {tables:list}. Fabric would report errors for them later."
    fix = "Run `mirrorfeed publish` first, or start anyway with --force."
