"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

import typer

from dubio.core.errors import UserError
from dubio.tasks.data_options import DataOptions

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
PluginOption = Annotated[
    list[Path] | None,
    typer.Option(help="A Python file with tasks, networks, methods, metrics or sections; may be repeated."),
]
StoreOption = Annotated[Path, typer.Option(help="Folder of the store.")]
STORE = Path("dubio-store")

ValuesOption = Annotated[
    Literal["probs", "log_probs", "logits"] | None,
    typer.Option(help="Kind of numbers in the file, if their names do not show it."),
]
LabelsOption = Annotated[Path | None, typer.Option(help="A file of labels, if the file of predictions has none.")]
TargetOption = Annotated[
    Literal["multiclass", "multilabel", "ordinal"] | None, typer.Option(help="The kind of target.")
]
EmptyDecisionOption = Annotated[
    Literal["argmax", "empty"] | None,
    typer.Option(
        help="Multi-label rows without a label above its threshold: take the most probable one (argmax: right where "
        "every row of the training data has a label), or none. If omitted: as the file says, else empty."
    ),
]
ToleranceOption = Annotated[float, typer.Option(help="How far the sum of a row of probabilities may be from one.")]


DATA_OPTIONS = tuple(item for item in dataclasses.fields(DataOptions) if "help" in item.metadata)
"""The options of the user's own data; the path and the name are the commands' own."""

NOT_GIVEN: Mapping[str, Any] = MappingProxyType({item.name: None for item in DATA_OPTIONS})

Command = Callable[..., Any]


def with_data_options(panel: str | None = None) -> Callable[[Command], Command]:
    """Give a command an option for each field of :class:`DataOptions`.

    The command has a parameter ``data_options``, a mapping; None stands for an option that was not given.

    Args:
        panel: The heading of these options in the help.
    """

    def decorate(command: Command) -> Command:
        hints = typing.get_type_hints(command, include_extras=True)
        parameters = []
        for parameter in inspect.signature(command).parameters.values():
            if parameter.name == "data_options":
                parameters += [_parameter(item, panel) for item in DATA_OPTIONS]
            else:
                parameters.append(parameter.replace(annotation=hints[parameter.name]))

        @functools.wraps(command)
        def wrapper(**values: Any) -> Any:
            options = {item.name: values.pop(item.name, None) for item in DATA_OPTIONS}
            return command(data_options=options, **values)

        keyword_only = [item.replace(kind=inspect.Parameter.KEYWORD_ONLY) for item in parameters]
        wrapper.__signature__ = inspect.Signature(keyword_only)  # type: ignore[attr-defined]
        wrapper.__annotations__ = {item.name: item.annotation for item in parameters}
        del wrapper.__wrapped__
        return wrapper

    return decorate


def _parameter(item: dataclasses.Field[Any], panel: str | None) -> inspect.Parameter:
    """Return the option of one field: an integer where the field is one, else a text."""
    hint = typing.get_type_hints(DataOptions)[item.name]
    value = int if int in (hint, *typing.get_args(hint)) else str
    option = typer.Option(help=item.metadata["help"], rich_help_panel=panel)
    return inspect.Parameter(
        item.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[value | None, option]
    )


def data_arguments(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a task from options as they are written on the command line.

    Args:
        options: Values by argument, None where an option was not given; a list is one text with commas.

    Raises:
        UserError: When a share is not a number.
    """
    arguments = {key: value for key, value in options.items() if value is not None}
    for name in (item.name for item in DATA_OPTIONS if isinstance(item.default, tuple)):
        if name in arguments:
            arguments[name] = tuple(word.strip() for word in arguments[name].split(",") if word.strip())
    if "fractions" in arguments:
        try:
            arguments["fractions"] = tuple(float(word) for word in arguments["fractions"])
        except ValueError as fault:
            text = options["fractions"]
            raise UserError(f"fractions must be four numbers separated by commas; given {text!r}.") from fault
    return {key: str(value) if isinstance(value, Path) else value for key, value in arguments.items()}


def load_plugins(paths: Iterable[Path] | None = None) -> None:
    """Import what installed packages and these files register."""
    from dubio.core.registry import load_entry_points, load_plugin

    load_entry_points()
    for path in paths or ():
        load_plugin(path)


def named_files(texts: Iterable[str]) -> dict[str, str]:
    """Return name → path of arguments that are PATH or NAME=PATH, in their order."""
    named: dict[str, str] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not equals or Path(text).exists():
            name, path = Path(text).stem, text
        if not name or not path:
            raise UserError(f"system {text!r} must be PATH or NAME=PATH.")
        if name in named:
            raise UserError(f"two systems have the name {name!r}; name them with NAME=PATH.")
        named[name] = path
    return named
