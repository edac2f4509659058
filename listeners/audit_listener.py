"""``AuditLogListener``: every use of a tool, and what it came to, as lines of JSON."""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, TextIO

from msgspec import json

from listeners.contract.events import format_time
from listeners.publishing.current import current_run
from listeners.publishing.policy import Policy, PublicationPolicy
from listeners.publishing.redaction import Redact
from listeners.tool_observer import End, Observed, ToolObserver

__all__ = ["AuditLogListener"]

_log = logging.getLogger("listeners")
_SECONDS_BETWEEN_COMPLAINTS: Final = 60.0


class AuditLogListener(ToolObserver):
    """Writes two lines for each tool call, of a chain's and of wrapped tools, joined by ``id``.

    ``{"type":"agent.tool_use","time":…,"id":…,"name":…}``, with ``call_id`` (the provider's) and ``run`` (the current
    one) as far as there are any, and ``input`` or ``input_summary``; then
    ``{"type":"agent.tool_result","time":…,"id":…,"name":…,"is_error":…}``, with ``output`` or ``output_summary``, or
    ``error`` and ``reason``, ``duration_ms``, and ``"held": true`` if a person is asked.

    - ``to``: a path, to which lines are appended, a text stream, or a ``logging.Logger`` (at level INFO).
    - ``arguments``, ``results``, ``errors``, ``redact``: what may be written, as ``RunPublisher`` says of publishing.

    Thread-safe. A line is written whole before the tool goes on; if that fails the agent goes on, and the failure is
    logged, at most once a minute. Raises ``TypeError`` for another ``to``, ``ValueError`` for a level that is none.
    """

    def __init__(
        self,
        to: str | os.PathLike[str] | TextIO | logging.Logger,
        *,
        arguments: Policy = "summary",
        results: Policy = "summary",
        errors: Literal["safe", "full"] = "safe",
        redact: Redact | None = None,
    ) -> None:
        super().__init__()
        self._policy = PublicationPolicy(arguments=arguments, results=results, errors=errors, redact=redact)
        self._to = Path(to) if isinstance(to, str | os.PathLike) else to
        if not isinstance(self._to, Path | logging.Logger) and not callable(getattr(to, "write", None)):
            raise TypeError(
                f"an audit log goes to a path, a text stream or a Logger, not {type(to).__name__}"
            )
        self._writing = threading.RLock()
        self._complained: float | None = None

    def begun(self, observed: Observed) -> None:
        """Write that a tool is used."""
        observed.note = secrets.token_hex(8)
        data = self._shown("tool_execution_started", observed, {"arguments": observed.arguments})
        self._write("agent.tool_use", observed, _renamed(data, arguments="input"))

    def ended(self, observed: Observed, end: End) -> None:
        """Write what it came to."""
        ran = observed.note is not None
        if not ran:
            # Denied, rejected, unknown: the model has used it all the same.
            self.begun(observed)
        data: dict[str, Any] = {"is_error": end.status == "failed"}
        if end.status == "failed":
            failure = self._policy.failure(end.error, end.reason or "exception")
            shown = self._shown("tool_execution_failed", observed, failure)
            data |= {"error": shown["message"], "reason": shown["reason"]}
        else:
            shown = self._shown("tool_execution_completed", observed, {"result": end.result})
            data |= _renamed(shown, result="output")
            if end.status == "held":
                data["held"] = True
        if ran:
            data["duration_ms"] = round(observed.seconds * 1000)
        self._write("agent.tool_result", observed, data)

    def _shown(self, type: str, observed: Observed, data: Mapping[str, Any]) -> dict[str, Any]:
        return self._policy.apply(type, observed.name, data)

    def _write(self, type: str, observed: Observed, data: Mapping[str, Any]) -> None:
        run = current_run.get()
        line = {
            "type": type,
            "time": format_time(time.time()),
            "id": observed.note,
            "name": observed.name,
            "call_id": observed.call_id,
            "run": None if run is None else run.run,
        }
        known = {name: value for name, value in line.items() if value is not None}
        try:
            self._put(json.encode(known | dict(data)).decode())
        except Exception:
            self._complain()

    def _put(self, line: str) -> None:
        if isinstance(self._to, logging.Logger):
            self._to.info("%s", line)
            return
        with self._writing:
            if isinstance(self._to, Path):
                # Opened each time: a log that is rotated away is begun anew, and a forked child has its own.
                with self._to.open("a", encoding="utf-8") as file:
                    file.write(line + "\n")
            else:
                self._to.write(line + "\n")
                self._to.flush()

    def _complain(self) -> None:
        now = time.monotonic()
        if self._complained is None or now - self._complained >= _SECONDS_BETWEEN_COMPLAINTS:
            self._complained = now
            _log.exception("the audit log can't be written; the agent goes on without it")


def _renamed(data: Mapping[str, Any], **names: str) -> dict[str, Any]:
    """Return ``data`` with other names for members, those of their summaries too."""
    names |= {f"{old}_summary": f"{new}_summary" for old, new in names.items()}
    return {names.get(name, name): value for name, value in data.items()}
