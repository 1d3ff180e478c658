"""Global random states, moved on purpose: whoever draws from them instead of from a seed gives itself away."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np


@contextmanager
def other_global_seed(number: int) -> Iterator[None]:
    """Python's and numpy's global generators start elsewhere while this is open, and are put back afterwards."""
    before, numpy_before = random.getstate(), np.random.get_state()
    random.seed(number)
    np.random.seed(number)
    try:
        yield
    finally:
        random.setstate(before)
        np.random.set_state(numpy_before)
