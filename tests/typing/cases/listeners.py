"""The ready-made listeners: given to a chain, and wrapped around tools."""

from __future__ import annotations

import sys
from typing import assert_type

from listeners import AuditLogListener, ChainListener, MetricsListener, RedisListener, wrap, wrap_all
from listeners.chain import LLMChain, ScriptedChat, ToolCall


def search(q: str) -> list[str]:
    return [q]


class Mine(RedisListener):
    def on_retries_exceeded(self, chain: LLMChain, /) -> None: ...


class Wrong(RedisListener):
    def on_retries_exceeded(self, call: ToolCall, /) -> None: ...  # refused: override


LLMChain(
    ScriptedChat([]), callbacks=[RedisListener(), AuditLogListener(sys.stdout), MetricsListener(), Mine()]
)
LLMChain(ScriptedChat([])).add_callback(RedisListener())
listener: ChainListener = AuditLogListener("audit.jsonl")
LLMChain(ScriptedChat([]), callbacks=[RedisListener])  # refused: list-item
LLMChain(ScriptedChat([]), callbacks=[RedisListener().tool_listener])  # refused: list-item
AuditLogListener(3)  # refused: arg-type
assert_type(wrap_all([search], RedisListener())[0]("x"), list[str])
wrap(search, AuditLogListener(sys.stdout))("x")
wrap(search, MetricsListener())(3)  # refused: arg-type
wrap(search, listener)  # refused: arg-type
