from __future__ import annotations

import numpy as np
import pytest

from dubio.core.registry import TASKS
from tests.tasks.helpers import ids


def test_breast_cancer_counts_malignant_as_positive() -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    task = TASKS.make("breast-cancer")
    truth = datasets.load_breast_cancer()
    assert task.classes[1] == "malignant"
    rows = np.array(ids(task, "train", "val", "cal", "test")).astype(int)
    labels = np.concatenate([split.data.labels for split in task.splits])
    assert sorted(rows.tolist()) == list(range(569))
    np.testing.assert_array_equal(truth.target_names[truth.target[rows]] == "malignant", labels == 1)
