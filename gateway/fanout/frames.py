"""Bytes on the wire: an event as SSE, NDJSON or a line for people (contract §4).

The text of an event is passed on as the log holds it: nothing here parses JSON, except for people.
"""

from __future__ import annotations

from typing import Final, Literal

from sse_starlette import ServerSentEvent

from gateway.fanout.text import line
from listeners.contract.log import Entry

__all__ = ["CONTENT_TYPES", "HEARTBEATS", "Format", "comment", "frame", "preamble"]

Format = Literal["sse", "ndjson", "text"]

CONTENT_TYPES: Final[dict[Format, str]] = {
    "sse": "text/event-stream",
    "ndjson": "application/x-ndjson",
    "text": "text/plain; charset=utf-8",
}
HEARTBEATS: Final[dict[Format, bytes]] = {"sse": b":hb\n", "ndjson": b"\n", "text": b""}
"""What breaks a silence. A comment without a blank line: some clients deliver an empty event otherwise. People
see nothing."""


def frame(entry: Entry, format: Format) -> bytes:
    """Encode one event; the position stands in ``id``."""
    if format == "ndjson":
        return b'{"id":"%b",%b\n' % (str(entry.position).encode(), entry.event[1:])
    if format == "text":
        return line(entry).encode()
    return ServerSentEvent(
        data=entry.event.decode(), event=entry.type, id=str(entry.position), sep="\n"
    ).encode()


def preamble(format: Format, *, retry: int) -> bytes:
    """What opens a response before any event exists; ``retry`` in milliseconds."""
    return b":ok\nretry: %d\n" % retry if format == "sse" else b"\n" if format == "ndjson" else b""


def comment(text: str, format: Format) -> bytes:
    """Say something to who watches by eye; empty for NDJSON, where every line is an event."""
    if format == "ndjson":
        return b""
    return f":{text}\n".encode() if format == "sse" else f"({text})\n".encode()
