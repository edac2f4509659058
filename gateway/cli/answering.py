"""How to answer what a run asks: commands that work as they stand when pasted into another terminal."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from gateway.cli.serve import shown_url
from gateway.cli.terminal import printable
from gateway.settings import Settings
from listeners.contract.state import CallState, RunState

__all__ = ["how_to_answer", "program"]


def program() -> str:
    """Return how this program is started here: by its name, by its path, or as a module."""
    own, found = Path(sys.executable).with_name("toolcast"), shutil.which("toolcast")
    if found is not None and own.exists() and own.samefile(found):
        return "toolcast"
    if Path(sys.argv[0]).name == "toolcast":
        return shlex.quote(sys.argv[0])
    return f"{shlex.quote(sys.executable)} -m gateway"


def how_to_answer(state: RunState, *, settings: Settings, leaves: bool) -> str:
    """Return the lines that say what ``state`` asks, and the commands that answer; ``leaves``: its agent ends now."""
    where = "".join(f" {option} {shlex.quote(value)}" for option, value in _where(settings).items())
    place = (
        "The agent has asked, and ends. Answer it with" if leaves else "The agent waits. In another terminal,"
    )
    lines = ["", f"{place} one of:"]
    for call in state.calls:
        if call.interrupt is not None:
            lines.append(f"  {printable(call.title)} {printable(call.interrupt.message)}")
            lines += [
                f"    {program()} decide {state.run} {call.key} {answer}{where}" for answer in _answers(call)
            ]
    return "\n".join([*lines, "", ""])


def _answers(call: CallState) -> Iterator[str]:
    yield "approve"
    if call.interrupt is not None and call.interrupt.editable is not False:
        yield f"edit --arguments {shlex.quote(json.dumps(call.interrupt.arguments or {}))}"
    yield "reject --reason 'Keep it.'"


def _where(settings: Settings) -> Mapping[str, str]:
    """What the other terminal can't know. A password isn't shown: there, too, it comes from the environment."""
    where = {}
    if settings.redis_url is not None and shown_url(settings.redis) == settings.redis:
        where["--redis"] = settings.redis
    if settings.namespace is not None:
        where["--namespace"] = settings.namespace
    return where
