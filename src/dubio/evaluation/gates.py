"""Requirements on scores, such as ``accuracy>=0.9`` or ``ece<0.03@upper``, by which a pipeline passes or fails.

A requirement is about the estimate, or about an end of its bootstrap interval: ``accuracy>=0.9@lower`` is the strict
reading of ``>=`` and ``ece<0.03@upper`` that of ``<``. A score that is undefined, or lacks the interval that is
required, never meets one.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, cast, get_args
from xml.etree import ElementTree

from dubio.calibration.thresholds import TUNED, TUNED_METRICS
from dubio.core.data_frame import data_frame
from dubio.core.errors import UnknownName, UserError, one_of, plural
from dubio.core.notebook import Shown
from dubio.evaluation import evaluate_predictions
from dubio.evaluation.results import Evaluation, Score
from dubio.formats.text_tables import number_text
from dubio.metrics.metric import metric_named
from dubio.tables.table import number_in

if TYPE_CHECKING:
    import pandas

Operator = Literal["<", "<=", ">", ">="]
Bound = Literal["estimate", "lower", "upper"]
RequiredSplit = Literal["id", "ood", "id+ood"]
"""The rows of a score: in-domain ones, out-of-distribution ones where all are, or both for detection."""

COMPARISONS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}

ROUNDING = 1e-12
"""A value this close to a limit equals it: 1 − 0.9 is below 0.1 by the rounding of doubles alone."""

_FORM = re.compile(r"(.*[^\s<>=])\s*(<=|>=|<|>)\s*([^\s<>=@]+)\s*(?:@\s*(\S+)\s*)?", re.DOTALL)
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot contain, even escaped: controls, halves of surrogate pairs, U+FFFE and U+FFFF."""

_NO_SCORE = Score(math.nan, math.nan, math.nan, "", False, "")


@dataclass(frozen=True)
class Requirement:
    """A limit on a metric; its text (``str``) is parsed as itself.

    Attributes:
        metric: The metric, as it is written in results.
        operator: How the value compares with the limit.
        limit: The limit.
        bound: Which value is compared: the estimate, or the lower or upper end of its interval.
        system: The system that it is about; None for every system.
    """

    metric: str
    operator: Operator
    limit: float
    bound: Bound = "estimate"
    system: str | None = None

    @property
    def condition(self) -> str:
        """The requirement without its system."""
        bound = "" if self.bound == "estimate" else f" @{self.bound}"
        return f"{self.metric} {self.operator} {repr(self.limit).removesuffix('.0')}{bound}"

    def __str__(self) -> str:
        return self.condition if self.system is None else f"{self.system}:{self.condition}"

    def holds(self, value: float) -> bool:
        """Return whether a value satisfies it; a value that differs from the limit by rounding alone equals it."""
        if math.isclose(value, self.limit, rel_tol=ROUNDING, abs_tol=ROUNDING):
            return self.operator in ("<=", ">=")
        return bool(COMPARISONS[self.operator](value, self.limit))

    def failure(self, score: Score) -> str:
        """Return why a score does not meet it, as a clause; empty where it does."""
        ends = {"estimate": score.value, "lower": score.low, "upper": score.high}
        value = ends[self.bound]
        if math.isnan(score.value):
            return "the estimate is undefined"
        if math.isinf(score.value) and self.bound != "estimate":
            return f"the estimate is {number_text(score.value)}, and the bounds of its interval say nothing"
        if math.isnan(value):
            return (
                "there is no interval, which takes at least two examples or groups on which the metric is defined, and "
                "replicates that differ"
            )
        if self.holds(value):
            return ""
        text = number_text(value)
        if math.isfinite(value) and self.holds(float(text)):  # four decimals would contradict the verdict
            text = repr(value)
        if self.bound != "estimate":
            return f"the {self.bound} bound is {text}, the estimate {number_text(score.value)}"
        interval = "" if math.isnan(score.low) else f" ({number_text(score.low)}, {number_text(score.high)})"
        return f"the estimate is {text}{interval}"


