"""Overview: the answer of a task on the first screen, as a matrix of methods and questions, and what to do next."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf, isfinite, log10
from typing import TYPE_CHECKING

from dubio.reporting.charts import Rows, chart_of, method_colour, method_row, tooltips
from dubio.reporting.leaderboard import leader, metric_phrase, not_compared, not_ranked_sentences
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import HEADLINE, RANKED_BY, detection_name
from dubio.reporting.method_choice import deployment_commands, stored_name
from dubio.reporting.run_view import RunView
from dubio.reporting.score_table import Cell
from dubio.reporting.section import Block, Definitions, Figure, Section, Text, section
from dubio.reporting.style import Style
from dubio.reporting.tables import (
    ARROWS,
    Column,
    FilledColumn,
    Table,
    TableCell,
    bounds,
    method_table,
    score_column,
)
from dubio.reporting.wording import duration, named_few, number, term
from dubio.statistics.bootstrap import Interval
from dubio.statistics.verdicts import Place

if TYPE_CHECKING:
    import altair

CAPTION = (
    "Mean and 95 % confidence interval, each on its own; the bar is the interval, its mark the mean, the better end at "
    "the right, baselines aside. Shaded: the best mean and every method that is not significantly different from it. "
    "Columns without shading decide nothing, or must not rank. Intervals of ECE and AURC are over trainings alone."
)

MOST_NAMED = 3
"""Methods that the verdict names; more of them are counted."""

RANGES = {
    **dict.fromkeys(
        ("accuracy", "macro_f1", "micro_f1", "ece", "aurc", "rps", "auc_from_grade", "ood_auroc"), (0.0, 1.0)
    ),
    **dict.fromkeys((RANKED_BY, "nll", "brier", "diversity"), (0.0, inf)),
}
"""Metric → the values it can take."""


@dataclass(frozen=True)
class Question:
    """A question that a column of the matrix answers: a metric on some test sets, averaged."""

    title: str
    sub: str
    metric: str
    splits: tuple[str, ...]


@section("overview", order=1)
class Overview(Section):
    """The matrix of methods and questions, the verdict above it, the next steps below."""

    def task_blocks(self, run: RunView, task: TaskView) -> Iterator[Block]:
        """Yield the verdict, the matrix, the next steps and the scores under any metric."""
        yield Text(verdict(run, task), "verdict")
        yield matrix(run, task)
        yield next_steps(run, task)
        if rows := score_rows(run, task):
            styles = [run.styles[method.name] for method in run.methods_of(task)]
            chart = partial(scores_chart, rows, styles, task)
            yield Figure("scores", "Scores under the chosen metric", SCORES_CAPTION, chart)


def questions(run: RunView, task: TaskView) -> list[Question]:
    """Return the questions that this task's test sets can answer."""
    inside = (task.in_domain.name,)
    shifted, novel = (tuple(n for t in task.test_sets if t.kind == kind for n in t.splits) for kind in ("shift", "ood"))
    auroc = detection_name("ood_auroc", HEADLINE)
    every = [
        Question("Accuracy", "in-domain", "accuracy", inside),
        Question("Calibrated NLL", "in-domain", RANKED_BY, inside),
        Question("Calibration", "ECE, not ranked", "ece", inside),
        Question("Referral", "AURC", "aurc", inside),
        Question("Shift", "accuracy under shift", "accuracy", shifted),
        Question("OOD", "detection AUROC", auroc, novel),
    ]
    return [
        question for question in every if question.splits and run.scores.row(task, question.splits, question.metric)
    ]


def matrix(run: RunView, task: TaskView) -> Table:
    """Return methods × questions, with the costs of training and prediction."""
    columns = [question_column(run, task, question) for question in questions(run, task)]
    costs = {method.name: run.costs.get((task.key, method.name)) for method in run.methods_of(task)}
    training = {name: cost.training_seconds.mean for name, cost in costs.items() if cost and cost.training_seconds.n}
    rates = {name: cost.examples_per_second for name, cost in costs.items() if cost}
    speed = {name: 1 / rate.mean for name, rate in rates.items() if rate.n}
    columns.append(cost_column(Column("Training", "one run", "↓", "measured; all fits of one run"), training))
    columns.append(cost_column(Column("Prediction", "one example", "↓", "measured; all samples and members"), speed))
    table = method_table(run.methods_of(task), columns, run.styles, caption=CAPTION)
    return replace(table, matrix=True)


