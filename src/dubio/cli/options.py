"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dubio.cli.commands import Command, with_help, with_signature
from dubio.cli.output import say
from dubio.core.errors import UserError, check_known
from dubio.core.validate import section_texts
from dubio.tasks.data_options import DataOptions

if TYPE_CHECKING:
    from dubio.core.predictions import Predictions
    from dubio.core.types import Target

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
RawCsvOption = Annotated[
    bool, typer.Option("--raw-csv", help="CSV: write texts that a spreadsheet would take for formulas as they are.")
]
PluginOption = Annotated[
    list[str] | None,
    typer.Option(
        help="A Python file with tasks, networks, methods, metrics or sections, or the name of an installed plugin; "
        "may be repeated. DUBIO_PLUGINS names others, separated by commas."
    ),
]
StoreOption = Annotated[Path, typer.Option(help="Folder of the store.")]
STORE = Path("dubio-store")
MarginOption = Annotated[
    float,
    typer.Option(
        help="How much worse than the best a cheaper method may be and still be advised: nats of NLL, or a share in "
        "accuracy and AUROC."
    ),
]
MARGIN = 0.01  # that of dubio.reporting, which the help must not wait for
EXAMPLES = 60  # likewise

EmptyDecisionOption = Annotated[
    Literal["argmax", "empty"] | None,
    typer.Option(
        help="Multi-label rows without a label above its threshold: take the most probable one (argmax: right where "
        "every row of the training data has a label), or none. If omitted: as the file says, else empty."
    ),
]


@dataclasses.dataclass(frozen=True)
class ReadingOptions:
    """How files of predictions are read; each field is an option of every command that reads some.

    Attributes:
        values: Kind of numbers in the file, if their names do not show it.
        labels: A file of labels, if the file of predictions has none.
        target: The kind of target.
        tolerance: How far the sum of a row of probabilities may be from one.
        in_domain: The in-distribution value of the column domain.
        group: Column of groups, such as patients: the independent units.
        id: Column of unique ids.
        by: Column of subgroups, such as a site; may be repeated.
        rows_are_independent: Accept a column that looks like groups and is not used.
    """

    values: Literal["probs", "log_probs", "logits"] | None = None
    labels: Path | None = None
    target: Literal["multiclass", "multilabel", "ordinal"] | None = None
    tolerance: float = 1e-3
    in_domain: str | None = None
    group: str | None = None
    id: str | None = None
    by: list[str] | None = None
    rows_are_independent: bool = False

    def stated(self) -> dict[str, Any]:
        """Return the options that differ from their defaults, by their names on the command line."""
        own = {item.name: (getattr(self, item.name), item.default) for item in dataclasses.fields(self)}
        return {f"--{name.replace('_', '-')}": value for name, (value, default) in own.items() if value != default}

    def read(self, path: str | Path, *, labels: Path | None = None, target: Target | None = None) -> Predictions:
        """Read a file of predictions.

        Args:
            path: The file.
            labels: Its labels, where it has none; those of the options are for the file that a command is about.
            target: In place of that of the options.
        """
        from dubio.formats import read_predictions

        same = {name: getattr(self, name) for name in ("values", "tolerance", "in_domain", "group")}
        return read_predictions(
            path, labels=labels, target=target or self.target, ids=self.id, by=self.by or (),
            rows_are_independent=self.rows_are_independent, **same,
        )  # fmt: skip


DATA_OPTIONS = tuple(item for item in dataclasses.fields(DataOptions) if "help" in item.metadata)
"""The options of the user's own data; the path and the name are the commands' own."""

NOT_GIVEN: Mapping[str, Any] = MappingProxyType({item.name: None for item in DATA_OPTIONS})

KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY


def with_data_options(panel: str | None = None) -> Callable[[Command], Command]:
    """Give a command an option for each field of :class:`DataOptions`.

    The command has a parameter ``data_options``, a mapping; None stands for an option that was not given.

    Args:
        panel: The heading of these options in the help.
    """
    return functools.partial(_expanded, "data_options", [_parameter(item, panel) for item in DATA_OPTIONS], dict)


