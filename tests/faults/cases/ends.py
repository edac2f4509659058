"""What a reader gets that comes late, with a strange position, or when the last message got lost."""

from __future__ import annotations

import asyncio
import json
import signal
import time

from listeners.contract.checkpoint import checkpointing
from listeners.contract.events import decode
from listeners.contract.exchange import carry_out
from listeners.contract.fold import RunState, fold, waiting
from listeners.contract.keys import Keys
from listeners.contract.log import Limits, read_entries
from listeners.contract.position import ABSENT, Position
from tests.faults.child import Child
from tests.faults.faults import fault
from tests.faults.ledger import essence
from tests.faults.stage import Stage
from tests.support.reader import Received, read_stream

AT_ONCE = 1.0
"""Seconds in which a run that has ended ends for whoever joins it."""
SILENT_RUN = 11.0
"""Seconds after which an event is there whose message was lost."""


def publish_steps(agents: Child, count: int) -> None:
    """Publish as fast as an outbox takes it."""
    for at in range(0, count, 5_000):
        agents.ask("steps", count=min(5_000, count - at))
        agents.ask("flush", within=30)


def ended_run(stage: Stage, run: str, steps: int) -> None:
    """Have ``run`` published to its end."""
    agents = stage.start_agents([run], rate=0)
    publish_steps(agents, steps)
    agents.ask("end")


def join_at_once(stage: Stage, runs: list[str], readers: int, **how: str) -> None:
    """Open readers of runs that have ended; all of them end at once."""
    stage.open_readers(readers, runs, **how)
    begun = time.monotonic()
    stage.until_all_ended(seconds=20)
    if (took := time.monotonic() - begun) > AT_ONCE:
        stage.complain(f"the end took {took:.1f} s")


@fault("a finished run is joined later")
def finished_run_joined(stage: Stage, _: float) -> None:
    stage.start_redis()
    stage.start_gateway()
    ended_run(stage, "run1", 500)
    join_at_once(stage, ["run1"], 20)


@fault("the message of a run's end gets lost; others join it then")
def end_unheard(stage: Stage, _: float) -> None:
    stage.start_redis()
    line = stage.line()
    stage.start_gateway(line.url)
    stage.open_readers(5, ["run1"])
    agents = stage.start_agents(["run1"], rate=50)
    stage.flowing()
    # So that all that is lost is the end.
    agents.ask("rate", per_second=0)
    agents.ask("flush", within=10)
    stage.away(0.5)
    line.lose(forward=False)
    agents.ask("end")
    line.resume()
    begun = time.monotonic()
    join_at_once(stage, ["run1"], 10)
    if (took := max(one.last_at for one in stage.seen()) - begun) > SILENT_RUN:
        stage.complain(f"who was there already was told the end after {took:.1f} s")


@fault("the last message before a silence gets lost")
def last_message_lost(stage: Stage, _: float) -> None:
    stage.start_redis()
    line = stage.line()
    stage.start_gateway(line.url)
    stage.open_readers(10, ["run1"])
    agents = stage.start_agents(["run1"], rate=50)
    stage.flowing()
    agents.ask("rate", per_second=0)
    agents.ask("flush", within=10)
    stage.away(0.5)

    def lose_one() -> None:
        line.lose(forward=False)
        agents.ask("burst", count=1)
        agents.ask("flush", within=10)
        line.resume()

    stage.flowing(lose_one, seconds=SILENT_RUN)
    stage.calm()


@fault("a finished run is trimmed to its last entries", printed=(100,), short=(100,), unit="entries")
def log_trimmed(stage: Stage, entries: float) -> None:
    stage.news.add("trimmed")
    stage.start_redis()
    stage.start_gateway()
    ended_run(stage, "run1", 1_000)
    limits = Limits(max_entries=int(entries))
    carry_out(checkpointing(Keys("run1"), limits), stage.redis.client.execute_command)
    left = stage.redis.client.xlen(Keys("run1").log)
    # A little more than must be goes at once.
    if not 0.8 * entries <= left <= entries:
        stage.complain(f"the log holds {left} entries")
    join_at_once(stage, ["run1"], 20)


