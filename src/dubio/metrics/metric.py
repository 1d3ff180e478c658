"""Metrics: how one is declared, how its name is written and read, and how several are computed.

A metric is one function of predictions and weights; the decorator reads names and defaults of its arguments from the
signature::

    @metric("aurc", better="lower", needs={"labels"})
    def aurc(p: Predictions, *, quantity: Quantity = CONFIDENCE, weights: Weights = ONCE) -> Values: ...

The function sees the labelled rows alone where it needs labels, and returns one value per replicate. Called without
weights it gives a float. With ``mean=True`` it returns one contribution per row instead, and the metric is their mean.
Without an argument ``weights`` it returns a float, and the bootstrap computes it again for every replicate. With
arguments other than the defaults, a metric is written ``ece(bins=10)`` or ``ood_auroc(quantity="mutual_information")``.
"""

from __future__ import annotations

import functools
import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, cast

import numpy as np

from dubio.core.documents import parse_json
from dubio.core.errors import UnknownName, UserError
from dubio.core.predictions import Predictions
from dubio.core.registry import METRICS
from dubio.core.types import TARGETS, Direction, FloatArray, Metric, Need, Target
from dubio.core.weights import ONCE, Values, Weights
from dubio.metrics.quantities import QUANTITIES
from dubio.metrics.requirements import require, why_not_applicable

P = ParamSpec("P")
T = TypeVar("T")

Arguments = dict[str, Any]

PUBLISHED = "_as_published"
"""The end of the names of metrics that repeat a published mistake; they are computed only when named."""

_CALL = re.compile(r"\s*([A-Za-z_][\w-]*)\s*(?:\((.*)\))?\s*", re.DOTALL)

_PREPARED: ContextVar[dict[Any, tuple[Predictions, Any]] | None] = ContextVar("prepared", default=None)


@contextmanager
def preparing_once() -> Iterator[None]:
    """Compute once, within the block, what metrics prepare of the same predictions, such as an order of rows."""
    memory = _PREPARED.get()
    token = _PREPARED.set({} if memory is None else memory)
    try:
        yield
    finally:
        _PREPARED.reset(token)


def prepared(function: Callable[Concatenate[Predictions, P], T]) -> Callable[Concatenate[Predictions, P], T]:
    """Decorate a preparation: a function of predictions and hashable arguments that does not depend on weights."""

    @functools.wraps(function)
    def remembered(predictions: Predictions, /, *args: P.args, **kwargs: P.kwargs) -> T:
        memory = _PREPARED.get()
        if memory is None:
            return function(predictions, *args, **kwargs)
        key = (function, id(predictions), args, tuple(kwargs.items()))
        if key not in memory:
            memory[key] = (predictions, function(predictions, *args, **kwargs))  # holding them keeps their id taken
        value: T = memory[key][1]
        return value

    return remembered


