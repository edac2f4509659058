"""A plain Python callable as a tool: its JSON Schema, and a model's arguments converted to its types (no I/O)."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from listeners.chain.docstrings import parameter_texts
from listeners.chain.invalid import InvalidArguments, described, unrecognised
from listeners.chain.tool_context import ToolContext
from listeners.likeness import kind_of

__all__ = ["Binding", "body_of"]


@dataclass(frozen=True, slots=True)
class _Parameter:
    name: str
    type: Any
    required: bool


class Binding:
    """From a model's arguments to a callable's keyword arguments.

    ``schema`` is the JSON Schema of the arguments. Calling it with them returns them converted to the annotated
    types; raises :class:`InvalidArguments` for missing, unknown and unconvertible ones. Making it raises
    ``TypeError`` with the parameter's name for one that can't be passed by keyword, and for a type without a JSON
    Schema.
    """

    def __init__(self, function: Callable[..., object], name: str) -> None:
        self._parameters: dict[str, _Parameter] = {}
        self._others: Any = None
        self.takes_others = False
        self.context: str | None = None
        properties: dict[str, Any] = {}
        definitions: dict[str, Any] = {}
        texts = parameter_texts(_documented(function))
        for parameter, hint in _hints(function, name):
            if _is_context(hint):
                self.context = parameter.name
            elif parameter.kind is parameter.VAR_KEYWORD:
                self.takes_others, self._others = True, hint
            elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
                raise TypeError(
                    f"{name}: parameter {parameter} can't be passed by keyword, as a model's arguments are"
                )
            else:
                required = parameter.default is parameter.empty
                self._parameters[parameter.name] = _Parameter(parameter.name, hint, required)
                schema = _schema(hint, definitions, f"{name}: parameter {parameter.name!r}")
                text = _text(hint) or texts.get(parameter.name)
                if text:
                    schema["description"] = text
                if not required:
                    schema.update(_default(parameter.default))
                properties[parameter.name] = schema
        self.schema: dict[str, Any] = {
            "type": "object",
            "properties": properties,
            "required": [parameter.name for parameter in self._parameters.values() if parameter.required],
            "additionalProperties": self.takes_others,
        }
        if definitions:
            self.schema["$defs"] = definitions

    def __call__(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Convert a model's arguments, as the class says."""
        problems = []
        parameters = self._parameters
        if missing := [
            name for name, known in parameters.items() if known.required and name not in arguments
        ]:
            problems.append(f"Missing required parameters: {', '.join(missing)}.")
        converted = {}
        for name, value in arguments.items():
            if name not in parameters and not self.takes_others:
                continue
            hint = parameters[name].type if name in parameters else self._others
            try:
                converted[name] = _converted(value, hint)
            except InvalidArguments as error:
                problems.append(f"Parameter {name}: {error}.")
        unknown = [name for name in arguments if name not in parameters and not self.takes_others]
        if not problems and not unknown:
            return converted
        if unknown and not missing and not problems:
            problems.append(f"Unrecognised parameters: {unrecognised(unknown, parameters)}.")
            problems.append(f"Accepted parameters: {', '.join(parameters) or 'none'}.")
        elif not self.takes_others:
            problems.append(described(arguments, self.schema))
        else:
            problems.append(f"Received parameters: {', '.join(arguments) or 'none'}.")
        raise InvalidArguments(" ".join(problems))


def body_of(function: Callable[..., Any], binding: Binding) -> Callable[[dict[str, Any], Any], Any]:
    """Return ``function`` as ``body(arguments, context)``, of the same kind."""

    def keywords(arguments: Mapping[str, Any], context: Any) -> dict[str, Any]:
        return {**arguments, **({binding.context: context} if binding.context is not None else {})}

    def call(arguments: dict[str, Any], context: Any) -> Any:
        return function(**keywords(arguments, context))

    async def wait(arguments: dict[str, Any], context: Any) -> Any:
        return await function(**keywords(arguments, context))

    def generate(arguments: dict[str, Any], context: Any) -> Any:
        return (yield from function(**keywords(arguments, context)))

    async def generate_async(arguments: dict[str, Any], context: Any) -> Any:
        async for item in function(**keywords(arguments, context)):
            yield item

    bodies = {"function": call, "coroutine": wait, "generator": generate, "async_generator": generate_async}
    body: Callable[[dict[str, Any], Any], Any] = bodies[kind_of(function)]
    body.__doc__ = _documented(function).__doc__
    return body


