"""An area under a ROC curve as a mean over examples, so that it is compared like any other such mean.

With θ the area, n foreign and m in-domain examples and N = n + m, every foreign example has its placement V among the
in-domain ones (the share of them below it, ties counting one half) and every in-domain example its share W of foreign
ones above it. The values

    θ + (N/n)(V − θ)    and    θ + (N/m)(W − θ)

average to θ, and the variance of their mean is DeLong, DeLong and Clarke-Pearson's (1988) up to n/(n − 1) and
m/(m − 1); differences of two methods on the same examples are paired by it.
"""

from __future__ import annotations

import numpy as np

from dubio.core.types import FloatArray


def placements(inside: FloatArray, outside: FloatArray) -> FloatArray:
    """A value for every in-domain and then every foreign example; their mean is the area under the ROC curve.

    Args:
        inside: Uncertainties of the in-domain examples.
        outside: Of the foreign ones.
    """
    n, m = len(outside), len(inside)
    above = _share_below(inside, outside)
    below = 1.0 - _share_below(outside, inside)
    area = above.mean()
    return np.concatenate([area + (n + m) / m * (below - area), area + (n + m) / n * (above - area)])


def _share_below(reference: FloatArray, values: FloatArray) -> FloatArray:
    """Share of the reference below each value, ties counting one half."""
    ordered = np.sort(reference)
    lower, upper = np.searchsorted(ordered, values, "left"), np.searchsorted(ordered, values, "right")
    return np.asarray((lower + upper) / (2 * len(ordered)))