@fault("a long run that nobody has ever watched", printed=(30_000,), short=(12_000,), unit="entries")
def long_run_unwatched(stage: Stage, entries: float) -> None:
    stage.news |= {"join", "trimmed"}
    stage.start_redis()
    stage.start_gateway()
    ended_run(stage, "run1", int(entries))
    if (left := stage.redis.client.xlen(Keys("run1").log)) > 11_000:
        stage.complain(f"the log holds {left} entries: nobody trims it")
    join_at_once(stage, ["run1"], 4, query="from=snapshot")
    join_at_once(stage, ["run1"], 4)


# --- Positions ---


class Positions:
    """One run, and what each position gets from one gateway."""

    def __init__(self, stage: Stage, run: str) -> None:
        self._stage = stage
        self._run = run
        log = read_entries(stage.redis.client.xrange(Keys(run).log))
        self.first, self.head = log[0].position, log[-1].position
        self._state = waiting(run)
        for entry in log:
            self._state = fold(self._state, entry.position, decode(entry.event))

    def ask(self, position: str) -> Received:
        """Come with ``position`` and read to the end."""
        path, headers = f"/runs/{self._run}/events", {"Last-Event-ID": position}
        return asyncio.run(read_stream(self._stage.gateways[0].port, path, headers=headers, timeout=15))

    def expect_snapshot(self, what: str, position: str, *reasons: str) -> None:
        """Expect a snapshot for one of ``reasons``, and the end."""
        got = self.ask(position)
        reason = got.events[0]["data"].get("reason") if got.events else None
        if got.types[:1] != ["snapshot"] or reason not in reasons:
            self._complain(what, f"{got.status} and {got.types[:3]}, {reason}")
        elif not got.clean or got.ids[-1] != str(self.head):
            self._complain(what, f"an end at {got.ids[-1]}, {'clean' if got.clean else 'cut'}")
        elif essence(_folded(self._run, got)) != essence(self._state):
            self._complain(what, "another final state")

    def expect_rest(self, what: str, position: Position) -> None:
        """Expect exactly what follows."""
        got = self.ask(str(position))
        if not got.clean or got.seqs != list(range(position.seq + 1, self.head.seq + 1)):
            self._complain(what, f"{got.status}, {got.types[:3]} at {got.ids[:1]} to {got.ids[-1:]}")

    def expect_nothing(self, what: str, position: str) -> None:
        """Expect 204."""
        if (status := self.ask(position).status) != 204:
            self._complain(what, f"{status}, not 204")

    def _complain(self, what: str, got: str) -> None:
        self._stage.complain(f"{what} got {got}")


def _folded(run: str, got: Received) -> RunState:
    state = waiting(run)
    for id, data in zip(got.ids, got.events, strict=True):
        position = Position.parse(id)
        state = fold(state, position or ABSENT, decode(json.dumps(data)))
    return state


@fault("readers come with positions of every kind")
def strange_positions(stage: Stage, _: float) -> None:
    stage.news |= {"trimmed"}
    stage.start_redis()
    stage.start_gateway()
    ended_run(stage, "run1", 1_000)
    whole = Positions(stage, "run1")
    epoch, last = whole.head
    whole.expect_rest("a retained position", Position(epoch, last - 20))
    whole.expect_nothing("the position of the end", str(whole.head))
    whole.expect_snapshot("a position nobody knows", "5-5", "restarted")
    whole.expect_snapshot("a foreign epoch", f"{epoch + 1}-3", "restarted")
    whole.expect_snapshot(
        "a position in the future of a run that has ended", f"{epoch}-{last + 50}", "restarted"
    )
    for garbage in ("garbage", "12", "-1-1", "1-1-1", "x" * 10_000, "9" * 30 + "-1"):
        whole.expect_snapshot(f"garbage ({garbage[:10]})", garbage, "join", "restarted", "trimmed")
    carry_out(checkpointing(Keys("run1"), Limits(max_entries=100)), stage.redis.client.execute_command)
    # Another gateway, which has nothing in memory.
    stage.gateways[0].stop()
    stage.restart_gateway(stage.gateways[0])
    whole.expect_snapshot("an ancient position", f"{epoch}-5", "trimmed")
    whole.expect_rest("a retained position of a trimmed log", Position(epoch, last - 20))
    join_at_once(stage, ["run1"], 5)