def question_column(run: RunView, task: TaskView, question: Question) -> FilledColumn:
    """Return the answers of all methods to a question, each with its interval."""
    scores, metric, splits = run.scores, question.metric, question.splits
    cells, verdicts = scores.row(task, splits, metric), scores.verdicts(task, splits, metric)
    unranked = metric in scores.not_ranked
    head = Column(
        question.title, question.sub, ARROWS[scores.better[metric]], term(metric).note, unranked, metric=metric
    )
    column = score_column(head, cells, verdicts)
    limits = within_range(scores.intervals(task, splits, metric), metric)
    ranged = [method.name for method in run.methods_of(task) if not method.baseline]
    spans = spans_of(cells, limits, scores.better[metric] == "higher", ranged)
    once = set(cells) - scores.trainings(task, splits, metric).keys()
    filled = {
        name: with_interval(cell, limits.get(name), spans.get(name), name in once)
        for name, cell in column.cells.items()
    }
    return FilledColumn(head, filled)


def within_range(limits: Mapping[str, Interval], metric: str) -> dict[str, Interval]:
    """Return intervals cut off at the ends of the metric's range, which costs no coverage."""
    low, high = RANGES.get(metric.partition("(")[0], (-inf, inf))
    return {n: Interval(own.value, max(low, own.low), min(high, own.high)) for n, own in limits.items()}


def with_interval(cell: TableCell, interval: Interval | None, span: Span | None, trained_once: bool) -> TableCell:
    """Return a cell that shows its confidence interval instead of the spread over runs."""
    if interval is None or not isfinite(interval.high - interval.low):
        return replace(cell, span=span)
    mark = " †" if cell.spread.endswith("†") else ""
    digits = len(cell.text.partition(".")[2])
    basis = "95 % interval over test examples alone; trained once" if trained_once else "95 % interval"
    ends = bounds((interval.low, interval.high), f".{digits}f")
    return replace(cell, spread=ends + mark, span=span, hint=f"{cell.hint}; {basis} {ends}")


Span = tuple[float | None, float, float | None]


def spans_of(
    cells: Mapping[str, Cell], limits: Mapping[str, Interval], rising: bool, ranged: Collection[str]
) -> dict[str, Span]:
    """Return method → its interval and mean as shares of the column's range, the better end at the right.

    The range is that of the methods ``ranged``; others, such as baselines, stand at its end where they are beyond it.
    """
    means = {name: cell.mean for name, cell in cells.items() if cell.n and isfinite(cell.mean)}
    own = [name for name in means if name in ranged] or list(means)
    intervals = [limits[name] for name in own if name in limits]
    ends = [*(means[name] for name in own), *(end for one in intervals for end in (one.low, one.high) if isfinite(end))]
    low, high = min(ends, default=0.0), max(ends, default=0.0)

    def share(value: float) -> float:
        position = min(1.0, max(0.0, (value - low) / (high - low))) if high > low else 0.5
        return position if rising else 1 - position

    spans: dict[str, Span] = {}
    for name, mean in means.items():
        interval = limits.get(name)
        sides = sorted((share(interval.low), share(interval.high))) if interval else (None, None)
        spans[name] = sides[0], share(mean), sides[1]
    return spans


def cost_column(head: Column, values: Mapping[str, float]) -> FilledColumn:
    """Return measured durations, drawn on a logarithmic scale; without an interval they decide nothing."""
    logs = {name: Cell((log10(value),)) for name, value in values.items() if value > 0}
    spans = spans_of(logs, {}, False, list(logs))
    cells = {name: TableCell(duration(v), sort_key=f"{v:.9g}", span=spans.get(name)) for name, v in values.items()}
    return FilledColumn(replace(head, unranked=True), cells)


def verdict(run: RunView, task: TaskView) -> str:
    """Return the best method by calibrated NLL, or why there is none, and then the best by accuracy."""
    best, verdicts = leader(run, task), run.scores.verdicts(task, task.in_domain.name, RANKED_BY)
    if len(run.methods_of(task)) == 1 and best is not None:
        return only_sentence(run, task, best)
    if best is None or best not in verdicts:
        return " ".join([unranked_sentence(run, task), *accuracy_sentence(run, task)])
    if len(verdicts) == 1 and not_compared(run, task) and accuracy_sentence(run, task):
        return " ".join([*accuracy_sentence(run, task), *not_compared(run, task)])
    return " ".join([best_sentence(run, task, RANKED_BY), *not_compared(run, task)])


def only_sentence(run: RunView, task: TaskView, name: str) -> str:
    """Return the scores of a task's only method."""
    accuracy, nll = (run.scores.row(task, task.in_domain.name, metric)[name].mean for metric in ("accuracy", RANKED_BY))
    shown = f"accuracy {accuracy:.3f}, calibrated NLL {f'{nll:.3f}' if isfinite(nll) else '∞'} on {task.key}"
    return f"{run.title(name)}: {shown}; there is no other method to compare it with."


