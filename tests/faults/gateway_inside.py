"""A gateway that says how many tasks it has, and what else can be seen of it from outside."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.app import create_app as create_gateway
from tests.faults.redis_server import RedisServer
from tests.support.servers import GatewayProcess

if TYPE_CHECKING:
    from tests.faults.stage import Stage

__all__ = ["Inside", "Measures", "create_app"]


class Measures(NamedTuple):
    """What a gateway has: readers, subscriptions in Redis, descriptors, tasks, bytes of memory."""

    watchers: int
    subscriptions: int
    descriptors: int
    tasks: int
    memory: int

    def left_behind(self, before: Measures) -> bool:
        """Whether there is more than before, memory aside; a connection to Redis may have come to a pool."""
        return (
            self.watchers > before.watchers
            or self.subscriptions > before.subscriptions
            or self.descriptors > before.descriptors + 2
            or self.tasks > before.tasks + 2
        )


class Inside:
    """Looks at one gateway and its Redis."""

    def __init__(self, gateway: GatewayProcess, redis: RedisServer) -> None:
        self._gateway = gateway
        self._redis = redis

    def settle(self, stage: Stage) -> None:
        """Wait until nobody reads and no run is watched."""
        stage.wait_for(
            "nobody to be watching", lambda: not (self._watchers() or self._subscriptions()), seconds=20
        )

    def measure(self) -> Measures:
        process = Path(f"/proc/{self._gateway.pid}")
        resident = next(
            line for line in (process / "status").read_text().splitlines() if line.startswith("VmRSS")
        )
        return Measures(
            watchers=self._watchers(),
            subscriptions=self._subscriptions(),
            descriptors=len(list((process / "fd").iterdir())),
            tasks=self._get("/inside/tasks"),
            memory=int(resident.split()[1]) * 1024,
        )

    def _watchers(self) -> int:
        return sum(run["watchers"] for run in self._get("/runs")["runs"])

    def _subscriptions(self) -> int:
        channels = [name for name in self._redis.client.pubsub_channels() if b"{" in name]
        return sum(count for _, count in self._redis.client.pubsub_numsub(*channels)) if channels else 0

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self._gateway.url}{path}", timeout=10) as answer:
            return json.load(answer)


def create_app() -> ASGIApp:
    """Return a gateway as it is, with one more address that tells how many tasks run."""
    gateway = create_gateway()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("path") != "/inside/tasks":
            await gateway(scope, receive, send)
            return
        body = json.dumps(len(asyncio.all_tasks())).encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

    return app
