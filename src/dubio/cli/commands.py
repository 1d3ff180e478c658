"""Commands take their help from their docstrings: the texts of ``Args`` are those of their options and arguments."""

from __future__ import annotations

import copy
import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from dubio.core.validate import section_texts

Command = Callable[..., Any]


class CommandGroup(typer.Typer):
    """A group of commands, each with the help that its docstring gives."""

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Command], Command]:  # type: ignore[override]
        """Register a function as the command of this name; the function itself stays as it is."""
        register = super().command(name, **settings)

        def decorate(command: Command) -> Command:
            register(documented(command))
            return command

        return decorate


def documented(command: Command) -> Command:
    """Return a command whose options and arguments have the texts of ``Args`` in its docstring as their help."""
    doc = inspect.cleandoc(command.__doc__ or "")
    hints, texts = typing.get_type_hints(command, include_extras=True), section_texts(doc, "Args")
    own = inspect.signature(command).parameters.values()
    parameters = [with_help(item.replace(annotation=hints[item.name]), texts) for item in own]

    @functools.wraps(command)
    def wrapper(**values: Any) -> Any:
        return command(**values)

    wrapper.__doc__ = doc.partition("\n\nArgs:\n")[0]
    return with_signature(wrapper, parameters)


def with_help(parameter: inspect.Parameter, texts: Mapping[str, str], **settings: Any) -> inspect.Parameter:
    """Return a parameter of a command with its help.

    One without a default is an argument, the others are options; a truth value is a flag. Where that is not so, or
    more is to be said, the annotation has typer's own description, whose help, if it has one, stays.

    Args:
        parameter: The parameter.
        texts: Help by the name of a parameter.
        settings: Of the option, where the annotation has none.
    """
    hint = parameter.annotation
    kind, *notes = typing.get_args(hint) if typing.get_origin(hint) is Annotated else (hint,)
    flag = [f"--{parameter.name.replace('_', '-')}"] if kind is bool else []
    describe = typer.Argument if parameter.default is parameter.empty else functools.partial(typer.Option, *flag)
    info = copy.copy(notes[0]) if notes else describe(**settings)
    info.help = info.help or texts.get(parameter.name)
    return parameter.replace(annotation=Annotated[kind, info])


def with_signature(wrapper: Command, parameters: list[inspect.Parameter]) -> Command:
    """Let a wrapper have these parameters, for typer, instead of those of the function it wraps."""
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {item.name: item.annotation for item in parameters}
    del wrapper.__wrapped__  # type: ignore[attr-defined]
    return wrapper
