"""One thread per process and Redis server that sends what the publishers have queued: round-robin, one batch each."""

from __future__ import annotations

import codecs
import logging
import queue
import random
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final

import redis
from redis.exceptions import NoScriptError, RedisError, ResponseError

from listeners.contract.checkpoint import checkpointing
from listeners.contract.exchange import Command, carry_out
from listeners.contract.keys import Keys
from listeners.contract.log import Appended, Batch, Limits, append_script, index_commands, read_append_reply
from listeners.publishing.server import Server
from listeners.publishing.way_back import WayBack
from listeners.publishing.writer import Writer

__all__ = ["Flusher", "pause_after"]

LONGEST_PAUSE: Final = 2.0
"""Seconds between two attempts to reach Redis at most: a third of a lease must not pass unused (contract §3)."""
MOST_LEFT: Final = 1_000
"""Runs whose publishers have stopped waiting, but whose events are kept while Redis is away."""
MOST_LEFT_BYTES: Final = 64 * 1024 * 1024
"""Bytes of JSON that all of these hold together."""
_FIRST_PAUSE: Final = 0.05
_ROUND_RUNS: Final = 64
_ROUND_BYTES: Final = 4 * 1024 * 1024
_OUTAGE_WORTH_SAYING: Final = 10.0

# Answers that say how the server is, not what it was sent: the same batch may do in a moment.
_PASSING: Final = (
    "BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOAUTH", "NOPERM", "NOREPLICAS", "OOM", "READONLY",
    "TRYAGAIN", "UNKILLABLE", "WRONGPASS",
)  # fmt: skip

# Who has something to send; ``None``: somebody has asked for something.
_Ready = queue.SimpleQueue[Writer | None]

_log = logging.getLogger("listeners")


def pause_after(failures: int) -> float:
    """Return the seconds to wait after so many attempts that failed (1, 2, 3 …): growing, jittered, bounded."""
    longest: float = min(LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(failures, 10))
    return longest * random.uniform(0.5, 1)


