"""The whole of it: tools wrapped once, and a block that is the run.

toolcast serve                                # in one terminal
python examples/first_agent.py hello          # in another
curl -N 'localhost:8808/runs/hello/events?format=text'
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from listeners import RedisListener, RunPublisher, ToolError, progress, wrap_all

HERE = Path(__file__).parent


def find_files(ending: str) -> list[str]:
    return sorted(path.name for path in HERE.glob(f"*.{ending}"))


def count_words(files: list[str]) -> int:
    words = 0
    for done, file in enumerate(files, 1):
        if not (HERE / file).is_file():
            # Written for people, so it is published; the text of any other exception isn't.
            raise ToolError(f"{file}: no such file")
        words += len((HERE / file).read_text("utf-8").split())
        progress(done, len(files), file)
        time.sleep(0.5)
    return words


TITLES = {
    "find_files": (
        "Looking for {ending} files…",
        "Looked for {ending} files",
        "Couldn't look for {ending} files",
    ),
    "count_words": ("Counting words…", "Counted words", "Couldn't count words"),
}
OBSERVED: list[Callable[..., Any]] = wrap_all([find_files, count_words], RedisListener(titles=TITLES))
TOOLS = {tool.__name__: tool for tool in OBSERVED}


def main(run_id: str) -> None:
    with RunPublisher(run_id, title="How many words are the examples?") as run:
        # Whatever calls the tools, your loop or a framework: every call in here is published.
        files = TOOLS["find_files"](ending="py")
        words = TOOLS["count_words"](files=files)
        run.complete(result=f"{words} words in {len(files)} files")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "hello")
