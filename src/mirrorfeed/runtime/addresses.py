"""Addresses of servers: validation, and the hosts that may receive tokens."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from dataclasses import dataclass
from urllib.request import getproxies

from mirrorfeed.errors import Terminal

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_ADDRESS = re.compile(r"https://(\[[0-9a-f:.]+\]|[^\[\]/?#@:\s]+)(?::([0-9]{1,5}))?/?", re.IGNORECASE)
_PROXY = re.compile(
    r"(?:(?:https?|socks[45]?|socks4a|socks5h)://)?(?:[^/?#@\s]*@)?(\[[0-9a-f:.]+\]|[^\[\]/?#@:\s]+)(?::([0-9]{1,5}))?/?",
    re.IGNORECASE,
)
MICROSOFT_HOSTS = (
    *(
        f"{host}.fabric.microsoft.{cloud}"
        for cloud in ("com", "us", "cn")
        for host in ("api", "*.w.api", "*.onelake", "*.dfs", "*.blob")
    ),
    "login.microsoftonline.com",
    "login.microsoft.com",
    "login.windows.net",
    "login.microsoftonline.us",
    "login.partner.microsoftonline.cn",
    "login.chinacloudapi.cn",
)
"""Hosts of OneLake, Fabric's REST API and Entra ID in the public cloud, the US government cloud and China.

No shorter suffixes: some hosts under `fabric.microsoft.com` run code of customers.
"""


@dataclass(frozen=True, slots=True)
class HttpsAddress:
    """An address `https://host` or `https://host:port`, in lower case, without user info, path or query."""

    host: str
    port: int | None = None

    @classmethod
    def parse(cls, text: str) -> HttpsAddress:
        """Parse an address. Raises `ValueError`."""
        found = _ADDRESS.fullmatch(text)
        if not found or not is_host(found[1]) or not _is_port(found[2]):
            raise ValueError("is not an https address without a path")
        return cls(found[1].lower(), int(found[2]) if found[2] else None)

    def __str__(self) -> str:
        return f"https://{self.host}" if self.port is None else f"https://{self.host}:{self.port}"

    def is_trusted(self, trusted_hosts: Collection[str] = ()) -> bool:
        """Return whether the host belongs to Microsoft or is listed, by its name or by `*.` and a suffix.

        Addresses of this machine are not trusted automatically, because any user of the machine can listen there.
        """
        return any(_matches(self.host, pattern) for pattern in (*MICROSOFT_HOSTS, *trusted_hosts))


def is_host(text: str) -> bool:
    """Return whether `text` is a host name or an IP address."""
    if ":" in text or text.startswith("["):
        return _is_ip6(text[1:-1] if text.startswith("[") and text.endswith("]") else text)
    labels = text.lower().removesuffix(".").split(".")
    return len(text) <= 253 and all(map(_LABEL.fullmatch, labels))


def is_host_pattern(text: str) -> bool:
    """Return whether `text` is a host, or `*.` and a suffix of at least two labels."""
    suffix = text.removeprefix("*.")
    return is_host(suffix) and (suffix == text or "." in suffix.strip("."))


def check_proxy() -> None:
    """Raise `BadProxy` if the environment contains a proxy setting that is not an address."""
    proxies = getproxies()
    for name in ("https", "all"):
        if (proxy := proxies.get(name)) and not _is_proxy(proxy):
            raise BadProxy(variable=f"{name.upper()}_PROXY")


def _is_proxy(text: str) -> bool:
    found = _PROXY.fullmatch(text)
    return found is not None and is_host(found[1]) and _is_port(found[2])


def _matches(host: str, pattern: str) -> bool:
    pattern = pattern.lower()
    return host.endswith(pattern[1:]) if pattern.startswith("*.") else host == pattern


def _is_port(text: str | None) -> bool:
    return text is None or 0 < int(text) < 65_536


def _is_ip6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


class BadProxy(Terminal):
    code = "MF4306"
    what = "The environment variable {variable} is not the address of a proxy."
    fix = "Set {variable} to an address such as http://proxy.example.com:8080, or unset it."
