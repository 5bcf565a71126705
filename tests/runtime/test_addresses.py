"""Which addresses are equal, which hosts get tokens, and which proxies are refused."""

from __future__ import annotations

import pytest

from mirrorfeed.runtime.credentials import check_proxy, is_host_pattern, is_trusted, parse_address
from mirrorfeed.runtime.errors import InvalidProxyError


@pytest.mark.parametrize(
    ("text", "address", "host"),
    [
        ("https://localhost:8443/", "https://localhost:8443", "localhost"),
        ("https://localhost:08443", "https://localhost:8443", "localhost"),
        (
            "https://OneLake.dfs.fabric.microsoft.com",
            "https://onelake.dfs.fabric.microsoft.com",
            "onelake.dfs.fabric.microsoft.com",
        ),
        ("https://127.0.0.1:1", "https://127.0.0.1:1", "127.0.0.1"),
        ("https://[::1]:443", "https://[::1]:443", "[::1]"),
    ],
)
def test_address_is_parsed_to_lower_case_and_its_host(text: str, address: str, host: str) -> None:
    assert parse_address(text) == (address, host)


@pytest.mark.parametrize(
    "text",
    [
        *("", "https://", "https:///x", "http://host", "https://host/path", "https://host?a", "https://host#a"),
        *("https://a..b", "https://.", "https://-a", "https://a b", "https://a\n", "https://ä", "https://a\0b"),
        *("https://[::1", "https://[a]", "https://[1.2]", "https://::1", "https://a:b", "https://a:0"),
        *("https://a:65536", "https://user@host", "https://user:word@host", f"https://{'a' * 64}.com"),
        *("https://host\\@other", "https://%61", "https://a:80:80"),
    ],
)
def test_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an https address"):
        parse_address(text)


@pytest.mark.parametrize(
    ("host", "listed", "trusted"),
    [
        ("onelake.dfs.fabric.microsoft.com", (), True),
        ("westus-onelake.dfs.fabric.microsoft.com", (), True),
        ("0f8f.z0f.dfs.fabric.microsoft.com", (), True),
        ("0f8f.z0f.blob.fabric.microsoft.com", (), True),
        ("0f8f.z0f.onelake.fabric.microsoft.com", (), True),
        ("api.fabric.microsoft.com", (), True),
        ("0f8f.z0f.w.api.fabric.microsoft.com", (), True),
        ("api.fabric.microsoft.us", (), True),
        ("api.fabric.microsoft.cn", (), True),
        ("login.microsoftonline.us", (), True),
        ("login.partner.microsoftonline.cn", (), True),
        ("login.microsoftonline.com.", (), False),
        ("x.login.microsoftonline.com", (), False),
        ("login.microsoftonline.com.example.com", (), False),
        ("dfs.fabric.microsoft.com.example.com", (), False),
        ("evildfs.fabric.microsoft.com", (), False),
        ("functions.fabric.microsoft.com", (), False),
        ("localhost", (), False),
        ("127.0.0.1", (), False),
        ("localhost", ("LocalHost",), True),
        ("a.example.com", ("*.example.com",), True),
        ("example.com", ("*.example.com",), False),
        ("aexample.com", ("*.example.com",), False),
    ],
)
def test_only_microsoft_and_listed_hosts_are_trusted(host: str, listed: tuple[str, ...], trusted: bool) -> None:
    assert is_trusted(host, listed) is trusted


@pytest.mark.parametrize(
    ("text", "matches"),
    [("a", True), ("*.example.com", True), ("*", False), ("*.com", False), ("*.com.", False), ("a.*.com", False)],
)
def test_host_pattern_is_a_host_or_a_suffix(text: str, matches: bool) -> None:
    assert is_host_pattern(text) is matches


@pytest.mark.parametrize(
    "proxy",
    [
        *("a..b", "[::1", "http://:0", "http://", "://", "http://a:b", "http://a:99999", "http://a:0", "ftp://a"),
        *("http://user:hush@a..b", "ä", f"http://{'a' * 64}"),
    ],
)
@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "ALL_PROXY"])
def test_invalid_proxy_is_refused_without_showing_it(
    monkeypatch: pytest.MonkeyPatch, variable: str, proxy: str
) -> None:
    monkeypatch.setenv(variable, proxy)
    with pytest.raises(InvalidProxyError) as caught:
        check_proxy()
    assert str(caught.value) == (
        f"The environment variable {variable} is not the address of a proxy. Set {variable} to an address such as"
        " http://proxy.example.com:8080, or unset it."
    )


@pytest.mark.parametrize(
    "proxy", ["", "host", "host:8080", "http://user:word@host:8080/", "https://[::1]:1", "socks5h://a"]
)
def test_valid_proxy_is_accepted(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    check_proxy()
