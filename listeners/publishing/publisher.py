"""``RunPublisher``: a run as the agent writes it."""

from __future__ import annotations

import asyncio
import logging
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, ParamSpec, Self, TypeVar

from listeners.contract.decisions import Decision
from listeners.contract.events import check_event_type, check_run_id
from listeners.contract.keys import KEEP_DONE, KEEP_INTERRUPTED, KEEP_OPEN, KEEP_STUB, LEASE, Keys
from listeners.contract.log import Limits
from listeners.contract.state import RunState, is_ended
from listeners.publishing.binding import bound
from listeners.publishing.call import Call
from listeners.publishing.composer import Composer
from listeners.publishing.current import current_run
from listeners.publishing.policy import Policy, PublicationPolicy
from listeners.publishing.process import desert_at_exit, flusher_for
from listeners.publishing.redaction import Redact
from listeners.publishing.server import Server
from listeners.publishing.sink import Sink, Stats
from listeners.publishing.taking_up import TakingUp
from listeners.publishing.titles import Title
from listeners.publishing.waiting import flushed
from listeners.run_ids import check_owner, new_run_id

if TYPE_CHECKING:
    from redis import Redis

__all__ = ["RunPublisher"]

P = ParamSpec("P")
R = TypeVar("R")

SHORTEST_LEASE: Final = 0.5
"""Seconds: a third of it must be longer than a round trip and a busy interpreter's pauses."""
_NEED_NO_CALL: Final = frozenset({"tool_response_created"})
_CANCELLATIONS: Final = (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit)

_log = logging.getLogger("listeners")


