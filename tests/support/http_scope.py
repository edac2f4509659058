"""A small ASGI driver: scopes as uvicorn makes them, and answers as they leave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message


def scope(
    path: str = "/runs/demo/events",
    *,
    method: str = "GET",
    headers: dict[str, str] | list[tuple[str, str]] | None = None,
    host: str | None = "localhost:8808",
    client: tuple[str, int] | None = ("127.0.0.1", 51234),
    http_version: str = "1.1",
    root_path: str = "",
) -> dict[str, Any]:
    pairs = list(headers.items() if isinstance(headers, dict) else headers or [])
    if host is not None:
        pairs.insert(0, ("host", host))
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": http_version,
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": root_path,
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in pairs],
        "client": client,
        "server": ("127.0.0.1", 8808),
    }


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


async def answer(app: ASGIApp, request: dict[str, Any]) -> Answer:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(request, receive, send)
    start, *rest = sent
    return Answer(
        start["status"],
        {name.decode(): value.decode() for name, value in start["headers"]},
        b"".join(message.get("body", b"") for message in rest),
    )
