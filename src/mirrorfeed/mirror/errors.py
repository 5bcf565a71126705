"""Errors of the local replica (MF70xx), of comparisons with a mirror (MF71xx) and of Fabric's REST API (MF42xx)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mirrorfeed.errors import ConfigurationError, CredentialsError, FabricError, MirrorError, TransientError, problem
from mirrorfeed.lint.specification import LintFinding


@problem(MirrorError, "MF7003")
def mirror_keys_changed(*, table: str, before: Sequence[str], now: Sequence[str]) -> None:
    """keyColumns of table {table} changed from {before:list} to {now:list}.

    The keys of a table cannot change. Restore the previous keys, or delete the folder of the table and publish all data
    again.
    """


@problem(TransientError, "MF7004")
def folder_replaced(*, address: str, table: str) -> None:
    """The folder {address} was deleted or created again while table {table} was read.

    No action is needed. The next pass reads the new folder.
    """


@problem(MirrorError, "MF7006")
def file_not_readable(*, address: str, reason: str) -> None:
    """Cannot read {address}: {reason:phrase}.

    Delete the file, and write a complete file under the same name.
    """


@problem(MirrorError, "MF7012")
def two_folders_for_table(*, table: str, place: str) -> None:
    """Two folders contain table {table}, and both would be replicated to {place}.

    Remove one of the two folders from the landing zone.
    """


@problem(TransientError, "MF7013")
def mirror_unavailable(*, place: str, reason: str) -> None:
    """Cannot read or write the mirror {place}: {reason:phrase}.

    Check that the folder is writable. The next pass applies the file again.
    """


class ForeignDeltaTableError(MirrorError):
    code = "MF7014"
    what = "{place} is a Delta table that `mirrorfeed replicate` did not create. It was not changed."
    fix = "Use a separate target folder for the replica."
    place: str


class TypeChangedError(MirrorError):
    code = "MF7017"
    what = "Replication of table {table} is stopped, because {address} changes the type of {columns}."
    fix = "Delete the folder of the table, and publish all data again."
    table: str
    address: str
    changed: Mapping[str, tuple[str, str]]
    """Maps the name of each changed column to the old type and the new type."""

    @property
    def columns(self) -> str:
        return ", ".join(f"{name} from {old} to {new}" for name, (old, new) in self.changed.items())


@problem(MirrorError, "MF7020")
def year_out_of_range(*, address: str, column: str) -> None:
    """{address} has dates in {column} outside the years 1 to 9999.

    The replica cannot read such dates. Publish the column as text, or correct the dates in the source.
    """


@problem(
    MirrorError,
    "MF7021",
    meaning="A file breaks a rule of `mirrorfeed lint`, so the replica does not apply it.",
)
def file_breaks_rule(*, finding: LintFinding) -> None:
    """Cannot apply {finding.file} ({finding.code}): {finding.what}

    {finding.next}
    """


@problem(MirrorError, "MF7022")
def path_not_supported(*, version: str, place: str, character: str) -> None:
    """deltalake {version} cannot store a table in {place}, because the path contains '{character}'.

    Install a newer release: `pip install 'deltalake>=1.3'`.
    """


@problem(MirrorError, "MF7101")
def mirror_missing(*, path: str, table: str) -> None:
    """There is no Delta table at {path}, where the mirror of {table} should be.

    Wait until Fabric has created the table. Without Fabric, `mirrorfeed replicate` creates it. Or set the folder of the
    mirror: --mirror, in Python `mirror`.
    """


@problem(TransientError, "MF7102")
def mirror_not_reached(*, table: str) -> None:
    """Fabric has not yet applied any publication in the log of {table}.

    Verify again when Fabric has consumed more files. `mirrorfeed status` shows the files not consumed.
    """


@problem(MirrorError, "MF7103")
def mirror_unreadable(*, table: str, path: str, reason: str) -> None:
    """Spark cannot read the mirror of {table} at {path}: {reason}.

    Give Spark access to this path. For OneLake, set `fs.azure.account…` in the Spark configuration of the cluster, as
    in docs/set-up-fabric.md. Or give the path of another copy of the mirror with --mirror (in Python: `mirror`).
    """


@problem(ConfigurationError, "MF7104")
def condition_unreadable(*, condition: str, table: str, reason: str) -> None:
    """The condition {condition!r} cannot be applied to {table} and its mirror: {reason}.

    Write the condition as in a WHERE clause. Do not use nested columns: a mirror stores them as text.
    """


@problem(ConfigurationError, "MF7105")
def mirror_not_named(*, landing_zone: str) -> None:
    """The folder with the mirror of {landing_zone} is unknown.

    Set the folder that `mirrorfeed replicate` writes to: with --mirror, in Python with the argument `mirror`, in the
    field `mirror` of a notebook, or in the variable `mirror` of a deployment.
    """


class MirrorColumnsError(MirrorError):
    code = "MF7106"
    what = "The columns of the mirror at {path} do not match those of {table}: {faults:reasons}."
    faults: Sequence[str]
    fix = "Check that {path} is the mirror of {table}, and that all files of the table have been replicated."
    path: str
    table: str


@problem(MirrorError, "MF7107")
def mirrored_version_gone(*, version: int, table: str) -> None:
    """The mirror contains version {version} of {table}, but this version of the source can no longer be read.

    Verify again when the mirror has reached a newer version. If `mirrorfeed publish` cannot continue either, follow its
    error.
    """


@problem(CredentialsError, "MF4201")
def fabric_token_refused(*, item: str, response: str) -> None:
    """Fabric does not accept the token for {item} ({response}).

    Check that `credential` names an identity of the workspace's tenant, and that its tokens are for
    https://api.fabric.microsoft.com. Tokens for Azure Storage are not accepted here.
    """


@problem(ConfigurationError, "MF7108")
def history_view_impossible(*, table: str, reason: str) -> None:
    """The mirror of {table} cannot have a view of its history: {reason}.

    The view needs a table with `delivery: append` and with keys. To change a published table, set both in the
    configuration and run `mirrorfeed rebuild`.
    """


@problem(ConfigurationError, "MF7109")
def history_view_column_taken(*, table: str, columns: Sequence[str]) -> None:
    """The view of the history of {table} adds columns whose names the table already has: {columns:quoted}.

    Rename these columns with `rename` and run `mirrorfeed rebuild`, or write the view yourself.
    """


@problem(MirrorError, "MF7110")
def full_verification_required(*, table: str, reason: str) -> None:
    """Cannot compare only the changed rows of {table}: {reason:phrase}.

    Run `mirrorfeed verify` without `--since-last`. If source and mirror are equal, it sets the version since which
    changes are compared.
    """


@problem(TransientError, "MF7111")
def mirror_moved(*, table: str) -> None:
    """Fabric applied publications to the mirror of {table} while it was compared, so the differences may not be real.

    Verify again when the mirror changes less often, or pause publishing for the time of the verification.
    """


@problem(FabricError, "MF4202")
def fabric_permission_missing(*, action: str, item: str, response: str) -> None:
    """This identity has no permission in Fabric to {action} ({item}: {response}).

    Give the identity the role Contributor in the workspace. For a service principal, a Fabric administrator must also
    allow service principals to use Fabric APIs, in the tenant settings.
    """


@problem(FabricError, "MF4203")
def fabric_workspace_missing(*, workspace: str, response: str) -> None:
    """The workspace {workspace} does not exist in Fabric, or this identity cannot see it ({response}).

    Compare the first id in `landing_zone: onelake://<workspace id>/<mirrored database id>` with the id in the address
    of the workspace in Fabric (/groups/<workspace id>), and give the identity a role in the workspace.
    """


@problem(FabricError, "MF4204")
def mirrored_database_missing(*, workspace: str, database: str, response: str) -> None:
    """The workspace {workspace} has no mirrored database {database} ({response}).

    Check the second id in `landing_zone`: the id may belong to another kind of item, or the database was deleted.
    `mirrorfeed fabric create NAME` prints the `landing_zone` of the database NAME.
    """


@problem(FabricError, "MF4205")
def fabric_object_missing(*, action: str, item: str, response: str) -> None:
    """Cannot {action} ({item}): Fabric reports that an object was not found ({response}).

    Check both ids in `landing_zone`, and `fabric_endpoint` if set. Then run the same command again.
    """


class DatabaseNameTakenError(FabricError):
    code = "MF4206"
    what = "Another item in {item} already has this name, and this identity cannot see the item ({response})."
    fix = "Choose another name, or give the identity a role that can see the item."
    item: str
    response: str


@problem(TransientError, "MF4207")
def fabric_unavailable(*, action: str, item: str, reason: str) -> None:
    """Cannot {action}: Fabric is not available ({item}: {reason}).

    Run the same command again later. The command first checks which steps are already done.
    """


@problem(FabricError, "MF4208")
def fabric_request_failed(*, action: str, item: str, response: str) -> None:
    """Fabric did not {action} ({item}: {response}).

    If Fabric reports a cause, correct it. Then run the same command again.
    """


@problem(FabricError, "MF4210")
def landing_zone_not_in_fabric(*, landing_zone: str) -> None:
    """The landing zone {landing_zone} is not in a mirrored database of Fabric.

    Set `landing_zone: onelake://<workspace id>/<mirrored database id>`. If there is no database yet, set
    `onelake://<workspace id>`: `mirrorfeed fabric create NAME` then creates one and prints its `landing_zone`.
    """


@problem(FabricError, "MF4211")
def not_an_open_mirror(*, name: str, kind: str, item: str) -> None:
    """The mirrored database {name!r} mirrors another source ({kind}; {item}), so it does not read files.

    Choose another name, or the id of an open mirrored database.
    """


@problem(TransientError, "MF4212")
def database_not_listed(*, name: str, item: str) -> None:
    """The mirrored database {name!r} was created in {item}, but Fabric does not list it yet.

    Run the same command again in a few minutes. It does not create a second database.
    """


@problem(TransientError, "MF4213")
def mirroring_not_changed(*, verb: str, seconds: float, item: str, status: str) -> None:
    """{verb} is not finished: after {seconds:.0f} s, the status of {item} is {status}.

    Run the same command again to continue waiting, or check the database in Fabric.
    """


@problem(TransientError, "MF4214")
def table_not_dropped(*, table: str, seconds: float, item: str, state: str) -> None:
    """The folder of {table} was deleted, but after {seconds:.0f} s {item} still has the table ({state}).

    Run the same command again. It waits until Fabric has dropped the table, then publishes.
    """


@problem(TransientError, "MF4215")
def no_sql_endpoint(*, item: str) -> None:
    """Fabric reports no SQL endpoint of {item}.

    Fabric creates the SQL endpoint within minutes after the database. If it does not appear, check {item} in Fabric.
    """


@problem(FabricError, "MF4217")
def database_definition_unreadable(*, item: str) -> None:
    """The definition of {item} in Fabric has no readable mirroring.json.

    Check that the second id in `landing_zone` is the id of a mirrored database. Nothing was changed.
    """


@problem(TransientError, "MF4218")
def settings_not_applied(*, item: str, left: Sequence[str]) -> None:
    """Fabric accepted the new settings of {item}, but still shows the old ones: {left:reasons}.

    Run `mirrorfeed fabric plan` in a few minutes to see the current settings.
    """


@problem(FabricError, "MF4219")
def mirroring_not_paused(*, item: str, status: str) -> None:
    """Mirroring of {item} is {status}, not Paused.

    To start mirroring anyway, run `mirrorfeed fabric start`. Fabric then loads every table again.
    """


@problem(FabricError, "MF4221")
def public_network_denied(*, item: str, response: str) -> None:
    """{item} accepts no calls from public networks ({response}).

    Run this command in a network with the private link of the workspace, and set `private_link: true` to use the hosts
    of the workspace. A changed network policy takes effect within 30 minutes.
    """


@problem(FabricError, "MF4220")
def fabric_response_invalid(*, action: str, item: str, reason: str) -> None:
    """Cannot {action} ({item}): the response of Fabric is not as documented ({reason}).

    Run the same command again. If this repeats, check whether a proxy between here and Fabric changes responses.
    """


@problem(FabricError, "MF4222")
def workspace_monitoring_off(*, workspace: str) -> None:
    """The workspace {workspace} has no workspace monitoring, or this identity cannot see its database.

    Turn on workspace monitoring in the settings of the workspace, which uses capacity, and grant read access.
    """


@problem(FabricError, "MF4223")
def untrusted_monitoring_host(*, host: str) -> None:
    """Fabric reports {host} as the host of workspace monitoring. It is no known host of Microsoft.

    If you trust this host with a token, add it to `trusted_hosts` in the configuration.
    """
