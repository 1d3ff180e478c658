"""Options of the user's own data, defined once: arguments of the task ``own`` and options of the command line.

Each field of :class:`DataOptions` is a keyword argument of the task; its metadata holds the command line's help text.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal


def _option(default: Any, help: str, *, column: bool = False) -> Any:
    return field(default=default, metadata={"help": help, "column": column})


@dataclass(frozen=True)
class DataOptions:
    """The user's file or folder, the role of each column, and how rows are divided.

    Attributes:
        data: The file or folder.
        name: The task's name in reports.
        text: The column of texts.
        label: The column of classes (npz: ``y`` unless named; a folder of images names its classes itself).
        features: Numeric columns; ``*`` for all that have no other use. Missing values may be empty.
        label_separator: Separates labels where a cell holds several.
        target: The kind of target, where the data should not decide.
        order: The classes in their order; makes the target ordinal.
        id: The column of unique ids.
        group: The column of groups; no group is divided between splits.
        time: The column of times; the oldest rows train, the newest test.
        domain: The column of domains.
        train_domain: The domain to train on; every other one is a shift.
        split: The column of parts: train, val, cal, test, shift-…, ood-…; a part it lacks is cut out of train.
        novel: Classes to hold out of training, or ``auto``.
        fractions: Shares of train, val, cal and test.
        split_seed: Seed of random parts and of automatic novelty.
        size: Both sides of every image (a folder: 64 unless given; npz: as they are).
        parts: The file with the parts of an earlier model's rows, which stay where they were; no option of the command
            line (``dubio run --from`` sets it). Parts that the data names, and those by time, do not need it.
    """

    data: str
    name: str = "own"
    text: str | None = _option(None, "Column of texts.", column=True)
    label: str | None = _option(None, "Column of classes.", column=True)
    features: tuple[str, ...] = _option((), "Numeric columns, separated by commas; * for all others.", column=True)
    label_separator: str | None = _option(None, "Separator between several labels in a cell.", column=True)
    target: Literal["multiclass", "multilabel", "ordinal"] | None = _option(
        None, "multiclass, multilabel or ordinal; retina: binary or ordinal."
    )
    order: tuple[str, ...] = _option((), "Classes in their order, separated by commas: an ordinal target.")
    id: str | None = _option(None, "Column of unique ids.", column=True)
    group: str | None = _option(None, "Column of groups, such as patients; no group is divided.", column=True)
    time: str | None = _option(None, "Column of times: oldest rows train, newest test.", column=True)
    domain: str | None = _option(None, "Column of domains.", column=True)
    train_domain: str | None = _option(None, "The domain to train on.")
    split: str | None = _option(None, "Column of parts (train, val, cal, test).", column=True)
    novel: tuple[str, ...] = _option((), "Classes held out of training, separated by commas, or auto.")
    fractions: tuple[float, ...] = _option((0.6, 0.1, 0.15, 0.15), "Shares of train,val,cal,test.")
    split_seed: int = _option(0, "Seed of the split.")
    size: int | None = _option(None, "Both sides of every image, in pixels.")
    parts: str | None = None

    def columns(self) -> dict[str, str]:
        """Return the named columns by argument, features and the separator excepted."""
        arguments = (name for name in self.column_arguments() if name not in ("features", "label_separator"))
        return {name: getattr(self, name) for name in arguments}

    def column_arguments(self) -> tuple[str, ...]:
        """Return the arguments given that only make sense for data with columns."""
        fields = (item.name for item in dataclasses.fields(self) if item.metadata.get("column"))
        return tuple(name for name in fields if getattr(self, name))


def takes_options(options: type[Any]) -> Callable[[Callable[[Any], Any]], Callable[..., Any]]:
    """Turn a function of an options dataclass into one with a keyword argument for each field."""
    hints = typing.get_type_hints(options)
    parameters = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name])
        for name, parameter in inspect.signature(options).parameters.items()
    ]

    def decorate(function: Callable[[Any], Any]) -> Callable[..., Any]:
        result = typing.get_type_hints(function).get("return", Any)

        @functools.wraps(function)
        def factory(**arguments: Any) -> Any:
            return function(options(**arguments))

        del factory.__wrapped__  # its signature is the fields', not the function's
        factory.__signature__ = inspect.Signature(parameters, return_annotation=result)  # type: ignore[attr-defined]
        factory.__annotations__ = {**hints, "return": result}
        return factory

    return decorate
