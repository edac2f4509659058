"""A publisher in a process of its own: ``python -m benchmarks.publish TARGET --runs a,b --events N --rate R``.

``TARGET`` is ``redis://host:port``, which is appended to through the script of the contract, or ``http://host:port``,
an nchan to POST to. Both get the same events, each stamped with ``"ts"`` (nanoseconds since 1970) when it leaves.
The process prints ``ready``, waits for a line, publishes, and prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import sys
import time
from collections.abc import Sequence
from itertools import cycle, islice
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from redis import Redis

from listeners.contract.events import CallRef, Event, encode, format_time
from listeners.contract.keys import Keys
from listeners.contract.log import Appended, Batch, Limits, append_script, read_append_reply

EVENT_TYPE: Final = "tool_progress"
_ANSWER: Final = re.compile(rb"\r\n\r\n.*last message id: \d+:\d+$", re.DOTALL)
"""The end of what nchan answers to a publisher."""


class Target(Protocol):
    """Something to publish to."""

    def one(self, run: str, event: bytes) -> None:
        """Publish one event."""

    def burst(self, events: Sequence[tuple[str, bytes]]) -> None:
        """Publish (run, event) pairs as fast as the target takes them."""

    def settle(self) -> None:
        """Wait until everything is taken; raises ``RuntimeError`` for what is not."""


class Log:
    """Runs in Redis. They begin with ``run_started``, which carries no stamp and is therefore not counted."""

    def __init__(self, url: str, runs: Sequence[str]) -> None:
        self._redis = Redis.from_url(url)
        self._script = self._redis.register_script(append_script())
        self._limits = Limits(keep_open=600)
        self._epochs: dict[str, int | None] = dict.fromkeys(runs)
        self._next = dict.fromkeys(runs, 1)
        for run in runs:
            started = Event(type="run_started", run=run, time=format_time(time.time()))
            self._read(run, self._append(run, [("run_started", encode(started))]))

    def one(self, run: str, event: bytes) -> None:
        self._read(run, self._append(run, [(EVENT_TYPE, event)]))

    def burst(self, events: Sequence[tuple[str, bytes]]) -> None:
        batches = _by_run(events)
        with self._redis.pipeline(transaction=False) as pipeline:
            for run, batch in batches.items():
                self._append(run, [(EVENT_TYPE, event) for event in batch], pipeline)
            for run, reply in zip(batches, pipeline.execute(), strict=True):
                self._read(run, reply)

    def settle(self) -> None:
        """Every append has been answered already."""

    def _append(self, run: str, events: list[tuple[str, bytes]], client: Redis | None = None) -> Any:
        batch = Batch(
            keys=Keys(run),
            writer="benchmark",
            first=self._next[run],
            epoch=self._epochs[run],
            events=tuple(events),
        )
        self._next[run] += len(events)
        return self._script(
            keys=batch.script_keys(), args=batch.script_arguments(self._limits), client=client
        )

    def _read(self, run: str, reply: Any) -> None:
        answer = read_append_reply(reply)
        if not isinstance(answer, Appended):
            raise RuntimeError(f"the log of {run} took nothing: {answer}")
        self._epochs[run] = answer.epoch


class Nchan:
    """Channels of an nchan: one request an event, on a connection kept open for each run.

    A connection has one request under way, as HTTP clients have; all connections together keep nchan at work.
    """

    def __init__(self, url: str, runs: Sequence[str]) -> None:
        parts = urlsplit(url)
        self._sockets = {run: socket.create_connection((parts.hostname, parts.port), 30) for run in runs}
        self._under_way: set[str] = set()

    def one(self, run: str, event: bytes) -> None:
        self._finish(run)
        request = (
            f"POST /pub/{run} HTTP/1.1\r\nHost: localhost\r\nX-EventSource-Event: {EVENT_TYPE}\r\n"
            f"Content-Length: {len(event)}\r\n\r\n"
        )
        self._sockets[run].sendall(request.encode() + event)
        self._under_way.add(run)

    def burst(self, events: Sequence[tuple[str, bytes]]) -> None:
        for run, event in events:
            self.one(run, event)

    def settle(self) -> None:
        for run in self._sockets:
            self._finish(run)

    def _finish(self, run: str) -> None:
        if run not in self._under_way:
            return
        answer = b""
        while not _ANSWER.search(answer):
            got = self._sockets[run].recv(65_536)
            answer += got
            if not got or not answer.startswith(b"HTTP/1.1 20"):
                raise RuntimeError(f"nchan took nothing more: {answer[:300]!r}")
        self._under_way.remove(run)


def _by_run(events: Sequence[tuple[str, bytes]]) -> dict[str, list[bytes]]:
    runs: dict[str, list[bytes]] = {}
    for run, event in events:
        runs.setdefault(run, []).append(event)
    return runs


def event_of(run: str, number: int) -> bytes:
    """About 300 bytes of JSON: a step of a tool call, stamped now."""
    call = CallRef(key="call_1", id="call_1", name="web_search", title="Searching the web…", attempt=1)
    data = {"progress": number, "message": "reading page 3 of 10", "ts": time.time_ns()}
    return encode(Event(type=EVENT_TYPE, run=run, time=format_time(time.time()), call=call, data=data))


def publish(target: Target, runs: Sequence[str], *, events: int, rate: float) -> dict[str, float]:
    """Publish ``events`` over ``runs`` in turn, ``rate`` a second, or all at once if it is 0.

    Returns how long it took and how late the last event left, in seconds.
    """
    start = time.monotonic()
    if not rate:
        target.burst([(run, event_of(run, i)) for i, run in enumerate(islice(cycle(runs), events))])
        target.settle()
        return {"took_s": time.monotonic() - start, "late_s": 0.0}
    for i, run in enumerate(islice(cycle(runs), events)):
        if (left := start + i / rate - time.monotonic()) > 0:
            time.sleep(left)
        target.one(run, event_of(run, i))
    target.settle()
    took = time.monotonic() - start
    return {"took_s": took, "late_s": max(0.0, took - events / rate)}


def main() -> None:
    """Prepare, wait for a line on stdin, publish."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target")
    parser.add_argument("--runs", required=True, help="run ids, separated by commas")
    parser.add_argument("--events", type=int, required=True)
    parser.add_argument("--rate", type=float, default=0.0, help="events a second; 0: all at once")
    given = parser.parse_args()
    runs = given.runs.split(",")
    target: Target = (Nchan if given.target.startswith("http:") else Log)(given.target, runs)
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(publish(target, runs, events=given.events, rate=given.rate)), flush=True)


if __name__ == "__main__":
    main()
