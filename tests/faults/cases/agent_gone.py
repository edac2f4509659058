"""An agent dies, stands still, is taken over, or leaves its run to another process (lease and owner)."""

from __future__ import annotations

import signal
import time
from functools import partial

from tests.faults.faults import fault
from tests.faults.stage import Stage

LEASES = (3, 30)


def check_in_time(stage: Stage, since: float, lease: float) -> None:
    """Whoever reads is told within the lease and five seconds."""
    late = [one for one in stage.seen() if one.last_at - since > lease + 5]
    if late:
        worst = max(one.last_at - since for one in late)
        stage.complain(f"{len(late)} readers were told after {worst:.1f} s, more than the lease and 5 s")


@fault("an agent is killed; three gateways watch", printed=LEASES, short=(3,), unit="s lease")
def agent_killed(stage: Stage, lease: float) -> None:
    stage.start_redis()
    for _ in range(3):
        stage.start_gateway()
    stage.under_load(lease=lease)
    stage.agents[0].signal(signal.SIGKILL)
    died = time.monotonic()
    stage.until_all_ended(seconds=lease + 15)
    for run in stage.runs:
        stage.deserted(run, "a")
    check_in_time(stage, died, lease)


@fault("an agent stands still for less than its lease", printed=LEASES, short=(3,), unit="s lease")
def agent_paused_briefly(stage: Stage, lease: float) -> None:
    stage.start_redis()
    stage.under_load(lease=lease)
    agents = stage.agents[0]
    agents.signal(signal.SIGSTOP)
    # It was renewed a third of the lease ago at most.
    stage.away(lease / 2)
    agents.signal(signal.SIGCONT)
    stage.flowing()
    stage.away(lease)
    stage.calm()


@fault("an agent stands still for longer than its lease", printed=LEASES, short=(3,), unit="s lease")
def agent_paused_too_long(stage: Stage, lease: float) -> None:
    stage.start_redis()
    stage.under_load(lease=lease)
    agents = stage.agents[0]
    agents.signal(signal.SIGSTOP)
    stage.until_all_ended(seconds=lease + 15)
    for run in stage.runs:
        stage.deserted(run, "a")
    # Half of the runs are started again by another process, which the late batches must not disturb.
    again = stage.runs[::2]
    others = stage.start_agents(again, name="b", chapter="again", lease=lease)
    stage.wait_for(
        "them to have begun anew", lambda: not any(stage.has_ended(run) for run in again), seconds=10
    )
    stage.open_readers(10, again, chapter="again")
    stage.flowing()
    agents.signal(signal.SIGCONT)
    agents.ask("rate", per_second=0)
    agents.ask("flush", within=20)
    stage.flowing()
    agents.ask("end")
    others.ask("end")
    stage.until_all_ended()
    for run in stage.runs:
        said = [line for line in agents.said.splitlines() if f"run {run} " in line]
        if len(said) != 1:
            stage.complain(f"of {run} its publisher said {said}")


@fault(
    "a task dies in a process that lives, and loses its publisher", printed=(3,), short=(3,), unit="s lease"
)
def task_died(stage: Stage, lease: float) -> None:
    stage.start_redis()
    stage.under_load(lease=lease)
    agents = stage.agents[0]
    for run in stage.runs[::2]:
        agents.ask("drop", run=run)
    for run in stage.runs[::2]:
        stage.wait_for(f"{run} to have ended", partial(stage.has_ended, run), seconds=lease + 5)
        stage.deserted(run, "a")
    stage.flowing()
    stage.calm()


@fault(
    "a run waits for three lease times without a process; two take it up again",
    printed=LEASES,
    short=(3,),
    unit="s lease",
)
def interrupted_run_resumed_twice(stage: Stage, lease: float) -> None:
    stage.start_redis()
    stage.under_load(lease=lease, runs=2)
    first = stage.agents[0]
    first.ask("interrupt")
    first.wait()
    stage.away(3 * lease)
    rivals = [
        stage.start_agents(stage.runs[:1], name=name, rate=50, resume=True, lease=lease)
        for name in ("b", "c")
    ]
    stage.wait_for(
        "one to be told that it came too late",
        lambda: any(r.returncode is not None for r in rivals),
        seconds=15,
    )
    losers = [rival for rival in rivals if rival.returncode is not None]
    if len(losers) != 1 or "RunNotInterrupted" not in losers[0].said:
        stage.complain(f"{len(losers)} came too late, and said: {[loser.said for loser in losers]}")
    stage.start_agents(stage.runs[1:], name="d", rate=50, resume=True, lease=lease)
    stage.flowing()
    stage.away(lease)
    stage.calm()
    for run in stage.runs:
        stage.history[run] = [event for writer in ("a", "b", "c", "d") for event in stage.told(run, writer)]
