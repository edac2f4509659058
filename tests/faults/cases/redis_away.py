"""Redis is killed, frozen or cut off, and comes back with what it had."""

from __future__ import annotations

from tests.faults.faults import fault
from tests.faults.stage import Stage

AWAY = (1, 5, 20, 60)
REDIS_LOST = {"restarted", "run_restored"}


def killed_for(stage: Stage, seconds: float) -> None:
    stage.under_load()
    stage.redis.kill()
    stage.away(seconds)
    stage.redis.start()
    stage.flowing()
    stage.calm()


@fault("Redis is killed; its file has every event", printed=AWAY, short=(1, 5))
def redis_killed_with_a_file(stage: Stage, seconds: float) -> None:
    stage.start_redis("every event")
    killed_for(stage, seconds)


@fault("Redis is killed; its file is written once a second", printed=(1, 5), short=(1,))
def redis_killed_with_a_late_file(stage: Stage, seconds: float) -> None:
    stage.news |= REDIS_LOST
    stage.start_redis("every second")
    killed_for(stage, seconds)


@fault("Redis is killed and has no file", printed=AWAY, short=(1, 5))
def redis_killed_without_a_file(stage: Stage, seconds: float) -> None:
    stage.news |= REDIS_LOST
    stage.start_redis()
    killed_for(stage, seconds)


@fault("Redis stands still (SIGSTOP)", printed=(10,), short=(3,))
def redis_frozen(stage: Stage, seconds: float) -> None:
    stage.start_redis()
    stage.under_load()
    stage.redis.freeze()
    stage.away(seconds)
    stage.redis.thaw()
    stage.flowing()
    stage.calm()


@fault("Redis cuts its subscribers off, five times a second", printed=(10,), short=(2,))
def subscribers_cut_off(stage: Stage, seconds: float) -> None:
    stage.start_redis()
    stage.under_load()
    for _ in range(int(5 * seconds)):
        stage.redis.client.client_kill_filter(_type="pubsub")
        stage.away(0.2)
    stage.flowing()
    stage.calm()


def line_dead(stage: Stage, seconds: float, *, gateway: bool, forward: bool, back: bool) -> None:
    """The line swallows bytes; afterwards the connections that were on it stay dead, and new ones are well."""
    stage.start_redis()
    line = stage.line()
    if gateway:
        stage.start_gateway(line.url)
    stage.under_load(url="" if gateway else line.url)
    line.lose(forward=forward, back=back)
    stage.away(seconds)
    line.bury()
    line.resume()
    stage.flowing()
    stage.calm()


@fault("the line from gateway to Redis swallows what is sent", printed=(10,), short=(1,))
def gateway_line_dead_forward(stage: Stage, seconds: float) -> None:
    line_dead(stage, seconds, gateway=True, forward=True, back=False)


@fault("the line from Redis to gateway swallows what is sent", printed=(10,), short=(1,))
def gateway_line_dead_back(stage: Stage, seconds: float) -> None:
    line_dead(stage, seconds, gateway=True, forward=False, back=True)


@fault("the line from agent to Redis swallows what is sent", printed=(10,), short=(1,))
def agent_line_dead_forward(stage: Stage, seconds: float) -> None:
    line_dead(stage, seconds, gateway=False, forward=True, back=False)


@fault("the line from Redis to agent swallows what is sent", printed=(10,), short=(1,))
def agent_line_dead_back(stage: Stage, seconds: float) -> None:
    line_dead(stage, seconds, gateway=False, forward=False, back=True)


@fault(
    "Redis is away for twice the lease: nobody's run is ended", printed=(3, 15), short=(3,), unit="s lease"
)
def redis_away_twice_the_lease(stage: Stage, lease: float) -> None:
    stage.start_redis("every event")
    stage.under_load(lease=lease)
    stage.redis.kill()
    stage.away(2 * lease)
    stage.redis.start()
    stage.flowing()
    # A gateway that were wrong about the lease would end the runs now.
    stage.away(lease)
    stage.flowing()
    stage.calm()


@fault(
    "lifecycle events are queued while Redis is away, more than an outbox holds",
    printed=(12_000,),
    short=(12_000,),
    unit="events",
)
def outbox_overflows(stage: Stage, events: float) -> None:
    stage.news.add("run_restored")
    stage.start_redis("every event")
    stage.start_gateway()
    stage.open_readers(10, ["run1"])
    agents = stage.start_agents(["run1"])
    stage.flowing()
    stage.redis.kill()
    agents.ask("rate", per_second=0)
    # Of ten steps three report progress, which is dropped first, without a word.
    stage.may_drop.add("tool_progress")
    agents.ask("steps", count=int(events / 0.7))
    stage.redis.start()
    agents.ask("rate", per_second=200)
    stage.flowing()
    stats = stage.calm()
    if not stats["run1"]["restored"]:
        stage.complain(f"the outbox was never emptied: {stats}")