@fault("a position in the future of a run that goes on")
def future_position(stage: Stage, _: float) -> None:
    stage.start_redis()
    stage.start_gateway()
    stage.open_readers(5, ["run1"])
    agents = stage.start_agents(["run1"], rate=0)
    agents.ask("burst", count=30)
    agents.ask("flush", within=10)
    now = Positions(stage, "run1")
    ahead = Position(now.head.epoch, now.head.seq + 50)
    path, headers = "/runs/run1/events", {"Last-Event-ID": str(ahead)}

    async def read() -> Received:
        opened = asyncio.Event()
        reading = asyncio.create_task(
            read_stream(stage.gateways[0].port, path, headers=headers, opened=opened, timeout=20)
        )
        await opened.wait()
        await asyncio.to_thread(agents.ask, "burst", count=100)
        await asyncio.to_thread(agents.ask, "end")
        return await reading

    got = asyncio.run(read())
    end = Positions(stage, "run1").head
    if not got.clean or got.seqs != list(range(ahead.seq + 1, end.seq + 1)):
        stage.complain(f"got {got.types[:3]} at {got.ids[:1]} to {got.ids[-1:]}, not what follows {ahead}")
    stage.until_all_ended()


def expect_expired(stage: Stage, run: str, position: str, *, status: str, code: str | None) -> None:
    """Come with ``position``; one snapshot says what became of the run, and a reconnect is told that it was all."""
    port, path = stage.gateways[0].port, f"/runs/{run}/events"
    headers = {"Last-Event-ID": position} if position else {}
    got = asyncio.run(read_stream(port, path, headers=headers, timeout=60))
    data = got.events[0]["data"] if got.events else {}
    error = (data.get("error") or {}).get("code")
    said = (got.clean, got.ids, data.get("reason"), data.get("status"), data.get("calls"), error)
    if said != (True, ["0-0"], "expired", status, [], code):
        stage.complain(f"{run} from {position or 'its start'} got {got.status} and {said}")
    again = asyncio.run(read_stream(port, path, headers={"Last-Event-ID": "0-0"}, timeout=15))
    if again.status != 204:
        stage.complain(f"{run} from 0-0 got {again.status}, not 204")


@fault("logs have expired, and their runs are known by their stubs alone")
def logs_expired(stage: Stage, _: float) -> None:
    stage.by_hand = True
    stage.start_redis()
    stage.start_gateway()
    ended_run(stage, "done", 50)
    agents = stage.start_agents(["open"], rate=0)
    agents.ask("steps", count=55)
    agents.ask("flush", within=10)
    agents.signal(signal.SIGKILL)
    agents.wait()
    heads = {run: str(Positions(stage, run).head) for run in ("done", "open")}
    stage.redis.client.delete(
        *(key for run in heads for key in (Keys(run).log, Keys(run).checkpoint, Keys(run).lease))
    )
    for run, status, code in (("done", "completed", None), ("open", "failed", "log_expired")):
        for position in ("", heads[run], "garbage"):
            begun = time.monotonic()
            expect_expired(stage, run, position, status=status, code=code)
            if (took := time.monotonic() - begun) > AT_ONCE:
                stage.complain(f"{run} from {position or 'its start'} took {took:.1f} s")


@fault("neither log nor stub is left when a reader comes back", printed=(30,), short=(), unit="s lease")
def run_gone(stage: Stage, lease: float) -> None:
    """Its publisher might restore it, so that the reader waits; nobody knows how long its lease was."""
    stage.by_hand = True
    stage.start_redis()
    stage.start_gateway()
    begun = time.monotonic()
    expect_expired(stage, "run1", "1758000000000-7", status="failed", code="log_expired")
    if not lease - 1 < (took := time.monotonic() - begun) < lease + 10:
        stage.complain(f"the answer took {took:.1f} s")


@fault("Redis loses everything, and the agent is dead", printed=(3, 15), short=(3,), unit="s lease")
def everything_gone(stage: Stage, lease: float) -> None:
    """What the gateway has served is all that is left: it tells it, and ends the run."""
    stage.news |= {"run_restored", "restarted"}
    stage.start_redis()
    stage.under_load(lease=lease)
    agents = stage.agents[0]
    agents.ask("rate", per_second=0)
    stage.flowing(lambda: agents.ask("steps", count=3))
    agents.ask("flush", within=10)
    agents.signal(signal.SIGKILL)
    agents.wait()
    stage.redis.client.flushall()
    stage.until_all_ended(seconds=lease + 20)
    for run in stage.runs:
        stage.deserted(run, "a", arrived=len(stage.told(run, "a")))