@dataclass(frozen=True)
class RequirementResult:
    """Whether one system meets one requirement.

    Attributes:
        requirement: The requirement, such as ``ece < 0.03 @upper``.
        system: The system; empty for an evaluation of one.
        split: The rows that count: ``id``, ``id+ood`` for metrics of detection, ``ood`` where every row is.
        value: The estimate; NaN where it is undefined.
        low: Lower end of its interval, NaN where there is none.
        high: Upper end.
        met: Whether the requirement is met.
        reason: Why it is not, as a clause; empty where it is met.
    """

    requirement: str
    system: str
    split: RequiredSplit
    value: float
    low: float
    high: float
    met: bool
    reason: str

    def __str__(self) -> str:
        text = f"{self.requirement} for {self.system}" if self.system else self.requirement
        return f"met: {text}" if self.met else f"not met: {text}: {self.reason}"


@dataclass(frozen=True, repr=False)
class RequirementResults(Shown):
    """The results of all requirements; true where all are met, so that ``assert evaluation.require(…)`` works.

    Attributes:
        results: One per requirement and system that it is about.
    """

    results: tuple[RequirementResult, ...]

    def __bool__(self) -> bool:
        return not self.failures

    def __len__(self) -> int:
        return len(self.results)

    def __iter__(self) -> Iterator[RequirementResult]:
        return iter(self.results)

    @property
    def failures(self) -> tuple[RequirementResult, ...]:
        """The requirements that are not met."""
        return tuple(result for result in self.results if not result.met)

    @property
    def lines(self) -> list[str]:
        """One line for each requirement that is not met, and one on how many are."""
        met = len(self) - len(self.failures)
        return [*map(str, self.failures), f"{met} of {len(self)} {plural('requirement', len(self))} met."]

    def as_dicts(self) -> list[dict[str, Any]]:
        """Return the results as plain values."""
        return [asdict(result) for result in self.results]

    def to_frame(self) -> pandas.DataFrame:
        """Return one row per result.

        Raises:
            UserError: If pandas is not installed.
        """
        return data_frame(self.as_dicts())

    def to_junit(self) -> str:
        r"""Return the results as JUnit XML: a test case per result, whose class is the system.

        Characters that XML cannot contain are written as ``\x1b``.
        """
        counts = {"tests": str(len(self)), "failures": str(len(self.failures)), "errors": "0"}
        root = ElementTree.Element("testsuites", counts)
        suite = ElementTree.SubElement(root, "testsuite", {"name": "dubio evaluate", **counts, "skipped": "0"})
        for result in self.results:
            names = {"classname": _as_xml(result.system) or "dubio", "name": _as_xml(result.requirement)}
            case = ElementTree.SubElement(suite, "testcase", names)
            if not result.met:
                reason = {"type": "requirement", "message": _as_xml(result.reason)}
                ElementTree.SubElement(case, "failure", reason).text = _as_xml(str(result))
        ElementTree.indent(root)
        document: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
        return document.decode("utf-8") + "\n"

    def __repr__(self) -> str:
        return "\n".join(self.lines)


def _as_xml(text: str) -> str:
    return _NOT_XML.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def parse_requirements(
    texts: str | Iterable[str],
    systems: Collection[str] = (),
    replicates: int | None = None,
    metrics: Collection[str] = TUNED_METRICS,
) -> tuple[Requirement, ...]:
    """Parse requirements, each once.

    Args:
        texts: Such as ``"accuracy>=0.9"``, ``"ece(bins=10) < 0.03 @upper"`` or, for one system, ``"NAME:aurc<0.05"``.
        systems: The names of the systems, which may contain colons.
        replicates: The number of bootstrap replicates; with 0 a bound cannot be required.
        metrics: Names of metrics beside the registered ones.

    Raises:
        UnknownName: For an unknown metric, argument, bound or system, with the nearest name.
        UserError: For no requirement, one of another form, or one on a bound without intervals.
    """
    listed = [texts] if isinstance(texts, str) else list(texts)
    if not listed:
        raise UserError("requirements: at least one is needed, such as 'accuracy>=0.9'; given none.")
    names = [name for name in systems if name]
    parsed = tuple(dict.fromkeys(_parse(text, names, metrics) for text in listed))
    for requirement in parsed:
        if replicates == 0 and requirement.bound != "estimate":
            raise UserError(f"requirement {str(requirement)!r} is on a bound of an interval, and there are none: "
                            "replicates (--replicates) must be at least 2; given 0.")  # fmt: skip
    return parsed