class Flusher:
    """The thread and the connection that the publishers of one process share for one Redis server.

    The thread starts with the first event. It never ends on an error: it reconnects, with pauses that grow, jittered,
    up to two seconds, and sends the very batch again that was not answered.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        # A child that is forked in the middle of an import waits for it for ever. So what the thread would import
        # for its first connection is loaded here: by reading the script, by redis-py, by looking a host up.
        self._script = append_script()
        server.connect().connection_pool.make_connection()
        codecs.lookup("idna")
        self._writers: weakref.WeakSet[Writer] = weakref.WeakSet()
        self._begin()

    def _begin(self) -> None:
        self.lock = threading.Lock()
        self._starting = threading.RLock()
        # Its `put` may be interrupted by another `put` of the same thread: a signal handler may publish.
        self._ready: _Ready = queue.SimpleQueue()
        self._way_back = WayBack()
        self._checkpoints: dict[Writer, None] = {}
        self._thread: threading.Thread | None = None
        self._client: redis.Redis | None = None
        self._sha = ""
        self._failures = 0
        self._down_since: float | None = None
        self._said_down = False
        self._said_given_up = False
        self.last_error: str | None = None

    def after_fork(self) -> None:
        """Begin anew in a forked child: no thread came along, and the connection is the parent's."""
        # Writers' locks may have been held by threads that don't exist here.
        writers = list(self._writers)
        self._begin()
        for writer in writers:
            writer.after_fork()

    @property
    def shown(self) -> str:
        """The server's address, without a password."""
        return self._server.shown

    def writer(self, keys: Keys, limits: Limits, *, patience: float, joined: bool = False) -> Writer:
        """Return a new writer whose events this flusher sends; ``patience``: seconds a process waits for them to be
        answered before it exits; ``joined``: it leaves the run's turns to its owner."""
        writer = Writer(
            keys,
            limits,
            shown=self.shown,
            patience=patience,
            wake=self._wake,
            ask=self.ask,
            joined=joined,
        )
        with self.lock:
            self._writers.add(writer)
        return writer

    def writers(self) -> list[Writer]:
        """Return all writers that still exist."""
        with self.lock:
            return list(self._writers)

    def ask(self, command: Command) -> Future[Any]:
        """Send one command between the batches, and return its reply to be; it waits while Redis is away."""
        future = self._way_back.ask(command)
        self._ready.put(None)
        self._start()
        return future

    def _wake(self, writer: Writer) -> None:
        # Whoever finds the flag set comes before the flusher clears it, and is in what it cuts after that.
        if not writer.ready:
            writer.ready = True
            self._ready.put(writer)
        self._start()

    def _start(self) -> None:
        if self._thread is not None:
            return
        with self._starting:
            if self._thread is None:
                thread = threading.Thread(
                    target=self._run, args=(self._ready,), name="toolcast-flusher", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError:
                    # The interpreter is on its way out; what waits is counted as lost there.
                    return
                self._thread = thread

    def _run(self, ready: _Ready) -> None:
        # In the order of their turns: who was served goes to the end.
        turns: dict[Writer, None] = {}
        while True:
            self._collect(ready, turns)
            try:
                # Leases first: a run that is held must not end because others have much to say.
                if self._way_back.round(self._connected, lambda: self._sha):
                    self._reachable()
                self._round(turns)
                self._store_checkpoint()
            except Exception as error:
                # Nothing that goes wrong here may end the thread; all batches are still there.
                if not isinstance(error, RedisError | OSError):
                    _log.exception("publishing to %s failed", self.shown)
                self._unreachable(error)
                self._give_up_oldest(turns)
                for writer in turns:
                    writer.last_error = self.last_error
                self._pause(ready, turns)

    def _collect(self, ready: _Ready, turns: dict[Writer, None]) -> None:
        """Move who is ready into ``turns``; wait for somebody if nothing is due."""
        while True:
            wait = 0.0 if turns or self._checkpoints else self._way_back.seconds_left()
            try:
                writer = ready.get(block=wait != 0.0, timeout=wait)
            except queue.Empty:
                return
            self._take_up(writer, turns)

    def _pause(self, ready: _Ready, turns: dict[Writer, None]) -> None:
        until = time.monotonic() + pause_after(self._failures)
        while (left := until - time.monotonic()) > 0:
            try:
                writer = ready.get(timeout=left)
            except queue.Empty:
                return
            self._take_up(writer, turns)

    def _take_up(self, writer: Writer | None, turns: dict[Writer, None]) -> None:
        if writer is not None:
            writer.ready = False
            turns[writer] = None

    def _round(self, turns: dict[Writer, None]) -> None:
        """Send one batch of each run whose turn it is, in one round trip."""
        batches: list[tuple[Writer, Batch]] = []
        size = 0
        for writer in list(turns):
            batch = writer.cut()
            if batch is None:
                del turns[writer]
                self._way_back.watch(writer)
                continue
            batches.append((writer, batch))
            size += sum(len(event) for _, event in batch.events)
            if len(batches) == _ROUND_RUNS or size > _ROUND_BYTES:
                break
        if not batches:
            return
        client = self._connected()
        replies = self._send(client, batches)
        self._reachable()
        # Before anybody hears that all is sent: a process may end the moment it does.
        self._tell_index(client, batches, replies)
        passing: ResponseError | None = None
        for (writer, batch), reply in zip(batches, replies, strict=True):
            del turns[writer]
            turns[writer] = None
            if not isinstance(reply, Exception):
                writer.answered(batch, read_append_reply(reply))
                self._way_back.watch(writer)
                if writer.checkpoint_due:
                    self._checkpoints[writer] = None
            elif isinstance(reply, ResponseError) and not str(reply).startswith(_PASSING):
                writer.refused_by_server(batch, reply)
            else:
                passing = ResponseError(str(reply))
        if passing is not None:
            raise passing

    def _store_checkpoint(self) -> None:
        """Fold one run's log and trim what is behind, if that is due; if it fails, who appends next is told again."""
        if not self._checkpoints:
            return
        writer = next(iter(self._checkpoints))
        del self._checkpoints[writer]
        writer.checkpoint_due = False
        with suppress(ResponseError):
            carry_out(checkpointing(writer.keys, writer.limits), self._connected().execute_command)

    def _connected(self) -> redis.Redis:
        if self._client is None:
            client = self._server.connect()
            self._sha = str(client.script_load(self._script))
            self._client = client
        return self._client

    def _send(self, client: redis.Redis, batches: list[tuple[Writer, Batch]]) -> list[Any]:
        replies = self._evaluate(client, batches)
        if any(isinstance(reply, NoScriptError) for reply in replies):
            # Redis was restarted or its scripts were flushed. A batch that was taken before is a repeat now.
            self._sha = str(client.script_load(self._script))
            replies = self._evaluate(client, batches)
        return replies

    def _evaluate(self, client: redis.Redis, batches: list[tuple[Writer, Batch]]) -> list[Any]:
        with client.pipeline(transaction=False) as pipeline:
            for writer, batch in batches:
                keys = batch.script_keys()
                pipeline.evalsha(self._sha, len(keys), *keys, *batch.script_arguments(writer.limits))
            return pipeline.execute(raise_on_error=False)

    def _tell_index(
        self, client: redis.Redis, batches: list[tuple[Writer, Batch]], replies: list[Any]
    ) -> None:
        """Note in the index of runs whose status changed: best effort, the log is what counts."""
        millis = int(time.time() * 1000)
        commands: list[tuple[str | int, ...]] = []
        for (writer, _), reply in zip(batches, replies, strict=True):
            if not isinstance(reply, Exception):
                answer = read_append_reply(reply)
                if isinstance(answer, Appended) and answer.status_changed:
                    commands += index_commands(writer.keys, answer.status, millis=millis)
        if commands:
            with client.pipeline(transaction=False) as pipeline:
                # redis-py leaves this one method untyped.
                queue_up: Callable[..., Any] = pipeline.execute_command
                for command in commands:
                    queue_up(*command)
                # What was appended must not be sent again because the index couldn't be told.
                with suppress(RedisError, OSError):
                    pipeline.execute(raise_on_error=False)

    def _unreachable(self, error: Exception) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.connection_pool.disconnect()
        self._failures += 1
        self.last_error = str(error) or type(error).__name__
        now = time.monotonic()
        if self._down_since is None:
            self._down_since = now
        elif not self._said_down and now - self._down_since > _OUTAGE_WORTH_SAYING:
            self._said_down = True
            _log.warning(
                "%s can't be reached (%s): events wait, bounded, and are sent when it is back",
                self.shown,
                self.last_error,
            )

    def _give_up_oldest(self, turns: dict[Writer, None]) -> None:
        """Bound what a server that begins many runs keeps of them during an outage."""
        count = size = 0
        for writer in reversed([writer for writer in turns if not writer.patience]):
            count, size = count + 1, size + writer.size
            if count > MOST_LEFT or size > MOST_LEFT_BYTES:
                del turns[writer]
                writer.abandon()
                if not self._said_given_up:
                    self._said_given_up = True
                    _log.warning(
                        "%s can't be reached (%s), and more wait than can be kept: the oldest runs are given up, "
                        "run %s first",
                        self.shown,
                        self.last_error,
                        writer.keys.run,
                    )

    def _reachable(self) -> None:
        self._said_given_up = False
        self._failures = 0
        self._down_since = None
        if self._said_down:
            self._said_down = False
            _log.warning("%s is back", self.shown)
