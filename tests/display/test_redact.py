"""Secrets of the process, in all forms in which responses can contain them."""

from __future__ import annotations

import base64
import html
import json
import logging
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle

import mirrorfeed
from mirrorfeed.display.redact import HIDDEN, _memory, redact, remember
from mirrorfeed.errors import first_line, wrap_error

SECRET = "q8Q~a+b/c&d=é'\"0123456789"
JWT = f"eyJ0eXAiOiJKV1QifQ.{'QUJD' * 20}.c2lnbmF0dXJl"
HOOK = "https://hooks.example.com/services/T000-B000-s3cret?code=1&sig=Zm9vYmFyMTIz%2B"

FORMS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "URL-encoded": lambda text: quote(text, safe=""),
    "in a form": quote_plus,
    "in lower-case percent codes": lambda text: quote(text, safe="").lower(),
    "HTML": html.escape,
    "JSON": lambda text: json.dumps(text)[1:-1],
    "reversed": lambda text: text[::-1],
    "hexadecimal": lambda text: text.encode().hex(),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 after one byte": lambda text: base64.b64encode(f":{text}".encode()).decode(),
    "base64 between others": lambda text: base64.b64encode(f"a:{text}!".encode()).decode(),
    "base64 for URLs": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_secret_is_removed_in_every_encoding(form: Callable[[str], str]) -> None:
    remember(SECRET)
    repeated = form(SECRET)
    shown = redact(f"You sent {repeated} and that is wrong")
    assert shown.startswith("You sent ")
    assert "(not shown)" in shown
    assert shown.endswith(" and that is wrong")
    assert not any(repeated[at : at + 8] in shown for at in range(len(repeated) - 8))


@given(st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Zs")), min_size=20, max_size=60), st.data())
def test_no_part_of_a_secret_remains_in_any_encoding(secret: str, data: st.DataObject) -> None:
    remember(secret)
    repeated = data.draw(st.sampled_from(sorted(FORMS)).map(lambda name: FORMS[name](secret)))
    assert repeated not in redact(f"< {repeated} >")
    _memory().patterns.clear()


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_truncated_secret_is_removed(form: Callable[[str], str]) -> None:
    remember("xY7~8Q~.NeverShown_0123456789")
    repeated = form("xY7~8Q~.NeverShown_0123456789")[:22]
    assert repeated not in redact(f"You sent {repeated}...")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"The token {JWT} is expired.", "The token (not shown) is expired."),
        (f"The token {JWT[:30]}… is cut", "The token (not shown)… is cut"),
        ("Authorization: Bearer abc123.def456~+/=", "Authorization: Bearer (not shown)"),
        ("authorization=bearer%20abcdefgh12345678&x", "authorization=bearer (not shown)&x"),
        ("https://x.blob/y?sv=1&sig=abc%2Bd&se=2", "https://x.blob/y?sv=1&sig=(not shown)&se=2"),
        ('{"access_token": "opaque", "a": 1}', '{"access_token": "(not shown)", "a": 1}'),
        ("client_secret=opaque&a=1", "client_secret=(not shown)&a=1"),
        ("AccountKey=opaque==;EndpointSuffix=x", "AccountKey=(not shown);EndpointSuffix=x"),
    ],
)
def test_third_party_tokens_are_recognized_by_their_form(text: str, expected: str) -> None:
    assert redact(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Bearer token authentication failed",
        "The bearer authentication scheme is not accepted",
        "The signature is not valid; eyJ is too short for a token",
        "InvalidAuthenticationInfo: Access token has expired.",
        "Version 3 of main.sales.orders is gone.",
    ],
)
def test_other_text_is_not_changed(text: str) -> None:
    remember(SECRET, JWT, HOOK)
    assert redact(text) == text


def test_webhook_path_is_removed_but_not_its_host() -> None:
    remember(HOOK)
    line = 'https://hooks.example.com:443 "POST /services/T000-B000-s3cret?code=1&sig=Zm9vYmFyMTIz%2B HTTP/1.1" 404 9'
    assert redact(line) == 'https://hooks.example.com:443 "POST (not shown) HTTP/1.1" 404 9'
    assert redact("T000-B000-s3cret is off, and Zm9vYmFyMTIz+") == "(not shown) is off, and (not shown)"


@pytest.mark.parametrize("secret", ["", "short", "https://example.com/", "https://example.com"])
def test_text_too_short_for_a_secret_is_not_redacted(secret: str) -> None:
    remember(secret)
    assert redact("short https://example.com/ text") == "short https://example.com/ text"


def test_reused_secret_is_remembered_longer_than_unused_tokens() -> None:
    tokens = [f"{number:08}-{number:08}-opaque-token" for number in range(1000)]
    for token in tokens:
        remember("client-secret-of-the-process", token)
    assert redact("client-secret-of-the-process") == "(not shown)"
    assert redact(tokens[-1]) == "(not shown)"
    assert redact(tokens[0]) == tokens[0]


def test_text_is_truncated_after_redaction() -> None:
    remember(SECRET)
    assert first_line(f"{'x' * 290} {SECRET}") == f"{'x' * 290} (not show"


def test_client_logs_and_tracebacks_are_redacted(caplog: pytest.LogCaptureFixture) -> None:
    remember(SECRET)
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("urllib3.connectionpool").debug('"POST /%s" %d', quote(SECRET, safe=""), 200)
        logging.getLogger("azure.any.policy").info("Request: %s", f"Bearer {JWT}")
        logging.getLogger("of.the.user").info("%s", "Bearer aaaa1111bbbb2222")
        wrap_error("Publishing a", ValueError(f"refused {SECRET} and {JWT}"))
    assert '"POST /(not shown)" 200' in caplog.text
    assert "Request: Bearer (not shown)" in caplog.text
    assert "Bearer aaaa1111bbbb2222" in caplog.text
    assert "ValueError: refused (not shown) and (not shown)" in caplog.text
    assert SECRET not in caplog.text
    assert JWT not in caplog.text


def test_task_that_contains_the_package_contains_no_secret() -> None:
    remember(SECRET)
    cloudpickle.register_pickle_by_value(mirrorfeed)  # type: ignore[no-untyped-call]
    try:
        carried = cloudpickle.dumps(redact)
    finally:
        cloudpickle.unregister_pickle_by_value(mirrorfeed)  # type: ignore[no-untyped-call]
    assert SECRET.encode() not in carried
    assert SECRET[:16].encode() not in carried
    assert cloudpickle.loads(carried)(SECRET) == HIDDEN
