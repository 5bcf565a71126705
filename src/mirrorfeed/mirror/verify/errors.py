"""Errors of the comparison of sources and mirrors."""

from __future__ import annotations

from collections.abc import Sequence

from mirrorfeed.errors import Terminal, Transient


class MirrorMissing(Terminal):
    code = "MF7101"
    what = "There is no Delta table at {path}, where the mirror of {table} should be."
    fix = "Wait until the service has made it, or name the mirror's folder with --mirror."


class NothingTaken(Transient):
    code = "MF7102"
    what = "The mirror of {table} has not come to any of the publications that are on record."
    fix = "Verify again once the service has taken more files; `mirrorfeed status` counts those that wait."


class MirrorUnreadable(Terminal):
    code = "MF7103"
    what = "Spark cannot read the mirror of {table} at {path}: {reason}."
    fix = (
        "Give Spark access to that place: for OneLake by the settings `fs.azure.account…` of the cluster, as"
        " docs/set-up-fabric.md shows; or name another copy of the mirror with --mirror."
    )


class MirrorNotNamed(Terminal):
    code = "MF7105"
    what = "Where the mirror of {landing_zone} is, is not known."
    fix = (
        "Name it with --mirror, in a notebook in the field `mirror`, or for a deployment in the variable `mirror`:"
        " the folder that `mirrorfeed replicate` writes to."
    )


class MirrorColumns(Terminal):
    code = "MF7106"
    what = "The mirror of {table} at {path} has other columns: {faults:reasons}."
    faults: Sequence[str]
    fix = "Check that this is the mirror of that table, and whether all its files have been replicated."


class VersionGone(Terminal):
    code = "MF7107"
    what = "{table} cannot be read any more as it was at version {version}, where its mirror stands."
    fix = (
        "Verify again once the mirror stands at a newer version. Where `mirrorfeed publish` cannot go on either,"
        " start the table again with `mirrorfeed rebuild`."
    )


class ConditionUnreadable(Terminal):
    code = "MF7104"
    what = "The condition {condition!r} cannot be asked of {table} and its mirror: {reason}."
    fix = "Write it as after WHERE in SQL, over columns that are not nested: in a mirror those are text."