def accuracy_sentence(run: RunView, task: TaskView) -> list[str]:
    """Return the best method by accuracy, where that compares several."""
    several = len(run.scores.verdicts(task, task.in_domain.name, "accuracy")) > 1
    return [best_sentence(run, task, "accuracy")] if several else []


def best_sentence(run: RunView, task: TaskView, metric: str) -> str:
    """Return the best method by a metric on the in-domain test set in one sentence, and which others differ from it."""
    verdicts = run.scores.verdicts(task, task.in_domain.name, metric)
    places: dict[Place, list[str]] = {"best": [], "tied": [], "behind": [], "unjudged": []}
    for name, own in verdicts.items():
        places[own.place].append(name)
    equal = [name for name in places["tied"] if verdicts[name].difference == 0]
    tied = [run.title(name) for name in places["tied"] if name not in equal]
    behind = [run.title(name) for name in places["behind"]]
    end, phrase = "lowest" if run.scores.better[metric] == "lower" else "highest", metric_phrase(metric)
    best = named_few([run.title(name) for name in (*places["best"], *equal)])
    start = f"{best} has the {end} {phrase} on {task.key}"
    if equal:
        start = f"{best} have the same {phrase} on {task.key}, the {end}"
    unjudged = bool(places["unjudged"])
    if not behind and not tied:
        alone = "" if equal else "; it is the only ranked method"
        return f"{start}{'; the differences are not judged, because methods were trained once' if unjudged else alone}."
    judged = "judged " if unjudged else "ranked "
    if not behind:
        return f"{start}, but no other {judged}method is significantly worse: these data do not decide."
    if not tied:
        others = f"every other {judged}method is" if len(behind) > 1 or unjudged else _are(behind)
        return f"{start}, and {others} significantly worse."
    many = len(behind) > MOST_NAMED
    worse = f"the other {number(len(behind))} {judged}methods are" if many else _are(behind)
    return f"{start}; {_are(tied)} not significantly different, {worse} significantly worse."


def unranked_sentence(run: RunView, task: TaskView) -> str:
    """Return that no method can be ranked, and why."""
    why = " ".join(not_ranked_sentences(run, task)) or "The columns below show what is known."
    if run.scores.without_temperature(task):
        why = "Almost every example is classified correctly: compare accuracy and Brier score."
    return f"No method can be ranked on {task.key} by calibrated NLL. {why}"


def _are(names: list[str]) -> str:
    return f"{named_few(names)} {'is' if len(names) == 1 else 'are'}"


def next_steps(run: RunView, task: TaskView) -> Definitions:
    """Return the commands that a reader of the matrix needs next: purpose and command."""
    if run.question == "systems":
        return Definitions(tuple(systems_steps(run, task).items()), "commands")
    manifest = run.manifest
    names = [merged.name for merged in manifest.parts] or [stored_name(run)]
    opened = run.opened(*names)
    steps = {}
    verdicts = run.scores.verdicts(task, task.in_domain.name, RANKED_BY).values()
    if manifest.command and not any(own.place == "behind" for own in verdicts):
        seeds = max(5, 2 * len(manifest.seeds))
        command = re.sub(r" --seeds [\d,-]+", "", manifest.command)
        steps["Decide: more seeds"] = f"{command} --seeds {seeds}{run.store_option}"
    if (best := leader(run, task)) is not None and task.of_kind("cal"):
        chosen = ", ".join(map(repr, (task.key, best, task.of_kind("cal")[0].name)))
        steps["Fit a referral policy"] = f"dubio.fit_risk_policy({opened}.predictions({chosen}), max_risk=0.05)"
    if not manifest.parts:
        steps |= deployment_commands(run, task, names[0])
    runs = " ".join(f"--run {shlex.quote(name)}" for name in names) if manifest.parts else shlex.quote(names[0])
    steps["Figures for a paper"] = f"dubio report {runs}{run.store_option} --figures figures"
    steps["Scores in Python"] = f"{opened}.to_frame()"
    return Definitions(tuple(steps.items()), "commands")


def systems_steps(run: RunView, task: TaskView) -> dict[str, str]:
    """Return the commands for systems; where their files are is not known, and no path of anyone enters the page."""
    first, single = shlex.quote(run.manifest.methods[0].name), len(run.manifest.methods) == 1
    tested, calibrated = ("test.npz", "cal.npz") if single else (f"{first}=test.npz …", f"{first}=cal.npz …")
    commands = {
        "Fit a referral policy": "dubio refer fit cal.npz --max-risk 0.05 -o policy.json --report sheet.html",
        "Check in CI": f"dubio evaluate {tested} --require 'accuracy>=0.9' --junit gates.xml",
    }
    if not task.of_kind("cal"):
        commands["Show guaranteed stops here"] = f"dubio report {tested} --cal {calibrated}"
    return commands


