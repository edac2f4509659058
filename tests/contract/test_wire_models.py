"""OpenAIChat and AnthropicChat through their SDKs, against a local server that speaks each one's format."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from listeners.chain import ContentPart, Function, LLMChain, Message, ToolCall, ToolResult
from listeners.chain.models import AnthropicChat, OpenAIChat
from tests.support.chains import Recorder, tool
from tests.support.wire import Part, Response, WireServer, anthropic_sse, openai_sse, wire_server

PROVIDERS = {
    "openai": (OpenAIChat, openai_sse, "x-ratelimit-"),
    "anthropic": (AnthropicChat, anthropic_sse, "anthropic-ratelimit-"),
}


@pytest.fixture
async def server() -> AsyncIterator[WireServer]:
    async with wire_server() as serving:
        yield serving


class Side:
    """One provider: its model, wired to the server, and its format."""

    def __init__(self, name: str, server: WireServer) -> None:
        make, self.sse, self.limits = PROVIDERS[name]
        self.name = name
        self.server = server
        self.slept: list[float] = []
        base = f"http://127.0.0.1:{server.port}" + ("/v1" if name == "openai" else "")
        self.model: Any = make("m", api_key="key", base_url=base, sleep=self._sleep, jitter=lambda: 0.0)

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def answers(self, *parts: Part, **options: Any) -> Response:
        response = Response([self.sse(parts)], **options)
        self.server.responses.append(response)
        return response

    def refuses(self, status: int, type: str = "some_error", **headers: str) -> None:
        error = {"type": type, "message": "No"}
        body = {"error": error} if self.name == "openai" else {"type": "error", "error": error}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.server.responses.append(Response([json.dumps(body).encode()], status, named))

    def chain(self, *tools: Function, record: Recorder | None = None, **options: Any) -> LLMChain:
        handlers = [record.callbacks] if record else []
        return LLMChain(self.model, tools=tools, messages=[Message.user("hi")], callbacks=handlers, **options)


@pytest.fixture(params=list(PROVIDERS))
async def side(request: pytest.FixtureRequest, server: WireServer) -> AsyncIterator[Side]:
    made = Side(request.param, server)
    yield made
    await made.model.aclose()


END = ("end", "stop")
CALLS: Sequence[Part] = [
    ("text", "Séarching…"),
    ("call", 0, "c1", "a"), ("args", 0, '{"q":'), ("call", 1, "c2", "b"),
    ("args", 0, '"ü"}'), ("args", 1, "{}"), END, ("usage", 10, 15),
]  # fmt: skip


async def test_a_text(side: Side) -> None:
    """Head first, then its pieces, then the usage."""
    record = Recorder(pieces=True)
    side.answers(("text", "Hel"), ("text", "lo"), END, ("usage", 10, 15), headers={"X-Thing": "1"})
    outcome = await side.chain(record=record).run()
    assert (outcome.text, outcome.usage.input, outcome.usage.output) == ("Hello", 10, 15)
    assert record.lines[:2] == ["headers", "ratelimit"]
    assert record.lines[-2:] == ['proc(A"Hello")', "use(10,15)"]
    (headers,) = record.of("on_llm_response_headers")[0]
    assert headers["x-thing"] == ["1"]


async def test_parallel_calls(side: Side) -> None:
    """Identified as they are named, whatever the others are doing; with the arguments of each."""
    record = Recorder()
    side.answers(*CALLS)
    side.answers(("text", "done"), END)
    outcome = await side.chain(tool("a"), tool("b"), record=record).run()
    assert outcome.text == "done"
    assert record.lines[2:5] == ["id(c1:a)", "id(c2:b)", "proc(A[c1:a,c2:b])"]
    first = outcome.exchanged_messages[0]
    assert first.text == "Séarching…"
    assert [call.arguments for call in first.tool_calls] == [{"q": "ü"}, {}]


def told_by(chain: LLMChain, record: Recorder) -> Any:
    last = chain.messages[-1]
    return record.lines, last.text, [(c.call_id, c.name, c.arguments) for c in last.tool_calls], last.usage


@pytest.mark.slow
async def test_split_at_every_byte(side: Side) -> None:
    """Two pieces, cut at each place in turn: always the same."""
    body = side.sse(CALLS)
    seen = []
    for cut in range(len(body)):
        record = Recorder()
        side.server.responses.append(Response([body[:cut], body[cut:]]))
        chain = side.chain(tool("a"), tool("b"), record=record)
        await chain.run(mode="once")
        seen.append(told_by(chain, record))
    assert all(one == seen[0] for one in seen)
    assert seen[0][2] == [("c1", "a", {"q": "ü"}), ("c2", "b", {})]


async def test_byte_by_byte(side: Side) -> None:
    body = side.sse(CALLS)
    side.server.responses.append(Response([bytes([byte]) for byte in body]))
    chain = side.chain(tool("a"), tool("b"))
    outcome = await chain.run(mode="once")
    assert [call.arguments for call in (outcome.message or Message.user("")).tool_calls] == [{"q": "ü"}, {}]


async def test_broken_off_at_many_bytes(side: Side) -> None:
    """A failed attempt, or the whole reply if all of it was there; never anything else."""
    body = side.sse(CALLS)
    ends: set[str | None] = set()
    for cut in range(0, len(body), 13):
        record = Recorder()
        side.server.responses += [Response([body[:cut]], then="break")] * 3
        chain = side.chain(tool("a"), tool("b"), record=record)
        outcome = await chain.run(mode="once")
        side.server.responses.clear()
        if outcome.status == "ok":
            assert cut > len(body) // 2
            ends.add("ok")
            continue
        assert outcome.error is not None
        ends.add(outcome.error.type)
        assert chain.needs_response and not chain.messages[-1].tool_calls
        kept = chain.messages[-1]
        assert kept.role == "user" or kept.is_cut_off
    assert ends <= {"ok", "connection_error", "incomplete_response"} and "connection_error" in ends


async def test_a_body_that_just_ends(side: Side) -> None:
    """Is incomplete; the text is kept for the reader."""
    record = Recorder()
    body = side.sse([("text", "Hel")])
    body = body.replace(b"data: [DONE]\n\n", b"")
    side.server.responses.append(Response([body]))
    chain = side.chain(record=record)
    outcome = await chain.run()
    assert outcome.error is not None and outcome.error.type == "incomplete_response"
    assert (chain.messages[-1].text, chain.messages[-1].is_cut_off) == ("Hel", True)
    assert side.model.retry_on_fallback(outcome.error)


async def test_rate_limited_then_answered(side: Side) -> None:
    """Each response's head is told; the failed attempt too; the run is fine."""
    record = Recorder(pieces=True)
    limit = {f"{side.limits}remaining": "0", "retry_after": "7"}
    side.refuses(429, **limit)
    side.answers(("text", "Hi"), END)
    outcome = await side.chain(record=record).run()
    told = [line.split("(")[0] if "lerr" not in line else line for line in record.lines]
    assert told[:5] == ["headers", "ratelimit", "lerr(rate_limited)", "headers", "ratelimit"]
    assert (outcome.text, side.slept) == ("Hi", [7.0])
    info = record.of("on_llm_ratelimit_info")[0][0]
    assert info == {f"{side.limits}remaining": ["0"], "retry-after": ["7"]}
    assert (record.of("on_llm_error")[0][0].message).endswith("No")


