"""Where a run stands in Redis: its log's head, who holds it, and what is left of one whose log is gone (no I/O)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from msgspec.structs import replace

from listeners.contract.events import format_time
from listeners.contract.exchange import Command
from listeners.contract.keys import Keys
from listeners.contract.position import Position
from listeners.contract.state import RunFailure, RunState, waiting

__all__ = ["Standing", "read_standing", "standing_commands", "stub_reason", "stub_state"]

_FIELDS: Final = ("epoch", "seq", "status", "lease", "title", "started", "updated", "ended", "calls")
_EXPIRED: Final = RunFailure(
    code="log_expired", message="the log of this run has expired, and it had not ended by then"
)


@dataclass(frozen=True, slots=True)
class Standing:
    """One run as Redis tells it.

    ``logged``: there is a log, whose ``head`` stands here unless meta is gone. ``status``: what meta says, ``None``
    without one. ``lease``: seconds that its owner may be silent, ``None`` for ever; ``held``: seconds until it has
    been, 0 if nobody holds the run. Times are milliseconds since 1970; ``calls`` is about how many it has.
    """

    logged: bool
    head: Position | None
    status: str | None
    lease: float | None
    held: float
    title: str | None = None
    started: int | None = None
    updated: int | None = None
    ended: int | None = None
    calls: int | None = None

    @property
    def stub(self) -> bool:
        """Whether the log is gone and what the run was is known."""
        return not self.logged and self.status is not None

    @property
    def running(self) -> bool:
        """Whether the run needs somebody who holds it."""
        return self.status == "running" and self.lease is not None


def standing_commands(keys: Keys) -> list[Command]:
    """Return what asks for a :class:`Standing`, to be sent in one pipeline."""
    return [("HMGET", keys.meta, *_FIELDS), ("EXISTS", keys.log), ("PTTL", keys.lease)]


def read_standing(meta: Sequence[bytes | None], logged: Any, lease_left: Any) -> Standing:
    """Read the replies of :func:`standing_commands`; what isn't ours in them counts as absent."""
    epoch, seq, status, lease, title, *numbers = (
        value.decode("utf-8", "replace") if value is not None else None for value in meta
    )
    head = Position.parse(f"{epoch}-{seq}") if logged and epoch and seq else None
    started, updated, ended, calls = (int(value) if value and value.isdigit() else None for value in numbers)
    return Standing(
        logged=bool(logged),
        head=head,
        status=status,
        lease=int(lease) / 1000 if lease and lease.isdigit() else None,
        held=max(int(lease_left), 0) / 1000,
        title=title,
        started=started,
        updated=updated,
        ended=ended,
        calls=calls,
    )


def stub_reason(standing: Standing | None) -> Literal["expired", "deleted"]:
    """Return why a run's log is gone."""
    return "deleted" if standing is not None and standing.status == "deleted" else "expired"


def stub_state(run: str, standing: Standing | None) -> RunState:
    """Return what is left to say of a run whose log is gone: how it ended; one that hadn't has failed."""
    state = waiting(run)
    if standing is None or standing.status in (None, "waiting", "running", "interrupted"):
        state = replace(state, status="failed", error=_EXPIRED)
    else:
        status = "cancelled" if standing.status == "deleted" else standing.status
        state = replace(state, status=status)
    if standing is None:
        return state
    times = {"started_at": standing.started, "ended_at": standing.ended or standing.updated}
    told = {name: format_time(value / 1000) for name, value in times.items() if value is not None}
    return replace(state, title=standing.title, **told)
