"""Breast cancer (Wisconsin diagnostic) of scikit-learn: screening with referral on a small table."""

from __future__ import annotations

import numpy as np

from dubio.core.registry import task
from dubio.core.types import Examples, Task
from dubio.tasks.sources.locate import DataSource, scikit_learn_data, source_card
from dubio.tasks.splitting import SplitOptions, assign_parts, part_splits

CARD = source_card("breast-cancer")


@task("breast-cancer", source=DataSource(CARD))
def breast_cancer(*, fractions: tuple[float, ...] = (0.35, 0.1, 0.15, 0.4), split_seed: int = 0) -> Task:
    """Breast cancer screening from 30 measurements: benign or malignant (class 1).

    Splits: train, val, cal, test. Calibration is large for its task, because referral thresholds with a guarantee are
    fitted on it.

    Args:
        fractions: Shares of train, val, cal and test.
        split_seed: Seed of the split.
    """
    bunch = scikit_learn_data("load_breast_cancer", "the task breast-cancer")
    # scikit-learn counts malignant as 0; a screening test is positive when it finds the disease
    labels = (1 - bunch["target"]).astype(np.int64)
    inputs = np.ascontiguousarray(bunch["data"], dtype=np.float64)
    examples = Examples(inputs, labels, ids=np.arange(len(labels)).astype(np.str_))
    parts = assign_parts(labels, SplitOptions(fractions, split_seed))
    splits = tuple(part_splits(examples, parts))
    features = tuple(map(str, bunch["feature_names"]))
    return Task("breast-cancer", "table", "multiclass", ("benign", "malignant"), splits, CARD, features=features)
