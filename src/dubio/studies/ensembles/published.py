"""Ours beside what P published: numbers where the network, the data and the samples are P's, else the order alone.

The numbers are in ``published.csv``. A number of ours stands beside P's only where it was made from the whole
published data set: all its training images, be they trained on or kept for validation, and all its test images. Of a
part of the data, or of another network, no number can be expected to agree; the order of methods can.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import combinations
from typing import Any

from dubio.reporting.aggregate import Cell
from dubio.reporting.manifest_view import TaskView
from dubio.studies.ensembles.apart import RULE, apart, cells_of, kin_of
from dubio.studies.ensembles.orders import Reordering, reordering_of
from dubio.studies.ensembles.study import Line, Study

CLOSE = 0.05
"""Differences up to this share of the published value count as agreement."""

FEWEST = 3
"""Methods that an order is made of."""

CORPORA = {"cifar10": ("CIFAR-10", 50_000, 10_000), "cifar100": ("CIFAR-100", 50_000, 10_000)}
"""Task → what P calls it, and its published training and test images."""

NETWORKS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "vgg16-bn": ("VGG16", {"base": 64, "dense": 512}),
    "preresnet": ("PreResNet-110", {"depth": 110}),
    "preresnet-164": ("PreResNet-164", {"depth": 164}),
    "wrn": ("WideResNet-28-10", {"depth": 28, "widen": 10}),
}
"""Network → P's name of it, and the arguments with which it is P's; they are the defaults."""

STAND_IN = "vgg16-bn"
"""Whose order a network is compared with that is not one of P's."""


@dataclass(frozen=True)
class Figure:
    """One published number."""

    corpus: str
    network: str
    samples: int
    method: str
    metric: str
    value: float
    std: float


@dataclass(frozen=True)
class Agreement:
    """A published number beside ours."""

    published: Figure
    line: Line
    ours: Cell

    @property
    def difference(self) -> float:
        """Ours minus theirs."""
        return self.ours.mean - self.published.value

    @property
    def outcome(self) -> str:
        """Within :data:`CLOSE`, or better or worse than that; lower is better."""
        if abs(self.difference) <= CLOSE * self.published.value:
            return "within"
        return "worse" if self.difference > 0 else "better"


@dataclass(frozen=True, eq=False)
class Order:
    """The same methods here and in P, by calibrated NLL.

    Attributes:
        network: P's network.
        here: With how many samples here.
        there: With how many in P.
        values: Values here, and in P.
        reversed: Pairs in the opposite order.
        surely: Those of them that the spread over runs tells apart here.
    """

    network: str
    here: int
    there: int
    values: Reordering
    reversed: tuple[tuple[str, str], ...]
    surely: tuple[tuple[str, str], ...]


@cache
def published_figures() -> tuple[Figure, ...]:
    """Every shipped number."""
    text = (files("dubio.studies.ensembles") / "published.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return tuple(
        Figure(
            row["corpus"],
            row["network"],
            int(row["samples"]),
            row["method"],
            row["metric"],
            float(row["value"]),
            float(row["std"]),
        )
        for row in rows
    )


def corpus_of(task: TaskView) -> str:
    """The data set's registered name."""
    return task.corpus or task.name


def whole(task: TaskView) -> bool:
    """Whether a task holds every published training image, trained on or kept back, and every published test image."""
    if corpus_of(task) not in CORPORA:
        return False
    _, train, test = CORPORA[corpus_of(task)]
    learned = sum(split.examples for split in task.of_kind("train", "val", "cal"))
    return learned == train and task.of_kind("id")[0].examples == test


def network_of(task: TaskView) -> str | None:
    """The name of P's network that a task's is; None where it is another, or the same with other arguments."""
    if task.network not in NETWORKS:
        return None
    own = NETWORKS[task.network][1]
    return task.network if all(own.get(name) == value for name, value in task.network_arguments.items()) else None


def agreements(study: Study) -> tuple[Agreement, ...]:
    """Every published number that can be compared, with ours; none of another network or of a part of the data."""
    network = network_of(study.task)
    if network is None or not whole(study.task):
        return ()
    lines, found = plain_lines(study), []
    for figure in published_figures():
        if (figure.corpus, figure.network) == (corpus_of(study.task), network) and figure.method in lines:
            line = lines[figure.method]
            cell = line.at(figure.metric, figure.samples)
            if cell is not None:
                found.append(Agreement(figure, line, cell))
    return tuple(found)


def order_of(study: Study) -> Order | None:
    """The order of methods here and in P on the same data set; None of another data set or of too few methods.

    P's network is the study's own, or :data:`STAND_IN` where it is not one of P's.
    """
    network = network_of(study.task) or STAND_IN
    theirs = [
        figure
        for figure in published_figures()
        if (figure.corpus, figure.network, figure.metric) == (corpus_of(study.task), network, RULE)
    ]
    lines = plain_lines(study)
    cells = cells_of(lines.values(), study.equal)
    values = reordering_of(
        {name: cells[line.name].mean for name, line in lines.items() if line.name in cells},
        {figure.method: figure.value for figure in theirs},
    )
    if len(values.after) < FEWEST:
        return None
    judged = {name: cell for name, cell in cells.items() if study.by_name[name].role != "pool"}
    kin = kin_of(lines.values())
    told = {pair for pair in combinations(values.names, 2) if apart(judged, kin, pair)}
    surely = tuple(pair for pair in values.swapped if pair in told)
    return Order(network, study.equal, theirs[0].samples, values, values.swapped, surely)


def plain_lines(study: Study) -> dict[str, Line]:
    """Registered name → the method as it is: no variant of it, and without augmentation."""
    return {
        line.method.registered: line
        for line in study.lines
        if not line.augmented and not line.method.settings and line.name == line.method.registered
    }
