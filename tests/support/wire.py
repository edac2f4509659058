"""Providers of models on a local socket: scripted responses, in pieces or broken off, in each one's own format."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

Part = tuple[Any, ...]
"""``("text", t)``, ``("call", index, id, name)``, ``("args", index, t)``, ``("end", "stop"|"length")``,
``("usage", input, output)``, ``("error", type)``."""


@dataclass
class Response:
    """``pieces`` are sent as one chunk each, an event among them holds back the rest until it is set; ``then``: end the
    body, break the connection, or leave it open."""

    pieces: Sequence[bytes | asyncio.Event] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    then: Literal["end", "break", "hang"] = "end"


class WireServer:
    """Answers each request with the next of ``responses``; ``requests`` are the bodies it got."""

    def __init__(self) -> None:
        self.responses: list[Response] = []
        self.requests: list[dict[str, Any]] = []
        self.left = asyncio.Event()
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(re.search(rb"content-length: *(\d+)", head.lower())[1])  # type: ignore[index]  # it is there
                self.requests.append(json.loads(await reader.readexactly(length)))
                await self._answer(self.responses.pop(0), writer, reader)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.left.set()
            writer.close()

    async def _answer(
        self, response: Response, writer: asyncio.StreamWriter, reader: asyncio.StreamReader
    ) -> None:
        kind = "text/event-stream" if response.status == 200 else "application/json"
        headers = {"content-type": kind, "transfer-encoding": "chunked", **response.headers}
        lines = [f"HTTP/1.1 {response.status} X", *(f"{name}: {value}" for name, value in headers.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        for piece in response.pieces:
            if isinstance(piece, asyncio.Event):
                await piece.wait()
            elif piece:
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        if response.then == "end":
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        if response.then == "break":
            raise ConnectionError
        if response.then == "hang":
            await reader.read()
            raise ConnectionError


@asynccontextmanager
async def wire_server() -> AsyncIterator[WireServer]:
    server = WireServer()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        await server.serve(reader, writer)

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def openai_sse(parts: Sequence[Part]) -> bytes:
    """Chat Completions."""

    def choice(delta: Any, reason: str | None = None) -> dict[str, Any]:
        return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

    events: list[Any] = [choice({"role": "assistant", "content": ""})]
    calls = False
    for part in parts:
        match part:
            case "text", text:
                events.append(choice({"content": text}))
            case "call", index, id, name:
                calls = True
                call = {
                    "index": index,
                    "id": id,
                    "type": "function",
                    "function": {"name": name, "arguments": ""},
                }
                events.append(choice({"tool_calls": [{k: v for k, v in call.items() if v is not None}]}))
            case "args", index, text:
                call = {"index": index, "function": {"arguments": text}}
                events.append(choice({"tool_calls": [{k: v for k, v in call.items() if v is not None}]}))
            case "end", reason:
                events.append(choice({}, "tool_calls" if calls and reason == "stop" else reason))
            case "usage", input, output:
                events.append({"choices": [], "usage": {"prompt_tokens": input, "completion_tokens": output}})
            case "error", type:
                events.append({"error": {"message": "It broke", "type": type, "code": None}})
    common = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    told = [event if "error" in event else {**common, **event} for event in events]
    lines = [f"data: {json.dumps(event, ensure_ascii=False)}\n\n" for event in told]
    return ("".join(lines) + "data: [DONE]\n\n").encode()


def anthropic_sse(parts: Sequence[Part]) -> bytes:
    """Messages."""
    usage = next((part[1:] for part in parts if part[0] == "usage"), (1, 1))
    message: dict[str, Any] = {
        "id": "m", "type": "message", "role": "assistant", "content": [], "model": "m", "stop_reason": None,
        "stop_sequence": None, "usage": {"input_tokens": usage[0], "output_tokens": 1},
    }  # fmt: skip
    events: list[dict[str, Any]] = [{"type": "message_start", "message": message}, {"type": "ping"}]
    opened: list[Any] = []

    def place(key: Any) -> int:
        return opened.index(key)

    for part in parts:
        match part:
            case "text", text:
                if "text" not in opened:
                    opened.append("text")
                    block = {"type": "text", "text": ""}
                    events.append(
                        {"type": "content_block_start", "index": place("text"), "content_block": block}
                    )
                delta = {"type": "text_delta", "text": text}
                events.append({"type": "content_block_delta", "index": place("text"), "delta": delta})
            case "call", index, id, name:
                opened.append(index)
                block = {"type": "tool_use", "id": id, "name": name, "input": {}}
                block = {k: v for k, v in block.items() if v is not None}
                events.append({"type": "content_block_start", "index": place(index), "content_block": block})
            case "args", index, text:
                delta = {"type": "input_json_delta", "partial_json": text}
                events.append({"type": "content_block_delta", "index": place(index), "delta": delta})
            case "end", reason:
                events += [{"type": "content_block_stop", "index": at} for at in range(len(opened))]
                stop = {"stop": "end_turn", "length": "max_tokens"}[reason]
                delta = {"stop_reason": stop, "stop_sequence": None}
                events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": usage[1]}})
                events.append({"type": "message_stop"})
            case "error", type:
                events.append({"type": "error", "error": {"type": type, "message": "It broke"}})
    lines = [f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n" for event in events]
    return "".join(lines).encode()
