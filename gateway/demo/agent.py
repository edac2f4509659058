"""The demo's agent: asks the model, runs the tools it calls side by side, until the model answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gateway.demo.model import ScriptedModel
from listeners import RunPublisher, ToolError

__all__ = ["answer"]

Tools = Mapping[str, Callable[..., Any]]
"""Wrapped tools by name: each call of one is published by itself."""


@dataclass(slots=True)
class _Asked:
    """A call as far as it has arrived."""

    name: str
    arguments: str = ""


async def answer(model: ScriptedModel, tools: Tools, run: RunPublisher) -> str:
    """Return the model's answer; ``run`` is the current run, and is told which calls are coming."""
    transcript: dict[str, Any] = {}
    while True:
        text, calls = await _receive(model, transcript, run)
        if not calls:
            return text
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(_execute(tools[call.name], call)) for call in calls]
        for call, task in zip(calls, running, strict=True):
            if (result := task.result()) is not None:
                transcript[call.name] = result


async def _receive(
    model: ScriptedModel, transcript: Mapping[str, Any], run: RunPublisher
) -> tuple[str, list[_Asked]]:
    text, calls = "", dict[int, _Asked]()
    async for fragment in model.stream(transcript):
        text += fragment.text
        if fragment.name is not None:
            calls[fragment.index] = _Asked(fragment.name)
            # The name is known, the arguments still come: the page can show it already.
            run.identified(fragment.name, id=fragment.id, index=fragment.index)
        elif fragment.arguments:
            calls[fragment.index].arguments += fragment.arguments
    return text, list(calls.values())


async def _execute(tool: Callable[..., Any], call: _Asked) -> Any:
    try:
        return await asyncio.to_thread(tool, **json.loads(call.arguments))
    except ToolError:
        # Published as a failed call; the model goes on without it.
        return None
