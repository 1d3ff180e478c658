"""The section of the ensembling study: methods at equal numbers of samples, conclusions, figures, tables, document.

Every method with 1, 2, … samples is scored at the optimal temperature and measured in independently trained networks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from dubio.core.csv_files import CsvTable
from dubio.reporting.claims import claim_blocks
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.run_view import RunView
from dubio.reporting.score_table import decimals
from dubio.reporting.section import Block, Figure, Headline, Text, section
from dubio.reporting.tables import EMPTY, Column, Row, Table, TableCell
from dubio.reporting.wording import counted
from dubio.statistics.ensemble_equivalent import EquivalentRange
from dubio.statistics.sample_curves import MEASURES
from dubio.studies.ensembles.conclusions import conclusions
from dubio.studies.ensembles.curve_figures import Styles, curve_figures, study_styles
from dubio.studies.ensembles.equivalents import (
    averaged_figures,
    equivalent_figures,
    equivalent_texts,
    pooled_figures,
    ranked_equivalents,
)
from dubio.studies.ensembles.paper_tables import (
    SCORES,
    augmentation_tables,
    sample_tables,
    spread_cell,
    table_files,
)
from dubio.studies.ensembles.published import PUBLISHED, SOURCE, published_blocks, published_document, published_rows
from dubio.studies.ensembles.rank_agreement import order_figures, tace_figures
from dubio.studies.ensembles.score_correlations import correlation_figures
from dubio.studies.ensembles.study import SCORED, SampleCurve, Study, StudyCollector

INTRODUCTION = (
    "Every ensembling method with 1, 2, … samples (of snapshots the latest), scored at the optimal temperature. Its "
    "deep-ensemble equivalent is the number of independently trained networks whose ensemble scores as well."
)

COLUMNS = (
    Column("Calibrated NLL", "", "↓", "mean ± standard deviation over runs; for deep ensembles over random orders"),
    Column("Equivalent", "networks", "↑", "deep-ensemble equivalent with its bounds"),
    Column("Calibrated NLL", "augmented", "↓", "with one random view per sample"),
    Column("Equivalent", "augmented", "↑", "of the method with augmentation, in networks without"),
    Column("Error", "%", "↓"),
    Column("NLL", "temperature 1", "↓", "without temperature scaling; does not rank", unranked=True),
    Column("Temperature", "optimal", "", "median of the cross-validated ones", unranked=True),
)

ERROR = SCORES[0]

FIGURES = (equivalent_figures, curve_figures, order_figures, correlation_figures, tace_figures, pooled_figures)


@section("ensembles", part="closing", order=10)
class EnsemblingStudy(StudyCollector):
    """The ensembling study: what is shown of the studies collected."""

    title = "Ensembling study"

    def blocks(self, run: RunView, task: TaskView | None) -> Iterator[Block]:
        """Yield findings, comparison with the paper, figures and tables."""
        studies = list(self.studies.values())
        if not studies:
            return
        styles = {study.task.key: study_styles(run.methods, study) for study in studies}
        yield Text(INTRODUCTION)
        yield Headline("Key findings")
        for study in studies:
            yield Text(scope_sentence(study))
            yield summary_table(study, styles[study.task.key])
        title = "Conclusions of “Pitfalls of in-domain uncertainty estimation and ensembling” (P), tested here"
        if shared := [study for study in studies if not study.task.is_own]:
            yield from claim_blocks(conclusions(shared), title)
        published = [block for study in studies for block in published_blocks(study, styles[study.task.key])]
        if published:
            yield Headline("Comparison with the published numbers")
            yield Text(SOURCE, "small")
            yield from published
        yield from averaged_figures(studies, styles[studies[0].task.key])
        for study in studies:
            yield Headline(f"{study.task.key}, against the number of samples")
            yield from task_figures(study, styles[study.task.key])
        yield from paper_blocks(studies)

    def document(self, run: RunView) -> dict[str, Any]:
        """Return curves and equivalents of every method, and the conclusions."""
        return {"ensembling_study": study_document(list(self.studies.values()))}

    def files(self, run: RunView) -> dict[str, str | CsvTable]:
        """Return the tables as files."""
        studies = list(self.studies.values())
        files = table_files(studies)
        if rows := [row for study in studies for row in published_rows(study)]:
            files["ensembles-published.csv"] = CsvTable(PUBLISHED, rows)
        return {f"tables/{name}": content for name, content in files.items()}


def scope_sentence(study: Study) -> str:
    """Return what is compared on a task."""
    sampled = [curve for curve in study.select("method", augmented=False) if curve.samples > 1]
    augmented = sum(curve.augmented for curve in study.curves)
    extra = f", {counted(augmented, 'curve')} with test-time augmentation" if augmented else ""
    return (
        f"{study.task.key}: {counted(len(sampled), 'method')} of one training that draw samples, measured in "
        f"{counted(len(study.growth), 'independent network')}{extra}."
    )


def summary_table(study: Study, styles: Styles) -> Table:
    """Return methods without augmentation, with their augmented values beside them, by calibrated NLL."""
    ranked = ranked_equivalents(study, study.select("network", "deep_ensemble", "method", "ensemble", augmented=False))
    places = decimals([curve.at("calibrated_nll", study.compared_samples) for curve, _ in ranked])
    rows = [(curve, _cells(study, curve, bounds, places)) for curve, bounds in ranked]
    filled = [index for index in range(len(COLUMNS)) if any(cells[index] is not EMPTY for _, cells in rows)]
    return Table(
        tuple(COLUMNS[index] for index in filled),
        tuple(Row(c.title, tuple(cells[index] for index in filled), styles[c.name]) for c, cells in rows),
        f"{study.task.key}: {study.compared_samples} samples each; one network has one sample",
    )


def _cells(study: Study, curve: SampleCurve, bounds: EquivalentRange, places: int) -> tuple[TableCell, ...]:
    size, augmented = study.compared_samples, study.with_augmentation(curve)
    ranked = ranked_equivalents(study, [] if augmented is None else [augmented])
    return (
        spread_cell(curve.at("calibrated_nll", size), places),
        _equivalent_cell(bounds),
        EMPTY if augmented is None else spread_cell(augmented.at("calibrated_nll", size), places),
        _equivalent_cell(ranked[0][1]) if ranked else EMPTY,
        spread_cell(ERROR.cell(curve, size), ERROR.places),
        spread_cell(curve.at("nll", size), places, "unranked"),
        spread_cell(curve.at("temperature", size), 2, "unranked"),
    )


def _equivalent_cell(bounds: EquivalentRange) -> TableCell:
    return TableCell(*equivalent_texts(bounds, "> "), f"{min(bounds.central.size, 1e9):.9g}")


def task_figures(study: Study, styles: Styles) -> Iterator[Figure]:
    """Yield the figures of one task, in reading order, each named after the task."""
    for figures in FIGURES:
        for figure in figures(study, styles):
            yield replace(figure, name=f"{study.task.key}-ensembles-{figure.name}")


def paper_blocks(studies: Sequence[Study]) -> Iterator[Block]:
    """Yield the tables in the paper's layout, the likelihood's shown and the others on demand."""
    yield Headline("Tables in the paper's layout")
    yield Text("The same tables, and all curves, are in the folder “tables” beside the report.", "small")
    for by_corpus in (sample_tables(studies), augmentation_tables(studies)):
        for index, table in enumerate(chain(*by_corpus.values())):
            yield replace(table, shown=index == 1)


def study_document(studies: Sequence[Study]) -> dict[str, Any]:
    """Return curves and equivalents of every method on every task, and the conclusions, as JSON; empty without any."""
    if not studies:
        return {}
    tasks = [
        {
            "task": study.task.key,
            "networks": len(study.growth),
            "compared_with_samples": study.compared_samples,
            "methods": [_curve_document(study, curve) for curve in study.curves],
            "published": published_document(study),
        }
        for study in studies
    ]
    tested = [
        {
            "statement": claim.statement,
            "where": claim.where,
            "outcome": claim.outcome,
            "evidence": [vars(evidence) for evidence in claim.evidence],
        }
        for claim in conclusions(studies)
    ]
    return {"tasks": tasks, "conclusions": tested}


def _curve_document(study: Study, curve: SampleCurve) -> dict[str, Any]:
    """Return means over runs; an equivalent beyond the longest ensemble, and an infinite mean, is null."""
    return {
        "method": curve.name,
        "without_augmentation": curve.base if curve.augmented else None,
        "samples": list(curve.sizes),
        "runs": len(curve.values),
        "mean": {measure: [_finite(float(value)) for value in curve.mean(measure)] for measure in MEASURES},
        "deep_ensemble_equivalent": {
            score: [
                {bound: _finite(getattr(bounds, bound).size) for bound in ("lower", "central", "upper")}
                for bounds in study.equivalents(curve, score)
            ]
            for score in SCORED
        },
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
