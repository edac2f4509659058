"""A process with agents in it: ``python -m tests.faults.agents <name> <file for what they publish> <JSON>``.

The JSON says ``runs``, ``rate`` (events a second over all of them) and ``options`` (of :class:`RunPublisher`). Orders:
``rate``, ``burst`` and ``steps`` (of each agent), ``flush``, ``stats``, ``fork`` and ``wait_for_child``, ``drop``,
``interrupt``, ``end``, ``exit`` and ``exit_at_once``.

Each agent writes down what it is about to publish before it does, in its own words, into a file, so that what it took
outlives the process however that ends.
"""

from __future__ import annotations

import gc
import os
import queue
import sys
import time
from collections.abc import Iterator
from contextvars import copy_context
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import msgspec

from listeners import RunNotInterrupted, RunPublisher, ToolError
from listeners.contract.events import CallRef, Event, decode, encode
from tests.faults.child import Order, hear

__all__ = ["Diary", "read_diary"]

CYCLE: Final = 10
"""Steps after which no call is open."""
_TIME: Final = "2026-01-01T00:00:00.000Z"


class Diary:
    """What was about to be published: one line an event, in a file that several processes may share."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, writer: str, event: Event) -> None:
        """Write an event of ``writer`` down; only its type, run, call and data count."""
        os.write(self._file, writer.encode() + b"\t" + encode(event) + b"\n")


def read_diary(path: Path) -> Iterator[tuple[str, Event]]:
    """Yield writer and event of each line."""
    for line in path.read_bytes().splitlines():
        writer, _, event = line.partition(b"\t")
        yield writer.decode(), decode(event)


class Agent:
    """One publisher and what it does: numbers, and tool calls of which some fail."""

    def __init__(self, name: str, run: str, diary: Diary, options: dict[str, Any]) -> None:
        self.name = name
        self.run = run
        self._diary = diary
        self._joins = options.get("join", False)
        self._resumes = options.get("resume", False)
        self.publisher = RunPublisher(run, title=name, **options)
        # A task's own, as each agent would have.
        self._context = copy_context()
        self._step = 0
        self._numbers = 0

    def begin(self) -> None:
        if not (self._joins or self._resumes):
            self._note("run_started", title=self.name)
        self._context.run(self.publisher.__enter__)
        if self._resumes:
            # Only who has entered has taken it up.
            self._note("run_resumed")

    def end(self) -> None:
        """Leave the block."""
        self._finish_call()
        if not self._joins:
            self._note("run_completed")
        self._context.run(self.publisher.__exit__, None, None, None)

    def fail(self, error: BaseException) -> None:
        """Leave the block on an exception."""
        self._finish_call()
        self._note("run_failed", code="exception", message="unexpected error")
        self._context.run(self.publisher.__exit__, type(error), error, None)

    def interrupt(self) -> None:
        """Leave the run to whoever takes it up again."""
        self._finish_call()
        self._note("run_interrupted")
        self.publisher.interrupt()
        self._context.run(self.publisher.__exit__, None, None, None)

    def _finish_call(self) -> None:
        while self._step % CYCLE:
            self.step()

    def forked(self, name: str) -> None:
        """Be another writer from here on."""
        self.name = name
        self._joins = True
        self._step = self._numbers = 0

    def number(self, padding: int = 0) -> None:
        data: dict[str, Any] = {"by": self.name, "n": self._numbers}
        self._numbers += 1
        self._note("x_n", **data)
        self.publisher.publish("x_n", data=data | ({"pad": "x" * padding} if padding else {}))

    def step(self) -> None:
        """Do the next thing: of ten, four are numbers and six are a tool call's."""
        turn, at = divmod(self._step, CYCLE)
        self._step += 1
        if at in (0, 2, 5, 8):
            self.number()
            return
        key = f"{self.name}-c{turn}"
        if at == 1:
            self._tell("tool_call_identified", key)
            self.publisher.identified("search", id=key)
        elif at == 3:
            self._tell("tool_execution_started", key)
            self._call = self.publisher.call("search", id=key, arguments={"query": f"n {turn}"})
            self._call.start()
        elif at in (4, 6, 7):
            self._tell("tool_progress", key, progress=at)
            self._call.progress(at, 7)
        elif turn % 3 == 2:
            self._tell("tool_execution_failed", key, message=f"no page {turn}", reason="error")
            self._call.fail(ToolError(f"no page {turn}"))
        else:
            self._tell("tool_execution_completed", key, result_summary=f"found {turn}")
            self._call.complete(f"found {turn}")

    def _tell(self, type: str, key: str, **data: Any) -> None:
        call = CallRef(key=key, name="search", title="Search", attempt=1)
        self._diary.note(self.name, Event(type=type, run=self.run, time=_TIME, call=call, data=data))

    def _note(self, type: str, **data: Any) -> None:
        self._diary.note(self.name, Event(type=type, run=self.run, time=_TIME, data=data))


