"""Who publishes: Azure credentials, for the driver and, where they write themselves, for executors.

Where the driver sends files, as it does by default, it alone logs in: whatever gives it a token will do, a
secret scope alone as well, and nothing of this module reaches an executor.

What travels to executors that write is a recipe, never a secret: the values below name where a secret is, and every
process that needs a token makes it for itself, from the place that the recipe names. So no secret and no token is in a
task, a plan, an event log, a record or an error message; and as each process holds the credential and not a token,
tokens are renewed for as long as a task runs. A token that the driver made and sent along would be a secret inside the
plan, and would end with its hour in the middle of a long task.

What this asks of executors that write:

- `Default`: what azure-identity finds there, such as a managed identity or environment variables of the cluster. A
  login of the Azure CLI on the driver is not there.
- `ServicePrincipal`: the secret from an environment variable that the cluster sets, best from a scope
  (`spark_env_vars: {NAME: "{{secrets/scope/key}}"}`); who may attach to the cluster can read it. With a scope alone
  the secret is asked of the workspace, which the driver can and a local worker can; executors of a cluster have no
  access to it and stop with an error that says so. Give both then: the variable is looked at first.
- `ServiceCredential`: Databricks hands out tokens to driver and executors itself; there is no secret at all. The best
  choice where it exists: Databricks Runtime 16.2, and for executors a dedicated cluster.
"""

from __future__ import annotations

import base64
import importlib
import logging
import os
import re
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirrorfeed.display.redact import redact_answer, remember
from mirrorfeed.errors import Terminal, Transient, first_line
from mirrorfeed.runtime.addresses import check_proxy
from mirrorfeed.runtime.databricks import default_workspace

if TYPE_CHECKING:
    from azure.core.credentials import AccessToken, TokenCredential


_OF_DEFAULT = ("AZURE_CLIENT_SECRET", "AZURE_CLIENT_CERTIFICATE_PASSWORD", "AZURE_PASSWORD")
"""Where the default chain finds its secrets."""


@dataclass(frozen=True, slots=True)
class Default:
    """azure-identity's chain: environment, workload and managed identity, developer tools."""

    def __str__(self) -> str:
        return "the default Azure credential chain"


@dataclass(frozen=True, slots=True)
class Secret:
    """Where a secret is. The environment is looked at first."""

    env: str | None = None
    scope: str | None = None
    key: str | None = None

    def __str__(self) -> str:
        scope = f"the secret {self.scope}/{self.key} of the Databricks workspace" if self.scope else None
        # Names of variables are in capitals. Anything else may be the secret itself, in the place of its name.
        name = self.env if self.env and self.env.isupper() else "that `env` names"
        variable = f"the environment variable {name}" if self.env else None
        return " or ".join(filter(None, (variable, scope)))


@dataclass(frozen=True, slots=True)
class ServicePrincipal:
    tenant_id: str
    client_id: str
    secret: Secret
    authority: str | None = None
    """The https address where it logs in, for clouds of their own; None: where azure-identity says."""

    def __str__(self) -> str:
        return f"the service principal {self.client_id} of tenant {self.tenant_id}"


@dataclass(frozen=True, slots=True)
class ServiceCredential:
    """A service credential of Unity Catalog."""

    name: str

    def __str__(self) -> str:
        return f"the service credential {self.name}"


Credential = Default | ServicePrincipal | ServiceCredential


def token_credential(credential: Credential, ca_bundle: str | None = None) -> TokenCredential:
    """What makes tokens in this process. Refusals to make one come as errors of this module."""
    for name in ("azure.identity", "msal"):
        log = logging.getLogger(name)
        if log.level == logging.NOTSET:  # it tells each failure once more, in the words of whoever answered
            log.setLevel(logging.CRITICAL)
    check_proxy()
    inner, *secrets = _made(credential, ca_bundle)
    _check_certificates(ca_bundle)
    return _Named(credential, inner, secrets)


def _made(credential: Credential, ca_bundle: str | None) -> tuple[Any, ...]:
    """It, and the secrets that it sends."""
    match credential:
        case ServicePrincipal():
            secret = read_secret(credential.secret)
            return _logging_in(credential, secret, ca_bundle), secret
        case ServiceCredential():
            return (service_credential(credential.name),)
        case Default():
            from azure.identity import DefaultAzureCredential

            chain = DefaultAzureCredential(connection_verify=ca_bundle or True)
            return chain, *(os.environ.get(name, "") for name in _OF_DEFAULT)


def _check_certificates(ca_bundle: str | None) -> None:
    if ca_bundle is None:
        return
    try:
        folder = os.path.isdir(ca_bundle)
        ssl.create_default_context(cafile=None if folder else ca_bundle, capath=ca_bundle if folder else None)
    except OSError as error:
        raise CertificatesUnreadable(ca_bundle, error.strerror or str(error)) from error


