"""The demo agent's process: ``python -m gateway.demo RUN``. Redis is where ``REDIS_URL`` says.

Ends with 0 when the agent has answered, 1 when its run has failed, 2 when it could not begin (which it says), 75 when
it has asked a person and nobody has answered (``--resume`` goes on from there), 130 when it was stopped.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from redis.exceptions import RedisError

from gateway.demo.agent import Agent
from gateway.demo.library import Library
from gateway.demo.model import QUESTION, SCRIPTED, ModelUnusable, instructions, model_named
from gateway.demo.pace import Pace
from gateway.demo.workspace import NothingKept, Workspace
from listeners import QuestionNotOpen, RunIdError, RunNotInterrupted, RunPublisher
from listeners.chain import Message

__all__ = ["ANSWERED", "FAILED", "HELD", "NOT_BEGUN", "STOPPED", "main"]

ANSWERED: Final = 0
FAILED: Final = 1
NOT_BEGUN: Final = 2
HELD: Final = 75
STOPPED: Final = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the agent once; returns the exit code, as the module says."""
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        pace = Pace(given.speed)
    except ValueError as error:
        parser.error(str(error))

    try:
        redis = f"{os.environ.get('REDIS_URL')} {os.environ.get('TOOLCAST_NAMESPACE')}"
        workspace = Workspace(given.run, redis=redis)
        return asyncio.run(_work(given, workspace, pace))
    except asyncio.CancelledError:
        return STOPPED
    except (ModelUnusable, NothingKept, RunNotInterrupted, RunIdError, RedisError, OSError) as error:
        _say(str(error))
        return NOT_BEGUN


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m gateway.demo", description=__doc__)
    parser.add_argument("run", help="id of the run to publish")
    parser.add_argument("--speed", type=float, default=1.0, help="2: twice as fast")
    parser.add_argument("--model", default=SCRIPTED, help="openai:NAME or anthropic:NAME; else a script")
    parser.add_argument(
        "--ask", choices=["no", "leave", "wait"], default="wait", help="before deleting a file"
    )
    parser.add_argument("--resume", action="store_true", help="take the run up where a person was asked")
    return parser


async def _work(given: argparse.Namespace, workspace: Workspace, pace: Pace) -> int:
    task = asyncio.current_task()
    assert task is not None  # a coroutine function that runs is in one

    def stop() -> None:
        pace.stop()
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)

    root = Path(sysconfig.get_path("stdlib"))
    asks = given.resume or given.ask != "no"
    if given.resume:
        messages, name = workspace.kept()
    else:
        name = given.model
        messages = [Message.system(instructions(str(root), asks=asks)), Message.user(QUESTION)]
    model = model_named(name, str(root), pace, asks=asks)
    if not given.resume:
        workspace.make()

    publisher = RunPublisher(
        given.run,
        title=QUESTION,
        agent="demo",
        resume=given.resume,
        arguments="full",
        results={"query_database": "full", "*": "summary"},
    )
    held = given.resume
    try:
        async with publisher:
            library = Library(root, workspace.home / "library.db", pace)
            agent = Agent(model, name, library, workspace, messages, asks=asks)
            status, held = await _perform(agent, publisher, waits=given.ask != "leave")
        return status
    finally:
        if not held:
            workspace.remove()


async def _perform(agent: Agent, run: RunPublisher, *, waits: bool) -> tuple[int, bool]:
    """Returns the exit code, and whether the run is held still."""
    try:
        outcome = await agent.answer(run, waits=waits)
    except QuestionNotOpen as error:
        # Somebody else's by now, or over: leaving the block ends nothing.
        _say(str(error))
        return FAILED, True
    if outcome.status == "interrupted":
        return HELD, True
    if outcome.error is not None:
        _say(f"the run failed: {outcome.error}")
        return FAILED, False
    run.complete(result=outcome.text)
    return ANSWERED, False


def _say(text: str) -> None:
    print(f"toolcast: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