@pytest.mark.parametrize("status", [408, 409, 500, 503, 529])
async def test_repeated_and_given_up(side: Side, status: int) -> None:
    """Twice, with growing pauses; each attempt is told once."""
    record = Recorder()
    for _ in range(3):
        side.refuses(status)
    outcome = await side.chain(record=record).run()
    type = {408: "timeout", 409: "conflict", 529: "overloaded"}.get(status, "server_error")
    assert record.lines == [
        "headers", "ratelimit", f"lerr({type})", "headers", "ratelimit", f"lerr({type})",
        "headers", "ratelimit", f"lerr({type})", f"err({type})",
    ]  # fmt: skip
    assert side.slept == [0.5, 1.0] and len(side.server.requests) == 3
    assert outcome.error is not None and outcome.error.original is not None


@pytest.mark.parametrize(
    ("status", "type"),
    [(400, "invalid_request"), (401, "authentication_error"), (403, "permission_error"), (404, "not_found")],
)
async def test_what_is_not_repeated(side: Side, status: int, type: str) -> None:
    side.refuses(status)
    outcome = await side.chain().run()
    assert outcome.error is not None and outcome.error.type == type
    assert len(side.server.requests) == 1 and not side.model.retry_on_fallback(outcome.error)


async def test_a_server_that_wants_too_long_a_pause(side: Side) -> None:
    """An agent that sleeps for an hour looks dead."""
    side.refuses(429, retry_after="3600")
    outcome = await side.chain().run()
    assert outcome.error is not None and outcome.error.type == "rate_limited"
    assert (side.slept, len(side.server.requests)) == ([], 1)


async def test_nobody_listens(side: Side) -> None:
    """connection_error, after all attempts."""
    record = Recorder()
    chain = Side(side.name, cast(Any, SimpleNamespace(port=9))).chain(record=record)
    await chain.run()
    assert record.lines == ["lerr(connection_error)"] * 3 + ["err(connection_error)"]