def bearer(credential: Credential, audience: str, ca_bundle: str | None = None) -> Callable[[], str]:
    """Gives a valid token for an audience at every call, or `LoginUnavailable`, or why it is refused."""
    made = token_credential(credential, ca_bundle)

    def token() -> str:
        from azure.core.exceptions import AzureError, ServiceRequestError

        try:
            return made.get_token(f"{audience}/.default").token
        except AzureError as error:
            said, reached = first_line(str(error.message)), not isinstance(error, ServiceRequestError)
        raise LoginUnavailable(said, reached)

    return token


def _logging_in(principal: ServicePrincipal, secret: str, ca_bundle: str | None) -> TokenCredential:
    from azure.identity import AzureAuthorityHosts, ClientSecretCredential

    own = principal.authority
    known = {f"https://{host}" for name, host in vars(AzureAuthorityHosts).items() if not name.startswith("_")}
    options: dict[str, Any] = {"authority": own} if own else {}
    return ClientSecretCredential(
        principal.tenant_id,
        principal.client_id,
        secret,
        # The library asks a public cloud whether a host logs in people; a private one it would not know.
        disable_instance_discovery=own is not None and own.rstrip("/") not in known,
        connection_verify=ca_bundle or True,
        raw_response_hook=_refuse_odd_answer,
        retry_total=1,  # beyond one at once, who asks for a token repeats its call, and counts that
        **options,
    )


def _refuse_odd_answer(response: Any) -> None:
    """Name the status of a response without a token. The library does not do it for redirections, and its older
    releases take 429 and 5xx for a refusal."""
    from azure.core.exceptions import ClientAuthenticationError, ServiceResponseError

    status = response.http_response.status_code
    if status == 429 or status >= 500:
        raise ServiceResponseError(f"the login service answers with status {status}")
    if status != 200 and status < 400:
        raise ClientAuthenticationError(f"the login service answers with status {status}, and no token")


def read_secret(secret: Secret, workspace: Callable[[], Any] = default_workspace) -> str:
    """Its value, or `SecretUnreachable`. The caller passes it on and keeps no copy."""
    if secret.env and (value := os.environ.get(secret.env)):
        return value
    if not secret.scope:
        raise SecretUnreachable(secret, "it is not set in this process")
    try:
        # The answer of the API is in base64, whatever the secret is.
        return base64.b64decode(workspace().secrets.get_secret(secret.scope, secret.key).value).decode()
    except Exception as error:
        # Only the kind: what other libraries put into their messages is not known.
        raise SecretUnreachable(secret, f"asking the workspace ended with {type(error).__name__}") from None


def service_credential(name: str) -> TokenCredential:
    """What Databricks gives for a service credential, in a driver or in a task."""
    try:
        found: TokenCredential = _provider()(name)
        return found
    except Exception as error:
        raise ServiceCredentialUnreachable(name, f"{type(error).__name__}: {first_line(str(error))}") from None


def _provider() -> Callable[[str], Any]:
    if "DATABRICKS_RUNTIME_VERSION" not in os.environ:
        raise LookupError("this process does not run in a Databricks runtime")
    from pyspark import TaskContext

    # Tasks and drivers have a function each. Neither module is there, or of use, outside a runtime.
    if TaskContext.get() is not None:
        place: Any = importlib.import_module("databricks.service_credentials")
    else:
        place = importlib.import_module("databricks.sdk.runtime").dbutils.credentials
    found: Callable[[str], Any] = place.getServiceCredentialsProvider
    return found


class _Named:
    """A credential whose refusals say which one it is and what to do."""

    def __init__(self, credential: Credential, inner: TokenCredential, secrets: Sequence[str]) -> None:
        self._credential, self._inner, self._secrets = credential, inner, secrets

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        from azure.core.exceptions import ClientAuthenticationError, ServiceRequestError, ServiceResponseError
        from msal.exceptions import MsalServiceError  # type: ignore[import-untyped]

        remember(*self._secrets)
        try:
            token = self._inner.get_token(*scopes, **options)
        except ClientAuthenticationError as error:
            # Not chained to what is raised: the original holds the request, and the request holds the secret.
            whole, cause = str(error.message), error.__cause__
        else:
            remember(*self._secrets, token.token)
            return token
        code = _CODE.search(whole)
        whole = redact_answer(whole, *self._secrets)
        said = first_line(whole)
        # A login that nobody answers, or with 429 or 5xx, is no refusal: these kinds are repeated by whoever called.
        if isinstance(cause, ServiceRequestError):
            raise ServiceRequestError(f"{self._credential} cannot log in: {said}")
        if isinstance(cause, ServiceResponseError | MsalServiceError):
            raise ServiceResponseError(f"{self._credential} cannot log in: {said}")
        raise CredentialRefused(self._credential, whole, code[0] if code else "")


