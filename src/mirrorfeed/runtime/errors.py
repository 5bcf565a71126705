"""Errors that are raised if Spark cannot start on this machine, or if a login, certificate or proxy is unusable."""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Any

from mirrorfeed.display.redact import shell_argument
from mirrorfeed.errors import ConfigurationError, CredentialsError, SparkError, TransientError, problem


@problem(SparkError, "MF1201")
def spark_missing(*, install: str = "pip install") -> None:
    """This command needs Spark, but pyspark and delta-spark are not installed here.

    Run `make setup` in the project, or `{install} pyspark==4.2.0 delta-spark==4.4.0`.
    """


def install_command() -> str:
    """Return the command that installs packages for the running Python, for example in an environment of pipx or uv."""
    python = shell_argument(sys.executable)
    has_pip = importlib.util.find_spec("pip") is not None  # uv creates environments without pip
    return f"{python} -m pip install" if has_pip else f"uv pip install --python {python}"


@problem(
    SparkError,
    "MF1204",
    meaning="Java is missing, or Spark does not support its version.",
)
def java_unusable(*, reason: str) -> None:
    """Spark needs Java 17 or 21, but {reason}.

    Install JDK 17 or 21 (for example openjdk-17-jdk). Then add it to PATH, or set JAVA_HOME.
    """


@problem(SparkError, "MF1207")
def spark_did_not_start(*, last_words: str, log: str) -> None:
    """Spark did not start on this machine: {last_words}.

    See {log} for the full output. The first start downloads the JARs of Delta. If this download failed, check that
    Maven Central can be reached.
    """


@problem(SparkError, "MF1208")
def spark_cache_unusable(*, folder: str, reason: str) -> None:
    """Spark cannot start, because {folder} is not writable: {reason}.

    Set the environment variable MIRRORFEED_CACHE to a writable folder.
    """


class CredentialRefusedError(CredentialsError):
    code = "MF4301"
    what = {
        "": "Cannot get a token for {credential}: {reason:phrase}.",
        "AADSTS7000222": "Cannot get a token for {credential}: its client secret has expired (AADSTS7000222).",
        "AADSTS7000215": "Cannot get a token for {credential}: its client secret is wrong (AADSTS7000215).",
        "AADSTS700016": "Cannot get a token for {credential}: the tenant does not know the application (AADSTS700016).",
        "AADSTS90002": "Cannot get a token for {credential}: the tenant does not exist (AADSTS90002).",
        "AADSTS900023": "Cannot get a token for {credential}: the tenant does not exist (AADSTS900023).",
        "AADSTS500011": "Cannot get a token for {credential}: the tenant does not know the service (AADSTS500011).",
    }
    fix = {
        "": (
            "Check `credential` in the configuration. With `upload_from: executors` use a service principal with an"
            " environment variable, or a service credential, because executors cannot use the login of a person."
        ),
        "AADSTS7000222": "Create a new secret in Entra ID, and store its value in {place}.",
        "AADSTS7000215": "Store the value of the secret, not the id of the secret, in {place}.",
        "AADSTS700016": "Correct `client_id` or `tenant_id` of `credential` in the configuration.",
        "AADSTS90002": "Correct `tenant_id` of `credential` in the configuration.",
        "AADSTS900023": "Correct `tenant_id` of `credential` in the configuration.",
        "AADSTS500011": "Check that `tenant_id` of `credential` is the tenant of the Fabric workspace.",
    }
    meaning = "The login service refuses the credential, or no method of login works in this process."
    reason: str
    credential: Any
    entra_code: str = ""

    @property
    def case(self) -> str:
        return self.entra_code if self.entra_code in self.fix else ""

    @property
    def place(self) -> str:
        return str(getattr(self.credential, "secret", "the place that the configuration names"))


class LoginUnavailableError(TransientError):
    code = "MF4302"
    what = "Cannot get a token at the moment: {reason:phrase}."
    fix = "Check that this machine can reach the login service, then run the same command again."
    reason: str
    reached: bool = True
    """False if the login service could not be reached."""


@problem(CredentialsError, "MF4303")
def certificates_unreadable(*, file: str, reason: str) -> None:
    """Cannot read the certificates in {file}: {reason:phrase}.

    Set `ca_bundle` in the configuration to a file with certificates in PEM format.
    """


class SecretUnreachableError(CredentialsError):
    code = "MF4304"
    what = "Cannot read a secret from {secret}: {reason:phrase}."
    fix = {
        "an environment variable": (
            "On Databricks use `secret: {{scope, key}}`, because serverless compute has no environment variables."
            " Elsewhere set the environment variable for this process."
        ),
        "a key without a scope": (
            "Set the scope before the command: `mirrorfeed --secret-scope SCOPE publish`. In Python, set"
            " `secret_scope`. Or add `scope` to the secret in the configuration."
        ),
        "a secret scope": "Check that the scope and the key exist, and that this identity can read the secret.",
        "a secret scope, without a login for the workspace": (
            "Run `databricks auth login`, or set DATABRICKS_HOST and DATABRICKS_TOKEN. Or use an environment variable"
            " with the secret: `secret: {{env: NAME}}`."
        ),
        "a secret scope on a cluster": (
            "Check that the scope and the key exist, and that this identity can read the secret. Executors cannot read"
            " secret scopes: with `upload_from: executors`, add an environment variable (`secret: {{scope, key,"
            " env}}`), and set"
            ' this variable in `spark_env_vars` of the cluster to "{{{{secrets/{path}}}}}".'
        ),
    }
    secret: Any
    reason: str
    has_login: bool = True
    """False if no valid login for a Databricks workspace was found."""

    @property
    def case(self) -> str:
        if not getattr(self.secret, "scope", None):
            return "a key without a scope" if getattr(self.secret, "key", None) else "an environment variable"
        runtime = os.environ.get("DATABRICKS_RUNTIME_VERSION", "")
        if runtime and not runtime.startswith("client."):  # serverless compute has versions such as client.4.9
            return "a secret scope on a cluster"
        return "a secret scope" if self.has_login else "a secret scope, without a login for the workspace"

    @property
    def path(self) -> str:
        return f"{getattr(self.secret, 'scope', 'scope')}/{getattr(self.secret, 'key', 'key')}"


@problem(CredentialsError, "MF4305")
def service_credential_unreachable(*, name: str, reason: str) -> None:
    """Cannot use the service credential {name} of Unity Catalog: {reason:phrase}.

    Use an Azure service credential for OneLake, or an AWS service credential for S3, on Databricks Runtime 16.2 or
    newer, and grant ACCESS on it to this identity. Executors can use service credentials only on dedicated clusters.
    Elsewhere use a service principal or the default credential.
    """


class InvalidProxyError(ConfigurationError):
    code = "MF4306"
    what = "The environment variable {variable} is not the address of a proxy."
    fix = "Set {variable} to an address such as http://proxy.example.com:8080, or unset it."
    variable: str


@problem(CredentialsError, "MF4307")
def hash_key_too_short(*, location: object, least: int) -> None:
    """The secret for hashes in {location} has fewer than {least} characters, so others could guess it.

    Store a longer random text there, such as the output of `openssl rand -hex 32`.
    """
