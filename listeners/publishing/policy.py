"""What may leave the agent: the levels of arguments and results, and which texts of errors (contract §6)."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Literal, get_args

from listeners.contract.events import EVENT_TYPES, FailureReason
from listeners.errors import ChainError, ToolError
from listeners.publishing.plain import plain
from listeners.publishing.redaction import Redact, Redaction
from listeners.publishing.summaries import summary

__all__ = ["UNEXPECTED", "Level", "Policy", "PublicationPolicy"]

Level = Literal["full", "summary", "none"]
Policy = Level | Mapping[str, Level] | Callable[[str, Any], Any]
"""For all tools, by a tool's name (``"*"``: the others), or a function ``(name, value) -> value`` that picks what
the page needs."""

UNEXPECTED: Final = "unexpected error"
"""The message of every error whose text was not written for people."""

_LEVELS: Final = get_args(Level)
_SAID: Final = {
    "exceeded_max_runs": "the model was asked as often as it may be",
    "exceeded_failure_count": "too many failures in a row",
    "all_fallbacks_failed": "no model could answer",
    "empty_response": "the model answered nothing",
    "incomplete_response": "the model's reply ended in the middle",
    "response_truncated": "the model's reply was too long",
    "rate_limited": "the model is asked too often",
    "rate_limit_exceeded": "the model is asked too often",
    "overloaded": "the model has too much to do",
    "overloaded_error": "the model has too much to do",
    "timeout": "the model took too long",
    "connection_error": "the model can't be reached",
    "server_error": "the model's server has failed",
}
"""What is said of a chain's errors by type: their own texts may be a provider's, or an exception's."""


class PublicationPolicy:
    """A publisher's policy. Raises ``ValueError`` for a level or a setting that is none."""

    def __init__(
        self,
        *,
        arguments: Policy = "summary",
        results: Policy = "summary",
        errors: Literal["safe", "full"] = "safe",
        expose_exceptions: bool = False,
        redact: Redact | None = None,
        publish: Literal["progress", "full"] = "progress",
    ) -> None:
        self._arguments = _checked("arguments", arguments)
        self._results = _checked("results", results)
        _one_of("errors", errors, ("safe", "full"))
        _one_of("publish", publish, ("progress", "full"))
        self._errors = errors
        self._publish = publish
        self._expose_exceptions = expose_exceptions
        self.redaction = Redaction(redact)

    def lets_out(self, type: str) -> bool:
        """Tell whether events of ``type`` leave at all; types of the application's own always do."""
        if type == "tool_execution_exception":
            return self._expose_exceptions
        least = EVENT_TYPES.get(type, "progress")
        return least == "progress" or least == self._publish

    def title_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return what titles may be made of."""
        return self.redaction.members(arguments)

    def apply(self, type: str, tool: str, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the ``data`` that may leave in an event of ``type`` about the tool named ``tool``.

        ``arguments`` of a start and ``result`` of a completion are the raw values; what a person is asked about
        stays whole, and says ``editable: false`` if anything of it was hidden. ``None`` becomes absent.
        """
        given = {name: value for name, value in data.items() if value is not None}
        leveled: dict[str, Any] = {}
        if type == "tool_execution_started" and "arguments" in given:
            leveled = self._leveled("arguments", self._arguments, tool, given.pop("arguments"))
        elif type == "tool_execution_completed" and "result" in given:
            leveled = self._leveled("result", self._results, tool, given.pop("result"))
        elif type == "tool_interrupted" and "arguments" in given:
            leveled = self._held(given.pop("arguments"))
        elif (
            type == "tool_execution_failed" and self._errors == "safe" and given.get("reason") == "exception"
        ):
            given["message"] = UNEXPECTED
        return self.redaction.members(plain(given)[0]) | leveled if given else leveled

    def piece(self, tool: str, item: Any) -> Any:
        """Return what may leave of one item that the generator tool ``tool`` yields; ``None``: nothing."""
        if self._level(self._results, tool) == "none":
            return None
        return self.redaction.within(plain(item)[0])

    def failure(self, error: Exception | str, reason: FailureReason = "exception") -> dict[str, Any]:
        """Return the data of ``tool_execution_failed`` for what a tool raised, or for a text and its reason."""
        if isinstance(error, ToolError):
            reason = "error"
        message = error if isinstance(error, str) else self._text(error)
        return {"message": message, "reason": reason, "is_error": True}

    def run_failure(self, error: BaseException, code: str | None = None) -> dict[str, Any]:
        """Return the data of ``run_failed`` for what ended the run; ``code`` is a word for programs."""
        code = code or ("error" if isinstance(error, ToolError) else "exception")
        return {"code": code, "message": self._text(error)}

    def exception(self, error: BaseException, trace: TracebackType | None) -> dict[str, Any]:
        """Return the data of ``tool_execution_exception``, which leaves only with ``expose_exceptions=True``."""
        lines = traceback.format_exception(type(error), error, trace or error.__traceback__)
        return {"exception": type(error).__name__, "message": _text_of(error), "stacktrace": "".join(lines)}

    @property
    def tells_errors(self) -> bool:
        """Whether the texts of errors leave as the model sees them."""
        return self._errors == "full"

    def tells_arguments(self, tool: str) -> bool:
        """Whether the arguments of the tool ``tool`` leave whole."""
        return self._level(self._arguments, tool) == "full"

    def _text(self, error: BaseException) -> str:
        if isinstance(error, ToolError) or self._errors == "full":
            return _text_of(error)
        if isinstance(error, ChainError):
            return _SAID.get(error.type or "", UNEXPECTED)
        return UNEXPECTED

    def _level(self, policy: Policy, tool: str) -> Level | Callable[[str, Any], Any]:
        if not isinstance(policy, str) and isinstance(policy, Mapping):
            return policy.get(tool, policy.get("*", "summary"))
        return policy

    def _leveled(self, member: str, policy: Policy, tool: str, value: Any) -> dict[str, Any]:
        level = self._level(policy, tool)
        if level == "none":
            return {}
        try:
            if level == "summary":
                return self._summarised(member, value)
            if callable(level):
                value = level(tool, value)
            return {} if value is None else {member: self.redaction.within(plain(value)[0])}
        except Exception:
            # The application's function failed, or the value changed while it was read: the step itself is told.
            return {}

    def _summarised(self, member: str, value: Any) -> dict[str, Any]:
        # A tool without arguments has nothing to sum up.
        if member == "arguments" and isinstance(value, Mapping) and not value:
            return {}
        return {f"{member}_summary": summary(value, self.redaction)}

    def _held(self, arguments: Any) -> dict[str, Any]:
        known, whole = plain(arguments)
        shown = self.redaction.within(known)
        held: dict[str, Any] = {"arguments": shown}
        if not whole or shown != known:
            held["editable"] = False
        return held


def _text_of(error: BaseException) -> str:
    # Its type is no substitute for a text it lacks: types leave only with `expose_exceptions`.
    try:
        return str(error) or UNEXPECTED
    except Exception:
        return UNEXPECTED


def _checked(name: str, policy: Policy) -> Policy:
    if callable(policy):
        return policy
    if isinstance(policy, Mapping):
        for tool, level in policy.items():
            _one_of(f"{name}[{tool!r}]", level, _LEVELS)
    else:
        _one_of(name, policy, _LEVELS)
    return policy


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if isinstance(value, str) and value in allowed:
        return
    raise ValueError(f"{name} is {value!r}, but must be one of {', '.join(map(repr, allowed))}")
