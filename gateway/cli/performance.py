"""One run of the demo: an agent's process, and a subscription of our own that watches it over HTTP."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from gateway.cli.client import GatewayClient, Received, Refused, Unreachable
from gateway.cli.terminal import printable
from gateway.cli.witness import Witness
from gateway.fanout.text import ending, line
from listeners.contract.events import TERMINAL_TYPES
from listeners.contract.fold import RunState, fold, waiting
from listeners.contract.log import Entry
from listeners.contract.position import Position

__all__ = ["HELD", "NOT_BEGUN", "Performance"]

NOT_BEGUN: Final = 2
HELD: Final = 75
"""Exit codes of the agent's process (``gateway.demo``), and of a performance that ends as it does."""

_READY: Final = 5.0
"""Seconds a gateway may take until it has reached Redis."""
_SETTLE: Final = 3.0
"""Seconds a run's last events may take to arrive once its agent has gone."""
_STOP: Final = 3.0
"""Seconds an agent that is told to stop has to publish that it was."""
_UNTOLD: Final = frozenset({"tool_call_review", "tool_progress"})
"""Types without a line of their own here."""
_AGAIN: Final = 0.1
"""Seconds between two looks for a run that hasn't begun anew."""


class Performance:
    """Starts the agent that publishes ``run``, and tells on standard output what the gateway sends of it.

    ``agent``: further arguments of its process. ``resumes``: it takes up a run, whose log is told from its start.
    ``asked(state)`` returns what is to be told of a run that has begun to wait for people.
    """

    def __init__(
        self,
        client: GatewayClient,
        run: str,
        *,
        agent: Sequence[str],
        resumes: bool,
        asked: Callable[[RunState], str],
    ) -> None:
        self._client = client
        self._run = run
        self._arguments = [run, *agent]
        self._resumes = resumes
        self._asked = asked
        self._agent: subprocess.Popen[bytes] | None = None
        self._stopped = threading.Event()
        self._over = threading.Event()
        self._witness = Witness()
        self._state: RunState = waiting(run)
        self._before: Position | None = None
        self._refusal: str | None = None
        self.status = 1
        """What to end with: 0 once the whole run has arrived and its agent has answered, 1, or one of the above."""

    @property
    def stopped(self) -> bool:
        """Whether :meth:`stop` was called."""
        return self._stopped.is_set()

    @property
    def held(self) -> bool:
        """Whether the run waits for people, as far as it is known."""
        return self._state.status == "interrupted"

    def play(self) -> str | None:
        """Run the agent to its end; returns what was wrong with what arrived, as a clause."""
        missing = self._obstacle()
        if missing is None:
            agent = self._played()
            if agent == NOT_BEGUN:
                # Its reason stands there already.
                self.status = NOT_BEGUN
                return None
            missing = self._missing(agent)
            if missing is None:
                self.status = HELD if self.held else min(abs(agent), 1)
        return missing

    def stop(self) -> None:
        """Stop the agent, if it runs, and wait until it is gone; from any thread."""
        self._stopped.set()
        agent = self._agent
        if agent is None or agent.poll() is not None:
            return

        agent.terminate()
        try:
            agent.wait(_STOP)
        except subprocess.TimeoutExpired:
            agent.kill()
            agent.wait()

    def _played(self) -> int:
        self._before = self._head()
        # -P: a folder of the reader's own that is called `gateway` or `listeners` must not be imported instead.
        command = [sys.executable, "-P", "-m", "gateway.demo", *self._arguments]
        # In a session of its own: a Ctrl-C at the terminal is ours, and the agent is told in `stop`.
        agent = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
        self._agent = agent
        if self._stopped.is_set():
            self.stop()
        _tell(f"  agent   process {agent.pid}\n\n")
        reader = threading.Thread(target=self._watch, name="watching", daemon=True)
        reader.start()
        status = agent.wait()
        deadline = time.monotonic() + _SETTLE
        while reader.is_alive() and not self._settled(status) and time.monotonic() < deadline:
            reader.join(_AGAIN)
        self._over.set()
        return status

    def _settled(self, status: int) -> bool:
        return self._stopped.is_set() or status == NOT_BEGUN or self.held

    # -- before the run -----------------------------------------------------------------------------------------

    def _obstacle(self) -> str | None:
        """Wait until the gateway can take the run; returns why it can't."""
        deadline = time.monotonic() + _READY
        while not self._stopped.is_set():
            try:
                self._client.get("/readyz")
                return None
            except (Refused, Unreachable) as error:
                if time.monotonic() > deadline:
                    return _why_not_ready(error)
            self._stopped.wait(_AGAIN)
        return "it was stopped before it began"

    def _head(self) -> Position | None:
        """Where an earlier run of that id, or the one to be taken up, ends by now."""
        try:
            state = self._client.get(f"/runs/{self._run}")
        except (Refused, Unreachable):
            return None
        return Position.parse(str(state.get("position"))) if isinstance(state, dict) else None

    # -- the subscription ---------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Read the run's stream to its end; what is kept of a run before, in an epoch of its own, is not it."""
        before = None if self._resumes or self._before is None else self._before.epoch
        while not self._over.is_set() and self._witness.position is None:
            try:
                for received in self._client.events(self._run):
                    if self._over.is_set():
                        return
                    if self._witness.position is not None:
                        self._see(received)
                    elif received.event.type == "snapshot":
                        # It leads out of the old epoch into the new one, which can be had from its beginning.
                        break
                    elif received.position.epoch != before:
                        self._see(received)
            except (Refused, Unreachable) as error:
                self._refusal = str(error)
                return
            self._over.wait(_AGAIN)

    def _see(self, received: Received) -> None:
        position, event, raw = received
        self._witness.see(position, event.type)
        self._state = fold(self._state, position, event)
        if event.type in TERMINAL_TYPES:
            _tell(ending(self._state))
            if isinstance(self._state.result, str):
                _tell("\n" + "\n".join(map(printable, self._state.result.splitlines())) + "\n")
            return
        if event.type not in _UNTOLD:
            _tell(line(Entry(position, event.type, raw)))
        if event.type == "run_interrupted" and not self._is_old(position):
            _tell(self._asked(self._state))

    def _is_old(self, position: Position) -> bool:
        """Whether an event was there before the agent, so that its question may be answered."""
        before = self._before
        return before is not None and before.epoch == position.epoch and position.seq <= before.seq

    # -- after it -----------------------------------------------------------------------------------------------

    def _missing(self, status: int) -> str | None:
        if self._refusal is not None:
            return f"the gateway refused: {self._refusal}"
        missing = self._witness.missing
        if missing is None or (self.held and self._witness.fault is None):
            return None
        if self._witness.position is None:
            missing += "; does the gateway use the same Redis and namespace?"
        if status < 0:
            return f"the agent's process was killed by signal {-status}, and {missing}"
        return missing if status == 0 else f"the agent's process ended with status {status}, and {missing}"


def _why_not_ready(error: Refused | Unreachable) -> str:
    if isinstance(error, Refused) and error.status == 503:
        return "the gateway can't reach Redis"
    return str(error)


def _tell(text: str) -> None:
    # Whoever pipes this away may stop reading; the run goes on.
    with suppress(BrokenPipeError):
        print(text, end="", flush=True)
