"""Errors of the comparison of sources and mirrors."""

from __future__ import annotations

from collections.abc import Sequence

from mirrorfeed.errors import Terminal, Transient


class MirrorMissing(Terminal):
    code = "MF7101"
    what = "There is no Delta table at {path}, where the mirror of {table} should be."
    fix = "Wait until Fabric has created it, or name the folder of the mirror: with --mirror, in Python with `mirror`."


class MirrorNotReached(Transient):
    code = "MF7102"
    what = "The mirror of {table} has not reached any of the recorded publications."
    fix = "Verify again when Fabric has consumed more files. `mirrorfeed status` shows how many are waiting."


class MirrorUnreadable(Terminal):
    code = "MF7103"
    what = "Spark cannot read the mirror of {table} at {path}: {reason}."
    fix = (
        "Give Spark access to this path: for OneLake with the settings `fs.azure.account…` of the cluster, as"
        " docs/set-up-fabric.md shows. Or name another copy of the mirror: with --mirror, in Python with `mirror`."
    )


class ConditionUnreadable(Terminal):
    code = "MF7104"
    what = "The condition {condition!r} cannot be applied to {table} and its mirror: {reason}."
    fix = "Write it as after WHERE in SQL, without nested columns, because they are text in a mirror."


class MirrorNotNamed(Terminal):
    code = "MF7105"
    what = "The location of the mirror of {landing_zone} is not known."
    fix = (
        "Set it to the folder that `mirrorfeed replicate` writes to: with --mirror, in a notebook in the field"
        " `mirror`, or for a deployment in the variable `mirror`."
    )


class MirrorColumns(Terminal):
    code = "MF7106"
    what = "The columns of the mirror of {table} at {path} differ: {faults:reasons}."
    faults: Sequence[str]
    fix = "Check that this is the mirror of this table, and whether all its files have been replicated."


class VersionGone(Terminal):
    code = "MF7107"
    what = "Version {version} of {table}, which is the version of its mirror, can no longer be read."
    fix = (
        "Verify again when the mirror has reached a newer version. If `mirrorfeed publish` cannot continue either,"
        " reload the table with `mirrorfeed rebuild`."
    )
