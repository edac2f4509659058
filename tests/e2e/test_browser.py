"""A real Chromium against the real gateway: what a person sees, and what never reaches the page."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect
from redis import Redis

from listeners import RedisListener, RunPublisher, ToolError, wrap_all
from tests.support.pages import count, shown, until_shown
from tests.support.servers import GatewayProcess

HOSTILE = "</script><img src=x onerror=\"window.hacked='yes'\"><script>window.hacked='yes'</script>"
ARTEFACTS = Path(__file__).parents[2] / "artefacts"


def three_lines(gateway: GatewayProcess, run: str) -> str:
    return f"""\
<script type="module" src="http://localhost:{gateway.port}/web/define.js"></script>
<tool-state run="{run}"></tool-state>
<run-state run="{run}"></run-state>
"""


@pytest.mark.timeout(90)
async def test_the_three_line_page_works_from_another_port(
    redis_url: str, shared_gateway: GatewayProcess, page: Page, site: tuple[Path, str]
) -> None:
    """Identified, running with progress, completed and failed appear live in both elements."""
    folder, address = site
    (folder / "index.html").write_text(three_lines(shared_gateway, "three"))
    await page.goto(f"{address}/index.html")
    await until_shown(page, "Starting…")
    async with RunPublisher("three", title="A run", redis=redis_url) as run:
        titles = ("Searching for “{q}”…", "Searched for “{q}”", "Couldn’t search for “{q}”")
        run.identified("web_search", id="a", title=titles)
        await until_shown(page, "Web search")
        await until_shown(page, "preparing")
        with run.call("web_search", id="a", arguments={"q": "solar"}) as call:
            await until_shown(page, "Searching for “solar”…")
            call.progress(1, 2, "page 1")
            await until_shown(page, "page 1")
            assert await count(page, '[role="progressbar"]') >= 1
            call.result = ["a", "b"]
        await until_shown(page, "Searched for “solar”")
        with pytest.raises(ToolError), run.call("read_page"):
            raise ToolError("no such page")
        await until_shown(page, "no such page")
    await until_shown(page, "Used 2 tools")


@pytest.mark.timeout(60)
async def test_a_page_from_a_file_is_told_what_to_do(
    shared_gateway: GatewayProcess, page: Page, tmp_path: Path
) -> None:
    """``file:`` has no origin; the console names the command that gives it one."""
    (tmp_path / "page.html").write_text(three_lines(shared_gateway, "filed"))
    await page.goto((tmp_path / "page.html").as_uri())
    async with asyncio.timeout(20):
        while not any("python -m http.server" in line for line in page.console):  # type: ignore[attr-defined]  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@pytest.mark.timeout(90)
async def test_nothing_an_agent_says_becomes_markup(
    redis_url: str, shared_gateway: GatewayProcess, page: Page, site: tuple[Path, str]
) -> None:
    """Names, titles, arguments, results, errors, messages: shown as text in the elements and the inspector."""
    folder, address = site
    (folder / "index.html").write_text(three_lines(shared_gateway, "xss"))
    with RunPublisher(
        "xss", title=HOSTILE, redis=redis_url, results="full", arguments="full", agent=HOSTILE
    ) as run:
        with run.call(HOSTILE, arguments={HOSTILE: HOSTILE}, title=HOSTILE) as call:
            call.progress(1, 2, HOSTILE, chunk=HOSTILE)
            call.result = {"html": HOSTILE, HOSTILE: [HOSTILE]}
        with pytest.raises(ToolError), run.call("failing", title=HOSTILE):
            raise ToolError(HOSTILE)
        run.publish("x_own", data={"text": HOSTILE})
        run.complete(result=HOSTILE)
    for place in (f"{address}/index.html", f"{shared_gateway.url}/?run=xss"):
        await page.goto(place)
        await until_shown(page, "onerror=")
        rows = page.locator("run-state").get_by_role("button", expanded=False)
        for _ in range(await rows.count()):
            await rows.first.click(timeout=2000)
        await until_shown(page, "onerror=")
        assert await page.evaluate("window.hacked") is None
        assert await count(page, "img") == 0
        assert await count(page, "script:not([src])") == 0
    assert not [line for line in page.console if "Content Security Policy" in line]  # type: ignore[attr-defined]


@pytest.mark.timeout(60)
async def test_an_exceptions_text_type_and_place_stay_in_the_agent(
    redis: Redis, redis_url: str, shared_gateway: GatewayProcess, page: Page
) -> None:
    """By default a page and Redis learn of an unexpected error and no more."""

    def query() -> None:
        raise RuntimeError("postgres://app:secret@db")

    [observed] = wrap_all([query], RedisListener())
    with pytest.raises(RuntimeError), RunPublisher("leak", redis=redis_url):
        observed()
    stored = "".join(text for key in redis.scan_iter() for text in _texts(redis, key)).encode()
    await page.goto(f"{shared_gateway.url}/?run=leak")
    await until_shown(page, "unexpected error")
    visible = await shown(page)
    for secret in ("postgres", "secret", "RuntimeError", "Traceback", __file__, "test_browser"):
        assert secret.encode() not in stored, secret
        assert secret not in visible, secret


def _texts(redis: Redis, key: bytes) -> list[str]:
    if redis.type(key) == b"stream":
        return [str(fields) for _, fields in redis.xrange(key)]
    return [str(redis.hgetall(key))] if redis.type(key) == b"hash" else []


@pytest.mark.timeout(90)
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_inspector_follows_a_run_live(
    redis_url: str, shared_gateway: GatewayProcess, browser: Browser, scheme: Any
) -> None:
    """Runs at the left, calls in the centre, events at the right; screenshots are kept to be looked at."""
    ARTEFACTS.mkdir(exist_ok=True)
    context = await browser.new_context(color_scheme=scheme, viewport={"width": 1280, "height": 800})
    page = await context.new_page()
    await page.goto(f"{shared_gateway.url}/?run=watched-{scheme}")
    async with RunPublisher(f"watched-{scheme}", title="Watched live", redis=redis_url) as run:
        run.identified("read_file", id="r1")
        await until_shown(page, "Read file")
        await page.screenshot(path=ARTEFACTS / f"inspector-{scheme}-1-identified.png")
        with run.call("read_file", id="r1", arguments={"path": "a.py"}) as call:
            call.progress(3, 10, "3 of 10 files")
            await until_shown(page, "3 of 10 files")
            await page.screenshot(path=ARTEFACTS / f"inspector-{scheme}-2-running.png")
        with pytest.raises(ToolError), run.call("read_file", id="r2", arguments={"path": "b.py"}):
            raise ToolError("no such file")
        await until_shown(page, "no such file")
    await until_shown(page, "Completed")
    await expect(page.get_by_text("tool_execution_failed").first).to_be_visible()
    await until_shown(page, "Watched live")
    await page.screenshot(path=ARTEFACTS / f"inspector-{scheme}-3-ended.png")
    await context.close()
