"""Where secrets are found, errors when they are missing, and that no output of the process contains them."""

from __future__ import annotations

import base64
import html
import logging
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote_plus

import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError
from azure.identity import ChainedTokenCredential, CredentialUnavailableError
from databricks.sdk.errors import NotFound
from pyspark import cloudpickle

from fixtures.onelake import CLIENT, SECRET, TENANT, OneLake
from fixtures.onelake.faults import Fault, How
from mirrorfeed.errors import MirrorfeedError, TerminalError
from mirrorfeed.landing.schema import Column
from mirrorfeed.publish.files.file_sizes import Piece
from mirrorfeed.publish.files.spark_files import upload_task
from mirrorfeed.publish.files.staging_area import StagingArea
from mirrorfeed.publish.files.staging_job import StagingJob
from mirrorfeed.runtime.credentials import Default, Secret, ServiceCredential, ServicePrincipal
from mirrorfeed.runtime.errors import (
    CredentialRefusedError,
    InvalidProxyError,
    SecretUnreachableError,
    hash_key_too_short,
    service_credential_unreachable,
)
from mirrorfeed.runtime.login import _refusal, read_hash_key, read_secret, service_credential, token_credential
from mirrorfeed.storage.errors import StorageUnavailableError
from mirrorfeed.storage.request_retries import RetryLimits
from tests.raised import raises

IMPATIENT = RetryLimits(seconds=0.02, first_pause=0.01)
VALUE = "s3cret-läßt-grüßen"


@dataclass
class Workspace:
    """A workspace client with only the methods that are used here."""

    answers: dict[tuple[str, str], str | Exception]
    requests: list[tuple[str, str]] = field(default_factory=list)

    @property
    def secrets(self) -> Workspace:
        return self

    def get_secret(self, scope: str, key: str) -> Any:
        self.requests.append((scope, key))
        answer = self.answers[scope, key]
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(value=base64.b64encode(answer.encode()).decode())


def no_workspace() -> Any:
    raise ValueError(f"default auth: cannot configure default credentials {VALUE}")


# Reading secrets


def test_secret_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_SECRET", VALUE)
    assert read_secret(Secret(env="SOME_SECRET"), no_workspace) == VALUE


def test_secret_is_read_from_a_scope() -> None:
    workspace = Workspace({("kv", "mirror"): VALUE})
    assert read_secret(Secret(scope="kv", key="mirror"), lambda: workspace) == VALUE
    assert workspace.requests == [("kv", "mirror")]


def test_environment_takes_precedence_over_the_scope(monkeypatch: pytest.MonkeyPatch) -> None:
    workspace, both = Workspace({("kv", "mirror"): VALUE}), Secret("SOME_SECRET", "kv", "mirror")
    assert read_secret(both, lambda: workspace) == VALUE
    monkeypatch.setenv("SOME_SECRET", "other")
    assert read_secret(both, lambda: workspace) == "other"


