"""Redis comes back with less than it had, or loses some of it while it runs."""

from __future__ import annotations

from pathlib import Path

from listeners.contract.keys import Keys
from tests.faults.cases.redis_away import REDIS_LOST
from tests.faults.faults import fault
from tests.faults.stage import Stage


@fault("Redis is killed and comes back with an old file", printed=(30,), short=(2,), unit="s old")
def old_file_restored(stage: Stage, seconds: float) -> None:
    stage.news |= REDIS_LOST
    stage.start_redis()
    stage.under_load()
    file = Path(stage.redis.folder) / "old.rdb"
    stage.redis.save_to(file)
    stage.away(seconds)
    stage.flowing()
    stage.redis.kill()
    stage.redis.restore_from(file)
    stage.redis.start()
    stage.flowing()
    stage.calm()


@fault("a replica is promoted that lacks the last entries", printed=(50,), short=(50,), unit="entries")
def replica_promoted(stage: Stage, entries: float) -> None:
    stage.news |= REDIS_LOST
    master = stage.start_redis()
    replica = stage.another_redis()
    link, line = stage.line(), stage.line()
    replica.client.replicaof("127.0.0.1", str(link.port))
    stage.start_gateway(line.url)
    stage.under_load(url=line.url)
    agents = stage.agents[0]
    agents.ask("rate", per_second=0)
    agents.ask("flush", within=10)
    stage.wait_for(
        "the replica to have it all",
        lambda: (
            replica.client.info("replication").get("slave_repl_offset")
            == master.client.info("replication")["master_repl_offset"]
        ),
        seconds=10,
    )
    link.cut()
    stage.flowing(lambda: agents.ask("steps", count=int(entries)))
    agents.ask("flush", within=10)
    master.kill()
    replica.client.replicaof("NO", "ONE")
    line.turn_to(replica.port)
    line.drop()
    stage.redis = replica
    agents.ask("rate", per_second=200)
    stage.flowing()
    stage.calm()


@fault("FLUSHALL")
def everything_flushed(stage: Stage, _: float) -> None:
    stage.news |= REDIS_LOST
    stage.start_redis()
    stage.under_load()
    stage.redis.client.flushall()
    stage.flowing()
    stage.calm()


@fault("the logs are evicted, but not what is known of them")
def logs_evicted(stage: Stage, _: float) -> None:
    stage.news |= REDIS_LOST
    stage.start_redis()
    stage.under_load()
    stage.redis.client.delete(*(Keys(run).log for run in stage.runs))
    stage.flowing()
    stage.calm()


@fault("what is known of the logs is evicted, but not they")
def metas_evicted(stage: Stage, _: float) -> None:
    stage.news |= REDIS_LOST
    stage.start_redis()
    stage.under_load()
    stage.redis.client.delete(*(Keys(run).meta for run in stage.runs))
    stage.flowing()
    stage.calm()
