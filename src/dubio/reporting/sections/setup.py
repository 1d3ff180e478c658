"""Setup, failures and citations: what was run, how to run it again, what failed, and whom to cite."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator
from typing import Any

from dubio import __version__
from dubio.reporting.manifest_view import Manifest, TaskView
from dubio.reporting.measures import IN_DOMAIN_COLUMNS
from dubio.reporting.method_choice import stored_name
from dubio.reporting.run_view import MARGIN, RunView
from dubio.reporting.section import Block, Definitions, Headline, Section, Text, section
from dubio.reporting.tables import Column, Row, Table, TableCell
from dubio.reporting.wording import TERMS, counted, draws, listed, named, sentence, term


@section("setup", part="closing", order=40)
class Setup(Section):
    """Methods, commands and metrics."""

    title = "Setup"

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """Yield the methods, the commands and the metrics."""
        yield from method_blocks(run)
        if run.manifest.parts:
            yield Headline("Runs reported together")
            yield Text(merged_runs(run.manifest), "small")
        if run.question == "methods":
            yield from reproduce_blocks(run)
        yield Headline("Metrics")
        yield Definitions(tuple(metric_rows(run)))

    def document(self, run: RunView) -> dict[str, Any]:
        """Return where the rows of each task are, and the budget of every method."""
        budgets = [
            {"task": task.key, "note": run.budget_note(task)}
            | {"methods": {name: vars(budget) for name, budget in task.budgets.items()}}
            for task in run.tasks
            if task.budgets
        ]
        return {"rows": row_accounts(run.tasks), "budgets": budgets}


def reproduce_blocks(run: RunView) -> Iterator[Block]:
    """Yield the commands, the resolved benchmark, and what the run ran on."""
    yield Headline("Reproduce")
    yield Text(commands(run), "code")
    resolved = json.dumps(run.manifest.benchmark, indent=2, ensure_ascii=False, default=str)
    yield Text(resolved, "code", "The resolved benchmark, with all defaults and changes")
    versions = ", ".join(f"{name} {value}" for name, value in run.environment.items())
    seeds = f"{counted(len(run.manifest.seeds), 'seed')} ({', '.join(map(str, run.manifest.seeds))})"
    plugins = f" Plugins: {', '.join(run.manifest.plugins)}." if run.manifest.plugins else ""
    ran_on = f" Ran on {versions}." if versions else ""
    yield Text(f"Run {run.manifest.name}, {seeds}.{ran_on}{plugins}", "small")


def row_accounts(tasks: Iterable[TaskView]) -> list[dict[str, Any]]:
    """Return the rows read, used and left out of each task that knows how many were read."""
    return [
        {"task": task.key, "read": task.rows, "left_out": dict(task.left_out)}
        | {"used": {split.name: split.examples for split in task.splits}}
        for task in tasks
        if task.rows is not None
    ]


def method_blocks(run: RunView) -> Iterator[Block]:
    """Yield the table of methods, and how they are drawn."""
    yield Headline("Methods")
    rows = tuple(Row(m.title, (TableCell(sentence(m)), TableCell(draws(m))), run.styles[m.name]) for m in run.methods)
    yield Table((Column("Description", is_text=True), Column("Predictions pooled")), rows)
    if run.manifest.cautions:
        yield Text(run.manifest.cautions, "note")
    if run.question == "systems":
        return
    augmented = any(style.augmented for style in run.styles.values())
    dotted = " Dotted: with test-time augmentation, in the colour of the method without it." if augmented else ""
    text = f"Dashed and hollow: a single fit. Solid and filled: an ensemble, in the colour of its members.{dotted}"
    yield Text(text, "small")


def merged_runs(manifest: Manifest) -> tuple[str, ...]:
    """Return one sentence about each of several runs that are reported together."""
    return tuple(
        f"{run.name}: {f'preset {run.preset}' if run.preset else 'no preset'}, {counted(run.methods, 'method')} on "
        f"{listed(list(run.tasks))}, {counted(len(run.seeds), 'seed')} ({', '.join(map(str, run.seeds))})."
        for run in manifest.parts
    )


def commands(run: RunView) -> str:
    """Return the commands that make the run and this page again."""
    manifest = run.manifest
    own = next((str(task.arguments["data"]) for task in manifest.tasks if task.is_own), "")
    preset = str(manifest.benchmark.get("preset") or "")
    runs = [manifest.command or _old_command(manifest.name, preset, own)]
    runs = [
        merged.command or _old_command(merged.benchmark, merged.preset, merged.data) for merged in manifest.parts
    ] or runs
    names = " ".join(f"--run {shlex.quote(merged.name)}" for merged in manifest.parts) or shlex.quote(stored_name(run))
    options = [f"--{option}" for option in sorted(run.options)]
    options += [f"--margin {run.margin}"] if run.margin != MARGIN else []
    lines = (*dict.fromkeys(runs), " ".join(("dubio report", names, *options)))
    return "\n".join(line + run.store_option for line in lines)


def _old_command(benchmark: str, preset: str, data: str) -> str:
    """Return what is known of a command that the manifest does not state; … stands for further options."""
    options = f" --data {shlex.quote(data)}" if data else ""
    if data and not preset:  # the user's own data; a benchmark with data options has presets
        return f"dubio run{options} …"
    chosen = f" --preset {shlex.quote(preset)}" if preset else ""
    return f"dubio run {shlex.quote(benchmark)}{chosen}{options} …"


def metric_rows(run: RunView) -> Iterator[tuple[str, str]]:
    """Yield every metric of the page with its meaning, and why it does not rank, where it does not."""
    detection = ("ood_auroc", "ood_aupr", "id_aupr", "ood_fpr95", "ood_correlation", "generalisation_gap")
    for name in (*IN_DOMAIN_COLUMNS, *detection):
        if name in TERMS:
            reason, note = run.scores.not_ranked.get(name), term(name).note.rstrip(".")
            yield term(name).title, f"{note}. Not ranked: {named(reason)}" if reason else f"{note}."


@section("failures", part="closing", order=50)
class Failures(Section):
    """Failed runs and tasks that were skipped."""

    title = "Failures"

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """Yield a table of failures, and one of tasks that were not run."""
        if run.failures:
            yield Text("What failed is missing from tables and figures.")
            heads = (Column("Task", is_text=True), Column("Method", is_text=True), Column("Reason", is_text=True))
            rows = [Row(f.what, (TableCell(f.task), TableCell(f.method), TableCell(f.error))) for f in run.failures]
            yield Table(heads, tuple(rows), first="Step")
        elif run.question == "methods":
            yield Text("None: every run of the plan is in this report.")
        if run.manifest.skipped:
            yield Headline("Not run")
            columns = (Column("Network", is_text=True), Column("Reason", is_text=True))
            rows = [Row(s.task, (TableCell(s.network), TableCell(s.reason))) for s in run.manifest.skipped]
            yield Table(columns, tuple(rows), first="Task")


@section("cite", part="closing", order=60)
class Citations(Section):
    """Whom to cite."""

    title = "How to cite"

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """Yield the citation of dubio, and of the data."""
        yield Text("Cite the data and the methods by their papers, and dubio as the software that compared them:")
        question = "does a classifier know when it does not know?"
        yield Text(f"The dubio authors. dubio: {question} Version {__version__}, Apache-2.0 licence.", "code")
        cards = {item.key: item.card.get("citation") for item in run.tasks}
        if sources := tuple(f"{key}: {citation}" for key, citation in cards.items() if citation):
            yield Text(sources, "small")
