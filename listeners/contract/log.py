"""The log's scripts: what they are sent, what they answer, and how entries read back (contract §3).

Nothing here holds a client. Whoever does, sync or async, sends ``keys`` and ``arguments`` to :func:`append_script`
(``client.register_script`` does) and hands the reply to :func:`read_append_reply`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

from listeners.contract.keys import (
    CHECKPOINT_EVERY,
    INDEX_SIZE,
    KEEP_DELETED,
    KEEP_DONE,
    KEEP_INDEX,
    KEEP_INTERRUPTED,
    KEEP_OPEN,
    KEEP_STUB,
    LEASE,
    MAX_BYTES,
    MAX_ENTRIES,
    MESSAGE_LIMIT,
    Keys,
    runs_channel,
    runs_index,
)
from listeners.contract.position import Position

__all__ = [
    "BATCH_BYTES",
    "BATCH_EVENTS",
    "CONTRACT_VERSION",
    "Appended",
    "Batch",
    "Deletion",
    "Deserted",
    "Entry",
    "Fenced",
    "Guard",
    "Kept",
    "Limits",
    "Lost",
    "Refused",
    "append_script",
    "checkpoint_script",
    "index_commands",
    "read_append_reply",
    "read_entries",
    "read_message",
]

CONTRACT_VERSION: Final = 1
BATCH_EVENTS: Final = 500
"""Events in a batch at most."""
BATCH_BYTES: Final = 1024 * 1024
"""Bytes of JSON in a batch at most (one larger event goes alone)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long (seconds) and how large (entries, bytes of JSON) a log may be.

    ``keep_stub`` is how long what the run was is remembered after its log; ``lease`` how long its owner may be silent,
    ``None`` for ever; ``checkpoint_every`` how many entries go between two checkpoints.
    """

    keep_open: float = KEEP_OPEN
    keep_done: float = KEEP_DONE
    keep_interrupted: float = KEEP_INTERRUPTED
    keep_stub: float = KEEP_STUB
    lease: float | None = LEASE
    max_entries: int = MAX_ENTRIES
    max_bytes: int = MAX_BYTES
    checkpoint_every: int = CHECKPOINT_EVERY


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """What makes a batch a decision: it is appended only while this question is open, and answers it.

    ``question`` is the position of the ``tool_interrupted`` that holds ``call``, ``answer`` the JSON text that goes
    back to the agent.
    """

    call: str
    question: Position
    answer: bytes


@dataclass(frozen=True, slots=True)
class Deserted:
    """What makes a batch the end of a run that nobody holds any more: it is appended only while the lease is missing
    and the log's head is still ``head``, up to which the events were made (``ABSENT``: there is no log)."""

    head: Position


@dataclass(frozen=True, slots=True)
class Deletion:
    """What makes a batch the deletion of its run: once it is appended, everything but a stub is erased, which refuses
    late appends for ``keep`` seconds."""

    keep: float = KEEP_DELETED


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Events of one writer, numbered and frozen: sent again as they are until they are answered.

    ``first`` is the writer's number of the first event (1, 2, 3 …); everything before it has been answered.
    ``epoch`` is the one the writer's answers named, ``None`` before the first, ``lineage`` those before it that the
    same log went on from. A ``run_started`` or ``run_resumed`` stands first. ``joins``: the writer leaves the turns
    of the run to its owner. ``restores``: the writer was answered ``Lost``, and these events begin with what it knows.
    Without events a batch renews the owner's lease and the keys' times to live. One with a ``guard`` comes from a
    writer that is used for it alone.
    """

    keys: Keys
    writer: str
    first: int
    epoch: int | None
    events: tuple[tuple[str, bytes], ...]
    lineage: tuple[int, ...] = ()
    joins: bool = False
    restores: bool = False
    guard: Guard | Deserted | Deletion | None = None

    def script_keys(self) -> list[str]:
        """Return the script's ``KEYS``."""
        keys = self.keys
        return [keys.log, keys.meta, keys.questions, keys.decisions, keys.lease, keys.checkpoint]

    def script_arguments(self, limits: Limits, *, sharded: bool = False) -> list[str | bytes | int]:
        """Return the script's ``ARGV``; ``sharded`` publishes on the Cluster's sharded channel."""
        guard = self.guard
        known = () if self.epoch is None else (self.epoch, *self.lineage)
        keep_stub = guard.keep if isinstance(guard, Deletion) else limits.keep_stub
        arguments: list[str | bytes | int] = [
            CONTRACT_VERSION,
            self.writer,
            self.first,
            ",".join(map(str, known)),
            "joined" if self.joins else "",
            "restores" if self.restores else "",
            max(1, round(limits.keep_open)),
            max(1, round(limits.keep_done)),
            max(1, round(limits.keep_interrupted)),
            max(1, round(keep_stub)),
            "" if limits.lease is None else max(1, round(limits.lease * 1000)),
            limits.max_entries,
            limits.max_bytes,
            limits.checkpoint_every,
            self.keys.channel,
            MESSAGE_LIMIT,
            "SPUBLISH" if sharded else "PUBLISH",
        ]
        if isinstance(guard, Guard):
            arguments += (guard.call, str(guard.question), guard.answer)
        else:
            arguments += ("", "", "")
        arguments += (
            str(guard.head) if isinstance(guard, Deserted) else "",
            "deletes" if isinstance(guard, Deletion) else "",
        )
        for type, event in self.events:
            arguments += (type, event)
        return arguments


