"""The web page: one self-contained file that asks nothing of the network."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dubio import __version__
from dubio.reporting.away_tables import correlation_grid, elsewhere_grid, elsewhere_summary, every_quantity_grid
from dubio.reporting.capacity_tables import capacity_part
from dubio.reporting.chapters import (
    Elsewhere,
    cost_grid,
    elsewhere,
    in_domain_grid,
    promise_grid,
    promise_words,
    referral_grid,
)
from dubio.reporting.ensembles.part import ensembles_part
from dubio.reporting.figures.canvas import inline_svg
from dubio.reporting.figures.catalogue import Chapter, Plate, plates, plates_across
from dubio.reporting.findings import findings, reading
from dubio.reporting.manifest import TaskView
from dubio.reporting.measures import GAP
from dubio.reporting.promise_limits import needed_words, unpromised_words
from dubio.reporting.results import Results
from dubio.reporting.screening.fate import fate_grid, fate_words
from dubio.reporting.screening.gallery import gallery_part, gallery_words
from dubio.reporting.screening.parts import screening_part
from dubio.reporting.sections import across_part, advice_part, mended_part, paper_part, parts_words
from dubio.reporting.setup import (
    card_rows,
    citation,
    commands,
    environment_words,
    metric_rows,
    resolved_benchmark,
    sources,
    task_summary,
    unsettled_words,
)
from dubio.reporting.style import looks
from dubio.reporting.svg import for_page, themed
from dubio.reporting.words import counted, draws, named, sentence, split_role, term

LEAD = "Does the classifier know when it does not know, and which uncertainty method makes it know best?"

KEY = (
    "Shaded: the best mean (bold) and what is not distinguishable from it. "
    "A column without shade: no method can be told from the best one."
)


def render(results: Results) -> str:
    """The whole page as HTML; everything from outside is escaped by the template engine."""
    environment = Environment(
        loader=PackageLoader("dubio.reporting"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["themed"] = themed
    own = files("dubio.reporting") / "templates"
    return environment.get_template("report.html.j2").render(
        page=_page(results),
        css=Markup((own / "report.css").read_text(encoding="utf-8")),
        js=Markup((own / "report.js").read_text(encoding="utf-8")),
    )


def _page(results: Results) -> dict[str, Any]:
    manifest = results.manifest
    tasks = [_task(results, task, index) for index, task in enumerate(manifest.tasks)]
    across = [_inline(plate, "across") for plate in plates_across(results)]
    parts: dict[str, Any] = {
        "advice": advice_part(results),
        "across_tables": across_part(results),
        "paper": paper_part(results),
        "mended": mended_part(results),
        "ensembles": ensembles_part(results, _inline),
    }
    return {
        "title": _title(results),
        "lead": str(manifest.benchmark.get("description") or LEAD),
        "facts": _facts(results),
        "sections": [
            {"anchor": "findings", "title": "What came out"},
            *([{"anchor": "advice", "title": "Which method?"}] if parts["advice"] else []),
            *({"anchor": task["anchor"], "title": task["title"]} for task in tasks),
            *([{"anchor": "across", "title": "All tasks"}] if across or parts["across_tables"] else []),
            *([{"anchor": "ensembles", "title": "Ensembling study"}] if parts["ensembles"] else []),
            *([{"anchor": "paper", "title": "The paper"}] if parts["paper"] else []),
            *([{"anchor": "mended", "title": "As published"}] if parts["mended"] else []),
            {"anchor": "setup", "title": "What was run"},
            {"anchor": "failures", "title": "What failed"},
            {"anchor": "cite", "title": "How to cite"},
        ],
        **parts,
        "findings": findings(results),
        "reading": reading(results),
        "key": KEY,
        "tasks": tasks,
        "across": across,
        **_setup(results),
    }


def _setup(results: Results) -> dict[str, Any]:
    """What was run, and what failed."""
    manifest = results.manifest
    seen = looks(manifest.methods)
    return {
        "methods": [
            {"title": m.title, "look": seen[m.name], "sentence": sentence(m), "draws": draws(m)}
            for m in manifest.methods
        ],
        "commands": commands(manifest),
        "resolved": resolved_benchmark(manifest),
        "run": manifest.name,
        "seed_words": f"{counted(len(manifest.seeds), 'seed')} ({', '.join(map(str, manifest.seeds))})",
        "environment": environment_words(results.environment),
        "metrics": metric_rows(results),
        "failures": results.failures,
        "skipped": manifest.skipped,
        "cautions": manifest.cautions,
        "parts": parts_words(results),
        "failure_words": "A failure is a record, never a result: what is listed is missing from tables and figures.",
        "citation": citation(__version__),
        "sources": sources(manifest),
        "version": __version__,
    }


def _title(results: Results) -> str:
    name = results.manifest.benchmark.get("name") or results.manifest.name
    tasks = [task.key for task in results.manifest.tasks]
    return f"{name}: {counted(len(results.manifest.methods), 'method')} on {', '.join(tasks)}"


def _facts(results: Results) -> list[dict[str, str]]:
    manifest = results.manifest
    trainings = {fit for run in manifest.runs for fit in run.fits}
    facts = {
        "tasks": len(manifest.tasks),
        "methods": len(manifest.methods),
        "seeds": len(manifest.seeds),
        "trainings": len(trainings),
        "failures": len(results.failures),
    }
    return [{"name": name, "value": f"{value:,}"} for name, value in facts.items()]


def _task(results: Results, task: TaskView, index: int) -> dict[str, Any]:
    """One task's part of the page."""
    view: dict[str, Any] = {
        "anchor": f"task-{index + 1}",
        "title": task.key,
        "description": task.card.get("description", ""),
        "summary": task_summary(task),
        "notes": task.notes,
        "card": card_rows(task),
        "splits": [
            {"name": s.name, "role": split_role(s), "examples": f"{s.examples:,}", "fingerprint": s.fingerprint[:12]}
            for s in task.splits
        ],
        "split_words": f"{counted(len(task.splits), 'split').capitalize()}",
        "in_domain": None,
    }
    return view | _chapters(results, task, index) if results.methods_of(task) else view


