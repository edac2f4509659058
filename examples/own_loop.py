"""A loop of one's own: it says itself when a call is known, runs, gets on and ends; nothing is wrapped.

python examples/own_loop.py own-loop
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator

from listeners import RunPublisher

# What a model streams of one tool call: its name first, then its arguments in pieces.
STREAMED = [
    {"id": "call_1", "name": "factorise"},
    {"arguments": '{"number": 60'},
    {"arguments": "0851475143}"},
]


def factors(number: int) -> Iterator[int]:
    divisor = 2
    while number > 1:
        while number % divisor == 0:
            number //= divisor
            yield divisor
        divisor += 1


def main(run_id: str) -> None:
    with RunPublisher(run_id, title="What is 600,851,475,143 made of?") as run:
        name, id, arguments = "", "", ""
        for fragment in STREAMED:
            time.sleep(0.4)
            if "name" in fragment:
                name, id = fragment["name"], fragment["id"]
                run.identified(name, id=id)
            arguments += fragment.get("arguments", "")

        number = json.loads(arguments)["number"]
        title = ("Factorising {number}…", "Factorised {number}", "Couldn't factorise {number}")
        with run.call(name, id=id, arguments={"number": number}, title=title) as call:
            found = []
            for factor in factors(number):
                found.append(factor)
                call.progress(message=f"found {factor}")
                time.sleep(0.4)
            call.result = found
        run.complete(result=" × ".join(map(str, found)))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "own-loop")