def _hints(function: Callable[..., Any], name: str) -> list[tuple[inspect.Parameter, Any]]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name}: its signature can't be read, give a Function with parameters") from error
    namespace = getattr(inspect.unwrap(_callee(function)), "__globals__", {})
    found = []
    for parameter in parameters:
        hint = Any if parameter.annotation is parameter.empty else parameter.annotation
        if isinstance(hint, str):
            try:
                # As typing.get_type_hints would, but for one parameter, so that the message can name it.
                hint = typing.get_type_hints(
                    type("_", (), {"__annotations__": {"it": hint}}), namespace, include_extras=True
                )["it"]
            except Exception as error:
                raise TypeError(
                    f"{name}: the annotation of parameter {parameter.name!r} can't be resolved: {error}"
                ) from error
        found.append((parameter, hint))
    return found


def _is_context(hint: Any) -> bool:
    """``ToolContext``, also annotated or optional."""
    if typing.get_origin(hint) is typing.Annotated:
        hint = hint.__origin__
    if hint is ToolContext:
        return True
    alternatives = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else ()
    return ToolContext in alternatives and set(alternatives) <= {ToolContext, type(None)}


def _callee(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function) or inspect.isclass(function):
        return function
    return type(function).__call__


def _documented(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _schema(hint: Any, definitions: dict[str, Any], what: str) -> dict[str, Any]:
    if hint is Any or hint is object:
        return {}

    def pydantic_schema(model: Any) -> dict[str, Any]:
        make = getattr(model, "model_json_schema", None)
        if make is None:
            raise NotImplementedError(f"{model!r} is neither plain data nor a pydantic model")
        made: dict[str, Any] = make(ref_template="#/$defs/{model}")
        # A pydantic model brings its own definitions, which would be looked for in the root.
        definitions.update(made.pop("$defs", {}))
        return made

    try:
        (schema,), found = msgspec.json.schema_components(
            [hint], schema_hook=pydantic_schema, ref_template="#/$defs/{name}"
        )
    except Exception as error:  # whatever a type's own schema raises
        raise TypeError(f"{what} has a type without a JSON Schema, {hint!r}: {error}") from error
    definitions.update(found)
    return dict(schema)


def _converted(value: Any, hint: Any) -> Any:
    if hint is Any or hint is object:
        return value
    try:
        return msgspec.convert(value, hint, dec_hook=_from_pydantic)
    except msgspec.ValidationError as error:
        try:
            # Models write "5" for 5; only where the value as it is doesn't fit.
            return msgspec.convert(value, hint, strict=False, dec_hook=_from_pydantic)
        except msgspec.ValidationError:
            raise InvalidArguments(_reason(error)) from None


def _reason(error: Exception) -> str:
    return str(error).rstrip(".")


def _from_pydantic(hint: Any, value: Any) -> Any:
    validate = getattr(hint, "model_validate", None)
    if validate is None:
        raise NotImplementedError(f"{hint!r} can't be made of a model's arguments")
    try:
        return validate(value)
    except ValueError as error:
        errors = getattr(error, "errors", None)
        if errors is None:
            raise
        # pydantic's own text has several lines and an address.
        told = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in errors()]
        raise ValueError("; ".join(told)) from None


def _text(hint: Any) -> str | None:
    if typing.get_origin(hint) is not typing.Annotated:
        return None
    for extra in hint.__metadata__:
        text = extra if isinstance(extra, str) else getattr(extra, "description", None)
        if isinstance(text, str):
            return text
    return None


def _default(value: Any) -> dict[str, Any]:
    try:
        return {"default": msgspec.json.decode(msgspec.json.encode(value))}
    except Exception:  # a default that JSON can't carry is the callable's own affair
        return {}
