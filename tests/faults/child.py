"""Processes that do as they are told: orders come as lines of JSON, each is answered with one."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tests.support.servers import Process, wait_until

__all__ = ["Child", "Order", "hear"]

_ANSWER: Final = "answer"


class Order(NamedTuple):
    """What a child is told: its number, what to do, and with what."""

    number: int
    do: str
    what: dict[str, Any]

    def answer(self, value: object = None) -> None:
        """Say that it is done, and what came of it."""
        print(f"{_ANSWER} {self.number} {json.dumps(value)}", flush=True)


def hear(deliver: Callable[[Order | None], object]) -> None:
    """In the child: have each order delivered, in a thread; ``None``: who gives them is gone."""

    def listen() -> None:
        for line in sys.stdin:
            told = json.loads(line)
            deliver(Order(told.pop("number"), told.pop("do"), told))
        deliver(None)

    threading.Thread(target=listen, daemon=True).start()


class Child(Process):
    """The other side: ``python -m <module> <arguments>``."""

    def __init__(self, module: str, *arguments: str, env: dict[str, str] | None = None) -> None:
        super().__init__([sys.executable, "-m", module, *arguments], env=env, spoken_to=True)
        self._orders = 0

    @property
    def said(self) -> str:
        """What it wrote besides its answers."""
        return "".join(line for line in self.lines if not line.startswith(_ANSWER))

    def order(self, do: str, **what: Any) -> int:
        """Give an order and return its number."""
        self._orders += 1
        self.say(json.dumps({"number": self._orders, "do": do, **what}))
        return self._orders

    def answer_to(self, number: int, *, seconds: float = 30) -> Any:
        """Wait for the answer to an order."""
        found: list[str] = []
        begins = f"{_ANSWER} {number} "

        def answered() -> bool:
            found.extend(line for line in self.lines if line.startswith(begins))
            assert found or self.returncode is None, f"ended without an answer:\n{self.said}"
            return bool(found)

        wait_until(f"an answer to order {number}", answered, seconds=seconds)
        return json.loads(found[0].removeprefix(begins))

    def ask(self, do: str, *, seconds: float = 30, **what: Any) -> Any:
        """Give an order and wait for its answer."""
        return self.answer_to(self.order(do, **what), seconds=seconds)
