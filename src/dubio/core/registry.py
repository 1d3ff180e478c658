"""Names to factories: tasks, networks, methods and metrics, built in, from a user's file, or from an entry point.

A plugin is one file: a function whose keyword arguments are its configuration, typed and defaulted once, registered by
a decorator::

    from dubio.core.registry import task

    @task("my-data")
    def my_data(*, novel: tuple[str, ...] = ()) -> Task: ...

A keyword argument whose type is a dataclass is an *argument group*: users write its fields as arguments of their own
(``--set METHOD.epochs=5``), and the registry gathers them.

Built-in modules are imported when a name is first looked up, so that importing dubio loads nothing heavy.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib
import importlib.util
import inspect
import os
import pkgutil
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from dubio.core.errors import BadFile, MissingExtra, UnknownName, UserError, listing
from dubio.core.validate import Positive, decode_arguments


def import_packages(*names: str) -> None:
    """Import every module of these packages, so that their decorators register."""
    for name in names:
        package = importlib.import_module(name)
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{name}.{module.name}")


PLUGINS, PLUGINS_VARIABLE = "dubio.plugins", "DUBIO_PLUGINS"
"""The group of entry points of installed plugins, and the environment variable that names those to load."""

T = TypeVar("T")
Factory = TypeVar("Factory", bound=Callable[..., Any])


@dataclass(frozen=True)
class Entry(Generic[T]):
    """A registered factory.

    Attributes:
        name: The name that users write.
        factory: The function that makes the object from keyword arguments.
        origin: The module that registered it.
        summary: The first line of its docstring.
        facts: Further properties given on registration, such as a network's modality.
    """

    name: str
    factory: Callable[..., T]
    origin: str
    summary: str
    facts: Mapping[str, Any]

    def parameters(self) -> dict[str, inspect.Parameter]:
        """Return the keyword arguments that configure it; the fields of an argument group stand in its place."""
        return _parameters(self.factory)

    def defaults(self) -> dict[str, Any]:
        """Return the defaults of the arguments that have one."""
        empty = inspect.Parameter.empty
        return {name: p.default for name, p in self.parameters().items() if p.default is not empty}

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Check names and types of arguments, turn lists into tuples and fill in defaults.

        Raises:
            UnknownName: For an argument it does not have.
            UserError: For a value of another type, or a missing argument.
        """
        return decode_arguments(self.parameters(), arguments, self.name)

    def make(self, *positional: Any, **arguments: Any) -> T:
        """Call the factory with checked arguments, gathered into its argument groups."""
        full = self.check(arguments)
        own = _own_parameters(self.factory)
        return self.factory(*positional, **{name: _gathered(name, p.annotation, full) for name, p in own.items()})


class Registry(Generic[T]):
    """All factories of one kind, by name."""

    def __init__(self, what: str, *packages: str) -> None:
        """Make a registry.

        Args:
            what: The kind in a message, e.g. ``task``.
            packages: The packages whose modules register the built-in ones.
        """
        self.what = what
        self._packages = packages
        self._entries: dict[str, Entry[T]] = {}
        self._filled = False

    def register(self, name: str, **facts: Any) -> Callable[[Factory], Factory]:
        """Return a decorator that registers a factory under a name.

        Args:
            name: What users write.
            facts: Further properties; those that are None are left out.

        Raises:
            UserError: When another module already uses the name.
        """

        def decorate(factory: Factory) -> Factory:
            other = self._entries.get(name)
            if other is not None and other.origin != factory.__module__:
                raise UserError(f"{self.what} {name!r} is already registered by {other.origin}; choose another name.")
            summary = (inspect.getdoc(factory) or "").partition("\n")[0]
            stated = {key: value for key, value in facts.items() if value is not None}
            self._entries[name] = Entry(name, factory, factory.__module__, summary, stated)
            return factory

        return decorate

    def entry(self, name: str) -> Entry[T]:
        """Return the entry of that name.

        Raises:
            UnknownName: With the nearest name, when there is none.
        """
        self._fill()
        if name not in self._entries:
            raise UnknownName(self.what, name, self._entries, not_loaded_sentence())
        return self._entries[name]

    def make(self, name: str, /, *positional: Any, **arguments: Any) -> T:
        """Call the factory of that name with checked arguments."""
        return self.entry(name).make(*positional, **arguments)

    def entries(self) -> tuple[Entry[T], ...]:
        """Return all entries, by name."""
        self._fill()
        return tuple(self._entries[name] for name in sorted(self._entries))

    def names(self) -> tuple[str, ...]:
        """Return all names, sorted."""
        return tuple(entry.name for entry in self.entries())

    def _fill(self) -> None:
        if self._filled:
            return
        self._filled = True
        try:
            import_packages(*self._packages)
        except ModuleNotFoundError as missing:
            self._filled = False
            if (missing.name or "").partition(".")[0] == "torch":
                raise MissingExtra(f"looking up a {self.what}", "train") from missing
            raise


