"""How a run's events are made: policy, titles, keys and state, in the order in which they were told."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import json
from msgspec.structs import replace

from listeners.contract.decisions import Decision, Edit
from listeners.contract.deserting import DESERTED, PUBLISHER_LOST
from listeners.contract.events import TERMINAL_TYPES, TURNS, Event, decode, encode, format_time
from listeners.contract.folding import Folding
from listeners.contract.position import Position
from listeners.contract.reading import KnownRun
from listeners.contract.restoring import RestoreReason, restoring
from listeners.contract.state import RunState, Usage, is_open, read_usage, waiting
from listeners.publishing.call import Call
from listeners.publishing.callbook import CallBook, usable_id
from listeners.publishing.capping import capped
from listeners.publishing.current import current_call
from listeners.publishing.hints import hint_at_results
from listeners.publishing.outbox import BEGINNINGS, Queued
from listeners.publishing.plain import plain
from listeners.publishing.policy import PublicationPolicy
from listeners.publishing.sink import Restated, Sink
from listeners.publishing.titles import Title, title_of

__all__ = ["Composer"]

# What is done about a call, after which nobody is to answer its question.
_SETTLES: Final = frozenset(
    {"tool_decision", "tool_execution_started", "tool_execution_completed", "tool_execution_failed"}
)

_log = logging.getLogger("listeners")


class Composer:
    """The events of ``run`` on their way into ``sink``, and what is known of the run by them.

    ``about`` holds ``title``, ``agent`` and ``thread``, as far as known. Thread-safe: the sink's lock keeps an event,
    its effect on the call and its place in the log together.
    """

    def __init__(
        self, run: str, sink: Sink, policy: PublicationPolicy, *, about: Mapping[str, str | None]
    ) -> None:
        self.run = run
        self.sink = sink
        self.policy = policy
        self._about = dict(about)
        self._calls = CallBook()
        self._folding = Folding(waiting(run))
        # Keys of the calls that were published here, with the suffix then: a forked child's are others than its
        # parent's.
        self._own: dict[str, str] = {}
        self._begun = False
        sink.restate = self.restate

    @property
    def state(self) -> RunState:
        """The fold of what was published; its position counts this publisher's own events."""
        return self._folding.state

    def publish(self, type: str, call: Call | None = None, data: Mapping[str, Any] | None = None) -> None:
        """Make an event of a known type and put it in the sink; what goes wrong with its values is logged."""
        try:
            self._publish(type, call, data or {})
        except Exception:
            _log.exception("run %s: an event of type %s could not be made", self.run, type)

    def restate(self, reason: RestoreReason, queued: Sequence[Queued]) -> Restated:
        """Return the events that tell the state as a whole, to be followed by what is ``queued``, and its calls' keys.

        The state holds what these do to it already, which doing it again doesn't change: a late step never reopens a
        call. What is a sum is told without them, and so is a question that is asked among them.
        """
        with self.sink.lock:
            state, owner = self.state, self.sink.owner
            own = None if owner else {key for key, suffix in self._own.items() if suffix == self.sink.suffix}
        asked: set[str] = set()
        for one in queued:
            if one.type in TURNS and state.status == "interrupted":
                state = replace(state, status="running", interrupts=None)
            elif one.type == "llm_token_usage" and state.usage is not None:
                state = replace(state, usage=_without(state.usage, read_usage(decode(one.event).data)))
            elif one.type == "tool_interrupted" and (call := decode(one.event).call) is not None:
                asked.add(call.key)
        now = format_time(time.time())
        events = restoring(state, reason, now, owner=owner, keys=own, asked=asked)
        return events, {call.key for call in state.calls if own is None or call.key in own}

    def desert(self) -> None:
        """End a run that was begun here and is left by everybody: its publisher is gone."""
        if self._begun and self.sink.owner and self._folding.status == "running":
            self.publish("run_failed", None, {"code": PUBLISHER_LOST, "message": DESERTED})
        self.sink.close()

    def take_up(self, known: KnownRun, *, alone: bool) -> None:
        """Go on where the log stands, with its state, keys, attempts and held calls. ``alone``: whoever wrote it is
        gone, so that what was running there may be started again."""
        with self.sink.lock:
            self._folding = Folding(known.state)
            for name, value in self._about.items():
                self._about[name] = value or getattr(known.state, name)
            calls = [Call.known(self, state, alone=alone) for state in known.state.calls if is_open(state)]
            for call in calls:
                call.decided = call.stage == "identified" and call.key in known.questions
            self._calls.take_up(known.keys, calls)
            for key, position in known.questions.items():
                self.sink.questions.asked(key, position)

    def decided(self, key: str, decision: Decision) -> None:
        """Take in a decision that stands in the log already."""
        with self.sink.lock:
            call = self._calls.get(key)
            if call is None or not call.step("tool_decision"):
                return
            call.decided = True
            if isinstance(decision, Edit):
                call.arguments = dict(decision.arguments)
            now = format_time(time.time())
            self._fold(Event(type="tool_decision", run=self.run, time=now, call=call.ref))

    # --- Calls ---

    def identify(
        self,
        name: str,
        *,
        id: str | None,
        index: int | None,
        title: Title | None,
        arguments: Mapping[str, Any] | None = None,
        key: str | None = None,
        call: Call | None = None,
    ) -> Call:
        """Publish that the model calls the tool ``name``; the same open call again is told only under a new name.

        ``arguments`` are ``None`` while they haven't arrived. Who gives a ``key`` keeps the calls by its own names:
        ``call`` is then the one it knows, and a new one gets ``key`` if it is free.
        """
        parent = self._parent()
        with self.sink.lock:
            if key is None:
                call = self._calls.latest(id)
            again = call is not None and call.stage == "identified" and not call.taken
            if call is None or not again:
                call = self._new(name, id=id, index=index, parent=parent, key=key)
            again = again and call.name == name
            call.name = name
            call.title = title or call.title
            call.arguments = arguments or call.arguments
        if not again:
            self.publish("tool_call_identified", call)
        return call

    def take(
        self,
        name: str,
        *,
        id: str | None = None,
        arguments: Mapping[str, Any] | None,
        title: Title | None,
        key: str | None = None,
        call: Call | None = None,
    ) -> Call:
        """Return the call of the tool ``name`` that is to be started now.

        It is the one that is known by ``id`` and is not under way; without an ``id`` the oldest of that name that is
        identified and not started; else a new one. Who gives a ``key`` keeps the calls by its own names, as in
        :meth:`identify`.
        """
        parent = self._parent()
        with self.sink.lock:
            known = call
            if key is None and id is not None:
                known = self._calls.latest(id)
            elif key is None:
                known = self._calls.oldest(
                    lambda one: (
                        one.name == name and one.parent == parent and one.stage == "identified" and one.free
                    )
                )
            if known is None or not known.free:
                known = self._new(name, id=id, index=None, parent=parent, key=key)
            known.taken = True
            known.id = known.id or id
            known.title = title or known.title
            known.arguments = known.arguments if arguments is None else arguments
        return known

    def retitle(self, call: Call, title: Title) -> None:
        """Show ``title`` for a running call from its next event on."""
        call.title = title
        call.shown = self._title(call, "tool_execution_started")

    def waiting(self, key: str) -> Call | None:
        """Return the call with this key, of the present agent, that is there to be started again: it is held, or was
        when the log was taken up."""
        parent = self._parent()
        whole = key if parent is None else f"{parent}.{key}"
        with self.sink.lock:
            call = self._calls.get(whole)
            return call if call is not None and call.free else None

    @property
    def nested(self) -> bool:
        """Whether this runs inside a call of the run, as a nested agent does."""
        return self._parent() is not None

    def _parent(self) -> str | None:
        outer = current_call.get()
        return outer.key if outer is not None and outer.composer is self else None

    def _new(
        self,
        name: str,
        *,
        id: str | None,
        index: int | None,
        parent: str | None,
        key: str | None = None,
    ) -> Call:
        key = self._calls.new_key(key or usable_id(id), parent=parent, suffix=self.sink.suffix)
        call = Call(self, key, name, id=id, index=index, parent=parent)
        self._calls.add(call, *(() if id is None else (id,)))
        return call

    # --- Events ---

    def _publish(self, type: str, call: Call | None, data: Mapping[str, Any]) -> None:
        now = format_time(time.time())
        if type == "run_started":
            data = {**self._about, **data}
        allowed = self.policy.lets_out(type)
        # Titles and policies may be the application's functions, so that they run before the lock is taken.
        shown = self.policy.apply(type, call.name if call else "", data) if allowed else {}
        title = self._title(call, type)
        with self.sink.lock:
            if type in TURNS and not self._may_turn(type):
                return
            self._begun = self._begun or type in BEGINNINGS
            if type in TERMINAL_TYPES:
                self._close_calls()
                now = format_time(time.time())  # not before what it comes after
            if call is not None and not self._step(call, type, title):
                return
            if call is not None and type in _SETTLES:
                self.sink.questions.settled(call.key)
            elif call is not None and type == "tool_interrupted":
                self.sink.questions.asked(call.key)
            if allowed:
                self._put(type, now, call, shown)
            if type in TERMINAL_TYPES:
                self.sink.questions.close(self._folding.status)
        if call is not None and "result_summary" in shown:
            hint_at_results(call.name)

    def _may_turn(self, type: str) -> bool:
        if type == "run_started":
            may = not self.sink.joined
        else:
            may = self.sink.owner and (type != "run_resumed" or self._folding.status == "interrupted")
        if not may:
            _log.debug("run %s: %s is not this publisher's to say", self.run, type)
        return may

    def _title(self, call: Call | None, type: str) -> str:
        phase = call.phase_after(type) if call else None
        if call is None or phase is None:
            return ""
        known: Mapping[str, Any] | None = None
        if call.title is not None and isinstance(call.arguments, Mapping):
            known = self.policy.title_arguments(call.arguments)
        return title_of(call.title, call.name, known, phase, self.policy.redaction)

    def _step(self, call: Call, type: str, title: str) -> bool:
        if not call.step(type):
            return False
        if title:
            call.shown = title
        self._calls.stepped(call)
        return True

    def _close_calls(self) -> None:
        for call in self._calls.open:
            if call.stage != "new":
                call.cancel("the run ended before the call had")

    def _put(self, type: str, now: str, call: Call | None, data: dict[str, Any]) -> None:
        if call is not None and call.stage == "ended" and (duration := call.duration_ms) is not None:
            data.setdefault("duration_ms", duration)
        event = Event(
            type=type,
            run=self.run,
            time=now,
            call=call.ref if call else None,
            agent=self._about.get("agent"),
            thread=self._about.get("thread"),
            parent=call.parent if call else None,
            data=data,
        )
        event, encoded = capped(event, _encoded(event))
        self._fold(event)
        if call is not None:
            self._own[call.key] = self.sink.suffix
        tells_only_progress = call is not None and type == "tool_progress" and "chunk" not in data
        key = call.key if call is not None else None
        self.sink.put(type, encoded, call=key, progress_of=key if tells_only_progress else None)

    def _fold(self, event: Event) -> None:
        epoch, seq = self._folding.position
        if event.type == "run_started" and self._folding.status != "waiting":
            epoch, seq = epoch + 1, 0
        self._folding.add(Position(epoch, seq + 1), event)


def _without(usage: Usage, later: Usage | None) -> Usage:
    if later is None:
        return usage
    return Usage(
        input=max(0, usage.input - later.input),
        output=max(0, usage.output - later.output),
        total=max(0, usage.total - later.total),
    )


def _encoded(event: Event) -> bytes:
    try:
        return encode(event)
    except UnicodeEncodeError:
        # Half a character in a name, an id or a title: what is in `data` was looked after.
        return json.encode(plain(event)[0])
