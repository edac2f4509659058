"""A decision answers one question: what is asked of Redis for it, and what may come of it (contract §3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from listeners.contract.decisions import Answer, Approve, Decision, Edit, check_decision
from listeners.contract.events import CallRef, Event, InvalidEvent, check_run_id, decode, encode, is_call_key
from listeners.contract.exchange import Exchange
from listeners.contract.keys import Keys
from listeners.contract.log import (
    Appended,
    Batch,
    Guard,
    Limits,
    append_script,
    read_append_reply,
    read_entries,
)
from listeners.contract.position import Position

__all__ = [
    "MAX_DECISION_BYTES",
    "TAKEN",
    "DecisionError",
    "EditRefused",
    "GivenAnswer",
    "QuestionNotOpen",
    "RunNotFound",
    "deciding",
    "read_answers",
]

MAX_DECISION_BYTES: Final = 60 * 1024
"""Bytes of a decision's JSON at most: with its envelope it is an event, and those end at 64 KiB."""
TAKEN: Final = "taken"
"""In the place of a run's status, to who waited for an answer: another publisher has the run now."""
_RECENT_ANSWERS: Final = 100


class DecisionError(Exception):
    """Why a decision was not taken; ``run`` and ``call`` say which."""

    def __init__(self, run: str, call: str, message: str) -> None:
        super().__init__(message)
        self.run = run
        self.call = call


class RunNotFound(DecisionError):
    """Redis has no such run, or no longer."""

    def __init__(self, run: str, call: str) -> None:
        super().__init__(run, call, f"there is no run {run}: check the id, the Redis URL and the namespace")


class QuestionNotOpen(DecisionError):
    """The question was answered already, was called off, or never asked; nothing was changed.

    ``open`` is the position of the question that the call holds now, if it does: what the person answered is not
    what would happen. ``answer`` is what another has answered, as far as that is known; ``status`` is the run's, or
    :data:`TAKEN`; ``asking`` names calls of the run that do ask something.
    """

    def __init__(
        self,
        run: str,
        call: str,
        *,
        status: str,
        open: Position | None = None,
        answer: Answer | None = None,
        asking: tuple[str, ...] = (),
    ) -> None:
        super().__init__(run, call, _why_not_open(run, call, status, open, answer, asking))
        self.status = status
        self.open = open
        self.answer = answer
        self.asking = asking


class EditRefused(DecisionError):
    """The question says that its arguments can't be edited, or is too old to say: what was shown isn't the whole."""

    def __init__(self, run: str, call: str) -> None:
        super().__init__(
            run,
            call,
            f"the arguments of call {call} in run {run} can't be edited, since they were shown cut or redacted: "
            "approve or reject it",
        )


@dataclass(frozen=True, slots=True)
class GivenAnswer:
    """An entry of the stream ``decisions``: the answer, the question it is for, and where the decision stands."""

    position: Position
    question: Position
    call: str
    writer: str
    answer: Answer