TASKS: Registry[Any] = Registry("task", "dubio.tasks")
NETWORKS: Registry[Any] = Registry("network", "dubio.networks")
METHODS: Registry[Any] = Registry("method", "dubio.methods")
METRICS: Registry[Any] = Registry("metric", "dubio.metrics", "dubio.calibration")

REGISTRIES = {f"{registry.what}s": registry for registry in (TASKS, NETWORKS, METHODS, METRICS)}


def task(name: str, *, source: Any = None) -> Callable[[Factory], Factory]:
    """Register a function ``(*, …) -> Task``.

    Args:
        name: Its name.
        source: Where its data comes from (:class:`dubio.tasks.sources.locate.DataSource`), for ``dubio data``.
    """
    return TASKS.register(name, source=source)


def network(
    name: str,
    *,
    inputs: str,
    version: int = 1,
    encoding: str | None = None,
    pretrained: str | None = None,
    later: tuple[str, ...] = (),
) -> Callable[[Factory], Factory]:
    """Register a function ``(shape, *, …) -> Network`` for inputs of one modality.

    Args:
        name: Its name.
        inputs: The modality it takes.
        version: Raised by hand whenever the same arguments come to mean another network; part of a fit's identity.
        encoding: The encoding it needs instead of its modality's own, such as ``wordpieces``.
        pretrained: The argument that names a pre-trained encoder, where its first weights come from one.
        later: Arguments that came later: left out of a fit's identity while at their default, so that ids stay valid.
    """
    return NETWORKS.register(
        name, inputs=inputs, version=version, encoding=encoding, pretrained=pretrained, later=later
    )


SamplesFrom = Literal["one network", "one solution", "one mode", "several modes"]
"""Where the samples of one fit lie: a single network has one; noise acts on the inputs or weights of one solution;
weights are gathered around one mode of the loss, or visit several."""

Role = Literal["reference", "baseline"]

MEMBERS = 5
"""Members of an ensemble, unless the user asks for another number."""


@dataclass(frozen=True)
class Ensemble:
    """How the ensemble of a method is registered, where it is not named after the method.

    Attributes:
        name: Its name; ``<method>-ensemble`` where empty.
        title: Its title in a report; ``<method's title> ensemble`` where empty.
        summary: One line; made from the method's name where empty.
    """

    name: str = ""
    title: str = ""
    summary: str = ""


def method(
    name: str,
    *,
    family: str | None = None,
    colour: int | None = None,
    samples_from: SamplesFrom | None = None,
    role: Role | None = None,
    inputs: tuple[str, ...] | None = None,
    trainings_vary: bool | None = None,
    ensemble: Ensemble | bool = False,
) -> Callable[[Factory], Factory]:
    """Register a function ``(*, …) -> Method``, most often a Recipe, and perhaps the ensemble of it.

    Args:
        name: Its name.
        family: The family of methods it belongs to.
        colour: Its number in the report's palette; a method without one gets the next spare colour.
        samples_from: Where the samples of one fit lie.
        role: ``reference`` for the single network in which others are measured; ``baseline`` for a plain method that
            joins every comparison, in its first rows.
        inputs: The modalities that it applies to; all where omitted.
        trainings_vary: False if the training data alone determines the fit: it is trained once whatever the seeds,
            and its variance over trainings is 0, not unknown. Manifests and reports read it among the facts.
        ensemble: True, or an :class:`Ensemble`, to register the ensemble of independent fits too, with the further
            argument ``members``.
    """
    facts = {"family": family, "colour": colour, "samples_from": samples_from, "inputs": inputs}

    def decorate(function: Factory) -> Factory:
        METHODS.register(name, **facts, role=role, trainings_vary=trainings_vary)(function)
        if ensemble:
            own = ensemble if isinstance(ensemble, Ensemble) else Ensemble()
            factory = _ensemble_of(function, name, own)
            METHODS.register(own.name or f"{name}-ensemble", **facts, ensemble_of=name)(factory)
        return function

    return decorate


def _ensemble_of(function: Callable[..., Any], name: str, ensemble: Ensemble) -> Callable[..., Any]:
    """Return the function that makes an ensemble of a method: its own arguments, and how many members."""

    @functools.wraps(function)
    def make(*, members: int = MEMBERS, **arguments: Any) -> Any:
        single = function(**arguments)
        title = ensemble.title or f"{single.title} ensemble"
        return dataclasses.replace(single, name=ensemble.name or f"{name}-ensemble", title=title, members=members)

    members = inspect.Parameter("members", inspect.Parameter.KEYWORD_ONLY, default=MEMBERS, annotation=Positive)
    signature = inspect.signature(function)
    parameters = [*signature.parameters.values(), members]
    make.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    make.__annotations__ = {**function.__annotations__, "members": Positive}
    make.__doc__ = ensemble.summary or f"An ensemble of independent fits of {name}; their predictions are averaged."
    return make