@dataclass(frozen=True, slots=True)
class Appended:
    """The batch stands in the log. ``positions`` holds one position per accepted event in order, or is ``None``
    where a repeat is too old for Redis to know it.

    ``refused`` events are not in the log: those at the indexes ``skipped`` were the owner's to send (or a
    ``run_resumed`` while the run was running), the others came after the end of the run. ``checkpoint_due``: whoever
    reads this stores the log's fold anew.
    """

    epoch: int
    positions: tuple[Position, ...] | None
    refused: int
    status: str
    status_changed: bool
    skipped: tuple[int, ...] = ()
    checkpoint_due: bool = False

    def places(self) -> Iterator[tuple[int, Position]]:
        """Yield index in the batch and position of each accepted event, as far as they are known."""
        index = 0
        for position in self.positions or ():
            while index in self.skipped:
                index += 1
            yield index, position
            index += 1


@dataclass(frozen=True, slots=True)
class Fenced:
    """Another writer has started the run since, or ``resumed`` it: this one is out, and nothing was appended."""

    epoch: int
    resumed: bool = False


@dataclass(frozen=True, slots=True)
class Lost:
    """Redis no longer holds what this writer has already been answered; nothing was appended.

    The writer sends what waits again, behind what it knows of the run, as a batch that ``restores``.
    """


@dataclass(frozen=True, slots=True)
class Refused:
    """The run has ended (``status``) and takes nothing but ``run_started``; nothing was appended.

    Or it has not begun (``waiting``), and a writer that has joined it can't begin it; or its log has expired, and only
    ``run_started`` opens it again.
    """

    epoch: int
    status: str


@dataclass(frozen=True, slots=True)
class Kept:
    """A run is not ended for its owner: somebody holds it, or its log went on; nothing was appended."""


class Entry(NamedTuple):
    """One event as the log holds it: ``event`` is the JSON text, absent in a message too large for the channel."""

    position: Position
    type: str
    event: bytes


@cache
def append_script() -> str:
    """Return the Lua source of ``append``."""
    return (files(__package__) / "append.lua").read_text("utf-8")


@cache
def checkpoint_script() -> str:
    """Return the Lua source of ``checkpoint``."""
    return (files(__package__) / "checkpoint.lua").read_text("utf-8")


def read_append_reply(reply: Sequence[Any]) -> Appended | Fenced | Lost | Refused:
    """Turn the reply of ``append`` to a batch without a guard into what it means."""
    kind = _text(reply[0])
    if kind == "lost":
        return Lost()
    epoch = int(reply[1])
    if kind == "fenced":
        return Fenced(epoch, _text(reply[2]) == "resumed")
    if kind == "refused":
        return Refused(epoch, _text(reply[2]))
    first, accepted = _text(reply[2]), int(reply[3])
    positions = tuple(Position(epoch, int(first) + i) for i in range(accepted)) if first else None
    skipped = tuple(int(index) for index in _text(reply[7]).split(",") if index)
    return Appended(
        epoch,
        positions,
        int(reply[4]),
        _text(reply[5]),
        bool(int(reply[6])),
        skipped,
        bool(int(reply[8])),
    )


def read_entries(reply: Iterable[Any] | None) -> list[Entry]:
    """Read the reply of ``XRANGE`` on a log (bytes, not decoded); what is not one of our entries is left out."""
    entries = []
    for id, fields in reply or ():
        position = Position.parse(id.decode("ascii"))
        if position is not None and fields and b"type" in fields and b"event" in fields:
            entries.append(Entry(position, fields[b"type"].decode(), fields[b"event"]))
    return entries


def read_message(message: bytes) -> tuple[Position, str, bytes | None] | None:
    """Read a message on a run's channel: position, type and JSON (``None``: fetch it from the log).

    Returns ``None`` for a message that is not ours.
    """
    parts = message.split(b" ", 2)
    if len(parts) < 2:
        return None
    position = Position.parse(parts[0].decode("ascii", "replace"))
    if position is None:
        return None
    return position, parts[1].decode("utf-8", "replace"), parts[2] if len(parts) == 3 else None


def index_commands(keys: Keys, status: str, *, millis: int) -> list[tuple[str | int, ...]]:
    """Return the commands that note a status change in the index of runs and tell it, to be pipelined.

    They go to another slot than the run's own keys and are therefore sent after the append, best effort.
    """
    index = runs_index(keys.namespace)
    return [
        ("ZADD", index, millis, keys.run),
        ("ZREMRANGEBYRANK", index, 0, -INDEX_SIZE - 1),
        ("EXPIRE", index, KEEP_INDEX),
        ("PUBLISH", runs_channel(keys.namespace), f"{keys.run} {status}"),
    ]


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
