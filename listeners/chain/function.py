"""A tool as a chain knows it: a body, and what the model and people are told about it."""

from __future__ import annotations

import copy
import inspect
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from listeners.chain.binding import Binding, body_of
from listeners.chain.docstrings import summary_of
from listeners.invocation import Hooks
from listeners.likeness import tool_name
from listeners.wrapping import observe, wrap_tool

__all__ = ["Function", "Title", "check_seconds"]

Title = str | tuple[str, ...] | Callable[[Mapping[str, Any]], str]
"""What to show: a text, ``(running, done, failed[, asking])``, or a function of the call's arguments."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Function:
    """A tool: ``function(arguments, context)`` is its body, plain or ``async``.

    - ``name``: 1 to 64 of the characters A-Z a-z 0-9 _ -; ``description``: for the model.
    - ``parameters``: the JSON Schema of an object; of one without properties if none is given.
    - ``parse_args(arguments)``: returns the mapping that the body gets.
    - ``display_text``: for people; a text, ``(running, done, failed[, asking])``, or a function of the arguments.
    - ``concurrent``: may run beside other calls of its batch. ``in_thread``: a plain body runs in a thread of its own.
    - ``timeout``: seconds from the start of the body; ``None`` is the chain's.
    - ``strict`` and ``options``: handed to providers that know them.

    Raises ``TypeError`` for a member of another type or a body that can't take two arguments, ``ValueError`` for a
    name, schema, title or time-out that can't be one.
    """

    name: str
    function: Callable[[dict[str, Any], Any], object]
    description: str
    parameters: dict[str, Any]
    parse_args: Callable[[dict[str, Any]], Mapping[str, Any]] | None
    display_text: Title | None
    concurrent: bool
    in_thread: bool
    timeout: float | None
    strict: bool
    options: dict[str, Any]

    def __init__(
        self,
        name: str,
        function: Callable[[dict[str, Any], Any], object],
        *,
        description: str = "",
        parameters: Mapping[str, Any] | None = None,
        parse_args: Callable[[dict[str, Any]], Mapping[str, Any]] | None = None,
        display_text: Title | None = None,
        concurrent: bool = False,
        in_thread: bool = True,
        timeout: float | None = None,
        strict: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(name, str):
            raise TypeError(f"a Function's name must be a str, not {type(name).__name__}")
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} can't be a Function's name: use 1 to 64 of A-Z a-z 0-9 _ -")
        _check_callable(name, "function", function, ("arguments", "context"))
        if parse_args is not None:
            _check_callable(name, "parse_args", parse_args, ("arguments",))
        if not isinstance(description, str):
            raise TypeError(f"{name}: description must be a str, not {type(description).__name__}")
        for flag, given in (("concurrent", concurrent), ("in_thread", in_thread), ("strict", strict)):
            if not isinstance(given, bool):
                raise TypeError(f"{name}: {flag} must be a bool, not {type(given).__name__}")
        put = object.__setattr__
        put(self, "name", name)
        put(self, "function", function)
        put(self, "description", description)
        put(self, "parameters", _schema(name, parameters))
        put(self, "parse_args", parse_args)
        put(self, "display_text", _title(name, display_text))
        put(self, "concurrent", concurrent)
        put(self, "in_thread", in_thread)
        put(self, "timeout", check_seconds(f"{name}: timeout", timeout))
        put(self, "strict", strict)
        put(self, "options", {} if options is None else _mapping(name, "options", options))

    @classmethod
    def from_callable(
        cls,
        f: Callable[..., object],
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        display_text: str | None = None,
        concurrent: bool = False,
        in_thread: bool = True,
        timeout: float | None = None,
    ) -> Self:
        """Make a tool of a plain callable, which is called as ``f(**arguments)``, converted to the annotated types.

        Name, description and schema come from its name, docstring and signature: ``Annotated[T, "text"]`` and the
        docstring describe parameters, one without default is required. A parameter annotated ``ToolContext`` is
        given the call's and isn't in the schema. Missing, unconvertible and (without ``**kwargs``) unknown arguments
        are an error result that tells the model what to change.

        Raises ``TypeError`` with the parameter's name for one that can't be passed by keyword or has a type without
        a JSON Schema, ``ValueError`` for a name that can't be one.
        """
        if not callable(f):
            raise TypeError(f"{type(f).__name__} can't be called: give a callable, or a Function")
        name = tool_name(f) if name is None else name
        binding = Binding(f, name)
        return cls(
            name,
            body_of(f, binding),
            description=summary_of(f) if description is None else description,
            parameters=binding.schema,
            parse_args=binding,
            display_text=display_text,
            concurrent=concurrent,
            in_thread=in_thread,
            timeout=timeout,
        )


@wrap_tool.register
def _(tool: Function, hooks: Hooks, name: str | None) -> Function:
    def arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        given = args[0] if args else kwargs.get("arguments")
        return dict(given) if isinstance(given, Mapping) else {"args": args, **kwargs}

    observed = observe(tool.function, hooks, tool.name if name is None else name, tool_input=arguments)
    # Copied, not made anew: everything that is not the call itself stays the tool's own object.
    wrapped = copy.copy(tool)
    object.__setattr__(wrapped, "function", observed)
    return wrapped


def _check_callable(name: str, what: str, given: object, parameters: tuple[str, ...]) -> None:
    shape = f"{what}({', '.join(parameters)})"
    if not callable(given):
        raise TypeError(f"{name}: {what} must be callable as {shape}, not {type(given).__name__}")
    try:
        signature = inspect.signature(given)
    except (TypeError, ValueError):  # several builtins have none
        return
    try:
        signature.bind(*parameters)
    except TypeError as error:
        raise TypeError(f"{name}: {what} must be callable as {shape}, but it takes {signature}") from error


def _schema(name: str, parameters: Mapping[str, Any] | None) -> dict[str, Any]:
    if parameters is None:
        return {"type": "object", "properties": {}}
    schema = _mapping(name, "parameters", parameters)
    if schema.get("type") != "object":
        raise ValueError(f'{name}: parameters must be the JSON Schema of an object, with "type": "object"')
    required = schema.get("required", ())
    if not isinstance(required, list | tuple) or not all(isinstance(one, str) for one in required):
        raise ValueError(f"{name}: required in parameters must be a list of names")
    if not isinstance(schema.get("properties", {}), Mapping):
        raise ValueError(f"{name}: properties in parameters must be a mapping of names to schemas")
    return schema


def _mapping(name: str, what: str, given: object) -> dict[str, Any]:
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise TypeError(f"{name}: {what} must be a mapping with str keys, not {type(given).__name__}")
    return dict(given)


def _title(name: str, display_text: object) -> object:
    if display_text is None or isinstance(display_text, str) or callable(display_text):
        return display_text
    if not isinstance(display_text, tuple) or not all(isinstance(text, str) for text in display_text):
        raise TypeError(
            f"{name}: display_text must be a text, (running, done, failed[, asking]), or a function of the arguments"
        )
    if not 1 <= len(display_text) <= 4:
        raise ValueError(
            f"{name}: display_text has {len(display_text)} texts; give (running, done, failed[, asking])"
        )
    return display_text


def check_seconds(what: str, timeout: float | None) -> float | None:
    """Return a time-out if it is one; ``what`` it is of is named in the ``TypeError`` or ``ValueError``."""
    if timeout is None:
        return None
    if not isinstance(timeout, int | float) or isinstance(timeout, bool):
        raise TypeError(f"{what} must be seconds or None, not {type(timeout).__name__}")
    if not (timeout > 0 and math.isfinite(timeout)):
        raise ValueError(f"{what} must be a positive number of seconds, not {timeout}; None for no limit")
    return timeout
