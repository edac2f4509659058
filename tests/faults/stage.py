"""Where a fault is played: real servers, a load, readers, and the two ledgers."""

from __future__ import annotations

import json
import pickle
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from msgspec.structs import replace

from listeners.contract.events import CallRef, Event, decode
from listeners.contract.fold import fold, is_open, waiting
from listeners.contract.keys import Keys
from listeners.contract.log import read_entries
from listeners.contract.position import Position
from tests.faults.agents import read_diary
from tests.faults.child import Child
from tests.faults.ledger import Published, Seen, Verdict, compare, mark_of
from tests.faults.redis_server import Keeps, RedisServer
from tests.support.proxy import Proxy
from tests.support.servers import FACTORY, GatewayProcess, start_gateway, wait_until

__all__ = ["Stage"]

LOAD: Final = 1.0
"""Seconds of load before a fault, and half as many after it."""


class Stage:
    """One Redis, gateways, agents and readers, in ``folder``; what isn't there yet is started when it is needed.

    ``news`` holds what the fault may have readers told, ``may_drop`` the types that an outbox may drop silently,
    ``cut`` the writers whose last events may be missing, ``history`` by run what its final state is the fold of;
    ``also`` what somebody else publishes, by run and writer.
    ``by_hand``: the fault judges what it gets by itself, without the ledgers.
    A run that is started again is told in a ``chapter`` of its own, whose readers see nothing of the one before.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._owned = ExitStack()
        self._diaries: list[tuple[Path, str]] = []
        self.redis: RedisServer
        self.gateways: list[GatewayProcess] = []
        self.agents: list[Child] = []
        self.runs: list[str] = []
        self.readers = 0
        self.news: set[str] = set()
        self.cut: set[str] = set()
        self.may_drop: set[str] = set()
        self._until: dict[tuple[str, str], int] = {}
        self.history: dict[str, Sequence[Event]] = {}
        self.also: dict[str, dict[str, list[Event]]] = defaultdict(dict)
        self.by_hand = False
        self.complaints: list[str] = []
        self.times: list[tuple[str, list[float], list[float]]] = []
        self._seen: list[Seen] | None = None

    def __enter__(self) -> Self:
        self._sight = self._folder / "seen"
        self._reading = self._child("tests.faults.readers", str(self._sight))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._owned.close()

    @property
    def said(self) -> list[str]:
        """What the processes that were started have written, the last of it."""
        written = [
            ("readers", self._reading.said),
            *(("agents", child.said) for child in self.agents),
            *(("gateway", gateway.output) for gateway in self.gateways),
        ]
        return [f"{who}: {output[-2000:]}" for who, output in written if output]

    # -- servers ------------------------------------------------------------------------------------------------

    def start_redis(self, keeps: Keeps = "nothing", **config: str) -> RedisServer:
        """Start the Valkey that everybody uses."""
        self.redis = self.another_redis(keeps, **config)
        return self.redis

    def another_redis(self, keeps: Keeps = "nothing", **config: str) -> RedisServer:
        """Start a Valkey."""
        name = f"redis{len(list(self._folder.glob('redis*'))) + 1}"
        settings = {option.replace("_", "-"): value for option, value in config.items()}
        server = RedisServer(self._folder / name, keeps=keeps, config=settings)
        self._owned.callback(server.stop)
        server.start()
        return server

    def line(self, port: int = 0) -> Proxy:
        """Return a line to the Valkey (or to ``port``) that can be cut, held, robbed."""
        return self._owned.enter_context(Proxy(port or self.redis.port))

    def start_gateway(
        self, url: str = "", *, port: int = 0, factory: str = FACTORY, **settings: str
    ) -> GatewayProcess:
        """Start a gateway on the Valkey, or on ``url``; ``settings`` by the variables' names."""
        gateway = start_gateway(url or self.redis.url, port=port, factory=factory, env=settings)
        self._owned.callback(gateway.stop)
        self.gateways.append(gateway)
        return gateway

    def restart_gateway(self, gateway: GatewayProcess) -> GatewayProcess:
        """Start one where ``gateway``, which has ended, served."""
        self.gateways.remove(gateway)
        return self.start_gateway(port=gateway.port)

    # -- load ---------------------------------------------------------------------------------------------------

    def start_agents(
        self,
        runs: Sequence[str],
        *,
        name: str = "a",
        rate: float = 200,
        url: str = "",
        chapter: str = "",
        **options: Any,
    ) -> Child:
        """Start a process with an agent for each of ``runs``; ``rate`` is events a second of all of them, ``options``
        are the publishers'."""
        diary = self._folder / f"diary-{name}-{len(self._diaries)}"
        diary.touch()
        self._diaries.append((diary, chapter))
        options = {"redis": url or self.redis.url, "flush_timeout": 30, **options}
        settings = json.dumps({"runs": list(runs), "rate": rate, "options": options})
        child = self._child("tests.faults.agents", name, str(diary), settings)
        self.agents.append(child)
        self.runs += [run for run in runs if run not in self.runs]
        return child

    def open_readers(self, count: int, runs: Sequence[str], **how: Any) -> None:
        """Open readers, each of one of ``runs`` in turn, over all gateways; ``how``: see :class:`EventSource`."""
        ports = [gateway.port for gateway in self.gateways]
        self._reading.ask("open", count=count, runs=list(runs), ports=ports, **how)
        self.readers += count

    def under_load(
        self,
        *,
        runs: int = 4,
        readers: int = 40,
        url: str = "",
        lease: float | None = None,
        moves: tuple[int, int] | None = None,
    ) -> None:
        """Have ``runs`` runs published, 200 events a second, and read by ``readers`` that wait for them, of whom the
        last six come late, and by four more that read all of them on one connection; returns when everybody has got
        events for a while."""
        if not self.gateways:
            self.start_gateway()
        names = [f"run{number}" for number in range(1, runs + 1)]
        self.open_readers(readers - 6, names, moves=moves)
        self.open_readers(4, names, moves=moves, together=True, query="from=start")
        options: dict[str, Any] = {} if lease is None else {"lease": lease}
        self.start_agents(names, url=url, **options)
        self.flowing()
        self.open_readers(6, names, moves=moves)
        self.flowing()
        self.away(LOAD)

    def flowing(self, doing: Callable[[], object] | None = None, *, seconds: float = 30) -> None:
        """Wait until every open reader has got something more, since ``doing`` was begun, or from now on."""
        self._reading.ask("mark")
        if doing is not None:
            doing()
        wait_until("every reader to get something", lambda: self._report()["stale"] == 0, seconds=seconds)

    def mark(self) -> None:
        """Begin to measure anew."""
        self._reading.ask("mark")

    def latency(self) -> float:
        """Seconds that 99 of 100 numbers took from publishing to reading since the :meth:`mark`."""
        seconds: float = self._reading.ask("latency", seconds=60)
        return seconds

    def until_open(self, count: int, *, seconds: float = 30) -> None:
        """Wait until so many streams are open."""
        wait_until(f"{count} open streams", lambda: self._report()["connected"] >= count, seconds=seconds)

    def resume_stalled(self) -> None:
        """Have who took nothing take again."""
        self._reading.ask("resume")

    def away(self, seconds: float) -> None:
        """Let time pass while something is broken."""
        time.sleep(seconds)

    def calm(self, *, seconds: float = 60) -> dict[str, Any]:
        """End the runs, and wait until every reader was told that nothing follows; returns the publishers' stats."""
        self.away(LOAD / 2)
        stats: dict[str, Any] = {}
        # Whoever has joined a run leaves it before it ends.
        for child in reversed(self.agents):
            if child.returncode is None:
                stats |= child.ask("end", seconds=seconds)
        self.until_all_ended(seconds=seconds)
        return stats

    def until_all_ended(self, *, seconds: float = 60) -> None:
        """Wait until every reader was told that nothing follows; a complaint if that takes longer."""
        self.wait_for("every reader to be told the end", lambda: not self._report()["open"], seconds=seconds)

    def wait_for(self, what: str, condition: Callable[[], object], *, seconds: float) -> None:
        """Wait for something that must happen in time, and complain if it doesn't."""
        try:
            wait_until(what, condition, seconds=seconds)
        except AssertionError as error:
            self.complain(str(error))

    # -- ledgers ------------------------------------------------------------------------------------------------

    def complain(self, text: str) -> None:
        """Note a broken promise that no ledger shows."""
        self.complaints.append(text)

    def told(self, run: str, writer: str) -> list[Event]:
        """Return what ``writer`` has published of ``run``."""
        return self._told()[run].get(writer, [])

    def deserted(self, run: str, writer: str, *, arrived: int | None = None) -> int:
        """Expect that ``run``, whose ``writer`` is gone, was ended in its place; returns how much of the writer's
        Redis has got, unless it is known: the rest was in the outbox, and nothing can know of it."""
        told = self.told(run, writer)
        # Whatever it tells from now on must not be seen by anybody.
        self._until[run, writer] = len(told)
        log = [decode(entry.event) for entry in read_entries(self.redis.client.xrange(Keys(run).log))]
        marks = {mark_of(event) for event in told}
        if arrived is None:
            arrived = sum(mark_of(event) in marks for event in log)
        state = waiting(run)
        for seq, event in enumerate(told[:arrived], 1):
            state = fold(state, Position(1, seq), event)
        # In whose words a call was given up is its teller's to choose.
        words = {mark_of(event): event.data.get("message", "") for event in log}
        ending = []
        for call in state.calls:
            if is_open(call):
                ref = CallRef(key=call.key, name=call.name, title=call.title, attempt=call.attempt)
                failed = Event(type="tool_execution_failed", run=run, time="", call=ref)
                data = {"message": words.get(mark_of(failed), ""), "reason": "cancelled"}
                ending.append(replace(failed, data=data))
        ending.append(
            Event(type="run_failed", run=run, time="", data={"code": "publisher_lost", "message": ""})
        )
        self.also[run]["who found it deserted"] = ending
        self.cut.add(writer)
        self.history[run] = [*told[:arrived], *ending]
        return arrived

    def has_ended(self, run: str) -> bool:
        """Tell whether Redis has the end of ``run``."""
        return bool(self.redis.client.hget(Keys(run).meta, "ended"))

    def _told(self) -> dict[str, dict[str, list[Event]]]:
        runs: dict[str, dict[str, list[Event]]] = {}
        for diary, chapter in self._diaries:
            for writer, event in read_diary(diary):
                runs.setdefault(event.run + chapter, {}).setdefault(writer, []).append(event)
        return runs

    def published(self) -> list[Published]:
        """Return what the agents took, and what else was to be published."""
        return [
            Published(
                run=run,
                writers={
                    **{name: events[: self._until.get((run, name))] for name, events in writers.items()},
                    **self.also[run],
                },
                cut=self.cut,
                history=self.history.get(run),
            )
            for run, writers in self._told().items()
        ]

    def seen(self) -> list[Seen]:
        """Have the readers stop, and return what they saw; ``times`` then holds when they came and went."""
        if self._seen is None:
            self._reading.ask("finish", seconds=60)
            self._seen, self.times = pickle.loads(self._sight.read_bytes())
        return self._seen

    def verdict(self) -> Verdict:
        """Compare the ledgers."""
        verdict = Verdict() if self.by_hand else self._compared()
        verdict.complaints += self.complaints
        verdict.complaints += [said for said in self.said if "Traceback" in said]
        return verdict

    def _compared(self) -> Verdict:
        return compare(self.published(), self.seen(), news=self.news, may_drop=self.may_drop)

    # -- helpers ------------------------------------------------------------------------------------------------

    def _child(self, module: str, *arguments: str) -> Child:
        child = Child(module, *arguments)
        self._owned.callback(_end, child)
        return child

    def _report(self) -> dict[str, int]:
        report: dict[str, int] = self._reading.ask("report")
        return report


def _end(child: Child) -> None:
    # One that was stopped hears no other signal.
    if child.returncode is None:
        child.signal(signal.SIGKILL)
    child.stop()
