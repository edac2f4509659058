"""One writer of one run: its outbox, how far it was answered, and what became of what it sent (contract §3)."""

from __future__ import annotations

import logging
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import Any, Final

from listeners.contract.deciding import TAKEN
from listeners.contract.events import decode
from listeners.contract.exchange import Command
from listeners.contract.keys import Keys
from listeners.contract.log import Appended, Batch, Fenced, Limits, Lost, Refused
from listeners.contract.restoring import RestoreReason
from listeners.publishing.outbox import BEGINNINGS, Outbox, Queued
from listeners.publishing.questions import Questions
from listeners.publishing.sink import Restate, Stats

__all__ = ["Answer", "Writer"]

Answer = Appended | Fenced | Lost | Refused

LOOK_EVERY: Final = 1.0
"""Seconds between two looks for the answer that somebody waits for."""
LOOK_WITHOUT_LEASE: Final = 10.0
"""Seconds between two looks at a run that has no lease."""
ENDED: Final = frozenset({"completed", "failed", "cancelled", "deleted"})
_MOST_LINEAGE: Final = 16

_log = logging.getLogger("listeners")


class Writer:
    """Events of one publisher in one process, on their way to one log. Thread-safe; its locks are held briefly.

    ``wake`` is called when something waits to be sent, which ``ready`` says until the flusher has noticed; ``ask``
    sends one command; ``patience``: seconds that a process waits for answers before it exits; ``shown``: the server's
    address for logs.

    ``owner`` says whether it may end the run: who has ``joined`` can't, nor can a forked child, which has joined the
    run that its parent began. The keys that these make up end in ``suffix``, since others go on counting too.
    ``began``: Redis has taken it for the owner. ``out``: another publisher has the run now, and nothing of this one is
    taken any more.
    """

    def __init__(
        self,
        keys: Keys,
        limits: Limits,
        *,
        shown: str,
        patience: float,
        wake: Callable[[Writer], None],
        ask: Callable[[Command], Future[Any]],
        joined: bool = False,
    ) -> None:
        self.keys = keys
        self.limits = limits
        self.shown = shown
        self.patience = patience
        self.joined = joined
        self.owner = not joined
        self._wake = wake
        self._ask = ask
        self.last_error: str | None = None
        self.restate: Restate | None = None
        self._begin()
        self.suffix = f"-{self.id[:4]}" if joined else ""
        self.questions = Questions(keys, self.lock)

    def _begin(self) -> None:
        # Re-entrant: a signal handler, or a destructor the garbage collector runs, may publish in the middle of it.
        self.lock = threading.RLock()
        self._answered = threading.Condition(self.lock)
        self._outbox = Outbox()
        self._watchers: list[Callable[[], None]] = []
        self._said: set[str] = set()
        self.ready = False
        self.published = 0
        self.lost: Counter[str] = Counter()
        self.status: str | None = None
        self.restored = 0
        self.out = False
        self.began = False
        self.closed = False
        self.checkpoint_due = False
        self._number_anew()
        self._forget_epoch()

    def _number_anew(self) -> None:
        self.id = secrets.token_hex(8)
        self._next = 1

    def _forget_epoch(self) -> None:
        self._epoch: int | None = None
        self._lineage: tuple[int, ...] = ()
        self._restores = False

    def after_fork(self) -> None:
        """Become a writer of its own in a forked child: what waits here is the parent's to send."""
        self._begin()
        self.questions.after_fork(self.lock)
        self.owner = False
        self.suffix = f"-{self.id[:4]}"

    # --- The agent's side ---

    def put(
        self, type: str, event: bytes, *, call: str | None = None, progress_of: str | None = None
    ) -> None:
        """Queue an event; never blocks for more than an instant, never raises. ``call``: the key of its call;
        ``progress_of``: the same, of an event that only tells its progress."""
        queued = Queued(type, event, call=call, progress_of=progress_of)
        with self.lock:
            if type == "run_started" and not self.joined:
                self.owner = True
                if self.out:
                    # Started again, on purpose: a writer that takes the run over in its turn.
                    self.out = False
                    self._number_anew()
                    self._forget_epoch()
            if self.out:
                self.lost[type] += 1
                return
            whole = self._outbox.put(queued)
        if not whole:
            self._say_once(
                "overflow",
                "run %s: the outbox is full (%s doesn't take what is published), so single steps are dropped and the "
                "run's state is told as a whole; see RunPublisher.stats",
                self.keys.run,
                self.shown,
            )
        self._wake(self)

    def close(self) -> None:
        """Look after the run no longer than something waits: the publisher is done with it."""
        self.closed = True
        self._wake(self)

    def ask(self, command: Command) -> Future[Any]:
        """Send one command between the batches and return its reply to be; it waits while Redis is away."""
        return self._ask(command)

    def wake(self) -> None:
        """Have the flusher look at this writer: at its events, and at who waits for answers."""
        self._wake(self)

    @property
    def waiting(self) -> int:
        """Events that have not been answered yet."""
        return len(self._outbox)

    @property
    def size(self) -> int:
        """Bytes of JSON that have not been answered yet."""
        return self._outbox.size

    @property
    def dropped(self) -> Counter[str]:
        """By type, what was dropped for want of room or is lost for another reason."""
        with self.lock:
            return self._outbox.dropped + self.lost

    def flush(self, timeout: float) -> bool:
        """Wait until all that was put has been answered, at most ``timeout`` seconds; tells whether it was."""
        with self._answered:
            return self._answered.wait_for(lambda: not len(self._outbox), timeout)

    def when_answered(self, watcher: Callable[[], None]) -> bool:
        """Have ``watcher`` called once, from the flusher's thread, when nothing waits; ``False``: nothing does."""
        with self.lock:
            if not len(self._outbox):
                return False
            self._watchers.append(watcher)
            return True

    def forget(self, watcher: Callable[[], None]) -> None:
        """Take back :meth:`when_answered`."""
        with self.lock:
            if watcher in self._watchers:
                self._watchers.remove(watcher)

    @property
    def stats(self) -> Stats:
        """What became of what was put."""
        with self.lock:
            return Stats(
                published=self.published,
                dropped=dict(self.dropped),
                restored=self.restored,
                waiting=self.waiting,
                last_error=self.last_error,
            )

    # --- The flusher's side ---

    def cut(self) -> Batch | None:
        """Return the batch to send, the same one until it is answered, or ``None`` if nothing waits."""
        with self.lock:
            if self._outbox.overflowed and not self._outbox.frozen:
                self._tell_again("overflow")
            events = self._outbox.cut()
            return self._batch(events) if events else None

    def look(self) -> Batch:
        """Return the batch without events that renews the owner's lease and tells whether the log is still there."""
        with self.lock:
            return self._batch(())

    @property
    def look_every(self) -> float | None:
        """Seconds between two looks at the run if nothing is sent, ``None`` for none: it ended, waits for people or is
        another's, or there is nobody here any more who publishes."""
        if self.questions.waited_for:
            return LOOK_EVERY
        waits = self.status == "interrupted" or self.out or self.closed or self._epoch is None
        if waits or self.status in ENDED:
            return None
        return LOOK_WITHOUT_LEASE if self.limits.lease is None else self.limits.lease / 3

    def _batch(self, events: tuple[tuple[str, bytes], ...]) -> Batch:
        return Batch(
            keys=self.keys,
            writer=self.id,
            first=self._next,
            epoch=self._epoch,
            events=events,
            lineage=self._lineage,
            joins=not self.owner,
            restores=self._restores and bool(events),
        )

    def answered(self, batch: Batch, answer: Answer) -> None:
        """Take in what the script said of the batch that was cut, or of a look."""
        match answer:
            case Appended():
                self._appended(batch, answer)
            case Fenced():
                self._fenced(resumed=answer.resumed)
            case Refused():
                self._refused(batch, answer)
            case Lost() if batch.events or not self._outbox.frozen:
                self._was_lost()
            case Lost():
                # The batch that is under way will be answered for itself; it may have been taken already.
                pass

    def refused_by_server(self, batch: Batch, error: Exception) -> None:
        """Give a batch up that Redis answers with an error, which it would repeat for ever."""
        self.last_error = str(error)
        self._say_once("error", "run %s: %s refused events: %s", self.keys.run, self.shown, error)
        self._give_up(batch)

    def abandon(self) -> Counter[str]:
        """Give up all that waits and return how many of which type that is."""
        with self.lock:
            lost = self._outbox.empty()
            self.lost += lost
        self._tell_watchers()
        return lost

    def _appended(self, batch: Batch, answer: Appended) -> None:
        with self.lock:
            if self._epoch not in (None, answer.epoch):
                self._lineage = (self._epoch, *self._lineage)[:_MOST_LINEAGE] if batch.restores else ()
            self._epoch = answer.epoch
            self.status = answer.status
            self.checkpoint_due = answer.checkpoint_due
            if not batch.events:
                return
            self._restores = False
            self._outbox.acknowledge()
            self._next += len(batch.events)
            self.published += len(batch.events) - answer.refused
            takes = batch.restores or (batch.events[0][0] in BEGINNINGS and 0 not in answer.skipped)
            self.began = self.began or (self.owner and takes)
            if answer.refused:
                taken = dict(answer.places())
                late = [type for index, (type, _) in enumerate(batch.events) if index not in taken]
                self.lost.update(late)
            for index, position in answer.places():
                if batch.events[index][0] == "tool_interrupted":
                    call = decode(batch.events[index][1]).call
                    if call is not None:
                        self.questions.placed(call.key, position)
        if answer.refused > len(answer.skipped):
            self._say_refused(answer.status)
        if answer.skipped:
            self._say_once(
                "skipped", "run %s belongs to another publisher, so that this one can't end it", self.keys.run
            )
        self._tell_watchers()

    def _fenced(self, *, resumed: bool) -> None:
        with self.lock:
            self.out = True
            self.lost += self._outbox.empty()
        self.questions.close(TAKEN)
        message = "run %s was started again by another publisher; this one is out of it"
        if resumed:
            message = "run %s was resumed by another publisher; this one is out of it"
        self._say_once("fenced", message, self.keys.run)
        self._tell_watchers()

    def _refused(self, batch: Batch, answer: Refused) -> None:
        with self.lock:
            # A run that hasn't begun names no epoch.
            self._epoch = answer.epoch or self._epoch
            self.status = answer.status
        if batch.events or answer.status in ENDED:
            self._say_refused(answer.status)
        if answer.status in ENDED:
            self.questions.close(answer.status)
        if batch.events:
            self._give_up(batch)

    def _was_lost(self) -> None:
        """Go on in a new log, or in the one that another writer of the run has begun, with all that is known.

        As a new writer, since the old one's numbers may come back with an old file.
        """
        self._say_once(
            "lost", "run %s: %s lost its log; what is known of it is told again", self.keys.run, self.shown
        )
        with self.lock:
            self._number_anew()
            self._restores = True
            self._tell_again("restarted")
        self._wake(self)

    def _tell_again(self, reason: RestoreReason) -> None:
        told = self._outbox.told()
        begins = bool(told) and told[0].type == "run_started"
        state: list[tuple[str, bytes]] = []
        calls: Collection[str] = ()
        # A start opens a log by itself, and what stands before it isn't the run any more; but what was dropped behind
        # it must be told.
        if self.restate is not None and not (begins and reason == "restarted"):
            state, calls = self.restate(reason, told)
            self.restored += 1
        self._outbox.restate([Queued(type, event, restates=True) for type, event in state], calls)
        asked = [queued.event for queued in self._outbox.queued() if queued.type == "tool_interrupted"]
        if reason == "restarted":
            self.questions.asked_anew([call.key for event in asked if (call := decode(event).call)])

    def _give_up(self, batch: Batch) -> None:
        with self.lock:
            self._outbox.acknowledge()
            self.lost.update(type for type, _ in batch.events)
        self._tell_watchers()

    def _tell_watchers(self) -> None:
        with self._answered:
            if len(self._outbox):
                return
            self._answered.notify_all()
            watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            watcher()

    def _say_refused(self, status: str) -> None:
        self._say_once(
            "refused", "run %s has ended (%s): what is published after that is refused", self.keys.run, status
        )

    def _say_once(self, key: str, message: str, *values: object) -> None:
        with self.lock:
            if key in self._said:
                return
            self._said.add(key)
        _log.warning(message, *values)
