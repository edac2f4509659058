"""Which calls a person's decisions are about (no I/O)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from listeners.chain.conversation import Conversation
from listeners.chain.messages import InvalidCall, Message, ToolCall
from listeners.chain.review import Decision, check_decision
from listeners.texts import repr_of

__all__ = ["decided", "paired"]


def decided(
    conversation: Conversation, decisions: Mapping[str, Decision] | Sequence[Decision]
) -> tuple[list[ToolCall], list[Decision]]:
    """Return the held calls and what was decided about each, in call order; raises ``ValueError`` unless it is exactly
    one decision each: by ``tool_call_id``, or in call order."""
    held = conversation.held()
    ids = [one.tool_call_id for one in held]
    if not held:
        raise ValueError("no call of this chain is held: there is nothing to decide")
    if isinstance(decisions, Mapping):
        if set(decisions) != set(ids):
            raise ValueError(f"decisions are for {list(decisions)}, but the held calls are {ids}")
        given = [decisions[id] for id in ids]
    elif not isinstance(decisions, Sequence):
        raise ValueError(f"decisions must be a mapping by tool_call_id, or a list, not {repr_of(decisions)}")
    else:
        given = list(decisions)
        if len(given) != len(ids):
            raise ValueError(f"{len(given)} decisions for {len(ids)} held calls: {ids}")
    return [one.call for one in held], [check_decision(decision) for decision in given]


def paired(
    conversation: Conversation, calls: Sequence[ToolCall], decisions: Sequence[Decision]
) -> tuple[list[ToolCall], list[Decision]]:
    """Return calls of the host's choice, whole and known, with what was decided about each; raises ``ValueError`` for
    lists that don't fit, a call given twice or answered already, and what is no decision."""
    if len(calls) != len(decisions):
        raise ValueError(f"{len(calls)} calls but {len(decisions)} decisions: give one for each")
    if not calls:
        raise ValueError("no calls: give at least one, with its decision")
    if not all(isinstance(call, ToolCall) for call in calls):
        raise ValueError("calls must be ToolCalls, such as held.call of outcome.interrupts")
    ids = [call.call_id for call in calls if call.call_id is not None]
    if len(set(ids)) != len(ids):
        raise ValueError(f"a call was given twice: {ids}")
    if done := [call.call_id for call in calls if conversation.is_answered(call)]:
        raise ValueError(f"these calls have a result already: {done}")
    checked = [check_decision(decision) for decision in decisions]
    whole = _completed([conversation.known(call) for call in calls])
    prepared, _ = conversation.prepared(whole)
    return list(prepared.tool_calls), checked


def _completed(calls: Sequence[ToolCall]) -> Message:
    try:
        return Message.assistant("", calls)
    except InvalidCall as error:
        raise ValueError(str(error)) from error