def _parse(text: str, systems: Collection[str], metrics: Collection[str]) -> Requirement:
    match = _FORM.fullmatch(text)
    limit = number_in(match[3]) if match else None
    system, metric = _system_and_metric(match[1], systems) if match else (None, "")
    if match is None or limit is None or not math.isfinite(limit) or set("<>") & set(metric.partition("(")[0]):
        raise UserError(f"requirement {text!r} must be a metric, one of <, <=, >, >=, a number, and @lower or @upper "
                        "for an end of the interval: 'accuracy>=0.9', 'ece(bins=10)<0.03@upper', for one of several "
                        "systems 'NAME:aurc<0.05'. In a shell it needs the quotes.")  # fmt: skip
    bound = one_of(f"the bound in requirement {text!r}", match[4] or "estimate", get_args(Bound))
    name = metric.strip() if metric.strip() in metrics else metric_named(metric).name
    return Requirement(name, cast(Operator, match[2]), limit, cast(Bound, bound), system)


def _system_and_metric(text: str, systems: Collection[str]) -> tuple[str | None, str]:
    """Split ``NAME:METRIC``; of two names that fit, such as ``a`` and ``a:b``, the longer one is meant.

    The name of a metric has no colon, only its arguments may.
    """
    if names := [name for name in systems if text.startswith(f"{name}:")]:
        system = max(names, key=len)
        return system, text[len(system) + 1 :]
    system, colon, _ = text.partition("(")[0].rpartition(":")
    if colon:
        raise UnknownName("system in a requirement", system, systems)
    return None, text


def metrics_of(requirements: Iterable[Requirement]) -> list[str]:
    """Return the metrics that requirements need, without those at thresholds, which come with their thresholds."""
    return [requirement.metric for requirement in requirements if requirement.metric not in TUNED_METRICS]


def check_requirements(systems: Mapping[str, Evaluation], texts: str | Iterable[str]) -> RequirementResults:
    """Check requirements on systems; a metric that was not computed is computed now.

    Args:
        systems: Name to scores.
        texts: As for :func:`parse_requirements`.

    Raises:
        UserError: As for :func:`parse_requirements`.
    """
    metrics = (*TUNED_METRICS, *(metric.name for own in systems.values() for metric in own.metrics))
    requirements = parse_requirements(texts, systems, min(own.replicates for own in systems.values()), metrics)
    return RequirementResults(tuple(
        _check(requirement, name, own)
        for requirement in requirements for name, own in systems.items() if requirement.system in (None, name)
    ))  # fmt: skip


def _check(requirement: Requirement, system: str, evaluation: Evaluation) -> RequirementResult:
    own, name = _with_metric(evaluation, requirement.metric), requirement.metric
    score = own.scores.get(name, _NO_SCORE)
    reason = own.reasons.get(name) or requirement.failure(score)
    if name.endswith(TUNED) and name not in own.scores:
        reason = "it needs thresholds fitted on validation predictions (--thresholds-from)"
    detection = any("ood" in metric.needs for metric in own.metrics if metric.name == name)
    split: RequiredSplit = "id+ood" if detection else "ood" if own.ood_rows == len(own.predictions) else "id"
    values = {"value": score.value, "low": score.low, "high": score.high}
    return RequirementResult(requirement.condition, system, split, **values, met=not reason, reason=reason)


def _with_metric(evaluation: Evaluation, metric: str) -> Evaluation:
    """Return the evaluation, or that of a metric which it does not have, under the same options."""
    if metric in evaluation.scores or metric in evaluation.reasons or metric in TUNED_METRICS:
        return evaluation
    options: Any = {name: getattr(evaluation, name) for name in ("floor", "replicates", "level", "seed")}
    return evaluate_predictions(evaluation.predictions, metrics=[metric], **options)