def load_plugin(plugin: str | Path) -> types.ModuleType:
    """Import a user's file, or a plugin of an installed package, so that its decorators register.

    Args:
        plugin: A Python file, or the name of an entry point of the group ``dubio.plugins``.

    Raises:
        BadFile: When there is no such file or plugin, or it cannot be imported.
    """
    if is_installed(plugin):
        return _load_installed(str(plugin))
    path = Path(plugin)
    if not path.is_file():
        other = "" if path.suffix == ".py" else f", nor an installed plugin. Installed: {listing(installed_plugins())}"
        raise BadFile(f"plugin {str(path)!r}: no such file{other}.")
    resolved = path.resolve()
    name = f"dubio_plugin_{resolved.stem}_{hashlib.sha256(os.fsencode(resolved)).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, resolved)
    if spec is None or spec.loader is None:
        raise BadFile(f"plugin {str(path)!r}: not a Python file (its name must end in .py).")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit, KeyboardInterrupt) as fault:
        del sys.modules[name]
        if isinstance(fault, UserError | KeyboardInterrupt):
            raise
        raise BadFile(f"plugin {str(path)!r} cannot be imported: {type(fault).__name__}: {fault}") from fault
    return module


def load_plugins(plugins: Iterable[str | Path] = ()) -> tuple[str, ...]:
    """Import the plugins that the environment variable ``DUBIO_PLUGINS`` and the user name; return them, each once.

    An installed plugin that nobody names is not imported: installing a package must not change what a run does.
    """
    stated = [name.strip() for name in os.environ.get(PLUGINS_VARIABLE, "").split(",")]
    names = dict.fromkeys(filter(None, [*stated, *map(str, plugins)]))
    for name in names:
        load_plugin(name)
    return tuple(names)


def installed_plugins() -> dict[str, str]:
    """Return name → package and version of the plugins that installed packages offer, by name."""
    points = sorted(entry_points(group=PLUGINS), key=lambda point: point.name)
    return {p.name: f"{p.dist.name} {p.dist.version}" if p.dist is not None else p.value for p in points}


def is_installed(plugin: str | Path) -> bool:
    """Return whether a plugin is named by its entry point; what looks like a file is one."""
    return Path(plugin).name == str(plugin) and Path(plugin).suffix != ".py" and str(plugin) in installed_plugins()


def plugin_title(plugin: str) -> str:
    """Return a plugin as a person reads it: the name with its package, or the file."""
    return f"{plugin} ({installed_plugins()[plugin]})" if is_installed(plugin) else plugin


def not_loaded_sentence() -> str:
    """Return a sentence on installed plugins that are not loaded; empty where there are none."""
    points = entry_points(group=PLUGINS)
    names = sorted({point.name for point in points if point.value.partition(":")[0].strip() not in sys.modules})
    return f"Installed plugins, not loaded: {listing(names)}; load with --plugin NAME." if names else ""


def _load_installed(name: str) -> types.ModuleType:
    values = {point.value: point for point in entry_points(group=PLUGINS, name=name)}
    if len(values) > 1:
        modules = listing(sorted(values))
        raise UserError(f"several installed packages offer a plugin {name!r}: {modules}; remove one of them.")
    ((value, point),) = values.items()
    try:
        point.load()
    except UserError:
        raise
    except Exception as fault:
        raise BadFile(f"installed plugin {name!r} ({value}) cannot be imported: {fault}") from fault
    return sys.modules[value.partition(":")[0].strip()]


@functools.cache
def _own_parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the keyword-only parameters of a function, their annotations resolved."""
    hints = typing.get_type_hints(function, include_extras=True)
    return {
        name: parameter.replace(annotation=hints.get(name, Any))
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }


@functools.cache
def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the keyword-only parameters of a function, every argument group replaced by its fields."""
    flat: dict[str, inspect.Parameter] = {}
    for parameter in _own_parameters(function).values():
        for field in _fields(parameter):
            if field.name in flat:
                raise TypeError(f"{function.__qualname__}: two argument groups have a field {field.name!r}")
            flat[field.name] = field
    return flat


def _is_group(hint: Any) -> bool:
    return isinstance(hint, type) and dataclasses.is_dataclass(hint)


def _fields(parameter: inspect.Parameter) -> Iterator[inspect.Parameter]:
    """Yield the parameter itself, or the fields of its argument group with the defaults of its default."""
    group = parameter.annotation
    if not _is_group(group):
        yield parameter
        return
    default = group() if parameter.default is inspect.Parameter.empty else parameter.default
    hints = typing.get_type_hints(group, include_extras=True)
    for field in dataclasses.fields(group):
        value = getattr(default, field.name)
        yield from _fields(parameter.replace(name=field.name, default=value, annotation=hints[field.name]))


def _gathered(name: str, hint: Any, arguments: Mapping[str, Any]) -> Any:
    """Return the argument of that name; an argument group is built from its fields."""
    if not _is_group(hint):
        return arguments[name]
    hints, names = typing.get_type_hints(hint), [field.name for field in dataclasses.fields(hint)]
    return hint(**{own: _gathered(own, hints[own], arguments) for own in names})