def _chapters(results: Results, task: TaskView, index: int) -> dict[str, Any]:
    drawn = _drawings(results, task, index)
    places = elsewhere(task)
    summary = [elsewhere_summary(results, task)] if len(places) > 1 else []
    summary += [elsewhere_grid(results, task, places[0])] if len(places) == 1 else []
    screening = screening_part(results, task, {figure["plate"].slug: figure for figure in drawn.pop("screening")})
    return {
        "in_domain": in_domain_grid(results, task),
        "unsettled": unsettled_words(results, task),
        "why": [
            f"{term(name).title} does not rank. {named(reason)}"
            for name, reason in results.not_ranked.items()
            if name != GAP
        ],
        "referral": [] if task.screened else [referral_grid(results, task, "referral_accuracy")],
        "screening": screening,
        "gallery": gallery_part(results, task),
        "gallery_words": gallery_words(),
        "promise": promise_grid(results, task),
        "promise_words": promise_words(results, task),
        "needed_words": needed_words(results, task),
        "unpromised": unpromised_words(results, task),
        "capacity": capacity_part(results, task),
        "fate": fate_grid(results, task),
        "fate_words": fate_words(results, task),
        "foreign": summary,
        "folds": [fold for place in places for fold in _folds(results, task, place, alone=len(places) == 1)],
        "cost": cost_grid(results, task),
        **{f"{chapter}_figures": figures for chapter, figures in drawn.items()},
    }


def _folds(results: Results, task: TaskView, place: Elsewhere, *, alone: bool) -> list[dict[str, Any]]:
    """What is shown of a place away from home when asked."""
    found = {
        f"Detection of {place.title}": None if alone else elsewhere_grid(results, task, place),
        f"Correlation of every uncertainty with {place.title}": correlation_grid(results, task, place),
        f"AUPR and FPR95 of {place.title} by every uncertainty": every_quantity_grid(results, task, place),
    }
    return [{"title": title, "table": table} for title, table in found.items() if table is not None]


def _drawings(results: Results, task: TaskView, index: int) -> dict[str, list[Mapping[str, Any]]]:
    """The figures of a task by chapter, as inline SVG; Markup because matplotlib has escaped every text in them."""
    chapters: tuple[Chapter, ...] = ("in_domain", "referral", "screening", "promise", "elsewhere", "cost")
    drawn: dict[str, list[Mapping[str, Any]]] = {chapter: [] for chapter in chapters}
    for plate in plates(results, task):
        drawn[plate.chapter].append(_inline(plate, f"t{index + 1}"))
    return drawn


def _inline(plate: Plate, prefix: str) -> Mapping[str, Any]:
    svg = for_page(inline_svg(plate.draw()), f"{prefix}-{plate.slug}")
    return {"svg": Markup(svg), "plate": plate}