@pytest.mark.parametrize(
    ("type", "expected"), [("overloaded_error", "overloaded_error"), ("api_error", None)]
)
async def test_an_error_in_the_middle(side: Side, type: str, expected: str | None) -> None:
    """Isn't repeated: something of the reply has come already, and is kept for the reader."""
    record = Recorder()
    side.answers(("text", "Par"), ("error", type))
    chain = side.chain(record=record)
    outcome = await chain.run()
    expected = expected or ("server_error" if side.name == "anthropic" else "api_error")
    assert record.lines[2:] == [f"lerr({expected})", f"err({expected})"]
    assert (chain.messages[-1].text, chain.messages[-1].status) == ("Par", "cancelled")
    assert outcome.error is not None and "It broke" in outcome.error.message


async def test_cut_off_inside_a_call(side: Side) -> None:
    record = Recorder()
    side.answers(("call", 0, "c1", "a"), ("args", 0, '{"q":'), ("end", "length"))
    await side.chain(tool("a"), record=record).run()
    assert record.lines[2:] == ["id(c1:a)", "lerr(response_truncated)", "err(response_truncated)"]


async def test_malformed_arguments(side: Side) -> None:
    """Are asked for again."""
    record = Recorder()
    side.answers(("call", 0, "c1", "a"), ("args", 0, '{"q":}'), END)
    side.answers(("call", 0, "c2", "a"), ("args", 0, "{}"), END)
    chain = side.chain(tool("a"), record=record)
    await chain.run(mode="once")
    lines = [line for line in record.lines if line not in ("headers", "ratelimit")]
    assert lines[:2] == ["id(c1:a)", "lerr(delta_conversion_failed)"]
    assert [call.call_id for call in chain.messages[-1].tool_calls] == ["c2"]


async def test_missing_ids(side: Side) -> None:
    """Are made up, and the results find their calls."""
    side.answers(
        ("call", 0, None, "a"), ("args", 0, "{}"), ("call", 1, None, "b"), ("args", 1, '{"x":1}'), END
    )
    side.answers(("text", "done"), END)
    chain = side.chain(tool("a"), tool("b"))
    outcome = await chain.run()
    assert outcome.text == "done"
    made = chain.messages[1].tool_calls
    assert len({call.call_id for call in made}) == 2 and all(call.call_id for call in made)
    assert [r.tool_call_id for r in chain.messages[2].tool_results] == [call.call_id for call in made]
    assert [call.arguments for call in made] == [{}, {"x": 1}]


async def test_missing_indexes(server: WireServer) -> None:
    """A compatible server that sends none: a name opens a call."""
    side = Side("openai", server)
    side.answers(
        ("call", None, "c1", "a"), ("args", None, '{"x":'), ("args", None, "1}"),
        ("call", None, "c2", "b"), ("args", None, "{}"), END,
    )  # fmt: skip
    chain = side.chain(tool("a"), tool("b"))
    await chain.run(mode="once")
    made = chain.messages[-1].tool_calls
    assert [(call.call_id, call.name, call.arguments) for call in made] == [
        ("c1", "a", {"x": 1}),
        ("c2", "b", {}),
    ]
    await side.model.aclose()


async def test_one_index_for_all_calls(server: WireServer) -> None:
    """As some compatible servers do: an unknown id opens a call."""
    side = Side("openai", server)
    side.answers(
        ("call", 0, "c1", "a"), ("args", 0, "{}"), ("call", 0, "c2", "b"), ("args", 0, '{"x":1}'), END
    )
    chain = side.chain(tool("a"), tool("b"))
    await chain.run(mode="once")
    made = chain.messages[-1].tool_calls
    assert [(call.call_id, call.name, call.arguments) for call in made] == [
        ("c1", "a", {}),
        ("c2", "b", {"x": 1}),
    ]
    await side.model.aclose()