def with_reading_options(*without: str) -> Callable[[Command], Command]:
    """Give a command an option for each field of :class:`ReadingOptions`; its parameter ``reading`` has their values.

    Args:
        without: Fields that the command decides itself.
    """
    own = inspect.signature(ReadingOptions, eval_str=True).parameters.values()
    texts = section_texts(inspect.getdoc(ReadingOptions) or "", "Attributes")
    options = [
        with_help(item.replace(kind=KEYWORD_ONLY), texts, rich_help_panel="Reading files of predictions")
        for item in own
        if item.name not in without
    ]
    return functools.partial(_expanded, "reading", options, ReadingOptions)


def _limit(text: str | None) -> None:
    if text is not None:
        from dubio.core.unpacking import limit_unpacking

        limit_unpacking(text)


_MAX_UNPACKED = inspect.Parameter(
    "max_unpacked", KEYWORD_ONLY, default=None, annotation=Annotated[
        str | None,
        typer.Option(
            callback=_limit, metavar="SIZE",
            help="The most that a file may take in memory once unpacked, such as 8GB. If omitted: DUBIO_MAX_UNPACKED, "
            "else 4GB.",
        ),
    ],
)  # fmt: skip
"""An option of every command that reads files of the user; it is in force as soon as it is read."""


def _expanded(name: str, options: list[inspect.Parameter], collect: Callable[..., Any], command: Command) -> Command:
    """Replace a parameter of a command by several options, which it gets collected; add the limit on unpacked files."""
    hints = typing.get_type_hints(command, include_extras=True)
    parameters = []
    for parameter in inspect.signature(command).parameters.values():
        own = parameter.replace(annotation=hints[parameter.name], kind=KEYWORD_ONLY)
        parameters += options if parameter.name == name else [own]
    parameters.append(_MAX_UNPACKED)

    @functools.wraps(command)
    def wrapper(**values: Any) -> Any:
        values.pop(_MAX_UNPACKED.name, None)
        collected = collect(**{item.name: values.pop(item.name, item.default) for item in options})
        return command(**{name: collected}, **values)

    return with_signature(wrapper, parameters)


def _parameter(item: dataclasses.Field[Any], panel: str | None) -> inspect.Parameter:
    """Return the option of one field: an integer where the field is one, else a text."""
    hint = typing.get_type_hints(DataOptions)[item.name]
    value = int if int in (hint, *typing.get_args(hint)) else str
    option = typer.Option(help=item.metadata["help"], rich_help_panel=panel)
    return inspect.Parameter(item.name, KEYWORD_ONLY, default=None, annotation=Annotated[value | None, option])


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


def load_plugins(plugins: Iterable[str] | None = None) -> None:
    """Import these plugins and those of the environment, and name them."""
    from dubio.core.registry import load_plugins, plugin_title

    if names := load_plugins(plugins or ()):
        say(f"plugins: {', '.join(map(plugin_title, names))}")


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


def files_of_systems(
    option: str, texts: list[str] | None, systems: Mapping[str, str], *, every: bool = True
) -> dict[str, list[str]]:
    """Return system → files of an option that is PATH for the only system, or NAME=PATH.

    Args:
        option: The option.
        texts: Its values.
        systems: Name → file.
        every: Whether every system needs the same number of them.
    """
    files: dict[str, list[str]] = {name: [] for name in systems}
    for text in texts or ():
        name, equals, path = text.partition("=")
        if not equals or Path(text).exists():
            if len(systems) > 1:
                raise UserError(f"{option} {text!r}: with several systems, name one of them: NAME=PATH.")
            name, path = next(iter(systems)), text
        check_known(f"system in {option}", [name], systems)
        files[name].append(path)
    if every and len({len(paths) for paths in files.values()}) > 1:
        numbers = ", ".join(f"{name}: {len(paths)}" for name, paths in files.items())
        raise UserError(f"{option}: every system needs the same number of files; files given are {numbers}.")
    return files
