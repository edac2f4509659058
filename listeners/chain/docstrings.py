"""What a docstring says about its parameters: Google's, NumPy's and Sphinx's ways (no I/O)."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable

__all__ = ["parameter_texts", "summary_of"]

_HEADING = re.compile(r"(args|arguments|parameters|params)\s*:?", re.I)
_OTHER_HEADING = re.compile(
    r"(returns?|yields?|raises|examples?|notes?|see also|attributes|todo|warnings?|references)\s*:?", re.I
)
_GOOGLE = re.compile(r"(\*{0,2}\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_NUMPY = re.compile(r"(\*{0,2}\w+)\s*(?::.*)?")
_SPHINX = re.compile(r":param\s+(?:[^:]*\s)?(\w+)\s*:\s*(.*)")
_FIELD = re.compile(r":\w+[^:]*:")


def summary_of(function: Callable[..., object]) -> str:
    """Return what a docstring says before its sections, as text; ``""`` without one."""
    lines = []
    for line in _lines(function):
        stripped = line.strip()
        if _HEADING.fullmatch(stripped) or _OTHER_HEADING.fullmatch(stripped) or _FIELD.match(stripped):
            break
        lines.append(line)
    return "\n".join(lines).strip()


def parameter_texts(function: Callable[..., object]) -> dict[str, str]:
    """Return what a docstring says about each parameter, each on one line."""
    lines = _lines(function)
    texts: dict[str, str] = {}
    for at, line in enumerate(lines):
        if found := _SPHINX.match(line.strip()):
            more = _while_indented(lines[at + 1 :], _indent(line))
            texts[found[1]] = _joined([found[2], *more])
        elif _HEADING.fullmatch(line.strip()):
            following = lines[at + 1 :]
            if following and set(following[0].strip()) == {"-"}:
                texts.update(_numpy(following[1:], _indent(line)))
            else:
                texts.update(_google(_while_indented(following, _indent(line))))
    return texts


def _google(lines: list[str]) -> dict[str, str]:
    texts: dict[str, str] = {}
    margin = min((_indent(line) for line in lines if line.strip()), default=0)
    name = ""
    for line in lines:
        found = _GOOGLE.fullmatch(line.strip()) if _indent(line) == margin else None
        if found:
            name = found[1].lstrip("*")
            texts[name] = found[2]
        elif name:
            texts[name] = _joined([texts[name], line])
    return texts


def _numpy(lines: list[str], margin: int) -> dict[str, str]:
    texts: dict[str, str] = {}
    for at, line in enumerate(lines):
        if _OTHER_HEADING.fullmatch(line.strip()):
            break
        found = _NUMPY.fullmatch(line.strip()) if _indent(line) == margin and line.strip() else None
        if found:
            texts[found[1].lstrip("*")] = _joined(_while_indented(lines[at + 1 :], margin))
    return texts


def _while_indented(lines: Iterable[str], margin: int) -> list[str]:
    taken = []
    for line in lines:
        if line.strip() and _indent(line) <= margin:
            break
        taken.append(line)
    return taken


def _joined(lines: Iterable[str]) -> str:
    return " ".join(line.strip() for line in lines if line.strip())


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _lines(function: Callable[..., object]) -> list[str]:
    return (inspect.getdoc(function) or "").splitlines()
