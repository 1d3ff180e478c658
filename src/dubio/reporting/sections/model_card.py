"""Model card of every task: intended use, data, splits and caveats, as far as the run knows them.

The headings follow Mitchell et al. (2019), *Model cards for model reporting*. What nobody stated is said to be unknown,
not left out: a reader must see that it is missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import HEADLINE, detection_name
from dubio.reporting.run_view import RunView
from dubio.reporting.section import Block, Definitions, Section, Text, section
from dubio.reporting.tables import Column, Table, plain_table
from dubio.reporting.wording import ROLES, counted, listed, number

CARD = ("source", "revision", "licence", "citation")
MOST_CLASSES = 12
"""Classes that are named; of more, the first ten."""


@section("model-card", order=90)
class ModelCard(Section):
    """The model card of every task."""

    title = "Model card"

    def task_blocks(self, run: RunView, task: TaskView) -> Iterator[Block]:
        """Yield the card, the splits and the caveats."""
        yield Definitions(tuple(card_rows(task)))
        yield split_table(task)
        if limits := tuple(caveats(run, task)):
            yield Text(limits, "note")


def card_rows(task: TaskView) -> Iterator[tuple[str, str]]:
    """Yield term and explanation: use, data, network, arguments that are not defaults, and what tuning chose."""
    if task.card.get("description"):
        yield "description", task.card["description"]
    yield "intended use", intended_use(task)
    yield "out of scope", out_of_scope(task)
    yield from ((name, task.card[name]) for name in CARD if task.card.get(name))
    if not any(task.card.get(name) for name in CARD):
        yield "source", "not stated"
    if task.network:
        yield "network", task.network
    for name, arguments in (("task arguments", task.arguments), ("network arguments", task.network_arguments)):
        if arguments:
            yield name, json.dumps(arguments, ensure_ascii=False, default=str)
    yield from (("tuned", text) for text in task.tuned)


def intended_use(task: TaskView) -> str:
    """Return what is decided here, about which inputs; who is to use it is for the user to say."""
    count = len(task.classes)
    names = task.classes if count <= MOST_CLASSES else (*task.classes[:10], f"and {count - 10} more")
    several = "any of" if task.target == "multilabel" else "one of"
    inputs = {"table": "rows of a table", "text": "texts", "image": "images"}.get(task.inputs, f"{task.inputs} inputs")
    return (
        f"Assign {several} {number(count)} classes ({', '.join(names)}) to {inputs} like those of the in-domain "
        "test set, and refer what is too uncertain to a person. It is not stated for whom, or for which decisions."
    )


def out_of_scope(task: TaskView) -> str:
    """Return which inputs nothing is known about, and which were tried."""
    tried = [shown.title for shown in task.test_sets]
    if not tried:
        return "Inputs unlike the in-domain test set: no shifted or OOD test set was tried."
    return f"Inputs unlike the test sets of this page; tried beyond the in-domain one: {listed(tried)}."


def split_table(task: TaskView) -> Table:
    """Return the use and size of every split, and the rows that are in none."""
    heads = (Column("Use", is_text=True), Column("Examples"), Column("Fingerprint"))
    rows = {s.name: (ROLES[s.kind], f"{s.examples:,}", s.fingerprint[:12]) for s in task.splits}
    rows |= {f"left out, {reason}": ("not used", f"{count:,}", "") for reason, count in task.left_out.items()}
    if task.rows is not None:
        rows["all rows read"] = ("", f"{task.rows:,}", "")
    return plain_table("Split", heads, rows)


def caveats(run: RunView, task: TaskView) -> Iterator[str]:
    """Yield what limits the numbers: the data's notes, cautions of the run, and what was not tried."""
    yield from task.notes
    yield from run.manifest.cautions
    varying = [method.name for method in run.methods_of(task) if method.trainings_vary]
    trainings = [len(run.manifest.runs_of(task.key, name)) for name in varying]
    if run.question == "methods" and trainings and max(trainings) == 1:
        yield "Every method was trained once: how much another training would change is not known."
    if not task.of_kind("cal"):
        yield "This task has no calibration split: no referral threshold has a guarantee."
    if not any(task.columns.values()):
        yield "Nothing is known about the examples except their labels: errors may be more frequent in subgroups."
    for shown in task.test_sets:
        cells = run.scores.row(task, shown.splits, detection_name("ood_auroc", HEADLINE)).values()
        best = max((cell.mean for cell in cells if cell.n), default=1.0)
        if best < WEAK:
            yield f"“{shown.title}” is hardly noticed: the highest AUROC of detection by confidence is {best:.2f}."
    if failed := [failure for failure in run.failures if failure.task == task.key]:
        yield f"{counted(len(failed), 'step').capitalize()} of this task failed; what failed is missing."


WEAK = 0.7
"""AUROC of detection below which a caveat names the test set."""
