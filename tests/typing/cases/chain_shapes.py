"""The shapes that callbacks are told of: frozen, by keyword, with the types of the contract."""

from __future__ import annotations

from typing import Any, Literal, assert_type

from listeners.chain import ContentPart, Function, ToolCall, ToolResult


def body(arguments: dict[str, Any], context: Any) -> str:
    return ""


def result_of(call: ToolCall) -> str:
    if call.result is None:
        return ""
    assert_type(call.result, ToolResult)
    assert_type(call.result.content, tuple[ContentPart, ...])
    return call.result.content[0].content


call = ToolCall(key="c1", call_id="c1", name="search", status="complete", arguments={"q": "x"})
assert_type(call.name, str | None)
assert_type(call.index, int)
assert_type(call.status, Literal["incomplete", "complete"])
assert_type(call.arguments, dict[str, Any])
ToolResult("text")
ToolResult([ContentPart("text", "x")], is_error=True, reason="timeout")
Function("search", body, display_text="Searching…")
Function("search", body, display_text=("Searching…", "Searched", "Couldn't search"))
Function("search", body, display_text=lambda arguments: f"Searching for {arguments['q']}…")

ToolCall("c1")  # refused: call-arg|misc
ToolCall(status="done")  # refused: arg-type
call.name = "other"  # refused: misc
ToolResult()  # refused: call-arg
ToolResult(5)  # refused: arg-type
ToolResult("x", True)  # refused: call-arg|misc
ToolResult("x", reason="broken")  # refused: arg-type
ContentPart("text")  # refused: call-arg
Function("search")  # refused: call-arg
Function("search", result_of)  # refused: arg-type
Function("search", body, display_text=5)  # refused: arg-type
Function("search", body, timeout="5")  # refused: arg-type
