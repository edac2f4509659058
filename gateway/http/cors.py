"""Which pages may read: headers for every response, the stream's included, and the answer to a preflight.

Computed from the scope and added by whoever answers: a middleware in the stream's path would hold it back.
"""

from __future__ import annotations

from typing import Final

import structlog
from starlette.types import Receive, Scope, Send

from gateway.http.problems import Header, Problem
from gateway.http.provenance import is_loopback_origin, is_public_code
from gateway.settings import Settings

__all__ = ["PUBLIC_HEADERS", "Cors", "cors_headers"]

ALLOWED_METHODS: Final = b"GET, HEAD, POST, DELETE, OPTIONS"
ALLOWED_HEADERS: Final = b"Authorization, Content-Type, Idempotency-Key, If-None-Match, Last-Event-ID"
EXPOSED_HEADERS: Final = b"ETag, Retry-After"
PREFLIGHT_MAX_AGE: Final = b"7200"
"""Seconds a browser may remember a preflight: Chromium's upper bound."""
_MOST_LOGGED: Final = 100
"""Refused origins that are remembered as logged: a stranger must not fill the memory with made-up ones."""

PUBLIC_HEADERS: Final[tuple[Header, ...]] = (
    (b"access-control-allow-origin", b"*"),
    (b"cross-origin-resource-policy", b"cross-origin"),
)
"""What `/web/*` says: the same code for everybody, whoever asks."""
_VARY: Final[Header] = (b"vary", b"Origin")

_log = structlog.get_logger("toolcast.cors")


def cors_headers(scope: Scope, settings: Settings, keyless: bool) -> list[Header]:
    """The headers that say which page may read the response to ``scope``.

    The origins of ``settings`` may, with credentials; ``keyless``, pages of this machine too, without. ``/web/*``
    is everybody's. ``null`` never may.
    """
    if is_public_code(scope):
        return list(PUBLIC_HEADERS)

    origin = _origin(scope)
    if origin is None:
        return [_VARY]

    listed = origin in settings.cors_origins
    if not listed and not (keyless and _is_local_page(origin)):
        return [_VARY]

    headers = [
        _VARY,
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", EXPOSED_HEADERS),
    ]
    if listed:
        headers.append((b"access-control-allow-credentials", b"true"))
    return headers


class Cors:
    """The rules of one gateway, with a memory of the refused origins it has already spoken of."""

    def __init__(self, settings: Settings, *, keyless: bool) -> None:
        self._settings = settings
        self._keyless = keyless
        self._logged: set[str] = set()

    def headers(self, scope: Scope) -> list[Header]:
        """As :func:`cors_headers`; logs a refused origin once, with the setting that would allow it."""
        headers = cors_headers(scope, self._settings, self._keyless)
        if len(headers) == 1 and (origin := _origin(scope)) is not None and not _is_own(scope, origin):
            self._say_refused(origin)
        return headers

    async def preflight(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer ``OPTIONS``: 204 with what is allowed, or 403 for an origin that isn't."""
        headers = self.headers(scope)
        if len(headers) == 1:
            origin = _origin(scope)
            detail = "OPTIONS is for a browser's preflight, which names an Origin."
            if origin is not None:
                detail = f"Pages from {origin} may not read: {_remedy(origin)}"
            await Problem(403, "Origin not allowed", detail, headers=headers)(scope, receive, send)
            return

        allowed = [
            *headers,
            (b"access-control-allow-methods", ALLOWED_METHODS),
            (b"access-control-allow-headers", ALLOWED_HEADERS),
            (b"access-control-max-age", PREFLIGHT_MAX_AGE),
        ]
        if any(name == b"access-control-request-private-network" for name, _ in scope["headers"]):
            allowed.append((b"access-control-allow-private-network", b"true"))
        await send({"type": "http.response.start", "status": 204, "headers": allowed})
        await send({"type": "http.response.body"})

    def _say_refused(self, origin: str) -> None:
        if origin in self._logged or len(self._logged) >= _MOST_LOGGED:
            return

        self._logged.add(origin)
        _log.warning("origin refused", origin=origin, remedy=_remedy(origin))


def _origin(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == b"origin":
            return str(value.decode("latin-1"))
    return None


def _is_local_page(origin: str) -> bool:
    # http alone: whoever serves a page of this machine over TLS has named its origin anyway.
    return origin.startswith("http://") and "/" not in origin[7:] and is_loopback_origin(origin)


def _is_own(scope: Scope, origin: str) -> bool:
    """Whether the page came from this very gateway: a same-origin POST names its origin and needs no permission."""
    hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
    return len(hosts) == 1 and origin.partition("://")[2] == hosts[0]


def _remedy(origin: str) -> str:
    if origin == "null":
        return "a page from file: or a sandbox has no origin; serve the folder with `python -m http.server`"
    return f"add {origin} to TOOLCAST_CORS_ORIGINS"
