"""Inside the agent: wrap its tools, publish its run.

Names are loaded when they are first used, since every ``pytest`` run of a project with toolcast installed imports
this package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

# Not lazily: the function has its module's name, and whoever imports the module first would find that instead.
from listeners.progress import progress

if TYPE_CHECKING:
    from listeners.audit_listener import AuditLogListener
    from listeners.callbacks import ChainListener
    from listeners.contract.deciding import DecisionError, EditRefused, QuestionNotOpen, RunNotFound
    from listeners.contract.decisions import Approve, Decision, Edit, Reject
    from listeners.contract.events import RunIdError
    from listeners.deciding import decide
    from listeners.errors import ToolError
    from listeners.metrics_listener import MetricsListener
    from listeners.publishing.call import Call
    from listeners.publishing.publisher import RunPublisher
    from listeners.publishing.taking_up import RunNotInterrupted
    from listeners.redis_listener import RedisListener
    from listeners.run_ids import new_run_id
    from listeners.tool_listener import ToolCallListener, wrap, wrap_all

__all__ = [
    "Approve",
    "AuditLogListener",
    "Call",
    "ChainListener",
    "Decision",
    "DecisionError",
    "Edit",
    "EditRefused",
    "MetricsListener",
    "QuestionNotOpen",
    "RedisListener",
    "Reject",
    "RunIdError",
    "RunNotFound",
    "RunNotInterrupted",
    "RunPublisher",
    "ToolCallListener",
    "ToolError",
    "decide",
    "new_run_id",
    "progress",
    "wrap",
    "wrap_all",
]

_HOMES: Final = {
    "Approve": "listeners.contract.decisions",
    "Call": "listeners.publishing.call",
    "Decision": "listeners.contract.decisions",
    "DecisionError": "listeners.contract.deciding",
    "Edit": "listeners.contract.decisions",
    "EditRefused": "listeners.contract.deciding",
    "QuestionNotOpen": "listeners.contract.deciding",
    "AuditLogListener": "listeners.audit_listener",
    "ChainListener": "listeners.callbacks",
    "MetricsListener": "listeners.metrics_listener",
    "RedisListener": "listeners.redis_listener",
    "Reject": "listeners.contract.decisions",
    "RunIdError": "listeners.contract.events",
    "RunNotFound": "listeners.contract.deciding",
    "RunNotInterrupted": "listeners.publishing.taking_up",
    "RunPublisher": "listeners.publishing.publisher",
    "ToolCallListener": "listeners.tool_listener",
    "ToolError": "listeners.errors",
    "decide": "listeners.deciding",
    "new_run_id": "listeners.run_ids",
    "wrap": "listeners.tool_listener",
    "wrap_all": "listeners.tool_listener",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
