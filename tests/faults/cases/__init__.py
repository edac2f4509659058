"""The faults themselves; importing this package enters them all into the table."""

from __future__ import annotations

from tests.faults.cases import agent_gone, agent_hurt, crowds, ends, gateway_gone, redis_away, redis_lost

__all__ = ["agent_gone", "agent_hurt", "crowds", "ends", "gateway_gone", "redis_away", "redis_lost"]