class RunPublisher:
    """One run, and the way its events take to Redis.

    As a context manager (``with`` or ``async with``) it is the current run, begins it, and ends it: ``run_completed``,
    ``run_cancelled`` on cancellation, ``run_failed`` on any other exception, which goes on, nothing while interrupted.
    All methods are thread-safe and synchronous, and never raise for anything Redis does.

    - ``run``: its id, a fresh one if ``None``; ``user``: refuse ids outside ``<user>.``, since a page chose it.
    - ``title``, ``agent``, ``thread``: what readers are told of it.
    - ``join``: the run is somebody else's, and what is published is added to it; the block neither begins nor ends it.
    - ``resume``: the block takes up an interrupted run, whose state, keys and attempts go on, and owns it from then on.
      Entering it raises :class:`RunNotInterrupted` unless it is interrupted and nobody else was first, and
      ``TimeoutError`` if Redis doesn't answer within ``flush_timeout``: only who has entered may go on with the run.
    - ``redis``: a URL, a ``redis.Redis``, or nothing (``REDIS_URL``, else the default address); ``namespace``:
      first part of all keys and channels (``TOOLCAST_NAMESPACE``, else ``toolcast``).
    - ``arguments``, ``results``, ``errors``, ``expose_exceptions``, ``redact``, ``publish``: what may leave the agent.
    - ``lease``: seconds after which gateways end the run if this process gives no sign of life, which it does every
      third of them by itself; ``None``: never, for debuggers.
    - ``keep_open``, ``keep_done``, ``keep_interrupted``: seconds the log lives after its last event, after the end,
      and while it waits for people; ``keep_stub``: how long after that is remembered what the run was.
    - ``flush_timeout``: seconds that leaving the block, and the process's exit, wait for Redis.

    Raises :class:`RunIdError` for an id that can't be one, ``ValueError`` and ``TypeError`` for other settings.

    For integrations: ``composer`` makes the events; ``in_block`` says that a block begins and ends the run, and
    ``failure`` is what that block then ends it with, though no exception passes.
    """

    def __init__(
        self,
        run: str | None = None,
        *,
        title: str | None = None,
        agent: str | None = None,
        thread: str | None = None,
        join: bool = False,
        resume: bool = False,
        user: str | None = None,
        redis: str | Redis | None = None,
        namespace: str | None = None,
        arguments: Policy = "summary",
        results: Policy = "summary",
        errors: Literal["safe", "full"] = "safe",
        expose_exceptions: bool = False,
        redact: Redact | None = None,
        publish: Literal["progress", "full"] = "progress",
        lease: float | None = LEASE,
        keep_open: float = KEEP_OPEN,
        keep_done: float = KEEP_DONE,
        keep_interrupted: float = KEEP_INTERRUPTED,
        keep_stub: float = KEEP_STUB,
        flush_timeout: float = 5,
    ) -> None:
        if join and resume:
            raise ValueError(
                "join=True leaves a run to its owner, resume=True becomes its owner: give one of them"
            )
        if run is None and (join or resume):
            raise ValueError("join=True and resume=True need the id of the run")
        self.run = new_run_id(user) if run is None else check_run_id(run)
        if user is not None:
            check_owner(self.run, user)
        policy = PublicationPolicy(
            arguments=arguments,
            results=results,
            errors=errors,
            expose_exceptions=expose_exceptions,
            redact=redact,
            publish=publish,
        )
        self._flush_timeout = flush_timeout
        if lease is not None and not lease >= SHORTEST_LEASE:
            raise ValueError(
                f"lease={lease!r}: give seconds, at least {SHORTEST_LEASE}, or None for no lease"
            )
        limits = Limits(
            keep_open=keep_open,
            keep_done=keep_done,
            keep_interrupted=keep_interrupted,
            keep_stub=keep_stub,
            lease=lease,
        )
        self._sink = self._open(redis, namespace, limits, joined=join)
        about = {"title": title, "agent": agent, "thread": thread}
        composer = self.composer = Composer(self.run, self._sink, policy, about=about)
        self._taking_up = (
            TakingUp(self.composer, resume=resume, timeout=flush_timeout) if join or resume else None
        )
        self.in_block = False
        self.failure: dict[str, Any] | None = None
        self._outer: RunPublisher | None = None
        # Who drops this without ending the run, as a task does that died, has its run ended.
        weakref.finalize(self, composer.desert).atexit = False
        desert_at_exit(composer)

    def _open(
        self, redis: str | Redis | None, namespace: str | None, limits: Limits, *, joined: bool
    ) -> Sink:
        server = Server(redis, namespace=namespace, environ=os.environ)
        keys = Keys(self.run, server.namespace)
        return flusher_for(server).writer(keys, limits, patience=self._flush_timeout, joined=joined)

    # --- The run ---

    def __enter__(self) -> Self:
        self._check_closed()
        if self._taking_up is not None:
            self._taking_up.enter()
        return self._enter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(error)
        if not self.flush():
            # The process's exit need not wait once more for what didn't answer now.
            self._sink.patience = 0

    async def __aenter__(self) -> Self:
        self._check_closed()
        if self._taking_up is not None:
            await self._taking_up.enter_async()
        return self._enter()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(error)
        if not await flushed(self._sink, self._flush_timeout):
            self._sink.patience = 0

    def complete(self, *, result: Any = None) -> None:
        """End the run, successfully; ``result`` is published whole, but for redaction."""
        self._end("run_completed", {"result": result})

    def fail(self, code: str, message: str) -> None:
        """End the run as failed: ``code`` for programs, ``message`` for people, published as they are."""
        self._end("run_failed", {"code": code, "message": message})

    def cancel(self, reason: str | None = None) -> None:
        """End the run as cancelled."""
        self._end("run_cancelled", {"reason": reason})

    def interrupt(self, interrupts: Sequence[Mapping[str, Any]] = ()) -> None:
        """Say that the run waits for people; leaving the block then ends nothing.

        ``interrupts`` are ``{"key": …, "message": …, "data": …}``, one a question, ``key`` being the call's.
        """
        self.publish("run_interrupted", data={"interrupts": [dict(one) for one in interrupts]})

    async def decision(self, call: Call | str) -> Decision:
        """Wait until a person has answered the question that ``call`` (or the call with this key) asks.

        Raises :class:`QuestionNotOpen` if it asks none, or as soon as nobody can answer it any more: the call went
        on, the run has ended, or another publisher has it. Answers arrive within about a second.
        """
        key = call if isinstance(call, str) else call.key
        decision = await asyncio.wrap_future(self._answer(key))
        self.composer.decided(key, decision)
        return decision

    def wait_decision(self, call: Call | str, timeout: float | None = None) -> Decision:
        """Do as :meth:`decision`, blocking this thread; raises ``TimeoutError`` after ``timeout`` seconds."""
        key = call if isinstance(call, str) else call.key
        answer = self._answer(key)
        try:
            decision = answer.result(timeout)
        except TimeoutError:
            answer.cancel()
            raise TimeoutError(
                f"nobody has answered call {key} of run {self.run} within {timeout} s"
            ) from None
        self.composer.decided(key, decision)
        return decision

    @property
    def state(self) -> RunState:
        """The run as this publisher knows it; ``position`` counts its own events."""
        return self.composer.state

    @property
    def stats(self) -> Stats:
        """How many events were published, were dropped by type, and wait."""
        return self._sink.stats

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until Redis has all that was published, at most ``timeout`` seconds (``flush_timeout`` unless given);
        tells whether it has."""
        return self._sink.flush(self._flush_timeout if timeout is None else timeout)

    def bind(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return ``function`` (plain or ``async``) such that this is the current run wherever it is called: for
        threads and pools of one's own."""
        return bound(function, self)

    # --- Its calls and events ---

    def identified(
        self, name: str, *, id: str | None = None, index: int | None = None, title: Title | None = None
    ) -> Call:
        """Publish that the model calls the tool ``name``, whose arguments aren't known yet.

        ``id`` is the provider's id of the call, ``index`` its place in the message. The call is then started by
        :meth:`call` with that id, or by the next wrapped tool of that name. The same id again, before that, is the
        same call.
        """
        return self.composer.identify(name, id=id, index=index, title=title)

    def call(
        self,
        name: str,
        *,
        id: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        title: Title | None = None,
    ) -> Call:
        """Return a call of the tool ``name``, to be used as a context manager around the tool's body.

        It is the one identified or held with this ``id``; without an ``id`` the oldest of that name that is
        identified and not started; else a new one.
        """
        return self.composer.take(name, id=id, arguments=arguments, title=title)

    def publish(self, type: str, *, call: Call | None = None, data: Mapping[str, Any] | None = None) -> None:
        """Queue an event; never blocks, never raises for anything Redis, time or a value does.

        ``arguments`` of a start and ``result`` of a completion are the raw values: the policy makes of them what may
        leave. What had to be dropped is in ``stats``. Raises ``ValueError`` for a type that is neither toolcast's nor
        ``x_…``, and for a ``tool_…`` event without its call.
        """
        check_event_type(type)
        if call is None and type.startswith("tool_") and type not in _NEED_NO_CALL:
            raise ValueError(f"{type} is about a call: give call=, from run.call(…) or run.identified(…)")
        self.composer.publish(type, call, data)

    def _answer(self, key: str) -> Future[Decision]:
        answer = self._sink.questions.wait(key)
        self._sink.wake()
        return answer

    # --- How the block begins and ends ---

    def _check_closed(self) -> None:
        if self.in_block:
            raise RuntimeError(f"run {self.run} is open already: give each block a RunPublisher of its own")

    def _enter(self) -> Self:
        self.in_block = True
        self._sink.closed = False
        self.failure = None
        # No token: it would hold the context, and that this publisher, which nobody could drop then.
        self._outer = current_run.get()
        current_run.set(self)
        if self._taking_up is None:
            self.publish("run_started")
        return self

    def _end(self, type: str, data: Mapping[str, Any]) -> None:
        if not self._sink.owner:
            _log.debug("run %s is not this publisher's to end: %s is not published", self.run, type)
        elif not is_ended(self.state):
            self.publish(type, data=data)

    def _leave(self, error: BaseException | None) -> None:
        self.in_block = False
        outer, self._outer = self._outer, None
        if current_run.get() is self:
            current_run.set(outer if outer is not None and outer.in_block else None)
        if isinstance(error, _CANCELLATIONS):
            self._end("run_cancelled", {})
        elif error is not None:
            self._end("run_failed", self.composer.policy.run_failure(error))
        elif self.failure is not None:
            self._end("run_failed", self.failure)
        elif self.state.status != "interrupted":
            self._end("run_completed", {})
        self._sink.close()