class Agents:
    """The agents of this process, who take their steps in turn."""

    def __init__(
        self, name: str, diary: Diary, runs: list[str], rate: float, options: dict[str, Any]
    ) -> None:
        self._name = name
        self._diary = diary
        self._options = options
        self._agents = [Agent(name, run, diary, options) for run in runs]
        self._turn = 0
        self._rate(rate)

    def serve(self) -> None:
        """Publish at the rate, and do as told, until told to end."""
        orders: queue.SimpleQueue[Order | None] = queue.SimpleQueue()
        hear(orders.put)
        for agent in self._agents:
            agent.begin()
        try:
            while True:
                try:
                    order = orders.get(timeout=0.01)
                except queue.Empty:
                    self._work()
                    continue
                if order is None:
                    return
                order.answer(getattr(self, f"_{order.do}")(**order.what))
                if order.do in ("end", "interrupt"):
                    return
        except SystemExit as error:
            # As `with` would, were the blocks nested here.
            for agent in self._agents:
                agent.fail(error)
            raise

    def _work(self) -> None:
        due = int((time.monotonic() - self._since) * self._per_second)
        while self._done < due and self._agents:
            agent = self._agents[self._turn % len(self._agents)]
            if self._padding:
                agent.number(self._padding)
            else:
                agent.step()
            self._turn += 1
            self._done += 1

    # -- orders -------------------------------------------------------------------------------------------------

    def _rate(self, per_second: float, padding: int = 0) -> None:
        """Publish so many events a second; with ``padding`` numbers alone, of about so many bytes each."""
        self._padding = padding
        self._per_second, self._since, self._done = per_second, time.monotonic(), 0

    def _burst(self, count: int) -> None:
        for agent in self._agents:
            for _ in range(count):
                agent.number()

    def _steps(self, count: int) -> None:
        for agent in self._agents:
            for _ in range(count):
                agent.step()

    def _flush(self, within: float) -> bool:
        return all(agent.publisher.flush(within) for agent in self._agents)

    def _fork(self, count: int, name: str) -> int:
        """Go on publishing in a child too, which is another writer called ``name``."""
        child = os.fork()
        if child:
            return child
        for agent in self._agents:
            agent.forked(name)
            for _ in range(count):
                agent.step()
        os._exit(0 if self._flush(20) else 1)

    def _wait_for_child(self, pid: int) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def _drop(self, run: str) -> None:
        """Lose an agent, as a task that died loses what it held."""
        self._agents = [agent for agent in self._agents if agent.run != run]
        gc.collect()

    def _stats(self) -> dict[str, Any]:
        return {agent.run: asdict(agent.publisher.stats) for agent in self._agents}

    def _end(self) -> dict[str, Any]:
        for agent in self._agents:
            agent.end()
        return self._stats()

    def _interrupt(self) -> None:
        for agent in self._agents:
            agent.interrupt()

    def _exit(self, count: int) -> None:
        self._burst(count)
        sys.exit(3)

    def _exit_at_once(self, count: int) -> None:
        self._burst(count)
        os._exit(4)


def main() -> None:
    """Work until told to end."""
    name, diary, settings = sys.argv[1:]
    given = msgspec.json.decode(settings)
    try:
        Agents(name, Diary(Path(diary)), given["runs"], given["rate"], given["options"]).serve()
    except RunNotInterrupted as error:
        sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