def deciding(
    keys: Keys,
    call: str,
    decision: Decision,
    *,
    writer: str,
    time: str,
    question: Position | None = None,
    by: str | None = None,
    limits: Limits | None = None,
    sharded: bool = False,
) -> Exchange[Position]:
    """Answer the question that ``call`` holds (``question``: only that one) and give the decision's position.

    ``writer`` is a fresh random id: the same command sent again after a lost answer is answered the same. ``time`` is
    now, RFC 3339; ``sharded`` publishes on the Cluster's sharded channel. Raises :class:`RunNotFound`,
    :class:`QuestionNotOpen`, :class:`EditRefused`, and ``ValueError`` for what can't be a decision.
    """
    check_run_id(keys.run)
    if not is_call_key(call):
        raise ValueError(f"{call!r:.80} can't be the key of a call")
    answer = Answer(check_decision(decision), by or None)
    encoded = answer.encode()
    if len(encoded) > MAX_DECISION_BYTES:
        raise ValueError(
            f"the decision is {len(encoded)} bytes of JSON, but at most {MAX_DECISION_BYTES} can travel"
        )

    asked = Position.parse(_text((yield ("HGET", keys.questions, call)) or b""))
    if asked is None or question not in (None, asked):
        status = yield ("HGET", keys.meta, "status")
        if status is None:
            raise RunNotFound(keys.run, call)
        given = yield from _recent_answers(keys)
        last = next((one for one in given if one.call == call and question in (None, one.question)), None)
        others = yield ("HKEYS", keys.questions)
        raise QuestionNotOpen(
            keys.run,
            call,
            status=_text(status),
            open=asked,
            answer=last.answer if last else None,
            asking=tuple(sorted(map(_text, others))),
        )

    asking = _read_event((yield ("XRANGE", keys.log, str(asked), str(asked))))
    if isinstance(decision, Edit) and (asking is None or asking.data.get("editable") is False):
        raise EditRefused(keys.run, call)
    event = _event(keys.run, call, answer, asking, time)
    batch = Batch(
        keys=keys,
        writer=writer,
        first=1,
        epoch=None,
        events=((event.type, encode(event)),),
        guard=Guard(call=call, question=asked, answer=encoded),
    )
    names = batch.script_keys()
    arguments = batch.script_arguments(limits or Limits(), sharded=sharded)
    reply = yield ("EVAL", append_script(), len(names), *names, *arguments)

    kind = _text(reply[0])
    if kind == "absent":
        raise RunNotFound(keys.run, call)
    if kind == "closed":
        given = yield from _recent_answers(keys)
        theirs = next((one for one in given if one.question == asked), None)
        if theirs is not None and theirs.writer == writer:
            return theirs.position
        raise QuestionNotOpen(
            keys.run,
            call,
            status=_text(reply[1]),
            open=Position.parse(_text(reply[2])),
            answer=theirs.answer if theirs else None,
        )
    appended = read_append_reply(reply)
    if not isinstance(appended, Appended) or not appended.positions:
        raise RuntimeError(f"run {keys.run}: a decision was answered by {reply!r:.200}")
    return appended.positions[0]


def read_answers(reply: Any) -> list[GivenAnswer]:
    """Read the reply of ``XRANGE`` or ``XREVRANGE`` on ``decisions``; what is no answer of ours is left out."""
    answers = []
    for id, fields in reply or ():
        position = Position.parse(_text(id))
        question = Position.parse(_text(fields.get(b"question", b"")))
        answer = Answer.decode(fields.get(b"answer", b""))
        if position and question and answer:
            call, writer = _text(fields.get(b"call", b"")), _text(fields.get(b"writer", b""))
            answers.append(GivenAnswer(position, question, call, writer, answer))
    return answers


def _recent_answers(keys: Keys) -> Exchange[list[GivenAnswer]]:
    return read_answers((yield ("XREVRANGE", keys.decisions, "+", "-", "COUNT", _RECENT_ANSWERS)))


def _event(run: str, call: str, answer: Answer, asking: Event | None, time: str) -> Event:
    data = answer.wire()
    # What the model is told of a rejection is published with the call's failure.
    data.pop("reason", None)
    if asking is None:
        return Event(type="tool_decision", run=run, time=time, call=CallRef(key=call), data=data)
    return Event(
        type="tool_decision",
        run=run,
        time=time,
        call=asking.call,
        agent=asking.agent,
        thread=asking.thread,
        parent=asking.parent,
        trace=asking.trace,
        data=data,
    )


def _read_event(reply: Any) -> Event | None:
    for entry in read_entries(reply):
        try:
            return decode(entry.event)
        except InvalidEvent:
            return None
    return None


def _why_not_open(
    run: str,
    call: str,
    status: str,
    open: Position | None,
    answer: Answer | None,
    asking: tuple[str, ...],
) -> str:
    about = f"call {call} of run {run}"
    if open is not None:
        return f"{about} asks another question by now, at {open}: look at it, and answer that one"
    if answer is not None:
        word = {Approve: "approved", Edit: "edited"}.get(type(answer.decision), "rejected")
        return f"{about} was {word} already" + (f" by {answer.by}" if answer.by else "")
    if status in ("completed", "failed", "cancelled"):
        return f"{about} can't be answered any more: the run has ended ({status})"
    if status == TAKEN:
        return f"{about} is no longer this publisher's to wait for: another has started or resumed the run"
    others = f"; these do: {', '.join(asking[:10])}" if asking else ""
    return f"{about} holds no open question{others}"


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
