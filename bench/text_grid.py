"""The 18 set-ups on CLINC the obvious way and ours, measured on a sample and extrapolated to the whole grid.

The obvious way trains each set-up on its own, M = 5 times for an ensemble: 54 trainings with a padded-batch PyTorch
loop on two threads, and S plain passes for S samples. Ours: 25 trainings that the set-ups share, in two processes of
one thread each, and predictions that share their prefix. Both ways get the same number of epochs.
"""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing.synchronize import Barrier
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from bench.corpus import clinc_like
from bench.obvious import ObviousConcrete, ObviousHeteroscedastic, ObviousTextCNN, obvious_concrete, padded
from bench.timing import Ratio, least, line
from dubio.core.registry import METHODS
from dubio.encoders import TokenRows
from dubio.inference.batches import EVALUATION_BATCH, LabelledRows, collate, prediction_rows
from dubio.inference.samples import WeightSamples, state_of
from dubio.methods.recipe import Recipe
from dubio.networks.network import Model
from dubio.networks.textcnn import textcnn
from dubio.training.collectors import Last
from dubio.training.loop import LoopContext, Slots, train

CLASSES, VOCABULARY, BATCH = 150, 2196, 32
TRAIN, VALIDATE, PREDICT = 15_000, 3_000, 8_500  # texts to train on, to validate on, to predict (val, test, novel)
EPOCHS = 20  # of one training: what patience 15 comes to on CLINC
SHARE = 15  # the sample is a fifteenth of each: 32 steps, 200 texts validated, 567 predicted

IDLE = 0.9  # of two cores; below it the wall clock says more about other processes than about either way

Clock = Callable[[], float]


class Cost(NamedTuple):
    """Seconds of one epoch with its validation, of predicting once, and of predicting with samples, on the sample."""

    epoch: float
    plain: float
    sampled: float


@dataclass(frozen=True)
class Grid:
    """What the set-ups ask for, by the kind of training that they stand on.

    Attributes:
        members: Of a set-up, its trainings.
        samples: Of a set-up, its noise draws.
        kind: Of a set-up, the training it stands on: the name of the single deterministic set-up of that training.
    """

    members: dict[str, int]
    samples: dict[str, int]
    kind: dict[str, str]

    def obvious(self, costs: dict[str, Cost]) -> float:
        """Seconds when every set-up trains and predicts on its own."""
        return sum(
            members * _seconds(costs[self.kind[name]], sampled=[self.samples[name] > 0])
            for name, members in self.members.items()
        )

    def shared(self, costs: dict[str, Cost]) -> float:
        """Seconds when set-ups share trainings, and ensembles the predictions of their members."""
        most = max(self.members.values())
        ways = {kind: {self.samples[n] > 0 for n in self.kind if self.kind[n] == kind} for kind in costs}
        return sum(most * _seconds(cost, sampled=sorted(ways[kind])) for kind, cost in costs.items())


def _seconds(cost: Cost, sampled: list[bool]) -> float:
    """Of one whole training and of predicting from it in these ways."""
    return SHARE * (EPOCHS * cost.epoch + sum(cost.sampled if draws else cost.plain for draws in sampled))


def run() -> Iterator[str]:
    grid = _grid()
    kinds = list(dict.fromkeys(grid.kind.values()))
    torch.set_num_threads(1)
    theirs = {kind: _costs(_obvious_ways(kind), time.process_time) for kind in kinds}
    ours = {kind: _costs(_our_ways(kind), time.process_time) for kind in kinds}
    size = f"{sum(grid.members.values())} trainings against {5 * len(kinds)}, {EPOCHS} epochs each, M = 5, S = 10"
    conditions = f"{size}; from a fifteenth of an epoch of each kind, CLINC-like lengths, float32"
    yield line(
        "The CLINC grid, seconds of work, against the obvious way",
        Ratio(grid.obvious(theirs), grid.shared(ours)),
        "≥ 2 ×",
        f"{conditions}; both on one thread, least seconds of the process, as if two threads halved theirs",
    )
    if (idle := _idle_share()) < IDLE:
        yield f"The CLINC grid, wall clock: not measured, only {idle:.0%} of two cores are idle"
        return
    torch.set_num_threads(2)
    theirs = {kind: _costs(_obvious_ways(kind), time.perf_counter) for kind in kinds}
    torch.set_num_threads(1)
    yield line(
        "The CLINC grid, wall clock, against the obvious way",
        Ratio(grid.obvious(theirs), grid.shared(_side_by_side(kinds)) / 2),
        "≥ 2 ×",
        f"{conditions}; theirs on two threads, ours in two processes at once",
    )


