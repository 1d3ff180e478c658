"""A training that is cut off and goes on, and whether two fits are the same to the bit."""

from __future__ import annotations

import numpy as np


def equal(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[k], b[k]) for k in a)


class Kept:
    """A checkpoint in memory that is cut off after some savings."""

    every_seconds = 0.0

    def __init__(self, stop_after):
        self.kept, self.left = None, stop_after

    def load(self):
        return self.kept

    def save(self, tensors, state):
        self.kept, self.left = {"tensors": {k: v.copy() for k, v in tensors.items()}, "state": state}, self.left - 1
        if self.left == 0:
            raise KeyboardInterrupt
