"""``MetricsListener``: how often tools are called, fail and how long they take, for Prometheus."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from listeners.tool_observer import End, Observed, ToolObserver

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["MetricsListener"]

_BUCKETS: Final = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)
"""Seconds: tools take from a look into a dictionary to a nested agent's work."""
_UNKNOWN: Final = "(unknown)"
"""Models make names up, and each would be a series for ever."""


class MetricsListener(ToolObserver):
    """Counts tool calls, of a chain's and of wrapped tools, in ``registry`` (prometheus-client's own unless given).

    ``toolcast_tool_calls_total{tool}``, ``toolcast_tool_failures_total{tool,reason}``,
    ``toolcast_tool_calls_in_progress{tool}`` and the histogram ``toolcast_tool_duration_seconds{tool}``. A call that
    was held and is started again counts twice; one that never ran (denied, rejected, unknown) is a call and a failure.
    Several listeners may share a registry. Thread-safe.

    Raises ``ImportError`` without prometheus-client: ``pip install toolcast[metrics]``.
    """

    def __init__(self, *, registry: CollectorRegistry | None = None) -> None:
        super().__init__()
        try:
            import prometheus_client
        except ImportError as error:
            raise ImportError(
                "MetricsListener needs prometheus-client: pip install toolcast[metrics]"
            ) from error
        self._metrics = _metrics_of(prometheus_client.REGISTRY if registry is None else registry)

    def begun(self, observed: Observed) -> None:
        """Count a call that is running."""
        observed.note = True
        self._metrics.calls.labels(observed.name).inc()
        self._metrics.in_progress.labels(observed.name).inc()

    def ended(self, observed: Observed, end: End) -> None:
        """Count how it ended."""
        name = _UNKNOWN if end.reason == "unknown_tool" else observed.name
        if observed.note is None:
            self._metrics.calls.labels(name).inc()
        else:
            self._metrics.in_progress.labels(name).dec()
            self._metrics.duration.labels(name).observe(observed.seconds)
        if end.status == "failed":
            self._metrics.failures.labels(name, end.reason or "error").inc()


class _Metrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        from prometheus_client import Counter, Gauge, Histogram

        self.calls = Counter("toolcast_tool_calls", "Tool calls", ["tool"], registry=registry)
        self.failures = Counter(
            "toolcast_tool_failures", "Tool calls that failed", ["tool", "reason"], registry=registry
        )
        self.in_progress = Gauge(
            "toolcast_tool_calls_in_progress", "Tool calls that are running", ["tool"], registry=registry
        )
        self.duration = Histogram(
            "toolcast_tool_duration_seconds",
            "How long tools ran",
            ["tool"],
            buckets=_BUCKETS,
            registry=registry,
        )


_lock: Final = threading.Lock()
_by_registry: Final[WeakKeyDictionary[Any, _Metrics]] = WeakKeyDictionary()


def _metrics_of(registry: CollectorRegistry) -> _Metrics:
    """Return the metrics in ``registry``, which takes each name once."""
    with _lock:
        metrics = _by_registry.get(registry)
        if metrics is None:
            metrics = _by_registry[registry] = _Metrics(registry)
        return metrics
