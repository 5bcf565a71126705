"""Errors of the local replica (MF70xx), of comparisons with a mirror (MF71xx) and of Fabric's REST API (MF42xx)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mirrorfeed.errors import Terminal, Transient
from mirrorfeed.lint.specification import LintFinding

_RECREATE = "delete the folder of the table and publish all data again"


class MirrorKeysChanged(Terminal):
    code = "MF7003"
    what = "keyColumns of table {table} changed from {before:list} to {now:list}."
    fix = f"The keys of a table cannot change. Restore the previous keys, or {_RECREATE}."


class FolderReplaced(Transient):
    code = "MF7004"
    what = "The folder {address} was deleted or created again while table {table} was read."
    fix = "No action is needed. The next pass reads the new folder."


class BrokenFile(Terminal):
    code = "MF7006"
    what = "Cannot read {address}: {reason:phrase}."
    fix = "Delete the file, and write a complete file under the same name."


class SamePlace(Terminal):
    code = "MF7012"
    what = "Two folders contain table {table}, and both would be replicated to {place}."
    fix = "Remove one of the two folders from the landing zone."


class MirrorUnavailable(Transient):
    code = "MF7013"
    what = "Cannot read or write the mirror {place}: {reason:phrase}."
    fix = "Check that the folder is writable. The next pass applies the file again."


class NotOurs(Terminal):
    code = "MF7014"
    what = "{place} is a Delta table that `mirrorfeed replicate` did not create. It was not changed."
    fix = "Use a separate target folder for the replica."


class TypeChanged(Terminal):
    code = "MF7017"
    what = "Replication of table {table} is stopped, because {address} changes the type of {columns}."
    fix = "Delete the folder of the table, and publish all data again."
    changed: Mapping[str, tuple[str, str]]
    """Maps the name of each changed column to the old type and the new type."""

    @property
    def columns(self) -> str:
        return ", ".join(f"{name} from {old} to {new}" for name, (old, new) in self.changed.items())


class YearNotHeld(Terminal):
    code = "MF7020"
    what = "{address} has dates in {column} outside the years 1 to 9999."
    fix = "The replica cannot read such dates. Publish the column as text, or correct the dates in the source."


class FileRefused(Terminal):
    code = "MF7021"
    what = "Cannot apply {finding.file} ({finding.code}): {finding.what}"
    fix = "{finding.next}"
    meaning = "A file breaks a rule of `mirrorfeed lint`, so the replica does not apply it."
    finding: LintFinding


class PathNotSupported(Terminal):
    code = "MF7022"
    what = "deltalake {version} cannot store a table in {place}, because the path contains '{character}'."
    fix = "Install a newer release: `pip install 'deltalake>=1.3'`."


class MirrorMissing(Terminal):
    code = "MF7101"
    what = "There is no Delta table at {path}, where the mirror of {table} should be."
    fix = (
        "Wait until Fabric has created the table. Without Fabric, `mirrorfeed replicate` creates it. Or set the folder"
        " of the mirror: --mirror, in Python `mirror`."
    )


class MirrorNotReached(Transient):
    code = "MF7102"
    what = "Fabric has not yet applied any publication in the log of {table}."
    fix = "Verify again when Fabric has consumed more files. `mirrorfeed status` shows the files not consumed."


class MirrorUnreadable(Terminal):
    code = "MF7103"
    what = "Spark cannot read the mirror of {table} at {path}: {reason}."
    fix = (
        "Give Spark access to this path. For OneLake, set `fs.azure.account…` in the Spark configuration of the"
        " cluster, as in docs/set-up-fabric.md. Or give the path of another copy of the mirror with --mirror (in"
        " Python: `mirror`)."
    )


class ConditionUnreadable(Terminal):
    code = "MF7104"
    what = "The condition {condition!r} cannot be applied to {table} and its mirror: {reason}."
    fix = "Write the condition as in a WHERE clause. Do not use nested columns: a mirror stores them as text."


class MirrorNotNamed(Terminal):
    code = "MF7105"
    what = "The folder with the mirror of {landing_zone} is unknown."
    fix = (
        "Set the folder that `mirrorfeed replicate` writes to: with --mirror, in Python with the argument `mirror`, in"
        " the field `mirror` of a notebook, or in the variable `mirror` of a deployment."
    )


class MirrorColumns(Terminal):
    code = "MF7106"
    what = "The columns of the mirror at {path} do not match those of {table}: {faults:reasons}."
    faults: Sequence[str]
    fix = "Check that {path} is the mirror of {table}, and that all files of the table have been replicated."


class VersionGone(Terminal):
    code = "MF7107"
    what = "The mirror contains version {version} of {table}, but this version of the source can no longer be read."
    fix = (
        "Verify again when the mirror has reached a newer version. If `mirrorfeed publish` cannot continue either,"
        " follow its error."
    )


class FabricTokenRefused(Terminal):
    code = "MF4201"
    what = "Fabric does not accept the token for {item} ({response})."
    fix = (
        "Check that `credential` names an identity of the workspace's tenant, and that its tokens are for"
        " https://api.fabric.microsoft.com. Tokens for Azure Storage are not accepted here."
    )


class FabricPermissionMissing(Terminal):
    code = "MF4202"
    what = "This identity has no permission in Fabric to {action} ({item}: {response})."
    fix = (
        "Give the identity the role Contributor in the workspace. For a service principal, a Fabric administrator must"
        " also allow service principals to use Fabric APIs, in the tenant settings."
    )


class FabricWorkspaceMissing(Terminal):
    code = "MF4203"
    what = "The workspace {workspace} does not exist in Fabric, or this identity cannot see it ({response})."
    fix = (
        "Compare the first id in `landing_zone: onelake://<workspace id>/<mirrored database id>` with the id in the"
        " address of the workspace in Fabric (/groups/<workspace id>), and give the identity a role in the workspace."
    )


class MirroredDatabaseMissing(Terminal):
    code = "MF4204"
    what = "The workspace {workspace} has no mirrored database {database} ({response})."
    fix = (
        "Check the second id in `landing_zone`: the id may belong to another kind of item, or the database was deleted."
        " `mirrorfeed fabric create NAME` prints the `landing_zone` of the database NAME."
    )


class NotFound(Terminal):
    code = "MF4205"
    what = "Cannot {action} ({item}): Fabric reports that an object was not found ({response})."
    fix = "Check both ids in `landing_zone`, and `fabric_endpoint` if set. Then run the same command again."


class NameTaken(Terminal):
    code = "MF4206"
    what = "Another item in {item} already has this name, and this identity cannot see the item ({response})."
    fix = "Choose another name, or give the identity a role that can see the item."


class FabricUnavailable(Transient):
    code = "MF4207"
    what = "Cannot {action}: Fabric is not available ({item}: {reason})."
    fix = "Run the same command again later. The command first checks which steps are already done."


class RequestFailed(Terminal):
    code = "MF4208"
    what = "Fabric did not {action} ({item}: {response})."
    fix = "If Fabric reports a cause, correct it. Then run the same command again."


class NotInFabric(Terminal):
    code = "MF4210"
    what = "The landing zone {landing_zone} is not in a mirrored database of Fabric."
    fix = (
        "Set `landing_zone: onelake://<workspace id>/<mirrored database id>`. If there is no database yet, set"
        " `onelake://<workspace id>`: `mirrorfeed fabric create NAME` then creates one and prints its `landing_zone`."
    )


class OtherMirror(Terminal):
    code = "MF4211"
    what = "The mirrored database {name!r} mirrors another source ({kind}; {item}), so it does not read files."
    fix = "Choose another name, or the id of an open mirrored database."


class NotListed(Transient):
    code = "MF4212"
    what = "The mirrored database {name!r} was created in {item}, but Fabric does not list it yet."
    fix = "Run the same command again in a few minutes. It does not create a second database."


class NotReached(Transient):
    code = "MF4213"
    what = "{verb} is not finished: after {seconds:.0f} s, the status of {item} is {status}."
    fix = "Run the same command again to continue waiting, or check the database in Fabric."


class NotDropped(Transient):
    code = "MF4214"
    what = "The folder of {table} was deleted, but after {seconds:.0f} s {item} still has the table ({state})."
    fix = "Run the same command again. It waits until Fabric has dropped the table, then publishes."


class NoSqlEndpoint(Transient):
    code = "MF4215"
    what = "Fabric reports no SQL endpoint of {item}."
    fix = (
        "Fabric creates the SQL endpoint within minutes after the database. If it does not appear, check {item} in"
        " Fabric."
    )


class DefinitionUnreadable(Terminal):
    code = "MF4217"
    what = "The definition of {item} in Fabric has no readable mirroring.json."
    fix = "Check that the second id in `landing_zone` is the id of a mirrored database. Nothing was changed."


class NotApplied(Transient):
    code = "MF4218"
    what = "Fabric accepted the new settings of {item}, but still shows the old ones: {left:reasons}."
    fix = "Run `mirrorfeed fabric plan` in a few minutes to see the current settings."


class NotPaused(Terminal):
    code = "MF4219"
    what = "Mirroring of {item} is {status}, not Paused."
    fix = "To start mirroring anyway, run `mirrorfeed fabric start`. Fabric then loads every table again."


class PublicNetworkDenied(Terminal):
    code = "MF4221"
    what = "{item} accepts no calls from public networks ({response})."
    fix = (
        "Run this command in a network with the private link of the workspace, and set `private_link: true` to use the"
        " hosts of the workspace. A changed network policy takes effect within 30 minutes."
    )


class ResponseInvalid(Terminal):
    code = "MF4220"
    what = "Cannot {action} ({item}): the response of Fabric is not as documented ({reason})."
    fix = (
        "Run the same command again. If this repeats, check whether a proxy between here and Fabric changes responses."
    )


class MonitoringOff(Terminal):
    code = "MF4222"
    what = "The workspace {workspace} has no workspace monitoring, or this identity cannot see its database."
    fix = "Turn on workspace monitoring in the settings of the workspace, which uses capacity, and grant read access."


class MonitoringElsewhere(Terminal):
    code = "MF4223"
    what = "Fabric reports {host} as the host of workspace monitoring. It is no known host of Microsoft."
    fix = "If you trust this host with a token, add it to `trusted_hosts` in the configuration."
