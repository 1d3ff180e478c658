"""The page's part about the ensembling study: what came out, figures, tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dubio.reporting.plate import Plate
from dubio.reporting.results import Results
from dubio.reporting.wording import counted
from dubio.studies.ensembles.conclusions import conclusions
from dubio.studies.ensembles.panels import study_looks
from dubio.studies.ensembles.paper_tables import augmentation_tables, sample_tables
from dubio.studies.ensembles.plates import averaged_plates, study_plates
from dubio.studies.ensembles.published_tables import CONDITION, SOURCE, published_part
from dubio.studies.ensembles.study import Study
from dubio.studies.ensembles.summary import summary_grid


def ensembles_part(results: Results, inline: Callable[[Plate, str], Mapping[str, Any]]) -> dict[str, Any]:
    """What the template sets; empty without a study.

    Args:
        results: What was scored.
        inline: Makes a drawn figure of a plate, with a prefix for its ids.
    """
    studies = list(results.studies.values())
    if not studies:
        return {}
    tested, methods = conclusions(studies), results.manifest.methods
    drawn = {study.task.key: study_looks(methods, study) for study in studies}
    return {
        "summaries": [
            {"words": _words(study), "grid": summary_grid(study, drawn[study.task.key])} for study in studies
        ],
        "claims": [claim for claim in tested if claim.evidence],
        "silent": [claim.statement for claim in tested if not claim.evidence],
        "published": published_part(studies, drawn),
        "source": SOURCE,
        "condition": CONDITION,
        "averaged": [inline(plate, "ensembles") for plate in averaged_plates(results.manifest, studies)],
        "tasks": [
            {
                "title": study.task.key,
                "figures": [inline(plate, f"e{place + 1}") for plate in study_plates(results.manifest, study)],
            }
            for place, study in enumerate(studies)
        ],
        "tables": [{"title": table.title, "grid": table.grid} for table in sample_tables(studies)],
        "augmented": [{"title": table.title, "grid": table.grid} for table in augmentation_tables(studies)],
    }


def _words(study: Study) -> str:
    """What was compared on a task, and the order that came out."""
    drawn = [line for line in study.chosen("method", augmented=False) if line.samples > 1]
    twins = sum(line.augmented for line in study.lines)
    augmented = f", {counted(twins, 'line')} with test-time augmentation" if twins else ""
    return (
        f"{study.task.key}: {counted(len(drawn), 'method')} of one training that draw samples, measured in "
        f"{counted(len(study.growth), 'independent network')}{augmented}."
    )
