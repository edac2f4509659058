"""Errors as ``application/problem+json``: a title, and a detail that says what to do."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from starlette.types import Receive, Scope, Send

__all__ = ["Header", "Problem", "check_read_only"]

Header = tuple[bytes, bytes]


class Problem(Exception):
    """A request that is answered with an error; an ASGI application that sends itself.

    ``status`` is the HTTP status, ``title`` names the kind of error, ``detail`` says what to do, ``headers`` are
    sent besides the usual ones.
    """

    def __init__(self, status: int, title: str, detail: str, *, headers: Iterable[Header] = ()) -> None:
        super().__init__(f"{status} {title}: {detail}")
        self.status = status
        self.title = title
        self.detail = detail
        self.headers = tuple(headers)

    @property
    def body(self) -> bytes:
        """The JSON of RFC 9457: ``status``, ``title``, ``detail``."""
        return msgspec.json.encode({"status": self.status, "title": self.title, "detail": self.detail})

    def with_headers(self, headers: Iterable[Header]) -> Problem:
        """The same problem with further ``headers``."""
        return Problem(self.status, self.title, self.detail, headers=(*self.headers, *headers))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request; a HEAD gets the headers alone."""
        body = self.body
        await send(
            {
                "type": "http.response.start",
                "status": self.status,
                "headers": [
                    (b"content-type", b"application/problem+json"),
                    (b"content-length", str(len(body)).encode()),
                    (b"cache-control", b"no-store"),
                    (b"x-content-type-options", b"nosniff"),
                    *self.headers,
                ],
            }
        )
        await send({"type": "http.response.body", "body": b"" if scope.get("method") == "HEAD" else body})


def check_read_only(scope: Scope) -> None:
    """Let GET and HEAD pass; raises :class:`Problem` 405 for every other method."""
    if scope["method"] not in {"GET", "HEAD"}:
        raise Problem(405, "Method not allowed", "Use GET.", headers=[(b"allow", b"GET, HEAD")])
