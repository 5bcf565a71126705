"""Log in with a credential, in the driver and in executors that upload files.

By default only the driver logs in. With `upload_from: executors`, each executor logs in by itself and renews its
tokens. A task contains the location of a secret, so no secret is in a plan, an event log, a record or an error.
Requirements on executors:

- `Default`: a credential that azure-identity finds on executors, such as a managed identity, not an Azure CLI login.
- `ServicePrincipal`: the secret in an environment variable of the cluster (`spark_env_vars`), because executors cannot
  read secret scopes.
- `ServiceCredential`: Databricks Runtime 16.2 or newer and a dedicated cluster. There is no secret.
"""

from __future__ import annotations

import base64
import importlib
import logging
import os
import re
import ssl
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from mirrorfeed.display.redact import redact_answer, remember
from mirrorfeed.errors import first_line
from mirrorfeed.runtime.credentials import (
    Credential,
    Default,
    Secret,
    ServiceCredential,
    ServicePrincipal,
    check_proxy,
    default_workspace,
)
from mirrorfeed.runtime.errors import (
    CredentialRefusedError,
    LoginUnavailableError,
    SecretUnreachableError,
    certificates_unreadable,
    hash_key_too_short,
    service_credential_unreachable,
)

if TYPE_CHECKING:
    from azure.core.credentials import AccessToken, TokenCredential

_DEFAULT_CHAIN_SECRETS = ("AZURE_CLIENT_SECRET", "AZURE_CLIENT_CERTIFICATE_PASSWORD", "AZURE_PASSWORD")
"""Environment variables that contain the secrets of azure-identity's default credential chain."""
_ENTRA_CODE = re.compile(r"AADSTS\d+")
_CHAIN_LINK = re.compile(r"^\t(\w+): (?:\1 )?(?:authentication unavailable\. )?(.*?)(?:\. .*|\.?)$", re.MULTILINE)
"""Matches each credential in the message of a credential chain: its name, and the first sentence of its error."""
_MAX_LINK_REASON = 120
"""Maximum number of characters to show of each credential's error."""


def token_credential(credential: Credential, ca_bundle: str | None = None) -> TokenCredential:
    """Return a credential for Azure clients. `get_token` raises `LoginUnavailableError` or `CredentialRefusedError` on
    failure.

    Raises `InvalidProxyError`, `SecretUnreachableError`, `service_credential_unreachable` or `certificates_unreadable`
    if the proxy settings, the secret, the service credential or the file `ca_bundle` cannot be used.
    """
    for name in ("azure.identity", "msal"):
        log = logging.getLogger(name)
        if log.level == logging.NOTSET:  # the logger writes each failure again, with the text of the response
            log.setLevel(logging.CRITICAL)
    check_proxy()
    inner, *secrets = _create_credential(credential, ca_bundle)
    _check_certificates(ca_bundle)
    return _WrappedCredential(credential, inner, secrets)


def _create_credential(credential: Credential, ca_bundle: str | None) -> tuple[Any, ...]:
    """Return a credential of the Azure libraries, followed by all secrets that its requests contain."""
    match credential:
        case ServicePrincipal():
            secret = read_secret(credential.secret)
            return _principal_credential(credential, secret, ca_bundle), secret
        case ServiceCredential():
            return (service_credential(credential.name),)
        case Default():
            from azure.identity import DefaultAzureCredential

            chain = DefaultAzureCredential(connection_verify=ca_bundle or True)
            return chain, *(os.environ.get(name, "") for name in _DEFAULT_CHAIN_SECRETS)


def _check_certificates(ca_bundle: str | None) -> None:
    if ca_bundle is None:
        return
    try:
        is_folder = os.path.isdir(ca_bundle)
        ssl.create_default_context(cafile=None if is_folder else ca_bundle, capath=ca_bundle if is_folder else None)
    except OSError as error:
        raise certificates_unreadable(file=ca_bundle, reason=error.strerror or str(error)) from error


def _principal_credential(principal: ServicePrincipal, secret: str, ca_bundle: str | None) -> TokenCredential:
    from azure.identity import AzureAuthorityHosts, ClientSecretCredential

    authority = principal.authority
    public = {f"https://{host}" for name, host in vars(AzureAuthorityHosts).items() if not name.startswith("_")}
    return ClientSecretCredential(
        principal.tenant_id,
        principal.client_id,
        secret,
        authority=authority,
        # The library looks up the host in the public cloud, which does not know the hosts of separate clouds.
        disable_instance_discovery=authority is not None and authority.rstrip("/") not in public,
        connection_verify=ca_bundle or True,
        raw_response_hook=_refuse_unexpected_response,
        retry_total=1,  # the caller retries and counts its retries
    )


