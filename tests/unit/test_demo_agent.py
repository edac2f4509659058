"""The demo's agent over a library of three modules: its script, its two looks at a deletion, what it never deletes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.demo.agent import Agent
from gateway.demo.library import Library
from gateway.demo.model import QUESTION, SCRIPTED, ModelUnusable, model_named, scripted
from gateway.demo.pace import Pace
from gateway.demo.workspace import CACHED, NothingKept, Workspace
from listeners import Approve, Edit, Reject, ToolError
from listeners.chain import (
    Allow,
    Deny,
    Function,
    Interrupt,
    LLMChain,
    Message,
    ReviewContext,
    ToolCall,
    Verdict,
    dump_messages,
    load_messages,
)
from listeners.testing import recorded

AT_ONCE = 1e6
PACE = Pace(AT_ONCE)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "library"
    folder.mkdir()
    (folder / "heapq.py").write_text('"""heapq"""\n')
    (folder / "queue.py").write_text("import heapq\n")
    return folder


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = Workspace("demo", redis="here")
    made.make()
    return made


def agent_of(root: Path, workspace: Workspace, messages: list[Message], *, asks: bool = True) -> Agent:
    library = Library(root, workspace.home / "library.db", PACE)
    return Agent(scripted(str(root), PACE, asks=asks), SCRIPTED, library, workspace, messages, asks=asks)


# --- The script ---


async def test_the_script_streams_a_call_as_a_provider_does(root: Path) -> None:
    """Its name, then its arguments in pieces, which are JSON when they are put together."""
    calls: list[ToolCall] = []
    told: list[str] = []

    def note(chain: LLMChain, deltas: object) -> None:
        calls.extend(call for delta in deltas for call in delta.tool_calls)  # type: ignore[attr-defined]  # deltas

    def identified(chain: LLMChain, call: ToolCall, function: Function) -> None:
        told.append(f"{call.call_id} after {len(calls)}")

    def nothing(**arguments: object) -> None:
        """Nothing."""

    tools = [Function.from_callable(nothing, name=name) for name in ("search_library", "read_file")]
    chain = LLMChain(scripted(str(root), PACE, asks=False), tools=tools, messages=[Message.user(QUESTION)])
    chain.add_callback({"on_llm_new_delta": note, "on_tool_call_identified": identified})
    await chain.run(mode="step", should_continue=lambda chain: False)
    pieces = [call.arguments_text for call in calls if call.index == 0]
    assert len(pieces) > 3
    assert json.loads("".join(pieces)) == {"module": "heapq", "path": str(root)}
    assert told == ["call_1 after 1", f"call_2 after {len(pieces) + 1}"]


async def test_without_asking_it_answers_with_what_the_tools_found(root: Path, workspace: Workspace) -> None:
    with recorded() as run:
        outcome = await agent_of(root, workspace, [Message.user(QUESTION)], asks=False).answer(
            run, waits=True
        )
    assert outcome.text.startswith(
        "1 modules of the standard library import heapq:\n- queue.py: 1 lines, 0 kB"
    )
    assert [call.name for call in run.state.calls if call.name == "delete_file"] == []


# --- Asking ---


async def test_it_asks_and_goes_on_with_a_conversation_that_was_kept(
    root: Path, workspace: Workspace
) -> None:
    with recorded() as run:
        outcome = await agent_of(root, workspace, [Message.user(QUESTION)]).answer(run, waits=False)
    assert outcome.status == "interrupted"
    (held,) = outcome.interrupts
    assert held.call.arguments == {"file": "cache.db", "folder": "../cache"}
    call = run.state.calls[-1]
    assert (call.title, call.state) == ("Delete cache.db?", "interrupted")

    messages, model = workspace.kept()
    assert model == SCRIPTED
    # As another process would, with the answer at hand.
    other = agent_of(root, workspace, messages)
    again = await other._chain.run()
    assert again.interrupts[0].tool_call_id == held.tool_call_id
    done = await other._chain.resume([Approve()])
    assert done.text.endswith("\nDeleted cache.db.")
    assert not (workspace.home / "../cache/cache.db").exists()


@pytest.mark.parametrize(
    ("decision", "looks", "last"),
    [
        (Approve(), [(None, Interrupt), ("approve", Allow)], "Deleted cache.db."),
        (
            Edit({"file": "cache.old", "folder": "../cache"}),
            [(None, Interrupt), ("edit", Allow)],
            "Deleted cache.old.",
        ),
        (
            Edit({"file": "queue.py", "folder": "../../../library"}),
            [(None, Interrupt), ("edit", Deny)],
            "The demo deletes only files that it has made.",
        ),
        (
            Reject("Mine."),
            [(None, Interrupt)],
            "Tool call 'delete_file' was rejected by a human reviewer: Mine.",
        ),
    ],
)
async def test_it_looks_twice(
    root: Path, workspace: Workspace, decision: Approve | Edit | Reject, looks: object, last: str
) -> None:
    agent = agent_of(root, workspace, [Message.user(QUESTION)])
    seen: list[tuple[object, type[Verdict]]] = []

    def watch(chain: LLMChain, call: ToolCall, function: Function, context: ReviewContext) -> Verdict:
        if call.name == "delete_file":
            seen.append((context.human_decision, type(agent._review(chain, call, function, context))))
        return Allow()

    # Asked before the agent's own, which would otherwise be the last that is asked.
    chain = LLMChain(
        agent._chain.llm, tools=agent._chain.tools, messages=agent._chain.messages,
        callbacks=[{"on_tool_call_review": watch}, *agent._chain.callbacks],
    )  # fmt: skip
    assert (await chain.run()).status == "interrupted"
    outcome = await chain.resume([decision])
    assert seen == looks
    assert outcome.text.splitlines()[-1] == last
    assert (root / "queue.py").exists()


# --- The workspace ---


@pytest.mark.parametrize(
    ("file", "folder", "said"),
    [
        ("queue.py", "../../../library", "only files that it has made"),
        ("model.txt", "..", "only files that it has made"),
        ("/etc/passwd", ".", "only files that it has made"),
        ("unknown.db", "../cache", "only files that it has made"),
        ("unknown.db", ".", "no such file"),
    ],
)
def test_it_deletes_what_it_has_made_and_nothing_else(
    workspace: Workspace, root: Path, file: str, folder: str, said: str
) -> None:
    with pytest.raises(ToolError, match=said):
        workspace.delete_file(file, folder)
    assert (root / "queue.py").exists()


def test_its_own_files_need_no_question(workspace: Workspace) -> None:
    (workspace.home / "notes.txt").write_text("x")
    file = workspace.locate({"file": "notes.txt"})
    assert workspace.holds(file) and workspace.may_delete(file)
    assert workspace.delete_file("notes.txt") == "Deleted notes.txt."


def test_a_link_leads_nowhere_else(workspace: Workspace, tmp_path: Path) -> None:
    precious = tmp_path / "precious.txt"
    precious.write_text("mine")
    (workspace.home / "link.txt").symlink_to(precious)
    with pytest.raises(ToolError, match="only files that it has made"):
        workspace.delete_file("link.txt")


def test_runs_and_redises_have_folders_of_their_own(workspace: Workspace) -> None:
    other = Workspace("demo", redis="elsewhere")
    other.make()
    assert other.home != workspace.home
    with pytest.raises(NothingKept, match="no conversation of run demo is kept"):
        other.kept()
    other.remove()
    assert (workspace.home / "../cache" / CACHED[0]).exists()
    workspace.make()
    assert list(workspace.home.iterdir()) == []


def test_a_folder_of_somebody_else_is_not_used(tmp_path: Path, workspace: Workspace) -> None:
    (folder,) = tmp_path.glob("toolcast-demo-*")
    folder.chmod(0o777)
    with pytest.raises(FileExistsError, match="nobody but you may use"):
        Workspace("demo", redis="here")


def test_a_conversation_comes_back_as_it_was(workspace: Workspace) -> None:
    messages = [Message.system("Be brief."), Message.user(QUESTION)]
    workspace.keep(messages, model="openai:m")
    kept, model = workspace.kept()
    assert (kept, model) == (load_messages(dump_messages(messages)), "openai:m")


@pytest.mark.parametrize("name", ["openai", "openai:", "google:m", ""])
def test_what_is_no_model_is_refused(name: str) -> None:
    with pytest.raises(ModelUnusable, match="is no model: it looks like openai:NAME or anthropic:NAME"):
        model_named(name, "/lib", PACE, asks=False)
