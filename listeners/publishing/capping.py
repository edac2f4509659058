"""An encoded event is at most 64 KiB: larger ones have their longest strings cut (contract §2)."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from listeners.contract.events import CallRef, Event, decode, encode
from listeners.publishing.summaries import cut

__all__ = ["EVENT_BYTES", "capped"]

EVENT_BYTES: Final = 64 * 1024
"""Bytes of an encoded event at most."""
_SHORTEST: Final = 64
_ID_LENGTH: Final = 1_024
_NAME_LENGTH: Final = 256


def capped(event: Event, encoded: bytes) -> tuple[Event, bytes]:
    """Return the event, and its JSON, with ``truncated`` set and its longest strings cut until it fits.

    If no cutting of strings is enough, the largest members of ``data`` become their own JSON text, cut; an event is
    never dropped for its content. One that fits comes back as it is.
    """
    if len(encoded) <= EVENT_BYTES:
        return event, encoded
    event = decode(encoded)
    # Cutting what is longer than any event first keeps the search below from carrying it along.
    data = _cut(_fewest_members(event.data), EVENT_BYTES)
    event = replace(
        event,
        truncated=True,
        call=_short_ref(event.call),
        agent=event.agent and cut(event.agent, _ID_LENGTH),
        thread=event.thread and cut(event.thread, _ID_LENGTH),
        data=data,
    )
    if event.type == "tool_interrupted":
        event.data["editable"] = False
    while True:
        length = _longest_that_fits(event)
        if length is not None:
            event = replace(event, data=_cut(event.data, length))
            return event, encode(event)
        largest = max(event.data, key=lambda name: _weight(event.data[name]))
        event.data[largest] = msgspec.json.encode(event.data[largest]).decode()[:EVENT_BYTES]


def _short_ref(call: CallRef | None) -> CallRef | None:
    if call is None:
        return None
    return replace(
        call,
        id=call.id and cut(call.id, _ID_LENGTH),
        name=cut(call.name, _NAME_LENGTH),
        title=cut(call.title, _NAME_LENGTH),
    )


def _fewest_members(data: dict[str, Any]) -> dict[str, Any]:
    """Return ``data`` with no more members than fit when each is cut to the shortest string."""
    most = EVENT_BYTES // (8 * _SHORTEST)
    return {cut(name, _SHORTEST): value for name, value in list(data.items())[:most]}


def _longest_that_fits(event: Event) -> int | None:
    """Return the greatest length to which strings may be cut, or ``None`` if even the least is too much."""
    low, high = _SHORTEST, EVENT_BYTES
    if not _fits(event, low):
        return None
    while high - low > _SHORTEST:
        middle = (low + high) // 2
        if _fits(event, middle):
            low = middle
        else:
            high = middle
    return low


def _fits(event: Event, length: int) -> bool:
    return len(encode(replace(event, data=_cut(event.data, length)))) <= EVENT_BYTES


def _cut(value: Any, length: int) -> Any:
    if isinstance(value, str):
        return cut(value, length)
    if isinstance(value, dict):
        return {name: _cut(member, length) for name, member in value.items()}
    if isinstance(value, list):
        return [_cut(item, length) for item in value]
    return value


def _weight(value: Any) -> int:
    return 0 if isinstance(value, str) and len(value) <= _SHORTEST else len(msgspec.json.encode(value))
