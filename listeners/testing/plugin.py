"""The pytest fixture that comes with toolcast."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from listeners.testing.recording import RecordedRun

__all__ = ["recorded_run"]


@pytest.fixture
def recorded_run() -> Iterator[RecordedRun]:
    """A current run that keeps its events: ``recorded_run.events``, ``.types``, ``.state``; needs no Redis."""
    # Here, so that projects whose tests don't use the fixture don't pay for it at every start of pytest.
    from listeners.testing.recording import recorded

    with recorded() as run:
        yield run
