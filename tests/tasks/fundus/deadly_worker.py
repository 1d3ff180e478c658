"""What a worker process that dies runs; it imports little, for every new process imports it."""

import os

import numpy as np

from dubio.tasks.fundus import cache


def prepare_or_die(array, path, row):
    """Prepare a photograph in a worker process that dies at one file."""
    if path.name == "2.png":
        os._exit(9)
    return cache.prepare_one(path, row, np.load(array, mmap_mode="r+"))
