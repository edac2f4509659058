"""A call is identified while its arguments are still on their way."""

from __future__ import annotations

import asyncio

from listeners.chain import Message, MessageDelta, ScriptedChat, ToolCall
from tests.support.chains import chain_of, tool
from tests.support.virtual_time import run_virtually


def test_identified_within_50_ms_of_the_name() -> None:
    """With a stream that sends a name and then takes 2 s for the arguments."""

    async def main() -> tuple[float, float, float]:
        loop = asyncio.get_running_loop()
        at: dict[str, float] = {}
        named = ToolCall(index=0, call_id="c1", name="search")
        pieces = [ToolCall(index=0, arguments_text=text) for text in ('{"q":', '"x"}')]
        model = ScriptedChat(
            [
                [
                    0.5,
                    MessageDelta(tool_calls=(named,)),
                    1.0,
                    MessageDelta(tool_calls=(pieces[0],)),
                    1.0,
                    MessageDelta(tool_calls=(pieces[1],)),
                    MessageDelta(status="complete"),
                ],
                Message.assistant("done"),
            ]
        )
        chain = chain_of(
            model,
            tool("search", in_thread=False),
            callbacks=[
                {
                    "on_tool_call_identified": lambda *args: at.setdefault("identified", loop.time()),
                    "on_message_processed": lambda *args: at.setdefault("processed", loop.time()),
                    "on_tool_execution_started": lambda *args: at.setdefault("started", loop.time()),
                }
            ],
        )
        assert (await chain.run()).text == "done"
        return at["identified"], at["processed"], at["started"]

    identified, processed, started = run_virtually(main())
    assert 0.5 <= identified <= 0.55
    assert processed >= 2.5 and started >= 2.5
