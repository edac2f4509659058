"""How a chain may be asked to run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, cast, get_args

if TYPE_CHECKING:
    from listeners.chain.chain import LLMChain
    from listeners.chain.models.base import ChatModel
    from listeners.chain.outcome import Outcome

__all__ = ["DEFAULT_RUNS", "ModeName", "RunOptions", "check_options", "merged_options"]

ModeName = Literal["once", "while_needs_response", "until_success", "until_tool_used", "step"]

DEFAULT_RUNS: Final = 25
"""How often a run asks the model at most, unless it is told."""


_OF_ONE_MODE: Final = {"until_tool": "until_tool_used", "should_continue": "step"}


class RunOptions(TypedDict, total=False):
    """How to run.

    - ``mode``: ``"while_needs_response"`` unless given, or ``async def mode(chain) -> Outcome`` made of the steps in
      ``listeners.chain.modes``.
    - ``until_tool``: the names of which one must be used, for ``"until_tool_used"``.
    - ``should_continue(chain)``: whether ``"step"`` takes another one.
    - ``max_runs``: how often the model is asked at most, 25 unless given; ``None`` for no bound.
    - ``with_fallbacks``: models to try in turn when one fails in a way that another may not.
    - ``before_fallback(chain)``: changes the chain before each model's attempt, the first one included.
    """

    mode: ModeName | Callable[[LLMChain], Awaitable[Outcome]]
    until_tool: str | Collection[str]
    should_continue: Callable[[LLMChain], bool | Awaitable[bool]]
    max_runs: int | None
    with_fallbacks: Sequence[ChatModel] | None
    before_fallback: Callable[[LLMChain], object] | None


def check_options(options: Mapping[str, Any]) -> RunOptions:
    """Return the options if they are; raises ``TypeError`` for an unknown one, ``ValueError`` for what can't be."""
    if unknown := sorted(options.keys() - RunOptions.__annotations__.keys()):
        raise TypeError(
            f"run has no option {', '.join(unknown)}; there are {', '.join(RunOptions.__annotations__)}"
        )
    mode = options.get("mode", "while_needs_response")
    if not callable(mode) and mode not in get_args(ModeName):
        raise ValueError(
            f"mode is {mode!r}, but must be one of {', '.join(get_args(ModeName))}, or a function"
        )
    if mode == "until_tool_used" and not options.get("until_tool"):
        raise ValueError("mode until_tool_used needs until_tool=, the name of the tool or a list of names")
    limit = options.get("max_runs", DEFAULT_RUNS)
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        raise ValueError(f"max_runs is {limit!r}, but must be at least 1, or None for no bound")
    _check_functions(options)
    _check_fallbacks(options.get("with_fallbacks"))
    for name, its in _OF_ONE_MODE.items():
        if options.get(name) is not None and mode != its:
            raise ValueError(f"{name} is for mode {its!r} only, but mode is {mode!r:.80}")
    return cast(RunOptions, dict(options))


def merged_options(before: RunOptions, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of an interrupted run with those given now in their place."""
    mode = given.get("mode", before.get("mode"))
    kept = {name: value for name, value in before.items() if _OF_ONE_MODE.get(name, mode) == mode}
    return {**kept, **given}


def _check_functions(options: Mapping[str, Any]) -> None:
    for name in ("should_continue", "before_fallback"):
        given = options.get(name)
        if given is not None and not callable(given):
            raise TypeError(f"{name} must be a function of the chain, not {type(given).__name__}")
    names = options.get("until_tool")
    given = [names] if isinstance(names, str) else names or ()
    if not isinstance(given, Collection) or not all(isinstance(name, str) for name in given):
        raise TypeError("until_tool must be the name of a tool or a list of names")


def _check_fallbacks(models: object) -> None:
    if models is None:
        return
    if not isinstance(models, Sequence):
        raise TypeError(f"with_fallbacks must be a list of models, not {type(models).__name__}")
    for model in models:
        if not callable(getattr(model, "stream", None)) or not callable(
            getattr(model, "retry_on_fallback", None)
        ):
            raise TypeError(f"with_fallbacks must hold models, not {type(model).__name__}")
