"""Errors of the replica (MF70), of comparisons with a mirror (MF71) and of Fabric (MF42)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mirrorfeed.errors import Terminal, Transient
from mirrorfeed.lint.specification import Finding

_RECREATE = "delete the table's folder and create it again with all data"


class KeysChanged(Terminal):
    code = "MF7003"
    what = "The keyColumns of table {table} changed from {before:list} to {now:list}."
    fix = f"Keys never change after they are set. Restore them, or {_RECREATE}."


class FolderReplaced(Transient):
    code = "MF7004"
    what = "{address} was deleted or recreated while table {table} was read."
    fix = "The next pass reads the current folder."


class BrokenFile(Terminal):
    code = "MF7006"
    what = "Cannot read {address}: {reason:phrase}."
    fix = "Delete the file, and write a complete file under the same name."


class SamePlace(Terminal):
    code = "MF7012"
    what = "Table {table} and another table folder of the same name have the same mirror, {place}."
    fix = "Keep the table in one schema folder only."


class MirrorUnavailable(Transient):
    code = "MF7013"
    what = "Cannot read or write the mirror {place}: {reason:phrase}."
    fix = "The file was not applied. The next pass tries again."


class NotOurs(Terminal):
    code = "MF7014"
    what = "{place} is a Delta table that no replica created. It was not changed."
    fix = "Use a separate target folder for the replica."


class TypeChanged(Terminal):
    code = "MF7017"
    what = "Table {table} is stopped because {address} changes the type of {columns}."
    fix = "Delete the table's folder, and create it again with all data."
    changed: Mapping[str, tuple[str, str]]
    """Old and new type of each column."""

    @property
    def columns(self) -> str:
        return ", ".join(f"{name} from {old} to {new}" for name, (old, new) in self.changed.items())


class YearNotHeld(Terminal):
    code = "MF7020"
    what = "{address} has dates in {column} outside the years 1 to 9999."
    fix = "The replica cannot read such dates. Publish them as text, or correct them in the source."


class FileRefused(Terminal):
    code = "MF7021"
    what = "Cannot apply {finding.file} ({finding.code}): {finding.what}"
    fix = "{finding.next}"
    meaning = "A file breaks a rule of `mirrorfeed lint`, so the replica does not apply it."
    finding: Finding


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
        "Set it to the folder that `mirrorfeed replicate` writes to: with --mirror, in Python with the argument"
        " `mirror`, in a notebook in the field `mirror`, or for a deployment in the variable `mirror`."
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


class TokenRefused(Terminal):
    code = "MF4201"
    what = "Fabric does not accept the token for {item} ({response})."
    fix = (
        "Check that `credential` names an identity of the workspace's tenant, and that its tokens are for"
        " https://api.fabric.microsoft.com. Tokens for Azure Storage are not accepted here."
    )


class NoPermission(Terminal):
    code = "MF4202"
    what = "This identity has no permission to {action} ({item}: {response})."
    fix = (
        "Give it the role Contributor in the workspace. For a service principal, an administrator of Fabric must"
        " also allow service principals to use Fabric APIs, in the tenant settings."
    )


class WorkspaceMissing(Terminal):
    code = "MF4203"
    what = "The workspace {workspace} does not exist in Fabric, or this identity cannot see it ({response})."
    fix = (
        "Compare the first id in `landing_zone: onelake://<workspace id>/<mirrored database id>` with the one in"
        " the address of the workspace in Fabric (/groups/<workspace id>), and give the identity a role in it."
    )


class DatabaseMissing(Terminal):
    code = "MF4204"
    what = "The workspace {workspace} has no mirrored database {database} ({response})."
    fix = (
        "Check the second id in `landing_zone`: it may belong to another kind of item, or the database was deleted."
        " `mirrorfeed fabric create NAME` prints the line for the database with that name."
    )


class NotFound(Terminal):
    code = "MF4205"
    what = "Fabric cannot {action} ({item}), because something was not found: {response}."
    fix = "Check `fabric_endpoint`, if it is set, and both ids in `landing_zone`. Then run the same command again."


class NameTaken(Terminal):
    code = "MF4206"
    what = "The name is already used in {item}, by an item that this identity cannot see ({response})."
    fix = "Choose another name, or give the identity a role that can see the item."


class FabricUnavailable(Transient):
    code = "MF4207"
    what = "Fabric is not available to {action} ({item}: {reason})."
    fix = "Run the same command again later. It first checks what has already been done."


class CallRefused(Terminal):
    code = "MF4208"
    what = "Fabric refused to {action} ({item}: {response})."
    fix = "Open the mirrored database in Fabric, correct the cause, and run the same command again."


class OperationFailed(Terminal):
    code = "MF4209"
    what = "Fabric accepted the request to {action}, but failed to complete it ({item}: {reason})."
    fix = "Open the item in Fabric, then run the same command again."


class NotInFabric(Terminal):
    code = "MF4210"
    what = "The landing zone {landing_zone} is not in a mirrored database of Fabric."
    fix = (
        "Set `landing_zone: onelake://<workspace id>/<mirrored database id>`. If you have only the workspace,"
        " `mirrorfeed fabric create NAME` creates the database and prints the line."
    )


class OtherMirror(Terminal):
    code = "MF4211"
    what = "{name!r} already exists and mirrors another source ({kind}; {item}), so it does not read files."
    fix = "Choose another database."


class NotListed(Transient):
    code = "MF4212"
    what = "{name!r} was created in {item}, but Fabric does not list it yet."
    fix = "Run the same command again in a few minutes. It does not create a second one."


class NotReached(Transient):
    code = "MF4213"
    what = "{verb} has not taken effect: after {seconds:.0f} s {item} is {status}."
    fix = "Run the same command again to continue waiting, or check the database in Fabric."


class NotDropped(Transient):
    code = "MF4214"
    what = "The folder of {table} is deleted, but after {seconds:.0f} s {item} still has the table ({state})."
    fix = "Run the same command again. It continues to wait, then publishes. Nothing is published until then."


class NoSqlEndpoint(Transient):
    code = "MF4215"
    what = "Fabric reports no SQL endpoint of {item}."
    fix = "Fabric creates it within minutes of the database. If it does not appear, check the item in Fabric."


class DefinitionUnreadable(Terminal):
    code = "MF4217"
    what = "The definition of {item} in Fabric has no readable mirroring.json."
    fix = "Check that the second id in `landing_zone` is that of a mirrored database. Nothing was changed."


class NotApplied(Transient):
    code = "MF4218"
    what = "Fabric accepted the change of {item}, but does not show it: {left:reasons}."
    fix = "Run `mirrorfeed fabric plan` in a few minutes to see the current settings."


class NotPaused(Terminal):
    code = "MF4219"
    what = "Mirroring of {item} is {status}, not Paused."
    fix = "`mirrorfeed fabric start` starts it. Fabric then loads every table again."


class PublicNetworkDenied(Terminal):
    code = "MF4221"
    what = "{item} accepts no calls from public networks ({response})."
    fix = (
        "Run this command in a network with the private link of the workspace, and set `private_link: true`, which"
        " uses the workspace's own hosts. A changed policy takes up to 30 minutes."
    )


class ResponseInvalid(Terminal):
    code = "MF4220"
    what = "Fabric's response to the request to {action} ({item}) is not as documented: {reason}."
    fix = "Run the same command again. If it repeats, check whether a proxy on the way to Fabric changes responses."
