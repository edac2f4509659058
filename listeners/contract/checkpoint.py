"""Checkpoints: the fold of a log up to a position, kept beside it so that the log may be trimmed (contract §3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from listeners.contract.events import TERMINAL_TYPES, InvalidEvent, decode
from listeners.contract.exchange import Exchange
from listeners.contract.folding import Folding
from listeners.contract.keys import Keys
from listeners.contract.log import Entry, Limits, checkpoint_script, read_entries
from listeners.contract.position import ABSENT, Position
from listeners.contract.state import RunState, read_state, waiting

__all__ = ["Folded", "checkpointing", "folding", "read_checkpoint", "write_checkpoint"]

_PAGE: Final = 1_000
_TRIES: Final = 3
_SETTLES: Final = frozenset({"tool_execution_started", "tool_execution_completed", "tool_execution_failed"})


@dataclass(slots=True)
class Folded:
    """A log as it was read: its fold, and what is known of its calls beyond.

    ``questions`` holds, by the call's key, the position of the last ``tool_interrupted`` that nothing but a decision
    has followed: the call waits for an answer, or for being started with the one it has got. ``keys`` are those of all
    calls. ``checkpoint`` is the seq of the checkpoint the reading began from, 0 without one.
    """

    folding: Folding
    questions: dict[str, Position] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)
    checkpoint: int = 0

    def add(self, entry: Entry) -> None:
        """Take in the next entry; one that can't be read changes nothing."""
        try:
            event = decode(entry.event)
        except InvalidEvent:
            return
        self.folding.add(entry.position, event)
        if event.call is None:
            return
        key = event.call.key
        self.keys.add(key)
        if event.type == "tool_interrupted":
            self.questions[key] = entry.position
        elif event.type in _SETTLES:
            self.questions.pop(key, None)


def write_checkpoint(folded: Folded) -> bytes:
    """Encode what ``folded`` has come to."""
    questions = {key: str(position) for key, position in folded.questions.items()}
    return msgspec.json.encode({"state": folded.folding.state, "questions": questions})


def read_checkpoint(run: str, value: bytes | None) -> tuple[RunState, dict[str, Position]] | None:
    """Read a checkpoint of ``run``: its state, and the questions of :class:`Folded`; ``None`` if there is none, or
    none that can be read."""
    try:
        told: Any = msgspec.json.decode(value or b"")
        position = Position.parse(told["state"]["position"])
        state = read_state(run, position or ABSENT, told["state"])
        questions = {key: Position.parse(at) for key, at in told["questions"].items()}
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError):
        return None
    if position is None:
        return None
    return state, {key: at for key, at in questions.items() if at is not None}


def folding(keys: Keys, *, until_end: bool = False) -> Exchange[Folded]:
    """Read and fold the log from its checkpoint on, a page a command; ``until_end``: up to its terminal event."""
    for _ in range(_TRIES):
        folded = Folded(Folding(waiting(keys.run)))
        known = read_checkpoint(keys.run, (yield ("GET", keys.checkpoint)))
        first = "-"
        if known is not None:
            state, questions = known
            folded = Folded(Folding(state), questions, {call.key for call in state.calls})
            folded.checkpoint = folded.folding.position.seq
            first = f"({state.position}"
        whole = True
        while True:
            reply = yield ("XRANGE", keys.log, first, "+", "COUNT", _PAGE)
            entries = read_entries(reply)
            if entries and first != "-" and known is not None:
                epoch, seq = folded.folding.position
                # Behind a checkpoint that has been replaced meanwhile the log may be trimmed; a new epoch has another.
                whole = whole and entries[0].position == (epoch, seq + 1)
            for entry in entries:
                if not (until_end and entry.type in TERMINAL_TYPES):
                    folded.add(entry)
            if len(reply or ()) < _PAGE:
                break
            first = f"({reply[-1][0].decode()}"
        if whole:
            break
    return folded


def checkpointing(keys: Keys, limits: Limits) -> Exchange[bool]:
    """Store the fold of the log anew and trim what is beyond ``limits``; tells whether this did it: somebody else may
    have been first."""
    # Who joins an ended run gets the state before its end, and then the end.
    folded = yield from folding(keys, until_end=True)
    position = folded.folding.position
    if position.seq < max(folded.checkpoint, 1):
        return False
    names = (keys.log, keys.meta, keys.checkpoint)
    reply = yield (
        "EVAL",
        checkpoint_script(),
        len(names),
        *names,
        position.epoch,
        folded.checkpoint,
        position.seq,
        write_checkpoint(folded),
        limits.max_entries,
        limits.max_bytes,
    )
    return int(reply) == 1