@dataclass(eq=False)
class MetricFunction(Generic[P]):
    """A declared metric: called with predictions it gives the value, a float; with weights the values ``[R]``.

    Attributes:
        function: Predictions, keyword arguments and, where it understands them, ``weights`` to the value. The other
            attributes are the arguments of :func:`metric`, the same whatever those of the function.
    """

    function: Callable[P, Any]
    name: str
    better: Direction | Callable[..., Direction]
    needs: frozenset[Need]
    targets: frozenset[Target]
    why_not: str = ""
    version: int = 1
    interval: Literal["percentile", "centred"] = "percentile"
    mean: bool = False
    rows: Callable[..., FloatArray] | None = None
    least_units: int = 2
    likelihood: bool = False

    def __post_init__(self) -> None:
        functools.update_wrapper(self, self.function)
        parameters = inspect.signature(self.function).parameters
        self._weighted = "weights" in parameters
        self._parameters = [parameter for name, parameter in list(parameters.items())[1:] if name != "weights"]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Return the value on predictions, or one value per replicate of ``weights``."""
        arguments: Arguments = dict(kwargs)
        weights = arguments.pop("weights", ONCE)
        return self._value(arguments, cast(Predictions, args[0]), weights)

    def per_example(self, predictions: Predictions, **arguments: Any) -> FloatArray:
        """Return the value of every (labelled) row, ``[N]``, of which the metric is the mean."""
        function: Callable[..., Any] = self.rows or self.function
        return np.asarray(function(self._rows(predictions), **arguments), dtype=np.float64)

    def metric(self, **arguments: Any) -> Metric:
        """Return the metric with these arguments, the others at their defaults."""
        empty = inspect.Parameter.empty
        full = {item.name: item.default for item in self._parameters if item.default is not empty} | arguments
        compute = functools.partial(self._value, full)
        return Metric(
            self._written(full),
            self.better(**full) if callable(self.better) else self.better,
            compute,
            functools.partial(self.per_example, **full) if self.mean or self.rows else None,
            self._needs(full),
            self.targets,
            not self.why_not,
            self.why_not,
            self.version,
            self.interval,
            compute if self._weighted or self.mean else None,
            self.least_units,
            self.likelihood,
        )

    def factory(self) -> Callable[..., Metric]:
        """Return the function from arguments to the metric that is registered, with its signature."""

        @functools.wraps(self.function)
        def make(**arguments: Any) -> Metric:
            return self.metric(**arguments)

        make.__signature__ = inspect.Signature(self._parameters)  # type: ignore[attr-defined]
        return make

    def _value(self, arguments: Arguments, predictions: Predictions, weights: Weights = ONCE) -> Any:
        rows = self._rows(predictions)
        if weights is ONCE:
            return float(self._values(arguments, rows, Weights.once(len(rows)))[0])
        return self._values(arguments, rows, weights if rows is predictions else weights.take(predictions.labels >= 0))

    def _values(self, arguments: Arguments, rows: Predictions, weights: Weights) -> Values:
        if self.mean:
            return weights.mean(_contributions(rows, self, **arguments))
        function: Callable[..., Any] = self.function
        if self._weighted:
            return np.asarray(function(rows, **arguments, weights=weights), dtype=np.float64)
        if weights.each_once:
            return np.array([function(rows, **arguments)], dtype=np.float64)
        return np.array([function(rows.take(indices), **arguments) for indices in weights.replicates()])

    def _rows(self, predictions: Predictions) -> Predictions:
        """Check what the metric needs, and return the rows it is computed on."""
        if predictions.target not in self.targets:
            listed = ", ".join(sorted(self.targets))
            raise UserError(f"{self.name} is defined for {listed} predictions; these are {predictions.target}.")
        # An area without two classes is NaN, which says less than a refusal but does not stop a table.
        require(predictions, self.needs - {"two_classes"}, self.name)
        return predictions.labelled if "labels" in self.needs else predictions

    def _needs(self, arguments: Arguments) -> frozenset[Need]:
        """Add the needs of the quantity that rows are ordered by; one with alternatives checks them itself."""
        quantity = QUANTITIES.get(arguments.get("quantity", ""))
        return self.needs | (quantity.needs if quantity is not None and not quantity.instead else frozenset())

    def _written(self, arguments: Arguments) -> str:
        pairs = [(parameter.name, arguments[parameter.name], parameter.default) for parameter in self._parameters]
        changed = [f"{name}={json.dumps(value)}" for name, value, default in pairs if value != default]
        return f"{self.name}({', '.join(changed)})" if changed else self.name


@prepared
def _contributions(predictions: Predictions, /, function: MetricFunction[Any], **arguments: Any) -> FloatArray:
    return function.per_example(predictions, **arguments)


def metric(
    name: str,
    *,
    better: Direction | Callable[..., Direction],
    needs: Iterable[Need] = (),
    targets: Iterable[Target] = TARGETS,
    why_not: str = "",
    version: int = 1,
    interval: Literal["percentile", "centred"] = "percentile",
    mean: bool = False,
    rows: Callable[..., FloatArray] | None = None,
    least_units: int = 2,
    likelihood: bool = False,
) -> Callable[[Callable[P, Any]], MetricFunction[P]]:
    """Register a function ``(predictions, *, …) -> value`` as a metric; the first line of its docstring describes it.

    Args:
        name: Its name.
        better: Which way is better; a function of the metric's arguments where that depends on them.
        needs: What the predictions must have; with ``labels`` the function is given the labelled rows alone.
        targets: The targets it is defined for; all by default.
        why_not: Why it must not rank different models, in one sentence; empty for a metric that may.
        version: Bumped by hand when the definition changes.
        interval: How its bootstrap interval is made; see :class:`dubio.core.types.Metric`.
        mean: Whether the function returns one contribution per row, of which the metric is the (weighted) mean.
        rows: For another metric: a function with the same arguments that returns one value per row, whose mean is the
            metric and the spread of which gives its variance; systems are compared by them.
        least_units: With fewer examples or groups systems are not compared by it; see
            :class:`dubio.core.types.Metric`.
        likelihood: Whether a probability of zero makes it infinite; ``dubio evaluate --floor`` acts on such metrics.
    """

    def decorate(function: Callable[P, Any]) -> MetricFunction[P]:
        declared = MetricFunction(
            function, name, better, frozenset(needs), frozenset(targets), why_not, version, interval, mean, rows,
            least_units, likelihood,
        )  # fmt: skip
        METRICS.register(name)(declared.factory())
        return declared

    return decorate


def metric_named(text: str) -> Metric:
    """Return the metric that a text such as ``ece(bins=10)`` names.

    A value is a number, ``true`` or ``false``, or a text with or without quotes.

    Raises:
        UnknownName: For an unknown metric or argument, with the nearest name.
        UserError: For a text of another form, or a value of another type.
    """
    name, arguments = name_and_arguments(text)
    return cast(Metric, METRICS.make(name, **arguments))


def name_and_arguments(text: str) -> tuple[str, Arguments]:
    """Return the name and the arguments in a text such as ``ece(bins=10)``.

    Raises:
        UserError: For a text of another form.
    """
    match = _CALL.fullmatch(text)
    if match is None:
        raise UserError(f"metric {text!r} must be a name or name(argument=value, …).")
    arguments: Arguments = {}
    for piece in filter(None, (match[2] or "").split(",")):
        key, equals, value = (side.strip() for side in piece.partition("="))
        if not equals or not key or not value:
            raise UserError(f"metric {text!r}: {piece.strip()!r} must be argument=value.")
        try:
            arguments[key] = parse_json(value, f"metric {text!r}")
        except UserError:
            arguments[key] = value
    return match[1], arguments


@dataclass(frozen=True)
class Scores:
    """Values of metrics, and reasons where there is none.

    Attributes:
        metrics: Every requested metric, by its written name.
        values: Those that apply; NaN is a value that a metric documents (an area without positives, say).
        reasons: Why each of the others does not apply, as a sentence.
    """

    metrics: dict[str, Metric]
    values: dict[str, float]
    reasons: dict[str, str]


def all_metrics() -> tuple[Metric, ...]:
    """Return every registered metric at its defaults, by name, without those that repeat a published mistake."""
    return tuple(metric_named(name) for name in METRICS.names() if not name.endswith(PUBLISHED))


def score_each(predictions: Predictions, metrics: Iterable[Metric | str] | None = None) -> Scores:
    """Compute the metrics that apply and say why the others do not.

    Args:
        predictions: What to score.
        metrics: Metrics, or names such as ``"ece(bins=10)"``; by default all but ``…_as_published``.

    Raises:
        UnknownName: For the name of a metric, of an argument or of a quantity that does not exist.
    """
    named = ((metric_named(item) if isinstance(item, str) else item) for item in metrics or ())
    requested = all_metrics() if metrics is None else tuple(named)
    values, reasons = {}, {}
    for metric in requested:
        clause = why_not_applicable(metric, predictions)
        if clause is not None:
            reasons[metric.name] = f"{metric.name} does not apply: {clause}."
            continue
        try:
            values[metric.name] = float(metric.compute(predictions))
        except UnknownName:
            raise
        except UserError as refusal:
            reasons[metric.name] = f"{metric.name} does not apply: {refusal}"
    return Scores({metric.name: metric for metric in requested}, values, reasons)
