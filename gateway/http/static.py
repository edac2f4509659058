"""The browser modules at ``/web/…`` and the inspector's page at ``/``.

starlette's ``StaticFiles`` would serve them, but its ETag is made of modification times, which differ between the
gateways of one service, and it knows neither our MIME types on every system nor what must not be served.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from starlette.types import Receive, Scope, Send

from gateway.http.access import Access
from gateway.http.cors import PUBLIC_HEADERS
from gateway.http.problems import Header, Problem, check_read_only
from gateway.http.provenance import route_path

__all__ = ["WebFiles", "find_web"]

MEDIA_TYPES: Final = {
    ".css": b"text/css; charset=utf-8",
    ".ico": b"image/x-icon",
    ".js": b"text/javascript; charset=utf-8",
    ".json": b"application/json",
    ".mjs": b"text/javascript; charset=utf-8",
    ".png": b"image/png",
    ".svg": b"image/svg+xml",
    ".ts": b"text/plain; charset=utf-8",
    ".woff2": b"font/woff2",
}
"""What is served under ``/web/``. A page isn't: the inspector is at ``/``, where it is asked who may see it."""

CONTENT_SECURITY_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    b"base-uri 'none'; frame-ancestors 'none'; form-action 'none'"
)

_SAFE: Final[tuple[Header, ...]] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)


@dataclass(frozen=True, slots=True)
class _File:
    stamp: tuple[int, int]
    etag: bytes
    body: bytes


def find_web() -> Path | None:
    """Where the browser modules are: in an installed wheel inside ``gateway``, in a checkout beside it."""
    package = Path(__file__).resolve().parents[1]
    places = (package / "web", package.parent / "web")
    # A stranger's top-level `web` may stand beside an installed package; only ours has an inspector.
    return next((place for place in places if (place / "inspector").is_dir()), None)


class WebFiles:
    """Serves the files below ``root``, the inspector to whom ``access`` shows it; raises :class:`Problem` 404 and
    405. Contents are kept, by time and size."""

    def __init__(self, root: Path | None, access: Access) -> None:
        self._root = None if root is None else root.resolve()
        self._access = access
        self._files: dict[Path, _File] = {}

    async def module(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer ``/web/<path>``."""
        path = await asyncio.to_thread(self._inside, route_path(scope).removeprefix("/web/"))
        media_type = None if path is None else MEDIA_TYPES.get(path.suffix)
        if path is None or media_type is None:
            raise _no_such_file()

        await self._answer(path, (b"content-type", media_type), *PUBLIC_HEADERS, scope=scope, send=send)

    async def page(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer ``/`` with the inspector."""
        if self._root is None or not await self._access.may_administer(scope):
            raise _no_such_file()

        await self._answer(
            self._root / "inspector" / "index.html",
            (b"content-type", b"text/html; charset=utf-8"),
            (b"content-security-policy", CONTENT_SECURITY_POLICY),
            (b"cross-origin-opener-policy", b"same-origin"),
            scope=scope,
            send=send,
        )

    def _inside(self, path: str) -> Path | None:
        parts = path.split("/")
        if self._root is None or any(
            not part or part.startswith(".") or "\\" in part or "\0" in part for part in parts
        ):
            return None

        found = self._root.joinpath(*parts)
        try:
            return found if found.resolve().is_relative_to(self._root) else None
        except OSError:
            return None

    async def _answer(self, path: Path, *headers: Header, scope: Scope, send: Send) -> None:
        check_read_only(scope)
        # Off the loop: a slow disk must not hold up anybody's stream.
        file = await asyncio.to_thread(self._load, path)
        unchanged = _names(scope, file.etag)
        answer = [*headers, *_SAFE, (b"cache-control", b"no-cache"), (b"etag", file.etag)]
        if not unchanged:
            answer.append((b"content-length", str(len(file.body)).encode()))
        await send({"type": "http.response.start", "status": 304 if unchanged else 200, "headers": answer})
        body = b"" if unchanged or scope["method"] == "HEAD" else file.body
        await send({"type": "http.response.body", "body": body})

    def _load(self, path: Path) -> _File:
        try:
            status = path.stat()
            stamp = (status.st_mtime_ns, status.st_size)
            known = self._files.get(path)
            if known is not None and known.stamp == stamp:
                return known

            body = path.read_bytes()
        except OSError:
            raise _no_such_file() from None

        digest = hashlib.blake2b(body, digest_size=12).hexdigest()
        file = self._files[path] = _File(stamp, f'"{digest}"'.encode(), body)
        return file


def _names(scope: Scope, etag: bytes) -> bool:
    for name, value in scope["headers"]:
        if name == b"if-none-match":
            tags = {tag.strip().removeprefix(b"W/") for tag in value.split(b",")}
            return b"*" in tags or etag in tags
    return False


def _no_such_file() -> Problem:
    return Problem(
        404,
        "No such file",
        "The browser modules are at /web/; the inspector at / is for this machine and for admins.",
    )
