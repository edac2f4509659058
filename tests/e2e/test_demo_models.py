"""The demo with a provider's model, here a server of the test's own that speaks the provider's format."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Page
from redis import Redis

from listeners.contract.log import read_entries
from tests.e2e.conftest import Demo
from tests.support.pages import shown, until_shown
from tests.support.wire import Part, Response, WireServer, anthropic_sse, openai_sse, wire_server

FAST = ("--speed", "20")
FORMATS = {"openai": openai_sse, "anthropic": anthropic_sse}
END: Part = ("end", "stop")


@pytest.fixture
async def server() -> AsyncIterator[WireServer]:
    async with wire_server() as serving:
        yield serving


def environment(provider: str, server: WireServer) -> dict[str, str]:
    name = provider.upper()
    base = f"http://127.0.0.1:{server.port}" + ("/v1" if provider == "openai" else "")
    return {f"{name}_API_KEY": "key", f"{name}_BASE_URL": base}


def call(id: str, name: str, **arguments: object) -> list[Part]:
    return [("call", 0, id, name), ("args", 0, json.dumps(arguments)), END]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("provider", list(FORMATS))
async def test_a_providers_model_leads_the_run(demo: Demo, server: WireServer, provider: str) -> None:
    """It is told of the tools and their results; what it calls really runs."""
    sse = FORMATS[provider]
    server.responses += [
        Response([sse(call("c1", "read_file", path="heapq.py"))]),
        Response([sse([("text", "It is a heap."), END])]),
    ]
    process = demo("--model", f"{provider}:m:1", "--once", *FAST, **environment(provider, server))
    assert await asyncio.to_thread(process.wait, seconds=40) == 0, process.output
    assert "Read heapq.py" in process.output and "\nIt is a heap.\n" in process.output
    first, second = server.requests
    assert first["model"] == "m:1" and len(first["tools"]) == 5
    assert "Which modules of the standard library use heapq" in json.dumps(first["messages"])
    assert "Heap queue algorithm" in json.dumps(second["messages"])


@pytest.mark.timeout(60)
async def test_a_providers_model_goes_on_in_another_process(
    demo: Demo, server: WireServer, redis_url: str
) -> None:
    """Nobody has to say again which model it was."""
    told = environment("openai", server)
    server.responses += [
        Response([openai_sse(call("c1", "delete_file", file="cache.db", folder="../cache"))])
    ]
    process = demo("--model", "openai:m", "--once", "--ask", *FAST, **told)
    assert await asyncio.to_thread(process.wait, seconds=40) == 75, process.output
    assert len(server.requests[0]["tools"]) == 6

    server.responses += [Response([openai_sse([("text", "Tidy."), END])])]
    resumed = demo("--resume", "demo", "--once", *FAST, **told)
    line = (await asyncio.to_thread(resumed.expect, r"    (\S.* decide demo c1 approve.*)\n"))[1]
    decide = await asyncio.create_subprocess_shell(line, stdout=asyncio.subprocess.DEVNULL)
    assert await decide.wait() == 0
    assert await asyncio.to_thread(resumed.wait, seconds=40) == 0, resumed.output
    assert "Deleted cache.db." in json.dumps(server.requests[1]["messages"])


@pytest.mark.timeout(90)
async def test_a_page_shows_a_call_while_its_arguments_are_on_their_way(
    demo: Demo, server: WireServer, page: Page, redis: Redis
) -> None:
    """The stream names a tool and then says nothing until the page has shown it."""
    rest = asyncio.Event()
    parts = call("c1", "count_lines", path="json")
    head = openai_sse(parts[:1]).removesuffix(b"data: [DONE]\n\n")
    body = openai_sse(parts)
    assert body.startswith(head)
    server.responses += [
        Response([head, rest, body[len(head) :]]),
        Response([openai_sse([("text", "Counted."), END])]),
    ]
    process = demo("--model", "openai:m", "--no-ask", *FAST, **environment("openai", server))
    await page.goto((await asyncio.to_thread(process.expect, r"page +(\S+)\n"))[1])
    await until_shown(page, "Counting lines")
    await until_shown(page, "preparing")
    types = [entry.type for entry in read_entries(redis.xrange("toolcast:{demo}:log"))]
    assert types == ["run_started", "tool_call_identified"]
    assert "json" not in await shown(page)

    rest.set()
    await until_shown(page, "Counted lines")
    await asyncio.to_thread(process.expect, r"✓ completed, 1 call")


@pytest.mark.timeout(60)
async def test_a_run_that_fails_says_why_and_ends_so(demo: Demo, server: WireServer) -> None:
    refusal = json.dumps({"error": {"type": "x", "message": "No such key"}}).encode()
    server.responses += [Response([refusal], 401)]
    process = demo("--model", "openai:m", "--once", *FAST, **environment("openai", server))
    assert await asyncio.to_thread(process.wait, seconds=40) == 1
    assert "toolcast: the run failed: No such key\n" in process.output
    assert "· failed" in process.output or "✗ failed" in process.output


@pytest.mark.parametrize("provider", list(FORMATS))
def test_without_a_key_it_says_so_and_ends(demo: Demo, provider: str) -> None:
    process = demo("--model", f"{provider}:m", *FAST, **{f"{provider.upper()}_API_KEY": ""})
    assert process.wait(seconds=40) == 2, process.output
    assert f"toolcast: {provider}:m: " in process.output
    assert "Traceback" not in process.output
