"""Once a second: where do the silent runs stand, and does anybody still hold them? (contract §3, "who owns a run")

A run that has been silent for a while is looked at, all that are due in one round trip: the loss of a last message
makes no hole that anybody could see. One that nobody holds is ended for its owner, unless it may have been Redis that
was away, or this process: neither kills a run.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import structlog
from redis.exceptions import RedisError

from gateway.fanout.history import History
from gateway.fanout.hub import Hub, Watch
from gateway.fanout.relay import Relay
from gateway.fanout.standing import Standing
from gateway.fanout.states import States
from listeners.contract.deserting import PUBLISHER_LOST, deserting
from listeners.contract.events import format_time
from listeners.contract.keys import LEASE, Keys
from listeners.contract.log import index_commands
from listeners.contract.position import ABSENT, Position

__all__ = ["Rounds", "Steadiness"]

EVERY: Final = 1.0
"""Seconds between two rounds."""
SILENCE: Final = 10.0
"""Seconds of silence after which a run is looked at."""
PAUSE: Final = 2.0
"""Seconds without an answer after which Redis, or this process, may have been away."""
AT_ONCE: Final = 500
"""Runs that one round trip asks about."""
SUSPECTS: Final = 1_000
"""Runs nobody watches here that are ended when their lease has run out."""
ENDING: Final = 16
"""Runs that are being ended at a time."""
_ENDING_TAKES: Final = 10.0

log = structlog.get_logger("toolcast.rounds")
_REDIS_TROUBLE = (RedisError, OSError, asyncio.TimeoutError)


class Steadiness:
    """For how long Redis has answered without a break (no I/O; times in seconds)."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._last = 0.0

    def answered(self, now: float) -> None:
        """Note an answer; a pause before it begins the time anew."""
        if self._since is None or now - self._last > PAUSE:
            self._since = now
        self._last = now

    def interrupted(self) -> None:
        """Note that an answer failed, or a connection was made anew."""
        self._since = None

    def seconds(self, now: float) -> float:
        """Return for how long, 0 after a break."""
        return 0.0 if self._since is None or now - self._last > PAUSE else now - self._since


@dataclass(slots=True)
class _Known:
    """What the rounds know of a watched run: where it stood and since when, when to look at it, and its lease, which is
    ``unknown`` until a look has found one."""

    place: tuple[int, int] | None
    silent_since: float
    due: float
    lease: float | None = LEASE
    unheld_since: float | None = None
    unknown: bool = True


