"""An agent's answers get lost, or its process forks, exits or is shared."""

from __future__ import annotations

from tests.faults.faults import fault
from tests.faults.stage import Stage


@fault("answers of Redis get lost, so that batches are sent again", printed=(10,), short=(3,), unit="times")
def answers_lost(stage: Stage, times: float) -> None:
    stage.start_redis()
    line = stage.line()
    stage.under_load(url=line.url)
    for _ in range(int(times)):
        line.swallow()
        stage.away(0.3)
        line.drop()
        line.resume()
        stage.flowing()
    stage.calm()


@fault("eight processes publish to one run", printed=(8,), short=(8,), unit="processes")
def run_shared(stage: Stage, processes: float) -> None:
    stage.start_redis()
    stage.start_gateway()
    stage.open_readers(20, ["run1"])
    stage.start_agents(["run1"], rate=200 / processes)
    stage.flowing()
    for number in range(1, int(processes)):
        stage.start_agents(["run1"], name=f"joined{number}", rate=200 / processes, join=True)
    for agents in stage.agents:
        agents.ask("stats")
    stage.flowing()
    stage.away(1)
    stage.calm()


@fault("an agent's process forks, and both publish")
def agent_forked(stage: Stage, _: float) -> None:
    stage.start_redis()
    stage.under_load()
    agents = stage.agents[0]
    children = [agents.ask("fork", count=200, name=f"forked{number}") for number in range(3)]
    for child in children:
        if code := agents.ask("wait_for_child", pid=child):
            stage.complain(f"a forked child ended with {code}")
    stage.flowing()
    stage.calm()


@fault("sys.exit right after publish()", printed=(1_000,), short=(1_000,), unit="events")
def agent_exits(stage: Stage, events: float) -> None:
    stage.start_redis()
    stage.under_load()
    agents = stage.agents[0]
    agents.ask("rate", per_second=0)
    agents.order("exit", count=int(events))
    if (code := agents.wait(seconds=20)) != 3:
        stage.complain(f"the agents' process ended with {code}")
    stage.until_all_ended(seconds=10)


@fault("os._exit right after publish()", printed=(3, 15), short=(3,), unit="s lease")
def agent_exits_at_once(stage: Stage, lease: float) -> None:
    stage.start_redis()
    stage.under_load(lease=lease)
    agents = stage.agents[0]
    agents.ask("rate", per_second=0)
    agents.ask("flush", within=10)
    before = {run: len(stage.told(run, "a")) for run in stage.runs}
    agents.order("exit_at_once", count=20)
    agents.wait(seconds=10)
    stage.until_all_ended(seconds=lease + 15)
    for run in stage.runs:
        if stage.deserted(run, "a") < before[run]:
            stage.complain(f"{run} lost what Redis had taken")