async def test_what_the_server_is_sent(side: Side) -> None:
    """The whole conversation in its own words: instructions, pictures, calls, results and tools."""
    history = [
        Message.system("Be brief."),
        Message.user(
            [ContentPart("text", "Look"), ContentPart("image", "aGk=", options={"media": "image/gif"})]
        ),
        Message.assistant("Hm.", [ToolCall(call_id="c1", name="a", arguments={"q": "x"})]),
        Message("tool", tool_results=[ToolResult("R", tool_call_id="c1", is_error=True)]),
    ]
    schema = {"type": "object", "properties": {"q": {"type": "string"}}}
    described = tool("a", parameters=schema, description="Finds.", strict=True)
    side.answers(("text", "done"), END)
    await LLMChain(side.model, tools=[described], messages=history).run()
    (sent,) = side.server.requests
    assert (sent["model"], sent["stream"]) == ("m", True)
    if side.name == "openai":
        assert sent["messages"] == [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [
                {"type": "text", "text": "Look"},
                {"type": "image_url", "image_url": {"url": "data:image/gif;base64,aGk="}},
            ]},
            {"role": "assistant", "content": "Hm.", "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "a", "arguments": '{"q":"x"}'}},
            ]},
            {"role": "tool", "tool_call_id": "c1", "content": "R"},
        ]  # fmt: skip
        function = {"name": "a", "parameters": schema, "description": "Finds.", "strict": True}
        assert sent["tools"] == [{"type": "function", "function": function}]
        assert sent["stream_options"] == {"include_usage": True}
        return
    assert sent["system"] == [{"type": "text", "text": "Be brief."}]
    assert sent["messages"] == [
        {"role": "user", "content": [
            {"type": "text", "text": "Look"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": "aGk="}},
        ]},
        {"role": "assistant", "content": [
            {"type": "text", "text": "Hm."},
            {"type": "tool_use", "id": "c1", "name": "a", "input": {"q": "x"}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "R"}], "is_error": True},
        ]},
    ]  # fmt: skip
    assert sent["tools"] == [{"name": "a", "input_schema": schema, "description": "Finds.", "strict": True}]
    assert sent["max_tokens"] == 4096


async def test_thoughts_are_sent_back_as_they_were(server: WireServer) -> None:
    """Anthropic wants them, signature and all."""
    side = Side("anthropic", server)
    thinking = {"type": "thinking", "thinking": "", "signature": ""}
    use = {"type": "tool_use", "id": "c1", "name": "a", "input": {}}
    events: list[dict[str, Any]] = [
        {"type": "content_block_start", "index": 0, "content_block": thinking},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "sig"}},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "redacted_thinking", "data": "xyz"}},
        {"type": "content_block_start", "index": 2, "content_block": use},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 1}},
    ]  # fmt: skip
    body = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    server.responses.append(Response([body.encode()]))
    side.answers(("text", "done"), END)
    outcome = await side.chain(tool("a")).run()
    assert outcome.text == "done"
    assert server.requests[1]["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "Hm", "signature": "sig"},
        {"type": "redacted_thinking", "data": "xyz"},
        use,
    ]
    await side.model.aclose()


async def test_cancelling_hangs_up(side: Side) -> None:
    """In the middle of a stream."""
    arrived = asyncio.Event()
    body = side.sse([("text", "Hel")]).replace(b"data: [DONE]\n\n", b"")
    side.server.responses.append(Response([body], then="hang"))
    chain = LLMChain(
        side.model,
        messages=[Message.user("hi")],
        callbacks=[{"on_llm_new_delta": lambda chain, deltas: arrived.set()}],
    )
    run = asyncio.create_task(chain.run())
    await asyncio.wait_for(arrived.wait(), 10)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    await asyncio.wait_for(side.server.left.wait(), 10)
    assert [message.text for message in chain.messages] == ["hi"]


async def test_a_raising_handler_of_a_head_ends_the_run(side: Side) -> None:
    """Through the SDK, unrepeated."""

    def boom(*args: Any) -> None:
        raise ValueError("BOOM")

    record = Recorder(does={"on_llm_response_headers": boom})
    side.refuses(500)
    outcome = await side.chain(record=record).run()
    assert outcome.error is not None and "BOOM" in outcome.error.message
    assert len(side.server.requests) == 1 and "lerr" not in str(record.lines)


async def test_a_date_to_come_back_at(side: Side) -> None:
    """Is honoured like seconds; one that has passed is now, and what is neither is ignored."""
    side.refuses(429, retry_after="Wed, 21 Oct 2015 07:28:00 GMT")
    side.refuses(429, retry_after="soon")
    side.answers(("text", "Hi"), END)
    assert (await side.chain().run()).text == "Hi"
    assert side.slept == [0.0, 1.0]


@pytest.mark.parametrize("make", [OpenAIChat, AnthropicChat])
def test_retries_cannot_be_negative(make: Any) -> None:
    with pytest.raises(ValueError, match="retries can't be -1"):
        make("m", api_key="k", retries=-1)


def test_further_members_of_a_request() -> None:
    """Are added; None takes one of ours out."""
    request: Callable[..., Any] = OpenAIChat(
        "m", api_key="k", request={"temperature": 0, "stream_options": None}
    )._body
    assert request([], []) == {"model": "m", "messages": [], "stream": True, "temperature": 0}
