"""The demo agent's process: ``python -m gateway.demo RUN``. Redis is where ``REDIS_URL`` says."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

from gateway.demo.agent import answer
from gateway.demo.library import TITLES, Library
from gateway.demo.model import QUESTION, ScriptedModel
from gateway.demo.pace import Pace
from listeners import RedisListener, RunPublisher, wrap_all

__all__ = ["main"]


async def _work(run: str, folder: Path, pace: Pace) -> None:
    task = asyncio.current_task()
    assert task is not None  # a coroutine function that runs is in one

    def stop() -> None:
        pace.stop()
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)

    root = Path(sysconfig.get_path("stdlib"))
    library = Library(root, folder / "library.db", pace)
    tools = wrap_all(library.tools, RedisListener(titles=TITLES))
    publisher = RunPublisher(
        run,
        title=QUESTION,
        agent="demo",
        arguments="full",
        results={"query_database": "full", "*": "summary"},
    )
    async with publisher:
        model = ScriptedModel(str(root), pace)
        result = await answer(model, {tool.__name__: tool for tool in tools}, publisher)
        publisher.complete(result=result)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the agent once; returns the exit code: 0 when it has answered, 130 when it was stopped."""
    parser = argparse.ArgumentParser(prog="python -m gateway.demo", description=__doc__)
    parser.add_argument("run", help="id of the run to publish")
    parser.add_argument("--speed", type=float, default=1.0, help="2: twice as fast")
    given = parser.parse_args(arguments)
    try:
        pace = Pace(given.speed)
    except ValueError as error:
        parser.error(str(error))

    try:
        with tempfile.TemporaryDirectory(prefix="toolcast-demo-") as folder:
            asyncio.run(_work(given.run, Path(folder), pace))
    except asyncio.CancelledError:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
