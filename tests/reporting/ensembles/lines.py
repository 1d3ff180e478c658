"""Studies written down number by number, so that what must follow from them is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dubio.reporting.manifest_view import MethodView, SplitView, TaskView
from dubio.statistics.ensemble_equivalent import SCORES, GrowthCurve
from dubio.studies.ensembles.prefixes import MEASURES
from dubio.studies.ensembles.study import Line, Role, Study
from dubio.studies.ensembles.thresholded import SETTINGS

NETWORKS = 20


def line(
    name: str,
    calibrated: Sequence[Sequence[float]],
    *,
    sizes: tuple[int, ...] = (1, 2, 3, 5, 10),
    role: Role = "method",
    base: str = "",
    registered: str = "",
    settings: str = "",
    members: int = 1,
    **others: Sequence[Sequence[float]],
) -> Line:
    """A line with these calibrated NLLs, ``[R, X]``; of other measures the same where they are not given."""
    views = 1 if base else 0
    method = MethodView(name, name, members, max(sizes), name, registered=registered or base or name, views=views,
                        settings=settings)  # fmt: skip
    plain = np.array(calibrated, dtype=float)
    sides = [np.array(others.get(measure, plain), dtype=float) for measure in MEASURES]
    runs = () if role == "pool" else tuple((0, member) for member in range(len(plain)))
    values = np.stack(sides, axis=2)
    return Line(method, base or name, role, sizes, values, np.zeros((len(plain), len(SETTINGS))), runs)


def task(network: str = "vgg-small", corpus: str = "pictures", images: tuple[int, int, int] = (90, 10, 50),
         arguments: Mapping[str, Any] | None = None) -> TaskView:  # fmt: skip
    splits = tuple(
        SplitView(name, kind, name, count)  # type: ignore[arg-type]
        for (name, kind), count in zip((("train", "train"), ("val", "val"), ("test", "id")), images, strict=True)
    )
    return TaskView(corpus, corpus, "image", "multiclass", tuple("abcdefghij"), network, splits, corpus=corpus,
                    network_arguments=arguments or {})  # fmt: skip


def curve(spread: float = 0.0) -> GrowthCurve:
    """Deep ensembles of l networks score 2 − 0.05·l: an equivalent is (2 − value)/0.05."""
    mean = 2.0 - 0.05 * np.arange(1, NETWORKS + 1)
    return GrowthCurve(dict.fromkeys(SCORES, mean), {s: np.full(NETWORKS, spread) for s in SCORES}, 10)


def study(*lines: Line, of: TaskView | None = None, spread: float = 0.0) -> Study:
    return Study(of or task(), lines, curve(spread))


def worth(*networks: float) -> list[float]:
    """The scores that are worth so many networks."""
    return [2.0 - 0.05 * each for each in networks]
