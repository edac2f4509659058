"""What a test can't do without: skipped where somebody works, a failure where commits are judged."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

__all__ = ["lacking"]


def lacking(reason: str) -> NoReturn:
    """Skip the test for ``reason``; in CI, where everything has to be there, fail it."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
