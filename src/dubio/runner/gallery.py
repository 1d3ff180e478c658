"""Small copies of the images that a report may show: the most and the least certain of every method's first run.

They are chosen and kept while the data is at hand, so that a report that is written later, from the store alone, has
them too. Rows belong to a split's fingerprint, so that runs on the same data share their pictures.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dubio.core.errors import DubioError
from dubio.core.types import IntArray, Split
from dubio.metrics.extremes import extreme_rows
from dubio.runner.setting import Setting
from dubio.runner.thumbnails import png, small_copy
from dubio.store import Store

SHOWN = 6
"""Examples of each sort: sure and right, sure and wrong, unsure and right, unsure and wrong."""

MOST = 400
"""Pictures kept of a split at most."""

_SEVERITY = re.compile(r"(.+)-([1-9][0-9]*)")


def keep_pictures(store: Store, settings: Iterable[Setting], runs: Sequence[Mapping[str, Any]]) -> None:
    """Keep small copies of what the runs were most and least certain of; tasks without images have none.

    Args:
        store: Where the predictions are and the pictures go.
        settings: The tasks that were run.
        runs: The runs as the manifest lists them.
    """
    for setting in settings:
        if setting.task.inputs == "image":
            first = _first_runs(runs, setting)
            for split in _shown(setting):
                rows = _extreme(store, split, first)
                store.write_pictures(split.fingerprint, {int(row): _picture(split, int(row)) for row in rows})


def _first_runs(runs: Sequence[Mapping[str, Any]], setting: Setting) -> list[str]:
    """The prediction of each method's first run on a task."""
    found: dict[str, str] = {}
    for run in runs:
        if (run["task"], run["network"]) == (setting.name, setting.entry.network):
            found.setdefault(run["method"], run["id"])
    return list(found.values())


def _shown(setting: Setting) -> list[Split]:
    """The in-domain test and what is away from home; not the severities of a corruption, all of the same images."""
    away = setting.task.of_kind("shift")
    levels: dict[str, list[Split]] = {}
    for split in away:
        if found := _SEVERITY.fullmatch(split.name):
            levels.setdefault(found[1], []).append(split)
    # other data sets may end in a number too (messidor-2): severities are several, and all of a size
    spoilt = [one for same in levels.values() if len(same) > 1 and len({len(s) for s in same}) == 1 for one in same]
    return [*setting.task.of_kind("id")[:1], *(split for split in away if split not in spoilt)]


def _extreme(store: Store, split: Split, predictions: Sequence[str]) -> IntArray:
    """The rows at the ends by any of these predictions; one that cannot be read has none, as the report will say."""
    rows: list[IntArray] = []
    for identifier in predictions:
        try:
            found = store.read_predictions(identifier, split.name, split.fingerprint)
        except DubioError:
            continue
        rows.append(extreme_rows(found, count=SHOWN).rows)
    return np.unique(np.concatenate(rows))[:MOST] if rows else np.empty(0, dtype=np.int64)


def _picture(split: Split, row: int) -> bytes:
    (image,) = np.asarray(split.data.take(np.array([row])).inputs)
    return png(small_copy(image))
