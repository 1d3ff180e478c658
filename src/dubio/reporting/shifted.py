"""What is measured on corrupted test sets beside accuracy: how sure a method stays while its inputs get worse.

Nobody refits a temperature when inputs turn bad: the likelihood is taken at the temperature of the in-domain test set
(the median of the cross-validated ones), so that methods do not differ by a scale that one number repairs at home.
"""

from __future__ import annotations

from dubio.calibration.temperature import evidence_of
from dubio.core.predictions import Predictions
from dubio.metrics.calibration_error import ece
from dubio.reporting.manifest_view import SplitView, TaskView

TEMPERED = "nll_at_home_temperature"
"""NLL at the temperature of the in-domain test set."""


def graded_values(
    task: TaskView, split: SplitView, predictions: Predictions, temperature: float | None
) -> dict[str, float]:
    """ECE, and NLL at the temperature fitted at home, on one severity of a corruption; nothing on other splits.

    Args:
        task: The task.
        split: One of its splits.
        predictions: On that split.
        temperature: That of the same run at home, where it is known.
    """
    graded = {name for splits in task.severities.values() for name in splits}
    if split not in graded or not len(predictions.labelled):
        return {}
    values = {"ece": ece(predictions)}
    if temperature is not None:
        values[TEMPERED] = float(evidence_of(predictions).scores(1.0 / temperature).nll.mean())
    return values
