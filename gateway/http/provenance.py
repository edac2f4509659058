"""Where a request came from, as far as it shows: from this machine, or why that can't be told.            (no I/O)

Works on an ASGI scope. Whatever can't be read counts against the request, because a wrong yes shows a stranger
every run, while a wrong no is a sentence that says what was seen.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, MutableMapping
from ipaddress import IPv6Address, ip_address
from typing import Any, Final
from urllib.parse import urlsplit

__all__ = ["is_loopback", "is_loopback_origin", "is_public_code", "route_path", "why_not_local"]

_NAMELESS: Final = frozenset(
    {
        b"x-forwarded-proto",
        b"x-forwarded-port",
        b"x-forwarded-scheme",
        b"x-forwarded-ssl",
        b"x-forwarded-prefix",
    }
)
"""Forwarding headers that name neither an address nor a host, and so vouch for nothing."""
_ADDRESS_HEADERS: Final = frozenset(
    {
        b"x-real-ip",
        b"x-client-ip",
        b"x-cluster-client-ip",
        b"true-client-ip",
        b"fastly-client-ip",
        b"fly-client-ip",
    }
)
_FORWARDED_PAIR: Final = re.compile(r'(?:^|[;,])\s*(?:for|by|host)\s*=\s*("[^"]*"|[^;,]*)', re.IGNORECASE)
"""The members of RFC 7239's ``Forwarded`` that name somebody; ``proto`` does not."""
_HOST_PORT: Final = re.compile(r"(?:\[([0-9A-Fa-f:.%]+)\]|([^\s:\[\]/@]+))(?::(\d{1,5}))?")


def route_path(scope: MutableMapping[str, Any]) -> str:
    """The path within this application: what follows ``root_path``, mounted or behind a stripping proxy."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "").rstrip("/")
    return path[len(root) :] if root and path.startswith(f"{root}/") else path


def is_public_code(scope: MutableMapping[str, Any]) -> bool:
    """Whether the request is for the browser modules, which are the same for everybody."""
    return route_path(scope).startswith("/web/")


def is_loopback(name: str) -> bool:
    """Whether the host or address ``name`` is this machine."""
    lowered = name.lower().removesuffix(".")
    if lowered == "localhost" or lowered.endswith(".localhost"):
        return True

    try:
        address = ip_address(lowered)
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def is_loopback_origin(value: str) -> bool:
    """Whether the URL or origin ``value`` is a page of this machine; ``null`` is not."""
    try:
        parts = urlsplit(value)
        name = parts.hostname
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and name is not None and is_loopback(name)


def why_not_local(
    scope: MutableMapping[str, Any], pages: Collection[str] = (), *, claims_are_local: bool = False
) -> str | None:
    """Return what shows that the request may not come from this machine, or ``None``.

    ``pages``: further origins whose pages the operator listed. ``claims_are_local``: the server believes a peer's
    X-Forwarded-For only if that peer is this machine. A peer without an IP address (a Unix socket, on which a proxy
    listens more often than not, or a test client under a made-up name) can't be told to be local.
    """
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    if scope.get("http_version") == "1.0":
        return "HTTP/1.0, so a proxy"

    return (
        _about_peer(scope, headers, claims_are_local)
        or _about_proxies(headers)
        or _about_host(headers)
        or (None if is_public_code(scope) else _about_page(headers, pages))
    )


def _about_peer(
    scope: MutableMapping[str, Any], headers: list[tuple[bytes, bytes]], claims_are_local: bool
) -> str | None:
    client = scope.get("client")
    if not client:
        return "a peer without an address (a Unix socket?)"

    host, port = client[0], client[1]
    if not is_loopback(host):
        return f"the peer {_shown(host)}"

    if claims_are_local:
        return None

    # uvicorn's --proxy-headers puts what X-Forwarded-For claims in place of the peer. With FORWARDED_ALLOW_IPS=*
    # a stranger can claim loopback, and nothing else in the scope shows it.
    for name, value in headers:
        if name == b"x-forwarded-for" and (host, int(port or 0)) in map(_address_and_port, _entries(value)):
            return "a peer address taken from X-Forwarded-For (start uvicorn with --no-proxy-headers)"
    return None


def _about_proxies(headers: list[tuple[bytes, bytes]]) -> str | None:
    forwarded: str | None = None
    vouched = False
    for name, value in headers:
        shown = f"{name.decode('latin-1').title()}: {_shown(value.decode('latin-1'))}"
        if name == b"via":
            return shown
        if not (
            name == b"forwarded" or name.startswith((b"x-forwarded-", b"cf-")) or name in _ADDRESS_HEADERS
        ):
            continue

        forwarded = forwarded or shown
        if name in _NAMELESS:
            continue

        names = list(_forwarded_names(value) if name == b"forwarded" else _entries(value))
        if not all(map(_names_loopback, names)):
            return shown
        vouched = vouched or bool(names)

    return None if vouched else forwarded


def _about_host(headers: list[tuple[bytes, bytes]]) -> str | None:
    hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
    if len(hosts) != 1:
        return "no Host" if not hosts else "more than one Host"
    return None if _names_loopback(hosts[0]) else f"Host: {_shown(hosts[0])}"


def _about_page(headers: list[tuple[bytes, bytes]], pages: Collection[str]) -> str | None:
    for name, value in headers:
        if name not in {b"origin", b"referer"}:
            continue

        page = value.decode("latin-1")
        if not is_loopback_origin(page) and _origin_of(page) not in pages:
            return f"{name.decode().title()}: {_shown(page)} (TOOLCAST_CORS_ORIGINS lists the pages that may read)"
    return None


def _origin_of(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"


def _entries(value: bytes) -> Iterator[str]:
    return (entry for part in value.decode("latin-1").split(",") if (entry := part.strip()))


def _forwarded_names(value: bytes) -> Iterator[str]:
    text = value.decode("latin-1")
    found = [_unquoted(match[1].strip()) for match in _FORWARDED_PAIR.finditer(text)]
    # A Forwarded whose members can't be read vouches for nobody.
    return iter(
        found if len(found) == len(re.findall(r"(?:for|by|host)\s*=", text, re.IGNORECASE)) else [text]
    )


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value


def _names_loopback(value: str) -> bool:
    host, _ = _address_and_port(value)
    return is_loopback(host)


def _address_and_port(value: str) -> tuple[str, int]:
    """Split ``host``, ``host:port``, ``[v6]:port`` or a bare ``v6``; no port is 0."""
    match = _HOST_PORT.fullmatch(value)
    if match is None:
        return value, 0
    return match[1] or match[2], int(match[3] or 0)


def _shown(value: str) -> str:
    return value if len(value) <= 80 else f"{value[:79]}…"
