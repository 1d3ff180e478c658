"""What is found out about referral on a two-sided task, split by split: plain values that tables and figures read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from dubio.core.types import FloatArray, IntArray, StrArray
from dubio.metrics.quantities import Extremes
from dubio.reporting.manifest_view import MethodRun
from dubio.statistics.bootstrap import Interval

ROC_AT = (0.6, 0.9)
"""Fractions retained at which ROC curves are drawn (R Fig. 6)."""

FALSE_ALARMS = np.linspace(0.0, 1.0, 101)
"""False-positive rates at which ROC curves are kept."""

CLOUD_BINS = 40
"""Bins of the probability of being positive in which predictive entropy is kept."""

UNDERPOWERED = 50
"""Fewer patients (or examples, where nothing belongs together) than this tell too little to be believed."""


@dataclass(frozen=True, eq=False)
class Retained:
    """One run on one split, the most uncertain referred.

    Attributes:
        run: Which run.
        accuracy: Accuracy of the retained at :data:`dubio.reporting.results.RETAINED`.
        auc: Area under the ROC curve there, NaN where undefined.
        undefined: Why the area of all rows is undefined, or empty.
        roc: Fraction retained → highest sensitivity at :data:`FALSE_ALARMS`; a fraction with one class has none.
        sensitivity: Highest sensitivity at the NHS's specificity, at the fractions of the tables; NaN where undefined.
        cloud: ``[2, 3, CLOUD_BINS]``: of the right and of the wrong, how many examples fell into each bin of the
            probability of being positive, and the sums of that probability and of predictive entropy.
    """

    run: MethodRun
    accuracy: FloatArray
    auc: FloatArray
    undefined: str
    roc: Mapping[float, FloatArray]
    sensitivity: FloatArray
    cloud: FloatArray


@dataclass(frozen=True)
class Gain:
    """What referral by uncertainty brings over referral at random, over all fractions retained.

    Attributes:
        area: Area under the accuracy–referral curve.
        gain: The same minus accuracy, which is the area of referral at random.
        units: What was resampled: patients, or examples where nothing belongs together.
        replicates: How often.
    """

    area: Interval
    gain: Interval
    units: int
    replicates: int

    @property
    def excludes_zero(self) -> bool | None:
        """Whether the gain's interval lies on one side of zero; None where there is no interval."""
        if not np.isfinite([self.gain.low, self.gain.high]).all():
            return None
        return self.gain.low > 0 or self.gain.high < 0


@dataclass(frozen=True)
class Subgroup:
    """Calibration of one method on a part of a split.

    Attributes:
        examples: How many.
        units: How many patients (or examples, where nothing belongs together).
        accuracy: Share of right decisions.
        ece: Expected calibration error.
        excess: Mean confidence minus accuracy: above 0, surer than right.
    """

    examples: int
    units: int
    accuracy: Interval
    ece: Interval
    excess: Interval

    @property
    def underpowered(self) -> bool:
        """Whether it is too small to be believed."""
        return self.units < UNDERPOWERED


@dataclass(frozen=True, eq=False)
class Screening:
    """Everything about one task.

    Attributes:
        retained: (split, method) → its runs.
        gains: (split, method) → gain over random referral, averaged over its runs.
        subgroups: (split, fact, value, method) → calibration there, averaged over its runs.
        grouped: Split → whether its rows come in groups, such as patients.
    """

    retained: Mapping[tuple[str, str], tuple[Retained, ...]] = field(default_factory=dict)
    gains: Mapping[tuple[str, str], Gain] = field(default_factory=dict)
    subgroups: Mapping[tuple[str, str, str, str], Subgroup] = field(default_factory=dict)
    grouped: Mapping[str, bool] = field(default_factory=dict)

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits there are, in the order they were read."""
        return tuple(dict.fromkeys(split for split, _ in self.retained))

    def undefined(self, split: str) -> str:
        """Why no ROC curve is defined on a split at all; empty where one is."""
        return next((run.undefined for (name, _), runs in self.retained.items() if name == split for run in runs), "")


@dataclass(frozen=True, eq=False)
class Exhibit:
    """The most and least certain examples of one run on one split, and what was said of them.

    Attributes:
        run: Which run.
        extremes: Their rows.
        ids: Row → what it is called.
        labels: ``[N]`` classes of all rows.
        chosen: ``[N]`` decisions.
        sureness: ``[N]`` probability of the decision.
    """

    run: MethodRun
    extremes: Extremes
    ids: StrArray | None
    labels: IntArray
    chosen: IntArray
    sureness: FloatArray


@dataclass(frozen=True, eq=False)
class Gallery:
    """What a task can show: (split, method) → the first run's examples, and split → row → PNG."""

    exhibits: Mapping[tuple[str, str], Exhibit]
    pictures: Mapping[str, Mapping[int, bytes]]