def _refuse_unexpected_response(response: Any) -> None:
    """Raise `ClientAuthenticationError` for a redirect, and `ServiceResponseError` for status 429 or 5xx.

    The Azure library ignores redirects, and its older releases handle 429 and 5xx like a wrong secret.
    """
    from azure.core.exceptions import ClientAuthenticationError, ServiceResponseError

    status = response.http_response.status_code
    if status == 429 or status >= 500:
        raise ServiceResponseError(f"the login service returns status {status}")
    if status != 200 and status < 400:
        raise ClientAuthenticationError(f"the login service returns status {status} without a token")


def read_secret(secret: Secret, workspace: Callable[[], Any] = default_workspace) -> str:
    """Return the value of a secret, or raise `SecretUnreachableError`.
    Only `read_hash_key` keeps a copy of a value."""
    if secret.env and (value := os.environ.get(secret.env)):
        return value
    if not secret.scope:
        raise SecretUnreachableError(
            secret=secret, reason="it has no scope" if secret.key else "it is not set in this process"
        )
    client = None
    try:
        client = workspace()
        # The API returns every secret in base64.
        return base64.b64decode(client.secrets.get_secret(secret.scope, secret.key).value).decode()
    except Exception as error:
        has_login = client is not None or not isinstance(error, ValueError)
        # Report only the type, because the message may contain anything.
        failed = f"the request to the workspace failed with {type(error).__name__}"
        reason = failed if has_login else "no valid login for a workspace was found"
        raise SecretUnreachableError(secret=secret, reason=reason, has_login=has_login) from None


MIN_HASH_KEY_LENGTH = 16
"""Minimum number of characters of the secret for hashes."""


@cache
def read_hash_key(location: Secret) -> str:
    """Return the secret for hashes, which the process reads once. Raises `SecretUnreachableError` or
    `hash_key_too_short`."""
    key = read_secret(location)
    if len(key) < MIN_HASH_KEY_LENGTH:
        raise hash_key_too_short(location=location, least=MIN_HASH_KEY_LENGTH)
    remember(key)
    return key


def service_credential(name: str, cloud: Literal["Azure", "AWS"] = "Azure") -> Any:
    """Return a Databricks service credential: a credential of the Azure libraries, or a botocore session for AWS.

    Can be called in a driver or in a task. Raises `service_credential_unreachable` if Databricks does not provide it.
    """
    try:
        credential = _provider()(name)
    except Exception as error:
        reason = f"{type(error).__name__}: {first_line(str(error))}"
        raise service_credential_unreachable(name=name, reason=reason) from None
    if not hasattr(credential, "get_token" if cloud == "Azure" else "get_credentials"):
        raise service_credential_unreachable(name=name, reason=f"it is not a credential of {cloud}")
    return credential


def _provider() -> Callable[[str], Any]:
    if "DATABRICKS_RUNTIME_VERSION" not in os.environ:
        raise LookupError("this process does not run in a Databricks runtime")
    from pyspark import TaskContext

    # Tasks and drivers have separate modules. Neither exists outside a Databricks runtime.
    if TaskContext.get() is not None:
        module: Any = importlib.import_module("databricks.service_credentials")
    else:
        module = importlib.import_module("databricks.sdk.runtime").dbutils.credentials
    provider: Callable[[str], Any] = module.getServiceCredentialsProvider
    return provider


class _WrappedCredential:
    """Credential of the Azure libraries that raises `LoginUnavailableError` or `CredentialRefusedError` if the login
    fails.
    """

    def __init__(self, credential: Credential, inner: TokenCredential, secrets: Sequence[str]) -> None:
        self._credential, self._inner, self._secrets = credential, inner, secrets

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        from azure.core.exceptions import (
            AzureError,
            ClientAuthenticationError,
            ServiceRequestError,
            ServiceResponseError,
        )
        from msal.exceptions import MsalServiceError  # type: ignore[import-untyped]

        remember(*self._secrets)
        try:
            token = self._inner.get_token(*scopes, **options)
        except AzureError as error:
            # Do not chain the original error: it contains the request, and the request contains the secret.
            message, failure, cause = str(error.message), error, error.__cause__
        else:
            remember(*self._secrets, token.token)
            return token
        message = redact_answer(message, *self._secrets)
        # A missing response, 429 and 5xx are not refusals.
        if isinstance(failure, ClientAuthenticationError) and not isinstance(
            cause, ServiceRequestError | ServiceResponseError | MsalServiceError
        ):
            raise _refusal(self._credential, message)
        reached = not isinstance(cause or failure, ServiceRequestError)
        raise LoginUnavailableError(reason=f"{self._credential} cannot log in: {first_line(message)}", reached=reached)


def _refusal(credential: Credential, response: str) -> CredentialRefusedError:
    """Return the error for a response of the login service or credential chain. `response` must contain no secrets."""
    links = [f"{name}: {why[:_MAX_LINK_REASON]}" for name, why in _CHAIN_LINK.findall(response)]
    code = None if links else _ENTRA_CODE.search(response)
    reason = "; ".join(links) or first_line(response)
    return CredentialRefusedError(credential=credential, reason=reason, entra_code=code[0] if code else "")
