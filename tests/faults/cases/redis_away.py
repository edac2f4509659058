"""Redis is killed, frozen, or cut off."""

from __future__ import annotations

from tests.faults.faults import fault
from tests.faults.stage import Stage

AWAY = (1, 5, 20, 60)


@fault("Redis is killed; its file has every event", printed=AWAY, short=(1, 5))
def redis_killed_with_a_file(stage: Stage, seconds: float) -> None:
    stage.start_redis("every event")
    stage.under_load()
    stage.redis.kill()
    stage.away(seconds)
    stage.redis.start()
    stage.flowing()
    stage.calm()
