"""``decide``: answer the question that a held call of a run asks, from any process."""

from __future__ import annotations

import os
import secrets
import time
from typing import TYPE_CHECKING, Any, Final

from redis.exceptions import ConnectionError, TimeoutError

from listeners.contract.deciding import deciding
from listeners.contract.decisions import Decision
from listeners.contract.events import format_time
from listeners.contract.exchange import carry_out
from listeners.contract.keys import Keys
from listeners.contract.position import Position
from listeners.publishing.server import Server

if TYPE_CHECKING:
    from redis import Redis

__all__ = ["decide"]

_ATTEMPTS: Final = 3


def decide(
    run: str,
    call: str,
    decision: Decision,
    *,
    question: str | None = None,
    by: str | None = None,
    redis: str | Redis | None = None,
    namespace: str | None = None,
) -> str:
    """Answer what the call ``call`` of ``run`` waits for, and return the position of the ``tool_decision``.

    ``decision`` is ``Approve()``, ``Edit(arguments)`` or ``Reject(reason)``; ``question`` the position of the
    ``tool_interrupted`` that was shown to the person (``None``: the one that is open); ``by`` who answers;
    ``redis`` and ``namespace`` as for ``RunPublisher``. It never opens, joins or owns the run, and blocks for a few
    round trips.

    Raises :class:`QuestionNotOpen` (somebody was first, or it was called off; nothing has changed),
    :class:`RunNotFound`, :class:`EditRefused`, ``ValueError`` for what can't be a decision, and redis-py's errors if
    Redis doesn't answer three times in a row.
    """
    asked = None if question is None else Position.parse(question)
    if question is not None and asked is None:
        raise ValueError(f"question {question!r:.80} is no position: it looks like 1758000000000-7")
    server = Server(redis, namespace=namespace, environ=os.environ)
    client = server.connect()

    def execute(*command: Any) -> Any:
        for left in reversed(range(_ATTEMPTS)):
            try:
                return client.execute_command(*command)  # type: ignore[no-untyped-call]  # redis-py's
            except (ConnectionError, TimeoutError):
                # Whether or not it arrived, the same command again comes to the same.
                if not left:
                    raise

    steps = deciding(
        Keys(run, server.namespace),
        call,
        decision,
        writer=secrets.token_hex(8),
        time=format_time(time.time()),
        question=asked,
        by=by,
    )
    try:
        return str(carry_out(steps, execute))
    finally:
        client.close()
        client.connection_pool.disconnect()
