"""Our Markdown, as far as tests read it: blocks of code, headings, links."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Block", "anchors", "blocks", "links"]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)|\b(?:src|href)=\"([^\"]+)\"")


@dataclass(frozen=True)
class Block:
    """A fenced block: ``line`` is its last one, the fence's."""

    file: str
    line: int
    language: str
    code: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def blocks(path: Path) -> list[Block]:
    """The blocks of code of a document, in order."""
    text = path.read_text("utf-8")
    return [
        Block(path.name, text.count("\n", 0, match.end()) + 1, match[1], match[2])
        for match in _FENCE.finditer(text)
    ]


def links(path: Path) -> list[str]:
    """Where a document points to, code left out."""
    prose = _FENCE.sub("", path.read_text("utf-8"))
    return [one or other for one, other in _LINK.findall(re.sub(r"`[^`\n]*`", "", prose))]


def anchors(path: Path) -> set[str]:
    """The names by which a document's headings are linked to, as GitHub makes them."""
    prose = _FENCE.sub("", path.read_text("utf-8"))
    headings = re.findall(r"^#+ (.*)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
