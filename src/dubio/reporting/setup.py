"""What was run, in words: tasks, commands, versions, metrics, whom to cite."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping

from dubio.reporting.manifest_view import Manifest, TaskView
from dubio.reporting.results import Results
from dubio.reporting.sections.in_domain import COLUMNS
from dubio.reporting.wording import TERMS, named, term

CARD = ("source", "revision", "licence", "citation")


def card_rows(task: TaskView) -> list[dict[str, str]]:
    """The source card, the arguments that were not left at their defaults, and what tuning chose."""
    rows = [{"name": name, "value": task.card[name]} for name in CARD if task.card.get(name)]
    for name, arguments in (("task arguments", task.arguments), ("network arguments", task.network_arguments)):
        if arguments:
            rows.append({"name": name, "value": json.dumps(arguments, ensure_ascii=False, default=str)})
    return rows + [{"name": "tuned", "value": sentence} for sentence in task.tuned]


def commands(manifest: Manifest) -> str:
    """The commands that made the run and this page; what was changed on the way stands in the resolved benchmark."""
    if manifest.parts:
        runs = dict.fromkeys(_run_command(each.benchmark, each.preset, each.data) for each in manifest.parts)
        told = " ".join(f"--run {shlex.quote(part.name)}" for part in manifest.parts)
        return "\n".join((*(f"{run.removesuffix(' …')} …" for run in runs), f"dubio report {told}"))
    own = next((str(task.arguments["data"]) for task in manifest.tasks if "data" in task.arguments), "")
    started = _run_command(manifest.name, str(manifest.benchmark.get("preset") or ""), own)
    return f"{started}\ndubio report {shlex.quote(manifest.name)}"


def _run_command(benchmark: str, preset: str, data: str) -> str:
    """How a run is started; … stands for what else was said, which the resolved benchmark has."""
    told = f" --data {shlex.quote(data)} …" if data else ""
    if data and not preset:  # the user's own data; a benchmark that is told its data has presets
        return f"dubio run{told}"
    return f"dubio run {shlex.quote(benchmark)}" + (f" --preset {shlex.quote(preset)}" if preset else "") + told


def resolved_benchmark(manifest: Manifest) -> str:
    """The benchmark with everything that was filled in or changed, as JSON."""
    return json.dumps(manifest.benchmark, indent=2, ensure_ascii=False, default=str)


def environment_words(environment: Mapping[str, str]) -> str:
    """Names and versions in one line."""
    return ", ".join(f"{name} {value}" for name, value in environment.items())


def metric_rows(results: Results) -> list[dict[str, str]]:
    """Every metric of the page with what it means, and why it does not rank where it does not."""
    rows = []
    for name in (*COLUMNS, "ood_auroc", "ood_aupr", "id_aupr", "ood_fpr95", "ood_correlation", "generalisation_gap"):
        if name in TERMS:
            why = results.not_ranked.get(name)
            note = term(name).note.rstrip(".")
            rows.append({"title": term(name).title, "note": f"{note}. Not ranked: {named(why)}" if why else f"{note}."})
    return rows


def citation(version: str) -> str:
    """How to cite dubio itself."""
    question = "does a classifier know when it does not know?"
    return f"The dubio authors. dubio: {question} Version {version}, Apache-2.0 licence."


def sources(manifest: Manifest) -> list[str]:
    """Whom to cite for the data."""
    return [f"{task.key}: {task.card['citation']}" for task in manifest.tasks if task.card.get("citation")]
