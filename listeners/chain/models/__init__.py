"""Models: the protocol, a scripted one, and those of providers, whose SDKs are optional extras."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from listeners.chain.models.base import ChatModel, ModelHooks
from listeners.chain.models.scripted import Headers, RateLimit, ScriptedChat

if TYPE_CHECKING:
    from listeners.chain.models.anthropic import AnthropicChat
    from listeners.chain.models.openai import OpenAIChat

__all__ = ["AnthropicChat", "ChatModel", "Headers", "ModelHooks", "OpenAIChat", "RateLimit", "ScriptedChat"]


def __getattr__(name: str) -> Any:
    if name not in ("AnthropicChat", "OpenAIChat"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{name.removesuffix('Chat').lower()}"), name)
