"""Adapter: policies and screening in the blocks of sections, until each is a section."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dubio.reporting.manifest_view import TaskView
from dubio.reporting.results import Results
from dubio.reporting.run_view import RunView
from dubio.reporting.scores import results_of_run
from dubio.reporting.section import Block, Example, Examples, Figure, Headline, Section, Text, section
from dubio.reporting.tables import folded
from dubio.studies.retina.document import gains_document, subgroups_document
from dubio.studies.retina.gallery import gallery_part, gallery_words
from dubio.studies.retina.subgroups import facts_of, subgroup_grid, subgroup_words
from dubio.studies.retina.tables import gain_grid, nhs_grid, retention_grid


def _figure(plate: Any) -> Figure:
    return Figure(plate.slug, plate.title, plate.caption, plate.draw, plate.narrow, plate.folded, plate.reading)


@section("screening", order=32)
class ScreeningSection(Section):
    """Referral on two-sided tasks, split by split, and subgroups."""

    title = "Referral on every test set"

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """Tables and figures."""
        if task is not None:
            yield from self._screening(results_of_run(run), task)

    def _screening(self, results: Results, task: TaskView) -> Iterator[Block]:
        from dubio.studies.retina.parts import gain_words
        from dubio.studies.retina.plates import on_split, screening_plates

        found = results.screening.get(task.key)
        if found is None:
            return
        drawn = {plate.slug: _figure(plate) for plate in screening_plates(results, task)}
        if found.gains:
            yield Headline("What referral is worth")
            yield gain_grid(results, task)
            yield from (Text(words, "small") for words in gain_words(results, task))
        for split in found.splits:
            why = found.undefined(split)
            home = split == task.in_domain.name
            yield Headline(f"In-domain, “{split}”" if home else f"Away from home, “{split}”")
            if why:
                yield Text(f"No AUC and no ROC curve is defined on “{split}”: {why}.", "note")
            shown = ("referral_accuracy",) if why else ("referral_accuracy", "referral_auc")
            yield from (retention_grid(results, task, split, metric) for metric in shown)
            nhs = nhs_grid(results, task, split)
            if nhs is not None:
                yield nhs
            slugs = [on_split(kind, split) for kind in ("referral", "roc", "certainty")]
            yield from (drawn[slug] for slug in slugs if slug in drawn)
        facts = facts_of(results, task)
        if facts:
            yield Headline("Subgroups")
            yield Text(
                "Is the classifier as right as it says for everyone? Calibration by what is known of the examples."
            )
            yield Text(subgroup_words(results, task), "small")
            for fact in facts:
                yield subgroup_grid(results, task, fact, "ece")
                yield from (drawn[slug] for slug in [on_split("subgroups", fact)] if slug in drawn)
                yield folded(subgroup_grid(results, task, fact, "accuracy"), f"Accuracy by {fact}")

    def document(self, run: RunView) -> dict[str, Any]:
        """Gains and subgroups."""
        results = results_of_run(run)
        return {"referral_gains": gains_document(results), "subgroups": subgroups_document(results)}


@section("gallery", order=60)
class Gallery(Section):
    """Gallery."""

    title = "Gallery"

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """Pictures."""
        parts = [] if task is None else gallery_part(results_of_run(run), task)
        if parts:
            yield Text(gallery_words(), "small")
        for part in parts:
            yield Headline(f"“{part['split']}”, {part['method']}")
            yield Examples(
                {
                    row["title"]: tuple(Example(item["source"], item["words"], item["id"]) for item in row["shown"])
                    for row in part["rows"]
                }
            )
