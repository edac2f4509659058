"""How a run goes on: the steps it is made of, and the modes made of them.

A mode is ``async def mode(chain) -> Outcome``. A step returns an ``Outcome`` that ends the run, or ``None`` to go on:

.. code-block:: python

    async def ask_twice(chain: LLMChain) -> Outcome:
        for _ in range(2):
            for step in (call_llm, execute_tools, check_tool_interrupts, continue_or_done):
                if outcome := await step(chain):
                    return outcome
        return done(chain)
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING

from listeners.chain.outcome import Outcome
from listeners.errors import ChainError

if TYPE_CHECKING:
    from listeners.chain.chain import LLMChain
    from listeners.chain.running import Run

__all__ = [
    "call_llm",
    "check_max_runs",
    "check_pause",
    "check_tool_interrupts",
    "check_until_tool",
    "continue_or_done",
    "done",
    "execute_tools",
    "once",
    "step",
    "until_success",
    "until_tool_used",
    "while_needs_response",
]


async def call_llm(chain: LLMChain) -> Outcome | None:
    """Ask the model once and take in its reply; the outcome is an error. Malformed arguments are asked for again."""
    return await _run(chain).call_llm()


async def execute_tools(chain: LLMChain) -> Outcome | None:
    """Execute the calls of the last message, if nobody has answered them."""
    await _run(chain).execute_tools()
    return None


async def check_max_runs(chain: LLMChain, n: int | None) -> Outcome | None:
    """End in an error if the model has been asked ``n`` times in this run; ``None``: no bound."""
    return _run(chain).check_max_runs(n)


async def check_pause(
    chain: LLMChain, should_pause: Callable[[LLMChain], bool | Awaitable[bool]]
) -> Outcome | None:
    """End as paused if ``should_pause(chain)``."""
    return _run(chain).outcome("paused") if await _answer(should_pause(chain)) else None


async def check_tool_interrupts(chain: LLMChain) -> Outcome | None:
    """End as interrupted if calls are held."""
    return _run(chain).check_held()


async def check_until_tool(chain: LLMChain, names: str | Collection[str]) -> Outcome | None:
    """End with the result of one of the tools in ``names`` if the last message holds one, whatever it came to."""
    last = chain.last_message
    wanted = _names(names)
    results = last.tool_results if last is not None and last.role == "tool" else ()
    found = next((result for result in results if result.name in wanted), None)
    return None if found is None else _run(chain).outcome("ok", tool_result=found)


async def continue_or_done(chain: LLMChain) -> Outcome | None:
    """End unless the conversation waits for the model, or for tools."""
    return None if chain.needs_response else done(chain)


def done(chain: LLMChain) -> Outcome:
    """The run is over, and well."""
    return _run(chain).outcome("ok")


async def once(chain: LLMChain) -> Outcome:
    """Ask the model once; its calls are not executed."""
    return await call_llm(chain) or done(chain)


async def while_needs_response(chain: LLMChain) -> Outcome:
    """Execute tools and ask the model until it calls none."""
    while not (outcome := await continue_or_done(chain)):
        for next_step in (execute_tools, check_tool_interrupts, call_llm):
            if outcome := await next_step(chain):
                return outcome
    return outcome


async def until_success(chain: LLMChain) -> Outcome:
    """Ask the model until its calls succeed, or it answers."""
    while True:
        if outcome := await _run(chain).check_failures():
            return outcome
        last = chain.last_message
        if last is not None and last.role == "tool" and not last.had_errors:
            return done(chain)
        if last is not None and last.role == "assistant" and not last.is_cut_off:
            return done(chain)
        for next_step in (call_llm, execute_tools, check_tool_interrupts):
            if outcome := await next_step(chain):
                return outcome


async def step(
    chain: LLMChain, should_continue: Callable[[LLMChain], bool | Awaitable[bool]] | None = None
) -> Outcome:
    """Execute pending calls, or else ask the model once; again while ``should_continue(chain)``."""
    stepped = _run(chain).resumed
    while True:
        if not stepped:
            pending = _run(chain).has_pending
            action: Callable[[LLMChain], Awaitable[Outcome | None]] = execute_tools if pending else call_llm
            if outcome := await action(chain) or await check_tool_interrupts(chain):
                return outcome
        if should_continue is None or not await _answer(should_continue(chain)):
            return done(chain)
        stepped = False


async def until_tool_used(chain: LLMChain, names: str | Collection[str]) -> Outcome:
    """Ask the model and execute its calls until one of the tools in ``names`` was used, or it calls none."""
    known = {tool.name for tool in chain.tools}
    if missing := sorted(set(_names(names)) - known):
        shown = ", ".join(missing)
        text = f"Tool name '{shown}'" if len(missing) == 1 else f"Tool names '{shown}'"
        return _run(chain).failed(ChainError("invalid_tool_name", f"{text} not found in available tools"))
    if _run(chain).resumed and (outcome := await check_until_tool(chain, names)):
        return outcome
    while True:
        for next_step in (call_llm, execute_tools, check_tool_interrupts):
            if outcome := await next_step(chain):
                return outcome
        if outcome := await check_until_tool(chain, names) or await continue_or_done(chain):
            return outcome


async def _answer(answer: bool | Awaitable[bool]) -> bool:
    return await answer if inspect.isawaitable(answer) else answer


def _names(names: str | Collection[str]) -> Collection[str]:
    return [names] if isinstance(names, str) else names


def _run(chain: LLMChain) -> Run:
    run = chain._run
    if run is None:
        raise RuntimeError("a step belongs in a mode: give the chain's run a mode that takes it")
    return run