_CODE = re.compile(r"AADSTS\d+")
_WORDS = {
    "AADSTS7000222": ("its client secret has expired", "Make a new secret in Entra ID and put it into {secret}."),
    "AADSTS7000215": (
        "its client secret is wrong",
        "Put the value of the secret, not its id, into {secret}; it may be that of another application.",
    ),
    "AADSTS700016": ("the tenant does not know the application", "Check `client_id` and `tenant_id`."),
    "AADSTS90002": ("there is no such tenant", "Check `tenant_id`."),
    "AADSTS900023": ("there is no such tenant", "Check `tenant_id`."),
    "AADSTS500011": (
        "the tenant does not know the service for which the token was to be",
        "Check that `tenant_id` is the tenant to which the Fabric workspace belongs.",
    ),
}
_OTHERWISE = (
    "Check `credential` in the configuration. Executors that write log in for themselves: what a person's login gives"
    " the driver is not there; a service principal with a secret in the cluster's environment, or a service"
    " credential, is."
)


_LINK = re.compile(r"^\t(\w+): (?:\1 )?(?:authentication unavailable\. )?(.*?)(?:\. .*|\.?)$", re.MULTILINE)
"""Of what a chain of credentials says: who was asked, and the first sentence of it that tells why not."""
_OF_A_LINK = 120


class CredentialRefused(Terminal):
    """No token could be had: the login service refuses the credential, or no way of logging in works here.

    To do: Where the login service gives a code that is known (AADSTS…), the message says what to change: the secret,
    the client id, the tenant. Otherwise check `credential` in the configuration and the environment that it names.
    """

    code = "MF4301"

    def __init__(self, credential: Credential, said: str, code: str = "") -> None:
        self.credential = credential
        links = [f"{name}: {why[:_OF_A_LINK]}" for name, why in _LINK.findall(said)]
        self.answer = "" if links else code
        self.said = "" if self.answer in _WORDS else "; ".join(links) or first_line(said)

    def what(self) -> str:
        reason = _WORDS[self.answer][0] if self.answer in _WORDS else self.said
        code = f" ({self.answer})" if self.answer in _WORDS else ""
        return f"There is no token for {self.credential}: {reason}{code}."

    def next(self) -> str:
        if self.answer not in _WORDS:
            return _OTHERWISE
        secret = self.credential.secret if isinstance(self.credential, ServicePrincipal) else "its place"
        return _WORDS[self.answer][1].format(secret=secret)


class LoginUnavailable(Transient):
    """The login service cannot be reached, or does not answer for now."""

    code = "MF4302"

    def __init__(self, said: str, reached: bool = True) -> None:
        self.said, self.reached = said, reached
        """The second: whether there was anybody to ask."""

    def what(self) -> str:
        return f"There is no token for now: {self.said}."

    def next(self) -> str:
        return "Check that the login service can be reached from here, then run the same command again."


class CertificatesUnreadable(Terminal):
    """The file with the certificates to trust is not there, or is none."""

    code = "MF4303"

    def __init__(self, file: str, reason: str) -> None:
        self.file, self.reason = file, reason

    def what(self) -> str:
        return f"The certificates in {self.file} cannot be read: {self.reason}."

    def next(self) -> str:
        return "Let `ca_bundle` in the configuration name a file with certificates in PEM form."


class SecretUnreachable(Terminal):
    """The configuration says where the client secret is, and it cannot be read there."""

    code = "MF4304"

    def __init__(self, secret: Secret, reason: str) -> None:
        self.secret, self.reason = secret, reason

    def what(self) -> str:
        return f"The client secret cannot be read from {self.secret}: {self.reason}."

    def next(self) -> str:
        if not self.secret.scope:
            return (
                "Set it for the driver and for all executors: on Databricks in the cluster's `spark_env_vars`,"
                ' as in {NAME: "{{secrets/scope/key}}"}.'
            )
        return (
            "Check that the scope and the key exist and may be read. Executors of a cluster cannot ask the workspace:"
            " leave out `upload_from: executors`, or name an environment variable as well (`secret: {scope, key,"
            " env}`), and set it in the cluster's"
            f' `spark_env_vars` to "{{{{secrets/{self.secret.scope}/{self.secret.key}}}}}".'
        )


class ServiceCredentialUnreachable(Terminal):
    """The service credential of Unity Catalog cannot be used from this compute or by this user."""

    code = "MF4305"

    def __init__(self, name: str, reason: str) -> None:
        self.name, self.reason = name, reason

    def what(self) -> str:
        return f"The service credential {self.name} of Unity Catalog cannot be used here: {self.reason}."

    def next(self) -> str:
        return (
            "Use it on Databricks Runtime 16.2 or newer, with the privilege ACCESS on it, and for executors that write"
            " on a dedicated cluster; elsewhere use a service principal or the default credential."
        )
