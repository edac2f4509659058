"""Conversations with Redis without a client: commands out, replies in, a result at the end.

An exchange is a generator that yields one command after another and is sent each reply. Whoever holds a client,
sync or async, carries it out; the client must not decode replies.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

__all__ = ["Command", "Exchange", "carry_out", "carry_out_async"]

R = TypeVar("R")

Command = tuple[str | bytes | int, ...]
Exchange = Generator[Command, Any, R]


def carry_out(exchange: Exchange[R], execute: Callable[..., Any]) -> R:
    """Run ``exchange`` with ``execute`` (a client's ``execute_command``) and return its result.

    What ``execute`` raises ends the exchange, and goes on.
    """
    try:
        command = next(exchange)
        while True:
            command = exchange.send(execute(*command))
    except StopIteration as end:
        result: R = end.value
        return result


async def carry_out_async(exchange: Exchange[R], execute: Callable[..., Awaitable[Any]]) -> R:
    """Do as :func:`carry_out`, with a client that is awaited."""
    try:
        command = next(exchange)
        while True:
            reply = await execute(*command)
            command = exchange.send(reply)
    except StopIteration as end:
        result: R = end.value
        return result
