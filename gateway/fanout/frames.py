"""Bytes on the wire: an event as SSE, NDJSON or a line for people (contract §4).

The text of an event is passed on as the log holds it: nothing here parses JSON, except for people.
"""

from __future__ import annotations

from typing import Final, Literal

from sse_starlette import ServerSentEvent

from gateway.fanout.text import line
from listeners.contract.log import Entry

__all__ = ["CONTENT_TYPES", "HEARTBEATS", "Format", "comment", "frame", "preamble"]

Format = Literal["sse", "sse-runs", "ndjson", "text"]
"""``sse-runs`` is SSE of several runs: the position stands in the data, since one id can't tell it of each."""

CONTENT_TYPES: Final[dict[Format, str]] = {
    "sse": "text/event-stream",
    "sse-runs": "text/event-stream",
    "ndjson": "application/x-ndjson",
    "text": "text/plain; charset=utf-8",
}
HEARTBEATS: Final[dict[Format, bytes]] = {"sse": b":hb\n", "sse-runs": b":hb\n", "ndjson": b"\n", "text": b""}
"""What breaks a silence. A comment without a blank line: some clients deliver an empty event otherwise. People
see nothing."""


def frame(entry: Entry, format: Format) -> bytes:
    """Encode one event; the position stands in ``id``."""
    if format == "sse-runs":
        return b'event: %b\ndata: {"id":"%b",%b\n\n' % (
            entry.type.encode(),
            str(entry.position).encode(),
            entry.event[1:],
        )
    if format == "ndjson":
        return b'{"id":"%b",%b\n' % (str(entry.position).encode(), entry.event[1:])
    if format == "text":
        return line(entry).encode()
    return ServerSentEvent(
        data=entry.event.decode(), event=entry.type, id=str(entry.position), sep="\n"
    ).encode()


def preamble(format: Format, *, retry: int) -> bytes:
    """What opens a response before any event exists; ``retry`` in milliseconds."""
    if format in ("sse", "sse-runs"):
        return b":ok\nretry: %d\n" % retry
    return b"\n" if format == "ndjson" else b""


def comment(text: str, format: Format) -> bytes:
    """Say something to who watches by eye; empty for NDJSON, where every line is an event."""
    if format == "ndjson":
        return b""
    return f"({text})\n".encode() if format == "text" else f":{text}\n".encode()
