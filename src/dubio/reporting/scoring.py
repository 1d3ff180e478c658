"""Score one set of predictions: metrics, detection against the in-domain test set, and per-example losses.

The table keeps one loss per test example and method for paired comparisons; nothing else of a prediction stays in
memory.
"""

from __future__ import annotations

import numpy as np

from dubio.calibration.cross_validation import cross_validate
from dubio.reporting.manifest_view import Manifest
from dubio.reporting.measures import (
    GAP,
    HEADLINE,
    RANKED_BY,
    SHIFTED,
    at_thresholds,
    corrupted_values,
    detection,
    detection_name,
    directions,
    in_domain_metrics,
    measure,
    metrics_for,
)
from dubio.reporting.score_table import ScoreTable, TemperatureFits
from dubio.reporting.section import InDomain, Visit
from dubio.statistics.verdicts import placements


def empty_table(manifest: Manifest) -> ScoreTable:
    """Return a table that knows the direction of every metric, and which ones must not rank."""
    metrics = in_domain_metrics()
    not_ranked = {m.name: m.why_not for m in (*metrics, *metrics_for((GAP,))) if not m.comparable}
    return ScoreTable(manifest, directions(metrics), not_ranked)


class Scorer:
    """Scores every visit; one of them serves a whole report."""

    def __init__(self) -> None:
        """Make the metrics once."""
        self.metrics, self.shifted = in_domain_metrics(), metrics_for(SHIFTED)

    def score(self, item: Visit) -> None:
        """Add the scores of a visit to its values, and its losses to the table."""
        if item.split.kind == "id":
            self._score_in_domain(item)
        else:
            self._score_away(item)

    def _score_in_domain(self, item: Visit) -> None:
        measured = measure(self.metrics, item.predictions)
        item.values |= measured.values
        item.values |= at_thresholds(item.report.source, item.task, item.run, item.predictions)
        if item.is_in_domain_test:
            table, group = item.report.scores, item.predictions.labelled.group
            table.add_losses(item.task, item.split, item.run, measured.losses, group)
            if RANKED_BY in measured.losses:
                fitted = cross_validate(item.predictions)
                fits = table.temperatures.setdefault((item.task.key, item.run.method), TemperatureFits())
                fits.values.extend(fitted.temperatures)
                fits.at_bound += fitted.bound_hits
                item.temperature = float(np.median(fitted.temperatures))

    def _score_away(self, item: Visit) -> None:
        before, table = item.in_domain or InDomain(), item.report.scores
        measured, losses = measure(self.shifted, item.predictions), {}
        item.values |= measured.values
        item.values |= corrupted_values(item.task, item.split, item.predictions, before.temperature)
        item.values |= detection(before.uncertainties, item.uncertainties)
        if "accuracy" in measured.losses:
            losses["accuracy"] = measured.losses["accuracy"]
        if HEADLINE in before.uncertainties and not before.grouped:
            placed = placements(before.uncertainties[HEADLINE], item.uncertainties[HEADLINE])
            losses[detection_name("ood_auroc", HEADLINE)] = placed
        if item.predictions.group is None:
            table.add_losses(item.task, item.split, item.run, losses, None)
        if item.split.kind == "shift" and "accuracy" in before.values and "accuracy" in item.values:
            item.values[GAP] = before.values["accuracy"] - item.values["accuracy"]
