"""Gateways for end-to-end tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support.servers import GatewayProcess, start_gateway

Start = Callable[..., GatewayProcess]


@pytest.fixture
def start(redis_url: str) -> Iterator[Start]:
    """Start gateways on the test's Valkey; all are stopped at the end."""
    started: list[GatewayProcess] = []

    def begin(**options: object) -> GatewayProcess:
        process = start_gateway(redis_url, **options)  # type: ignore[arg-type]  # the options are start_gateway's
        started.append(process)
        return process

    yield begin
    for process in started:
        process.stop()


@pytest.fixture(scope="module")
def shared_gateway(valkey_server: object) -> Iterator[GatewayProcess]:
    """One gateway for a module's tests that don't end it."""
    process = start_gateway(f"redis://127.0.0.1:{valkey_server.port}")  # type: ignore[attr-defined]
    yield process
    process.stop()