@pytest.mark.parametrize("value", [None, ""])
def test_unset_variable_is_reported(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.delenv("SOME_SECRET", raising=False)
    if value is not None:
        monkeypatch.setenv("SOME_SECRET", value)
    with pytest.raises(SecretUnreachableError) as caught:
        read_secret(Secret(env="SOME_SECRET"))
    assert caught.value.problem == (
        "Cannot read a secret from the environment variable SOME_SECRET: it is not set in this process."
    )
    assert caught.value.solution.startswith("On Databricks use `secret: {scope, key}`")
    assert "spark_env_vars" not in caught.value.solution


def test_short_secret_for_hashes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    read_hash_key.cache_clear()
    monkeypatch.setenv("HASH_KEY", "x" * 15)
    with raises(hash_key_too_short, match="in the environment variable HASH_KEY has fewer than 16 characters"):
        read_hash_key(Secret(env="HASH_KEY"))
    monkeypatch.setenv("HASH_KEY", "x" * 16)
    assert read_hash_key(Secret(env="HASH_KEY")) == "x" * 16
    monkeypatch.delenv("HASH_KEY")
    assert read_hash_key(Secret(env="HASH_KEY")) == "x" * 16  # read once


def test_secret_without_a_scope_outside_a_deployment_is_reported() -> None:
    with pytest.raises(SecretUnreachableError) as caught:
        read_secret(Secret(key="fabric"))
    assert str(caught.value) == (
        "Cannot read a secret from the secret fabric of the Databricks workspace: it has no scope. Set"
        " the scope before the command: `mirrorfeed --secret-scope SCOPE publish`. In Python, set `secret_scope`. Or"
        " add `scope` to the secret in the configuration."
    )


def test_unusual_variable_name_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A password may look like the name of a variable."""
    place = Secret(env="abcdefghijklmnop")
    with pytest.raises(SecretUnreachableError, match="from the environment variable that `env` names: it is not set"):
        read_secret(place)
    monkeypatch.setenv("abcdefghijklmnop", VALUE)
    assert read_secret(place) == VALUE


def test_missing_login_for_the_workspace_is_reported_without_third_party_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATABRICKS_RUNTIME_VERSION", raising=False)
    with pytest.raises(SecretUnreachableError) as caught:
        read_secret(Secret(scope="kv", key="mirror"), no_workspace)
    assert str(caught.value) == (
        "Cannot read a secret from the secret kv/mirror of the Databricks workspace: no valid login for a"
        " workspace was found. Run `databricks auth login`, or set DATABRICKS_HOST and DATABRICKS_TOKEN. Or use an"
        " environment variable with the secret: `secret: {env: NAME}`."
    )


@pytest.mark.parametrize(("runtime", "for_executors"), [("", False), ("client.4.9", False), ("17.3", True)])
def test_only_the_error_on_a_cluster_has_advice_for_executors(
    monkeypatch: pytest.MonkeyPatch, runtime: str, for_executors: bool
) -> None:
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", runtime)
    workspace = Workspace({("kv", "mirror"): ValueError(VALUE)})
    with pytest.raises(SecretUnreachableError) as caught:
        read_secret(Secret(scope="kv", key="mirror"), lambda: workspace)
    assert caught.value.reason == "the request to the workspace failed with ValueError"
    start, _, advice = caught.value.solution.partition(" Executors cannot read secret scopes: ")
    assert start == "Check that the scope and the key exist, and that this identity can read the secret."
    end = 'set this variable in `spark_env_vars` of the cluster to "{{secrets/kv/mirror}}".'
    assert advice.endswith(end) if for_executors else advice == ""


def test_executor_without_a_login_gets_advice_for_executors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    with pytest.raises(
        SecretUnreachableError, match=r"no valid login for a workspace was found\. .* `upload_from: executors`"
    ):
        read_secret(Secret(scope="kv", key="mirror"), no_workspace)


def test_missing_secret_is_reported() -> None:
    workspace = Workspace({("kv", "mirror"): NotFound("no such secret")})
    with pytest.raises(
        SecretUnreachableError, match=r"from the environment variable X or the secret kv/mirror .* NotFound\."
    ):
        read_secret(Secret("X", "kv", "mirror"), lambda: workspace)


# Service credentials


def test_service_credential_requires_databricks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATABRICKS_RUNTIME_VERSION", raising=False)
    with raises(service_credential_unreachable) as caught:
        service_credential("onelake")
    assert caught.value.name == "onelake"
    assert caught.value.reason == "LookupError: this process does not run in a Databricks runtime"


@pytest.mark.parametrize("in_task", [False, True])
def test_service_credential_is_requested_from_the_runtime(monkeypatch: pytest.MonkeyPatch, in_task: bool) -> None:
    driver, task = (
        SimpleNamespace(getServiceCredentialsProvider=lambda name, at=at: SimpleNamespace(get_token=(at, name)))
        for at in "dt"
    )
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    monkeypatch.setattr("pyspark.TaskContext.get", lambda: object() if in_task else None)
    runtime = SimpleNamespace(dbutils=SimpleNamespace(credentials=driver))
    monkeypatch.setitem(sys.modules, "databricks.sdk.runtime", runtime)
    monkeypatch.setitem(sys.modules, "databricks.service_credentials", task)

    assert service_credential("onelake").get_token == ("t" if in_task else "d", "onelake")


def test_service_credential_of_another_cloud_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    session = SimpleNamespace(region_name="eu-west-1")  # what the runtime returns for an AWS credential
    credentials = SimpleNamespace(getServiceCredentialsProvider=lambda name: session)
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    runtime = SimpleNamespace(dbutils=SimpleNamespace(credentials=credentials))
    monkeypatch.setitem(sys.modules, "databricks.sdk.runtime", runtime)
    with raises(service_credential_unreachable, match="it is not a credential of Azure"):
        service_credential("onelake")


def test_service_credential_refused_by_the_runtime_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "13.3")
    monkeypatch.setitem(sys.modules, "databricks.sdk.runtime", SimpleNamespace(dbutils=SimpleNamespace()))
    with raises(service_credential_unreachable, match=r"AttributeError: .*credentials.*\. Use an Azure"):
        service_credential("onelake")


# Login


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda onelake: setattr(onelake.authority, "expired", True),
            f"its client secret has expired (AADSTS7000222). Create a new secret in Entra ID, and store its value in"
            f" the environment variable {SECRET}.",
        ),
        (
            lambda onelake: setattr(onelake.authority, "secret", "another"),
            f"its client secret is wrong (AADSTS7000215). Store the value of the secret, not the id of the secret, in"
            f" the environment variable {SECRET}.",
        ),
    ],
)
def test_refused_secret_is_reported(onelake: OneLake, change: Any, words: str) -> None:
    change(onelake)
    with pytest.raises(CredentialRefusedError) as caught:
        onelake.store().list("")
    assert str(caught.value) == f"Cannot get a token for the service principal {CLIENT} of tenant {TENANT}: {words}"
    assert caught.value.__cause__ is None
    assert onelake.verbs() == []


def test_application_unknown_to_the_tenant_is_reported(onelake: OneLake) -> None:
    store = onelake.store(credential=onelake.principal(client_id=TENANT))
    with pytest.raises(
        CredentialRefusedError,
        match=r"the tenant does not know the application \(AADSTS700016\)\. Correct `client_id` or `tenant_id`",
    ):
        store.list("")


def test_unknown_refusal_is_reported_with_its_text() -> None:
    refused = _refusal(Default(), "DefaultAzureCredential failed to retrieve a token.\nThat is it.")
    assert refused.reason.startswith("DefaultAzureCredential failed to retrieve a token")
    assert refused.solution.startswith("Check `credential` in the configuration.")


ATTEMPTED = """DefaultAzureCredential failed to retrieve a token from the included credentials.
Attempted credentials:
\tEnvironmentCredential: EnvironmentCredential authentication unavailable. Environment variables are not configured.
Visit https://aka.ms/azsdk/python/identity/environmentcredential/troubleshoot to troubleshoot this issue.
\tManagedIdentityCredential: ManagedIdentityCredential authentication unavailable.
\tAzureCliCredential: Azure CLI not found on path
\tOtherCredential: Authentication failed: AADSTS7000215: Invalid client secret provided. Ensure it is. Trace 0
To mitigate this issue, please refer to the troubleshooting guidelines here at https://aka.ms/x."""


def test_default_chain_error_lists_each_credential() -> None:
    refused = _refusal(Default(), ATTEMPTED)
    assert refused.problem == (
        "Cannot get a token for the default Azure credential chain: EnvironmentCredential: Environment variables are"
        " not configured; ManagedIdentityCredential: authentication unavailable; AzureCliCredential: Azure CLI not"
        " found on path; OtherCredential: Authentication failed: AADSTS7000215: Invalid client secret provided."
    )
    assert refused.solution.startswith("Check `credential` in the configuration.")


def test_installed_chain_error_lists_credentials_without_secrets(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class FirstCredential:
        def get_token(self, *_: str, **__: object) -> AccessToken:
            raise CredentialUnavailableError("It is not configured. See there.")

    class NextCredential:
        def get_token(self, *_: str, **__: object) -> AccessToken:
            raise ClientAuthenticationError(f"AADSTS50034: {message}. See there.")

    def refusal() -> str:
        with pytest.raises(CredentialRefusedError) as caught:
            token_credential(Default()).get_token("https://storage.azure.com/.default")
        return caught.value.problem

    message = "No such account"
    chain = ChainedTokenCredential(FirstCredential(), NextCredential())
    monkeypatch.setattr("azure.identity.DefaultAzureCredential", lambda **_: chain)
    monkeypatch.setenv("AZURE_CLIENT_SECRET", VALUE)
    begin = "Cannot get a token for the default Azure credential chain: "
    assert refusal() == f"{begin}FirstCredential: It is not configured; NextCredential: AADSTS50034: {message}."
    message = f"{VALUE} is not known"
    assert refusal() == f"{begin}(not shown)."
    assert caplog.text == ""  # log warnings are written to standard error


@pytest.mark.parametrize("with_bundle", [True, False])
def test_default_chain_trusts_the_configured_certificates(
    onelake: OneLake, monkeypatch: pytest.MonkeyPatch, *, with_bundle: bool
) -> None:
    clients = list[Any]()
    monkeypatch.setattr("azure.identity.DefaultAzureCredential", lambda **options: clients.append(options))
    token_credential(Default(), str(onelake.ca_bundle) if with_bundle else None)
    assert clients == [{"connection_verify": str(onelake.ca_bundle) if with_bundle else True}]


def _as_sent(secret: str) -> str:
    return secret


def _in_a_form(secret: str) -> str:
    return f"client_id=x&client_secret={quote_plus(secret)}&scope=y"


def _in_html(secret: str) -> str:
    return f"<pre>{html.escape(secret)}</pre>"


@pytest.mark.parametrize("secret", ["q8Q~a+b/c&d=é", "xY7~8Q~.NeverShown_0123"])
@pytest.mark.parametrize("repeated", [_as_sent, _in_a_form, _in_html])
@pytest.mark.parametrize("error", ["invalid_client", "temporarily_unavailable"])
def test_login_response_that_repeats_the_secret_is_redacted(
    onelake: OneLake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: str,
    repeated: Callable[[str], str], secret: str,
) -> None:  # fmt: skip
    message = f"{'There is an error. ' * 14}You sent {repeated(secret)}."  # if the text is cut, a part is a secret too
    monkeypatch.setenv(SECRET, secret)
    monkeypatch.setattr(onelake.authority, "login", lambda form: (400, {"error": error, "error_description": message}))
    texts = _errors(onelake.store(retry_limits=IMPATIENT))
    assert "(not shown)" in texts[0]
    everything = f"{texts} {caplog.text}"
    for hidden in (secret, quote_plus(secret), secret[:6], secret[-6:]):
        assert hidden not in everything


@pytest.mark.parametrize("repeated", [_as_sent, _in_a_form, _in_html, lambda token: token[::-1]])
def test_storage_response_that_repeats_the_token_is_redacted(
    onelake: OneLake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    repeated: Callable[[str], str],
) -> None:  # fmt: skip
    caplog.set_level(logging.DEBUG)
    message = lambda header, _: f"You sent {repeated(header.removeprefix('Bearer '))}, which has expired"  # noqa: E731
    monkeypatch.setattr(onelake.authority, "objection", message)
    texts = _errors(onelake.store(retry_limits=IMPATIENT))
    assert "You sent " in texts[0]
    assert "(not shown)" in texts[0]
    everything = f"{texts} {caplog.text}"
    for token in onelake.authority.tokens:
        assert repeated(token) not in everything


@pytest.mark.parametrize("how", [How.ANSWER, How.DROP_BEFORE, How.DROP_AFTER])
@pytest.mark.parametrize("verb", ["token", "discovery"])
def test_failed_login_is_retried(onelake: OneLake, verb: str, how: How) -> None:
    onelake.server.faults.add(Fault(verb, how))
    assert onelake.store().list("") == []


def test_failing_login_service_is_not_a_refusal(onelake: OneLake) -> None:
    onelake.server.faults.add(Fault("token", How.ANSWER, 1000))
    with pytest.raises(StorageUnavailableError, match=r"cannot log in: .*the login service returns status 503"):
        onelake.store(retry_limits=IMPATIENT).list("")


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("status", [204, 302, 307, 308])
@pytest.mark.parametrize("verb", ["token", "discovery"])
def test_login_response_without_a_token_is_reported_with_its_status(
    onelake: OneLake, caplog: pytest.LogCaptureFixture, verb: str, status: int, moved: bool
) -> None:
    onelake.server.faults.add(Fault(verb, How.ANSWER, 1000, status=status, moved=moved))
    with pytest.raises(
        CredentialRefusedError, match=f": the login service returns status {status} without a token\\. "
    ):
        onelake.store().list("")
    assert caplog.records == []
    assert [call.verb for call in onelake.calls].count("token") == (verb == "token")


def test_invalid_proxy_is_refused_before_any_request(onelake: OneLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "a..b")
    with pytest.raises(InvalidProxyError):
        onelake.store().list("")
    assert onelake.calls == []


def test_unreachable_login_service_is_not_a_refusal(onelake: OneLake) -> None:
    store = onelake.store(credential=onelake.principal(authority="https://localhost:1"))
    with pytest.raises(
        StorageUnavailableError, match=rf"the service principal {CLIENT} of tenant {TENANT} cannot log in: "
    ):
        store.list("")


@pytest.mark.parametrize("content", ["no certificate", None])
def test_unreadable_certificates_are_reported_before_any_request(
    onelake: OneLake, tmp_path: Path, content: str | None
) -> None:
    file = tmp_path / "ca.pem"
    if content:
        file.write_text(content)
    with pytest.raises(TerminalError) as caught:
        onelake.store(ca_bundle=str(file)).list("")
    assert str(caught.value).startswith(f"Cannot read the certificates in {file}: ")
    assert str(caught.value).endswith("a file with certificates in PEM format.")
    assert onelake.calls == []


def test_tokens_are_renewed_during_an_upload(onelake: OneLake) -> None:
    onelake.authority.calls_per_token = 2
    store = onelake.store(part_bytes=1000)
    with store.open_write("t/_x") as sink:
        for _ in range(10):
            sink.write(bytes(1000))

    assert len(store.read("t/_x")) == 10_000
    assert len(onelake.authority.tokens) > 5


# Output of the process


def test_no_secret_or_token_leaves_the_process(
    onelake: OneLake, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    store, secret = onelake.store(), onelake.authority.secret
    contents: list[Any] = [repr(store), str(store), pickle.dumps(store)]
    store.create("t/a", b"content")
    job = StagingJob(store, "t", 1, "ab", (Column("id", "long"),), ("id",), False)
    contents += [
        pickle.dumps(store),
        cloudpickle.dumps(upload_task(job, StagingArea("/a"), [[Piece("/a/b")]])),
        repr(job),
    ]  # type: ignore[no-untyped-call]
    onelake.authority.audience = "https://elsewhere"
    contents += _errors(onelake.store(part_bytes=1))
    onelake.authority.expired = True
    contents += _errors(onelake.store(part_bytes=2))
    onelake.authority.expired, onelake.authority.secret = False, "another"
    contents += _errors(onelake.store(part_bytes=3))
    onelake.server.faults.add(Fault("token", How.DROP_BEFORE, 1000))
    contents += _errors(onelake.store(retry_limits=IMPATIENT))
    contents += [node.content for node in onelake.files.nodes.values()]
    contents += [repr(call) for call in onelake.calls]
    contents += [caplog.text, *capfd.readouterr()]

    assert len(onelake.authority.tokens) >= 2
    assert "POST" in caplog.text  # the log reports logins
    everything = b"\n".join(each if isinstance(each, bytes) else each.encode() for each in contents)
    for hidden in (secret, *onelake.authority.tokens):
        assert hidden.encode() not in everything


def _errors(store: Any) -> list[Any]:
    with pytest.raises(MirrorfeedError) as caught:
        store.list("")
    texts, error = list[Any](), caught.value
    texts += [str(error), repr(error), repr(error.__dict__), pickle.dumps(error)]
    return texts


@pytest.mark.parametrize(
    ("credential", "texts"),
    [
        (Default(), "the default Azure credential chain"),
        (ServiceCredential("onelake"), "the service credential onelake"),
        (ServicePrincipal("t", "c", Secret(env="X")), "the service principal c of tenant t"),
    ],
)
def test_credential_is_a_value_with_a_readable_name(credential: Any, texts: str) -> None:
    assert str(credential) == texts
    assert pickle.loads(pickle.dumps(credential)) == credential
    assert hash(credential) == hash(pickle.loads(pickle.dumps(credential)))


@pytest.mark.parametrize(
    "error",
    [
        _refusal(ServicePrincipal("t", "c", Secret(env="X")), "AADSTS7000222: over"),
        SecretUnreachableError(secret=Secret(scope="s", key="k"), reason="why"),
        service_credential_unreachable(name="n", reason="why"),
    ],
)
def test_credential_errors_are_terminal_and_picklable(error: TerminalError) -> None:
    assert isinstance(error, TerminalError)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