SCORES_CAPTION = (
    "Mean over runs under the metric and on the test set chosen above (at first the ranking metric, or accuracy where "
    "that compares nothing, in-domain), with the 95 % confidence interval where its variance is known. A baseline far "
    "from all methods stands at the edge."
)

FAR = 0.5
"""A baseline is far from the methods if its distance exceeds this share of the range of their intervals."""


def score_rows(run: RunView, task: TaskView) -> Rows:
    """Return one row per method, metric and test set: mean, interval, number of runs, and the edge it is beyond."""
    rows: Rows = []
    baselines = {method.title for method in run.methods if method.baseline}
    for split in task.of_kind("id", "shift", "ood"):
        metrics = dict.fromkeys(m for key, name, _, m in run.scores.cells if (key, name) == (task.key, split.name))
        for metric in (m for m in metrics if m in run.scores.better and "(" not in m):
            limits = within_range(run.scores.intervals(task, (split.name,), metric), metric)
            own: Rows = []
            for name, cell in run.scores.row(task, split.name, metric).items():
                if name in run.titles and cell.n:
                    ends = (limits[name].low, limits[name].high) if name in limits else (None, None)
                    own.append({
                        "method": run.title(name), "metric": metric, "split": split.name, "mean": cell.mean,
                        "low": ends[0], "high": ends[1], "runs": cell.n,
                    })  # fmt: skip
            rows += with_edges(own, baselines)
    return rows


def with_edges(rows: Rows, baselines: Collection[str]) -> Rows:
    """Return rows of one metric with their ``edge``: left or right where a baseline is far from all methods."""
    inner = [row for row in rows if row["method"] not in baselines]
    values = [value for row in inner for value in (row["mean"], row["low"], row["high"])]
    values = [value for value in values if value is not None and isfinite(value)]
    if not values:
        return [row | {"edge": ""} for row in rows]
    margin = FAR * (max(values) - min(values))
    low, high = min(values) - margin, max(values) + margin
    outer = {row["method"]: row["mean"] for row in rows if row["method"] in baselines}
    edges = {name: "left" if mean < low else "right" for name, mean in outer.items() if not low <= mean <= high}
    return [row | {"edge": edges.get(row["method"], "")} for row in rows]


def scores_chart(rows: Rows, styles: Sequence[Style], task: TaskView) -> altair.LayerChart:
    """Return the mean of every method with its interval, under the chosen metric on the chosen test set."""
    import altair

    metrics, split = [str(row["metric"]) for row in rows], task.in_domain.name
    finite = Counter(row["metric"] for row in rows if row["split"] == split and isfinite(row["mean"]))
    compared = [name for name in (RANKED_BY, "accuracy") if finite[name] >= min(2, len(styles))]
    first = next(iter(compared), metrics[0])
    start = {"metric": first, "split": split, "heading": f"{term(first).title}, in-domain test set"}
    params = [altair.param(name=name, value=value) for name, value in start.items()]
    base = chart_of(rows).transform_filter("datum.metric == metric && datum.split == split")
    inner = base.transform_filter("datum.edge == ''")
    x = altair.X("mean:Q", title=None, scale=altair.Scale(zero=False, nice=False, padding=12))
    y, colour = method_row(styles), method_colour(styles).legend(None)
    values = tooltips({"method": "method:N", "mean": "mean:Q", "lower": "low:Q", "upper": "high:Q", "runs": "runs:Q"})
    layers = [
        inner.mark_rule(strokeWidth=2.5, opacity=0.6).encode(
            altair.X("low:Q", title=None), y, x2=altair.X2("high:Q"), color=colour
        ),
        inner.mark_point(filled=True, size=70).encode(x, y, color=colour, tooltip=values),
    ]
    number = "format(datum.mean, '.4~g')"
    lower = base.transform_filter("datum.edge == 'left'").transform_calculate(label=f"'← ' + {number}")
    upper = base.transform_filter("datum.edge == 'right'").transform_calculate(label=f"{number} + ' →'")
    for marks, edge in ((lower.mark_text(align="left"), 0), (upper.mark_text(align="right"), "width")):
        layers.append(marks.encode(y, x=altair.XValue(edge), text=altair.Text("label:N"), color=colour, tooltip=values))
    title = altair.TitleParams(text=altair.expr("heading"))
    chart = altair.LayerChart(layer=layers).add_params(*params)
    return chart.properties(width="container", height=altair.Step(19), title=title)
