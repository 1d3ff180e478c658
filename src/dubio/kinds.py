"""The words and array types that every room shares: kinds of splits, targets, directions, needs."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from dubio.mapped import LazyRows

Kind = Literal["train", "val", "cal", "id", "shift", "ood"]
"""What a split is for. ``cal`` is seen neither by training nor by selection."""

Target = Literal["multiclass", "multilabel", "ordinal"]
Modality = Literal["text", "image", "table"]
Direction = Literal["higher", "lower"]
Need = Literal["labels", "samples", "ood", "data_variance", "model_variance", "two_classes"]

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
StrArray = NDArray[np.str_]
Inputs = tuple[str, ...] | NDArray[Any] | LazyRows

KINDS: tuple[Kind, ...] = get_args(Kind)
TARGETS: tuple[Target, ...] = get_args(Target)

UNLABELLED = -1
"""The label of an example that belongs to none of the task's classes, or whose class is not known."""
