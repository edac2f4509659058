"""The demo's agent: a chain with its model and tools, that asks before it deletes what isn't its own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from gateway.demo.library import TITLES, Library
from gateway.demo.workspace import Workspace
from listeners import Decision, RedisListener, RunPublisher
from listeners.chain import (
    Allow,
    ChatModel,
    Deny,
    Function,
    HeldCall,
    Interrupt,
    LLMChain,
    Message,
    Outcome,
    ReviewContext,
    ToolCall,
    Verdict,
)

__all__ = ["Agent"]

_TITLES: Final = {
    **TITLES,
    "delete_file": ("Deleting {file}…", "Deleted {file}", "Couldn't delete {file}", "Delete {file}?"),
}
_QUESTION: Final = "This file lies outside the workspace."
_NOT_OURS: Final = "The demo deletes only files that it has made."


class Agent:
    """Answers what the last of ``messages`` asks, with the tools of ``library``; ``asks``: it may delete, too.

    ``model`` is the one that answers, ``name`` what it is called where the conversation is kept.
    """

    def __init__(
        self,
        model: ChatModel,
        name: str,
        library: Library,
        workspace: Workspace,
        messages: Sequence[Message],
        *,
        asks: bool,
    ) -> None:
        self._name = name
        self._workspace = workspace
        tools = [Function.from_callable(tool, concurrent=True) for tool in library.tools]
        if asks:
            tools.append(Function.from_callable(workspace.delete_file))
        self._chain = LLMChain(
            model,
            tools=tools,
            messages=messages,
            callbacks=[RedisListener(titles=_TITLES), {"on_tool_call_review": self._review}],
        )

    async def answer(self, run: RunPublisher, *, waits: bool) -> Outcome:
        """Run the chain to its end, with ``run`` as the current run; returns what it came to.

        While a person is asked the conversation is kept. The outcome is an interrupted one if nobody has answered:
        at once unless the agent ``waits``, or when the task is cancelled, which ends the waiting and not the run.
        Raises :class:`~listeners.QuestionNotOpen` if nobody can answer any more.
        """
        outcome = await self._chain.run()
        while outcome.status == "interrupted":
            self._workspace.keep(self._chain.messages, model=self._name)
            if not waits:
                return outcome
            try:
                decisions = await _answers(run, outcome.interrupts)
            except asyncio.CancelledError:
                return outcome
            run.publish("run_resumed")
            outcome = await self._chain.resume(decisions)
        return outcome

    def _review(self, chain: LLMChain, call: ToolCall, function: Function, context: ReviewContext) -> Verdict:
        """Look at a call twice if need be: before anybody was asked, and with what a person has decided."""
        if call.name != "delete_file":
            return Allow()
        file = self._workspace.locate(call.arguments)
        if not self._workspace.may_delete(file):
            # A person may edit the arguments, so that this goes before their decision.
            return Deny(_NOT_OURS)
        if self._workspace.holds(file) or context.human_decision is not None:
            return Allow()
        return Interrupt(_QUESTION, {"path": str(file)})


async def _answers(run: RunPublisher, held: Sequence[HeldCall]) -> Mapping[str, Decision]:
    keys = {one.tool_call_id: one.call.key for one in held}
    open = [call for call in run.state.calls if call.state == "interrupted" and call.key in keys.values()]
    if open and run.state.status != "interrupted":
        # Taken up, it goes on waiting; and whoever ends this process now ends no run.
        questions = {one.call.key: one.message for one in held}
        run.interrupt([{"key": call.key, "message": questions[call.key]} for call in open])
    return {id: await run.decision(key) for id, key in keys.items()}
