"""Pages in a real Chromium: how it is started, how a folder is served to it, and what it shows."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import which
from typing import Any

from playwright.async_api import Browser, Page, async_playwright

__all__ = ["chromium", "count", "served", "shown", "until_shown"]

_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """A browser: this machine's, or else the one that Playwright has installed."""
    async with async_playwright() as playwright:
        program = which("chromium") or which("google-chrome")
        browser = await playwright.chromium.launch(executable_path=program, args=_FLAGS)
        yield browser
        await browser.close()


class _QuietFiles(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address that ``folder`` is served from, on a port of its own."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_QuietFiles, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://localhost:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join(5)


async def shown(page: Page) -> str:
    """All text that the page's elements show, shadow roots included."""
    text: str = await page.evaluate(
        """() => {
            const texts = []
            const walk = (node) => {
                if (node.nodeType === Node.TEXT_NODE) texts.push(node.data)
                if (node.shadowRoot) walk(node.shadowRoot)
                for (const child of node.childNodes) walk(child)
            }
            walk(document.documentElement)
            return texts.join(' ')
        }"""
    )
    return text


async def count(page: Page, selector: str) -> int:
    """Elements that match in the document and in every shadow root."""
    found: int = await page.evaluate(
        """(selector) => {
            let found = 0
            const walk = (root) => {
                found += root.querySelectorAll(selector).length
                for (const element of root.querySelectorAll('*')) if (element.shadowRoot) walk(element.shadowRoot)
            }
            walk(document)
            return found
        }""",
        selector,
    )
    return found


async def until_shown(page: Page, text: str, *, seconds: float = 15) -> None:
    seen = ""
    try:
        async with asyncio.timeout(seconds):
            while text not in (seen := await shown(page)):  # noqa: ASYNC110  # the page is another process
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"after {seconds} s {text!r} is not on the page, which shows: {seen}") from None
