"""Rooms are imported when something in them is first looked up, so that importing dubio loads nothing heavy.

Names to factories: tasks, networks, methods and metrics, built in, from a user's file, or from an entry point.

A thing grows by one file: a function whose arguments are its configuration, typed and defaulted once, registered by a
decorator::

    from dubio.core.registry import task

    @task("my-data")
    def my_data(*, novel: tuple[str, ...] = ()) -> Task: ...

Built-in modules are imported when a name is first looked up, so that importing dubio loads nothing heavy.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import pkgutil
import sys
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Generic, TypeVar

from dubio.core.errors import BadFile, MissingExtra, UnknownName, UserError


def import_rooms(*rooms: str) -> None:
    """Import every module of these packages, so that what they register is known."""
    for room in rooms:
        package = importlib.import_module(room)
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{room}.{module.name}")


T = TypeVar("T")
Factory = TypeVar("Factory", bound=Callable[..., Any])


@dataclass(frozen=True)
class Entry(Generic[T]):
    """A registered factory.

    Attributes:
        name: What users write.
        factory: Called with keyword arguments, makes the thing.
        origin: The module it came from.
        summary: The first line of its docstring.
        facts: What was said of it on registration (a network's modality, say).
    """

    name: str
    factory: Callable[..., T]
    origin: str
    summary: str
    facts: Mapping[str, Any]

    def parameters(self) -> dict[str, inspect.Parameter]:
        """The keyword arguments that are its configuration."""
        found = inspect.signature(self.factory).parameters
        return {name: p for name, p in found.items() if p.kind is inspect.Parameter.KEYWORD_ONLY}

    def defaults(self) -> dict[str, Any]:
        """Every configurable argument that has a default, with it."""
        empty = inspect.Parameter.empty
        return {name: p.default for name, p in self.parameters().items() if p.default is not empty}

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments with defaults filled in, lists turned to tuples, names and types checked.

        Raises:
            UnknownName: For an argument it does not have.
            UserError: For a value of another type, or a missing argument.
        """
        known = self.parameters()
        hints = typing.get_type_hints(self.factory)
        full = self.defaults()
        for name, value in arguments.items():
            if name not in known:
                raise UnknownName(f"argument of {self.name}", name, known)
            full[name] = _typed(f"{self.name}: {name}", value, hints.get(name, Any))
        missing = [name for name in known if name not in full]
        if missing:
            raise UserError(f"{self.name} needs the argument {missing[0]!r}.")
        return full


class Registry(Generic[T]):
    """All the things of one sort, by name."""

    def __init__(self, what: str, *rooms: str) -> None:
        """Make a registry.

        Args:
            what: What its things are called in a message.
            rooms: The packages whose modules register the built-in ones.
        """
        self.what = what
        self._rooms = rooms
        self._entries: dict[str, Entry[T]] = {}
        self._filled = False

    def register(self, name: str, **facts: Any) -> Callable[[Factory], Factory]:
        """Decorator: file a factory under a name.

        Raises:
            UserError: When another module already uses the name.
        """

        def decorate(factory: Factory) -> Factory:
            known = self._entries.get(name)
            if known is not None and known.origin != factory.__module__:
                raise UserError(f"{self.what} {name!r} is already registered by {known.origin}; choose another name.")
            doc = inspect.getdoc(factory) or ""
            self._entries[name] = Entry(name, factory, factory.__module__, doc.partition("\n")[0], facts)
            return factory

        return decorate

    def entry(self, name: str) -> Entry[T]:
        """The entry of that name.

        Raises:
            UnknownName: With the nearest name, when there is none.
        """
        self._fill()
        if name not in self._entries:
            raise UnknownName(self.what, name, self._entries)
        return self._entries[name]

    def make(self, name: str, /, *positional: Any, **arguments: Any) -> T:
        """Call the factory of that name with checked arguments."""
        entry = self.entry(name)
        return entry.factory(*positional, **entry.check(arguments))

    def entries(self) -> tuple[Entry[T], ...]:
        """Every entry, by name."""
        self._fill()
        return tuple(self._entries[name] for name in sorted(self._entries))

    def names(self) -> tuple[str, ...]:
        """Every name, sorted."""
        return tuple(entry.name for entry in self.entries())

    def _fill(self) -> None:
        if self._filled:
            return
        self._filled = True
        try:
            import_rooms(*self._rooms)
        except ModuleNotFoundError as missing:
            self._filled = False
            if (missing.name or "").partition(".")[0] == "torch":
                raise MissingExtra(f"looking up a {self.what}", "train") from missing
            raise


TASKS: Registry[Any] = Registry("task", "dubio.tasks")
NETWORKS: Registry[Any] = Registry("network", "dubio.networks")
METHODS: Registry[Any] = Registry("method", "dubio.methods")
METRICS: Registry[Any] = Registry("metric", "dubio.metrics", "dubio.calibration")

REGISTRIES: dict[str, Registry[Any]] = {
    "tasks": TASKS,
    "networks": NETWORKS,
    "methods": METHODS,
    "metrics": METRICS,
}


def task(name: str) -> Callable[[Factory], Factory]:
    """Register a function ``(*, …) -> Task``."""
    return TASKS.register(name)


def network(
    name: str, *, inputs: str, version: int = 1, encoding: str | None = None, pretrained: str | None = None
) -> Callable[[Factory], Factory]:
    """Register a function ``(shape, *, …) -> Network`` for inputs of one modality.

    Args:
        name: Its name.
        inputs: The modality it takes.
        version: Bumped by hand whenever the same arguments come to mean another network; part of a fit's identity.
        encoding: The encoding it wants instead of its modality's own, such as ``wordpieces``.
        pretrained: The argument that names a pre-trained encoder, where its first weights come from one.
    """
    more = {"encoding": encoding, "pretrained": pretrained}
    facts = {key: value for key, value in more.items() if value is not None}
    return NETWORKS.register(name, inputs=inputs, version=version, **facts)


def method(name: str) -> Callable[[Factory], Factory]:
    """Register a function ``(*, …) -> Method``, most often a Recipe."""
    return METHODS.register(name)


def metric(name: str) -> Callable[[Factory], Factory]:
    """Register a function ``(*, …) -> Metric``."""
    return METRICS.register(name)


def load_plugin(path: Path) -> types.ModuleType:
    """Import a user's file so that what it registers is known under its names.

    Args:
        path: A Python file.

    Raises:
        BadFile: When there is no such file or it cannot be imported.
    """
    resolved = path.resolve()
    if not resolved.is_file():
        raise BadFile(f"plugin {str(path)!r}: no such file.")
    name = f"dubio_plugin_{resolved.stem}_{hashlib.sha256(str(resolved).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, resolved)
    if spec is None or spec.loader is None:
        raise BadFile(f"plugin {str(path)!r}: not a Python file (its name must end in .py).")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (UserError, KeyboardInterrupt):
        del sys.modules[name]
        raise
    except (Exception, SystemExit) as fault:
        del sys.modules[name]
        raise BadFile(f"plugin {str(path)!r} cannot be imported: {type(fault).__name__}: {fault}") from fault
    return module


def load_entry_points() -> tuple[str, ...]:
    """Import every installed plugin of the group ``dubio.plugins``; returns their names.

    Raises:
        BadFile: When an installed plugin cannot be imported.
    """
    names = []
    for point in entry_points(group="dubio.plugins"):
        try:
            point.load()
        except UserError:
            raise
        except Exception as fault:
            raise BadFile(f"installed plugin {point.name!r} ({point.value}) cannot be imported: {fault}") from fault
        names.append(point.name)
    return tuple(names)


def _typed(where: str, value: Any, hint: Any) -> Any:
    """The value as the hint asks (int → float, list → tuple), or a refusal that says what is allowed."""
    if hint is Any:
        return value
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        for choice in typing.get_args(hint):
            try:
                return _typed(where, value, choice)
            except UserError:
                continue
        raise UserError(f"{where} must be {_spoken(hint)}; given {value!r}.")
    if origin is typing.Literal:
        allowed = typing.get_args(hint)
        if value not in allowed:
            raise UnknownName(f"value of {where}", value, map(str, allowed))
        return value
    if origin is tuple and isinstance(value, list | tuple):
        item = typing.get_args(hint)[0]
        return tuple(_typed(where, element, item) for element in value)
    wanted = type(None) if hint is None else (origin or hint)
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, bool) and wanted is not bool:
        raise UserError(f"{where} must be {_spoken(hint)}; given {value!r}.")
    if isinstance(wanted, type) and not isinstance(value, wanted):
        raise UserError(f"{where} must be {_spoken(hint)}; given {value!r}.")
    return value


def _spoken(hint: Any) -> str:
    """A type as a reader would say it."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(_spoken(choice) for choice in typing.get_args(hint))
    names = {int: "a whole number", float: "a number", str: "a text", bool: "true or false", type(None): "nothing"}
    if typing.get_origin(hint) is tuple:
        return "a list"
    if typing.get_origin(hint) is typing.Literal:
        return " or ".join(repr(choice) for choice in typing.get_args(hint))
    return names.get(hint, getattr(hint, "__name__", str(hint)))
