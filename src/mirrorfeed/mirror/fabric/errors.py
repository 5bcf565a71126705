"""Errors of the mirrored database in Fabric."""

from __future__ import annotations

from mirrorfeed.errors import Terminal, Transient


class TokenRefused(Terminal):
    code = "MF4201"
    what = "Fabric does not accept the token for {place} ({said})."
    fix = (
        "Check that `credential` names an identity of the tenant to which the workspace belongs, and that its"
        " tokens are for https://api.fabric.microsoft.com: one for Azure Storage is not accepted here."
    )


class NoPermission(Terminal):
    code = "MF4202"
    what = "Fabric does not allow this identity to {action} ({place}: {said})."
    fix = (
        "Give it the role Contributor in the workspace. For a service principal, an administrator of Fabric must"
        " also allow service principals to use Fabric APIs, in the tenant settings."
    )


class WorkspaceMissing(Terminal):
    code = "MF4203"
    what = "Fabric knows no workspace {workspace}, or not for this identity ({said})."
    fix = (
        "Compare the first id in `landing_zone: onelake://<workspace id>/<mirrored database id>` with the one in"
        " the address of the workspace in Fabric (/groups/<workspace id>), and give the identity a role in it."
    )


class DatabaseMissing(Terminal):
    code = "MF4204"
    what = "The workspace {workspace} holds no mirrored database {database} ({said})."
    fix = (
        "Check the second id in `landing_zone`: it may be that of another kind of item, or the database was"
        " deleted. `mirrorfeed fabric create NAME` prints the line of the one with that name."
    )


class NotFound(Terminal):
    code = "MF4205"
    what = "Fabric was asked to {action} ({place}) and answered {said}."
    fix = (
        "It does not say what it did not find. Check `fabric_endpoint` if the configuration sets it, then both ids"
        " in `landing_zone`, and run the same command again."
    )


class NameTaken(Terminal):
    code = "MF4206"
    what = "The name is taken in {place}, by something that is not shown to this identity ({said})."
    fix = "Choose another name, or give the identity a role that may see it."


class FabricUnavailable(Transient):
    code = "MF4207"
    what = "Fabric cannot be asked for now to {action} ({place}: {reason})."
    fix = "Run the same command again later: it looks first at what has been done already."


class CallRefused(Terminal):
    code = "MF4208"
    what = "Fabric refuses to {action} ({place}: {said})."
    fix = "Look at the mirrored database in Fabric, correct what it names, and run the same command again."


class OperationFailed(Terminal):
    code = "MF4209"
    what = "Fabric took the request to {action} and then failed ({place}: {reason})."
    fix = "Look at the item in Fabric, then run the same command again."


class NotInFabric(Terminal):
    code = "MF4210"
    what = "The landing zone {landing_zone} names no mirrored database of Fabric."
    fix = (
        "Set `landing_zone: onelake://<workspace id>/<mirrored database id>`. With the workspace alone, `mirrorfeed"
        " fabric create NAME` makes the database and prints the line."
    )


class OtherMirror(Terminal):
    code = "MF4211"
    what = "{name!r} is there already and mirrors a source of its own ({kind}; {place})."
    fix = "It takes no files: choose another one."


class NotListed(Transient):
    code = "MF4212"
    what = "{name!r} was made in {place} and is not shown there yet."
    fix = "Run the same command again in a few minutes: it makes no second one."


class NotReached(Transient):
    code = "MF4213"
    what = "{verb} has no effect yet: after {seconds:.0f} s {place} is {status}."
    fix = "Run the same command again to go on waiting, or look at the database in Fabric."


class NotDropped(Transient):
    code = "MF4214"
    what = "The folder of {table} is deleted, and after {seconds:.0f} s {place} still has the table ({state})."
    fix = "Run the same command again: it goes on waiting, then publishes. Nothing is published until then."


class NoSqlEndpoint(Transient):
    code = "MF4215"
    what = "Fabric tells of no SQL endpoint of {place}."
    fix = "It is made with the database, within minutes; look at the item in Fabric if it stays away."


class NotApplied(Transient):
    code = "MF4218"
    what = "Fabric took the change of {place} and does not show it: {left:reasons}."
    fix = "Run `mirrorfeed fabric plan` in a while: it shows what is there."


class DefinitionUnreadable(Terminal):
    code = "MF4217"
    what = "The definition that Fabric gives of {place} has no mirroring.json that can be read."
    fix = "Check that the second id in `landing_zone` is that of a mirrored database. Nothing was changed."


class NotPaused(Terminal):
    code = "MF4219"
    what = "{subject} is {status}, not Paused."
    fix = "`mirrorfeed fabric start` starts what is Stopped or was never started; every table is then taken anew."
    place: str

    @property
    def subject(self) -> str:
        return f"{self.place[0].upper()}{self.place[1:]}"
