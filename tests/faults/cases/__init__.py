"""The faults themselves; importing this package enters them all into the table."""

from __future__ import annotations

from tests.faults.cases import redis_away

__all__ = ["redis_away"]