def _idle_share() -> float:
    """The share of a core that the worse off of two busy processes gets for a second."""
    busy = (
        "import time\nend = time.perf_counter() + 1\nwhile time.perf_counter() < end: pass\nprint(time.process_time())"
    )
    probes = [subprocess.Popen([sys.executable, "-c", busy], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    return min(1.0, *(float(probe.communicate()[0]) for probe in probes))


def _grid() -> Grid:
    """Read from the set-ups themselves."""
    recipes: dict[str, Recipe] = {
        entry.name: entry.make() for entry in METHODS.entries() if entry.facts.get("family") == "dropout"
    }
    alone = {name: recipe for name, recipe in recipes.items() if recipe.members == 1 and not recipe.samples}
    kinds = {
        name: next(kind for kind, other in alone.items() if other.fit_part() == recipe.fit_part())
        for name, recipe in recipes.items()
    }
    members, samples = ({n: getattr(r, field) for n, r in recipes.items()} for field in ("members", "samples"))
    return Grid(members, samples, kinds)


def _costs(ways: tuple[Callable[[], object], ...], clock: Clock) -> Cost:
    return Cost(*(least(way, rounds=2, clock=clock) for way in ways))


def _side_by_side(kinds: list[str]) -> dict[str, Cost]:
    """Our costs by the wall clock, the larger of two processes that run at the same time."""
    spawn = multiprocessing.get_context("spawn")
    start, results = spawn.Barrier(2), spawn.Queue()
    workers = [spawn.Process(target=_worker, args=(kinds, start, results)) for _ in range(2)]
    for worker in workers:
        worker.start()
    found: list[dict[str, Cost]] = [results.get() for _ in workers]
    for worker in workers:
        worker.join()
    return {kind: Cost(*map(max, *(costs[kind] for costs in found))) for kind in kinds}


def _worker(kinds: list[str], start: Barrier, results: Any) -> None:
    torch.set_num_threads(1)
    costs = {}
    for kind in kinds:
        ways = _our_ways(kind)
        start.wait()
        costs[kind] = _costs(ways, time.perf_counter)
    results.put(costs)


@cache
def _sample() -> tuple[TokenRows, TokenRows, TokenRows]:
    """Texts to train on, to validate on and to predict."""
    return tuple(clinc_like(count // SHARE, seed) for seed, count in enumerate((TRAIN, VALIDATE, PREDICT)))  # type: ignore[return-value]


def _labels(rows: TokenRows) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.random.default_rng(len(rows)).integers(0, CLASSES, size=len(rows))


def _our_ways(kind: str) -> tuple[Callable[[], object], ...]:
    """An epoch, a prediction and a sampled prediction of a kind."""
    recipe: Recipe = METHODS.make(kind)
    torch.manual_seed(0)
    body = textcnn((VOCABULARY,))
    model = Model(body, recipe.head.build(body.width, CLASSES))
    for edit in recipe.edits:
        edit.apply(model)
    slots = Slots(replace(recipe.objective, epochs=1, patience=0), recipe.optimiser, recipe.schedule, Last())
    texts, check, wanted = _sample()
    data, held = LabelledRows(texts, _labels(texts), CLASSES), LabelledRows(check, _labels(check), CLASSES)
    context = LoopContext(torch.device("cpu"), lambda fraction, words: None)

    def predict(samples: int) -> None:
        drawn = WeightSamples(model, (state_of(model),), samples).draw(0)
        for index in prediction_rows(wanted, EVALUATION_BATCH):
            drawn.predict(collate(wanted, index), index)

    return (
        lambda: train(model, slots, data, held, seed=0, member=0, context=context),
        lambda: predict(0),
        lambda: predict(10 if recipe.edits else 0),
    )


def _obvious(kind: str) -> ObviousTextCNN:
    concrete, noisy = "concrete" in kind, "heteroscedastic" in kind

    def layer() -> nn.Module:
        linear = nn.Linear(300, CLASSES)
        return ObviousConcrete(linear, 0.1) if concrete else linear

    head = ObviousHeteroscedastic(layer(), layer()) if noisy else layer()
    if concrete:
        return obvious_concrete(VOCABULARY, head)
    return ObviousTextCNN(VOCABULARY, CLASSES, 0.0 if kind == "deterministic" else 0.5, head)


def _obvious_ways(kind: str) -> tuple[Callable[[], object], ...]:
    """The same three, as one would write them."""
    model = _obvious(kind)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    penalised = [module for module in model.modules() if isinstance(module, ObviousConcrete)]
    texts, check, wanted = _sample()
    targets = torch.from_numpy(_labels(texts))

    def epoch() -> None:
        model.train()
        for index in torch.randperm(len(texts)).split(BATCH):
            loss = nn.functional.cross_entropy(model(padded(texts, index)), targets[index])
            loss = loss + sum(module.penalty(TRAIN) for module in penalised)
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            optimiser.step()
        passes(check, 1)

    @torch.inference_mode()
    def passes(rows: TokenRows, samples: int) -> None:
        model.train(samples > 1)
        for index in torch.arange(len(rows)).split(EVALUATION_BATCH):
            batch = padded(rows, index)
            torch.stack([model(batch) for _ in range(samples)])

    return epoch, lambda: passes(wanted, 1), lambda: passes(wanted, 10 if kind != "deterministic" else 1)
