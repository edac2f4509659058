"""One run of the demo: an agent's process, and a subscription of our own that watches it over HTTP."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
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

__all__ = ["Performance"]

_READY: Final = 5.0
"""Seconds a gateway may take until it has reached Redis."""
_SETTLE: Final = 3.0
"""Seconds a run's last events may take to arrive once its agent has gone."""
_STOP: Final = 3.0
"""Seconds an agent that is told to stop has to publish that it was."""
_AGAIN: Final = 0.1
"""Seconds between two looks for a run that hasn't begun anew."""


class Performance:
    """Starts the agent that publishes ``run``, and tells on standard output what the gateway sends of it."""

    def __init__(self, client: GatewayClient, run: str, *, speed: float) -> None:
        self._client = client
        self._run = run
        self._speed = speed
        self._agent: subprocess.Popen[bytes] | None = None
        self._stopped = threading.Event()
        self._over = threading.Event()
        self._witness = Witness()
        self._state: RunState = waiting(run)
        self._refusal: str | None = None
        self.missing: str | None = "it was stopped before its end"
        """What was wrong with what arrived, as a clause; ``None`` once it was the whole run."""

    @property
    def stopped(self) -> bool:
        """Whether :meth:`stop` was called."""
        return self._stopped.is_set()

    def play(self) -> str | None:
        """Run the agent to its end; returns :attr:`missing`."""
        self.missing = self._obstacle() or self._played()
        return self.missing

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

    def _played(self) -> str | None:
        reader = threading.Thread(target=self._watch, args=(self._epoch(),), name="watching", daemon=True)
        reader.start()
        # -P: a folder of the reader's own that is called `gateway` or `listeners` must not be imported instead.
        command = [sys.executable, "-P", "-m", "gateway.demo", self._run, "--speed", str(self._speed)]
        # In a session of its own: a Ctrl-C at the terminal is ours, and the agent is told in `stop`.
        agent = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
        self._agent = agent
        if self._stopped.is_set():
            self.stop()
        _tell(f"  agent   process {agent.pid}\n\n")
        status = agent.wait()
        deadline = time.monotonic() + _SETTLE
        while reader.is_alive() and not self._stopped.is_set() and time.monotonic() < deadline:
            reader.join(_AGAIN)
        self._over.set()
        return self._missing(status)

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

    def _epoch(self) -> int | None:
        """The epoch of an earlier run of that id, which may still be kept."""
        try:
            state = self._client.get(f"/runs/{self._run}")
        except (Refused, Unreachable):
            return None
        position = Position.parse(str(state.get("position"))) if isinstance(state, dict) else None
        return None if position is None else position.epoch

    # -- the subscription ---------------------------------------------------------------------------------------

    def _watch(self, before: int | None) -> None:
        """Read the run's stream to its end; what is kept of the run before, in the epoch ``before``, is not it."""
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
        elif event.type != "tool_progress":
            _tell(line(Entry(position, event.type, raw)))

    # -- after it -----------------------------------------------------------------------------------------------

    def _missing(self, status: int) -> str | None:
        if self._refusal is not None:
            return f"the gateway refused: {self._refusal}"
        missing = self._witness.missing
        if missing is None:
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
