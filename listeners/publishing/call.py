"""One tool call of a run: what it is called, how far it is, and the block its body runs in."""

from __future__ import annotations

import math
import time
from collections.abc import Hashable, Mapping
from contextvars import Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from msgspec import json

from listeners.contract.events import CallRef
from listeners.contract.state import CallState
from listeners.publishing.current import current_call
from listeners.publishing.titles import Phase, Title

if TYPE_CHECKING:
    from listeners.publishing.composer import Composer

__all__ = ["Call", "Stage"]

Stage = Literal["new", "identified", "running", "interrupted", "ended"]

_AFTER: Final[dict[str, tuple[Stage, Phase]]] = {
    "tool_call_identified": ("identified", "running"),
    "tool_decision": ("identified", "running"),
    "tool_execution_started": ("running", "running"),
    "tool_interrupted": ("interrupted", "asking"),
    "tool_execution_completed": ("ended", "done"),
    "tool_execution_failed": ("ended", "failed"),
}

_STAGES: Final[dict[str, Stage]] = {
    "identified": "identified",
    "running": "running",
    "interrupted": "interrupted",
}


class Call:
    """A tool call, made by ``RunPublisher.call`` and ``RunPublisher.identified``.

    As a context manager (``with`` or ``async with``) it publishes that it has started, then that it has completed
    with ``result``, failed (the exception goes on) or was cancelled. Inside, ``progress()`` reports to it.

    ``key`` names it in its run, ``id`` is the provider's, ``attempt`` counts its starts.
    """

    def __init__(
        self,
        composer: Composer,
        key: str,
        name: str,
        *,
        id: str | None,
        index: int | None,
        parent: str | None,
    ) -> None:
        self.composer = composer
        self.key = key
        self.id = id
        self.name = name
        self.index = index
        self.parent = parent
        self.attempt = 0
        self.arguments: Mapping[str, Any] | None = None
        self.result: Any = None
        self.title: Title | None = None
        self.shown = ""
        self.stage: Stage = "new"
        # Handed out to be started, so that nobody else takes it up.
        self.taken = False
        # Its question was answered by a decision that stands in the log already.
        self.decided = False
        # By what the book finds it again.
        self.handles: tuple[Hashable, ...] = ()
        # Opened by hand or by a chain, and no wrapped tool has run as its body yet.
        self.unclaimed = False
        # Another name that its body may go by.
        self.body: str | None = None
        # Whoever runs the body hands on what it yields.
        self.yields_told = False
        self._started: float | None = None
        self._token: Token[Call | None] | None = None

    def progress(
        self,
        progress: float | None = None,
        total: float | None = None,
        message: str | None = None,
        *,
        chunk: str | None = None,
    ) -> None:
        """Publish how far the tool is: ``progress`` of ``total``, a ``message`` for people, a ``chunk`` of output."""
        data = {"progress": _number(progress), "total": _number(total), "message": message, "chunk": chunk}
        self.composer.publish("tool_progress", self, data)

    def start(self) -> None:
        """Publish that the tool runs, with the arguments that are known."""
        self.composer.publish("tool_execution_started", self, {"arguments": self.arguments})

    def complete(self, result: Any) -> None:
        """Publish that the tool has returned ``result``."""
        self.composer.publish("tool_execution_completed", self, {"result": result})

    def fail(self, error: Exception) -> None:
        """Publish that the tool raised ``error``."""
        policy = self.composer.policy
        self.composer.publish("tool_execution_failed", self, policy.failure(error))
        if policy.lets_out("tool_execution_exception"):
            self.composer.publish("tool_execution_exception", self, policy.exception(error, None))

    def cancel(self, message: str = "the call was cancelled") -> None:
        """Publish that the tool was stopped, or will not run."""
        self.composer.publish(
            "tool_execution_failed", self, self.composer.policy.failure(message, "cancelled")
        )

    def chunk(self, item: object) -> None:
        """Publish what a generator tool has yielded, as a text or as its JSON."""
        piece = self.composer.policy.piece(self.name, item)
        if piece is not None or item is None:
            self.progress(chunk=piece if isinstance(piece, str) else json.encode(piece).decode())

    def claim(self, name: str, title: Title | None) -> bool:
        """Tell whether a tool called ``name`` that begins now is this call's body, which only one can be; ``title``
        is what it wants shown from now on."""
        if not (self.unclaimed and name in (self.name, self.body) and self.stage == "running"):
            return False
        self.unclaimed = False
        if title is not None:
            self.composer.retitle(self, title)
        return True

    def __enter__(self) -> Self:
        self.unclaimed = True
        self.start()
        self._token = current_call.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            token, self._token = self._token, None
            try:
                current_call.reset(token)
            except ValueError:
                # Left in another context than it was entered in, where the variable was never set.
                current_call.set(None)
        if error is None:
            self.complete(self.result)
        elif isinstance(error, Exception):
            self.fail(error)
        else:
            self.cancel()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    # --- For the composer, which holds its lock ---

    @classmethod
    def known(cls, composer: Composer, state: CallState, *, alone: bool) -> Self:
        """Return the open call that a log tells of; its next start is a further attempt. ``alone``: if it is running
        there, nobody runs it any more."""
        call = cls(composer, state.key, state.name, id=state.id, index=state.index, parent=state.parent)
        call.attempt = state.attempt if state.started_at is not None else state.attempt - 1
        call.shown = state.title
        call.stage = _STAGES[state.state]
        if alone and call.stage == "running":
            call.stage = "identified"
        arguments = state.interrupt.arguments if state.interrupt is not None else state.arguments
        call.arguments = arguments if isinstance(arguments, dict) else None
        return call

    @staticmethod
    def phase_after(type: str) -> Phase | None:
        """Return which form of the title an event of ``type`` brings, ``None`` if it stays."""
        after = _AFTER.get(type)
        return after[1] if after else None

    def step(self, type: str) -> bool:
        """Take in that an event of ``type`` is being published; ``False``: it comes too late, and must not be."""
        after = _AFTER.get(type)
        if self.stage == "ended":
            # A body may be started again, and what it raised is told after it has failed; all else is late.
            if type not in ("tool_execution_started", "tool_execution_exception") and type.startswith(
                "tool_"
            ):
                return False
        elif type == "tool_decision" and self.decided:
            return False
        if after and after[0] == "identified" and self.stage == "running":
            return False
        if after is None:
            return True
        self.stage = after[0]
        self.decided = False
        if self.stage == "running":
            self.attempt += 1
            self._started = time.monotonic()
        elif self.stage != "ended":
            self.taken = False
        return True

    @property
    def free(self) -> bool:
        """Whether it is there to be started: identified or held, and handed out to nobody."""
        return self.stage in ("identified", "interrupted") and not self.taken

    @property
    def duration_ms(self) -> int | None:
        """Milliseconds since the call was started, by a clock that is never set."""
        return None if self._started is None else round((time.monotonic() - self._started) * 1000)

    @property
    def ref(self) -> CallRef:
        """The call as events tell it."""
        return CallRef(
            key=self.key,
            id=self.id,
            name=self.name,
            title=self.shown,
            index=self.index,
            attempt=self.attempt or None,
        )


def _number(value: object) -> int | float | None:
    """Return ``value`` as a number that JSON has, whatever counts (numpy's, a Decimal), else ``None``."""
    if value is None or isinstance(value, int):
        return value
    try:
        number = float(value)  # type: ignore[arg-type]  # whatever it is, it is asked
    except Exception:
        return None
    return number if math.isfinite(number) else None