class Rounds:
    """The rounds of one gateway; ``clock`` tells seconds since 1970, ``now`` seconds that never go back."""

    def __init__(
        self,
        *,
        hub: Hub,
        relay: Relay,
        history: History,
        states: States,
        namespace: str,
        clock: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        self._hub = hub
        self._relay = relay
        self._history = history
        self._states = states
        self._namespace = namespace
        self._clock = clock
        self._now = now
        self._known: dict[Watch, _Known] = {}
        self._suspects: dict[str, None] = {}
        self._ending: dict[str, asyncio.Task[None]] = {}
        self._steadiness = Steadiness()
        self._connections = 0

    async def run(self) -> None:
        """Make rounds until cancelled."""
        try:
            while True:
                await asyncio.sleep(EVERY)
                try:
                    await self.round()
                except _REDIS_TROUBLE:
                    self._steadiness.interrupted()
                except Exception:
                    # A mistake of ours must not leave dead runs spinning for good.
                    log.exception("a round failed")
        finally:
            for task in self._ending.values():
                task.cancel()
            await asyncio.gather(*self._ending.values(), return_exceptions=True)

    def suspect(self, run: str, standing: Standing) -> None:
        """Look after a run that nobody watches here, if its lease has run out."""
        if standing.running and standing.held == 0 and standing.logged and len(self._suspects) < SUSPECTS:
            self._suspects[run] = None

    async def round(self) -> None:
        """Look at what is due; raises what Redis raises while it is away."""
        if self._connections != self._relay.connections:
            self._connections = self._relay.connections
            self._steadiness.interrupted()
        watches = self._due()
        suspects = [run for run in self._suspects if self._hub.watch_of(run) is None]
        self._suspects = dict.fromkeys(suspects)
        runs = [*(watch.run for watch in watches), *suspects]
        standings: list[Standing] = []
        for at in range(0, max(len(runs), 1), AT_ONCE):
            async with asyncio.timeout(PAUSE):
                standings += await self._history.standings(runs[at : at + AT_ONCE])
            self._steadiness.answered(self._now())
        for watch, standing in zip(watches, standings, strict=False):
            self._judge(watch, standing)
        for run, standing in zip(suspects, standings[len(watches) :], strict=True):
            if not (standing.running and standing.held == 0 and standing.logged):
                del self._suspects[run]
            elif standing.lease is not None and self._steady_for(standing.lease):
                del self._suspects[run]
                self._end(run, None, standing)

    def _due(self) -> list[Watch]:
        now, known, due = self._now(), self._known, []
        self._known = {}
        for watch in self._hub.watches():
            if not watch.loaded or (watch.log is not None and watch.log.ended):
                continue
            place = None if watch.log is None else (watch.log.epoch, watch.log.head)
            one = known.get(watch)
            if one is None:
                one = _Known(place, now, now)
            elif one.place != place:
                # Of a log that has begun since it isn't known yet how long its owner may be silent.
                begun = one.place is None or place is None or one.place[0] != place[0]
                one.place, one.silent_since, one.unheld_since = place, now, None
                one.unknown = one.unknown or begun
                one.due = now if one.unknown else now + min(SILENCE, one.lease or SILENCE)
            self._known[watch] = one
            if one.due <= now:
                due.append(watch)
        return due

    def _judge(self, watch: Watch, standing: Standing) -> None:
        known, run_log, now = self._known[watch], watch.log, self._now()
        at = None if run_log is None else run_log.position
        if standing.head not in (None, at) or (
            run_log is not None and not standing.logged and not watch.missing
        ):
            # The place is the log's once it has caught up: until then nothing is concluded.
            self._relay.missed(watch)
        if standing.status is not None:
            known.lease, known.unknown = standing.lease, False
        if watch.missing or run_log is None:
            watch.standing = standing
            watch.brought()

        known.due = now + SILENCE
        if standing.status not in (None, "running") or (standing.status is None and run_log is None):
            known.unheld_since = None
        elif standing.held > 0:
            known.unheld_since = None
            known.due = now + min(SILENCE, standing.held)
        elif known.lease is not None:
            known.due = now
            since = known.unheld_since = known.unheld_since or now
            # Its publisher may be about to tell again what Redis has lost, with a lease that Redis has lost too.
            patience = known.lease if watch.missing or standing.status is None else 0
            caught_up = watch.missing or standing.head in (None, at)
            if caught_up and now - since >= patience and self._steady_for(known.lease):
                self._end(watch.run, watch, standing)

    def _steady_for(self, seconds: float) -> bool:
        return self._steadiness.seconds(self._now()) >= seconds

    def _end(self, run: str, watch: Watch | None, standing: Standing) -> None:
        if run in self._ending or len(self._ending) >= ENDING:
            return
        task = asyncio.create_task(self._end_now(run, watch, standing), name="toolcast ending")
        self._ending[run] = task
        task.add_done_callback(lambda _: self._ending.pop(run, None))

    async def _end_now(self, run: str, watch: Watch | None, standing: Standing) -> None:
        with suppress(*_REDIS_TROUBLE):
            async with asyncio.timeout(_ENDING_TAKES):
                # Whose meta is gone has no head for the script either.
                head = standing.head or ABSENT
                run_log = watch.log if watch is not None else None
                if run_log is not None and (head == ABSENT or (watch is not None and watch.missing)):
                    state = await self._states.known(run, run_log)
                elif head == ABSENT:
                    return
                else:
                    state = await self._states.at(run, head)
                    if Position.parse(state.position) != head:
                        return
                keys, time = Keys(run, self._namespace), self._clock()
                exchange = deserting(keys, state, head, writer=secrets.token_hex(8), time=format_time(time))
                status = await self._history.carry_out(exchange)
                if status is None:
                    return
                log.warning(
                    "a run's publisher is gone; ended for it", run=run, status=status, code=PUBLISHER_LOST
                )
                await self._history.send(index_commands(keys, status, millis=int(time * 1000)))
