"""Why the published network, made smaller, fails on weak labels: one change at a time, from `small` and its forerunner.

Three in ten labels of the training and validation images are flipped; those of the test images are true. Every draw has
its own flips (and, of Fashion-MNIST, its own images), which all set-ups share, so that differences are paired by draws.
"""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from dubio.core.errors import UserError
from dubio.core.files import write_file
from dubio.core.registry import METHODS, TASKS
from dubio.core.specs import identity
from dubio.core.types import Examples, FloatArray, Kind, SourceCard, Split, Task
from dubio.inference.batches import LabelledRows
from dubio.methods.encoding_cache import encode, encoder_of, fitted_encoder
from dubio.methods.fitting import FitContext, FitResult, fit, fit_model
from dubio.methods.prediction import predictor
from dubio.methods.specification import NetworkSpec, build_model, encoding_of, fit_spec, pred_spec
from dubio.metrics.metric import metric_named
from dubio.runner.benchmark_file import load_benchmark
from dubio.runner.prepare import method_arguments
from dubio.statistics.verdicts import smallest_difference
from results.pages import ROOT, Page
from results.tables import interval_text, markdown_table, spread_text
from results.writing import MARK, digits_sentence, version_sentence

DRAWS = 3
FLIPPED = 0.3
METHOD = "regularised"

SHIRTS, OTHERS = 6, (0, 2, 3, 4)
"""Shirts of Fashion-MNIST against T-shirts, pullovers, dresses and coats, which resemble them."""

COUNTS = 975, 2925
SHARES = 0.46, 0.58
"""Ends of the training and the validation images of Fashion-MNIST, as shares of all."""

NO_VIEWS = {"zoom": 0.0, "shift": 0, "shift_fraction": 0.0, "rotation": 0.0, "flip": 0.0, "flip_vertical": 0.0}
UPRIGHT = {**NO_VIEWS, "shift": 2, "flip": 0.5}
TURNED = {**NO_VIEWS, "zoom": 0.1, "shift_fraction": 25 / 512, "rotation": 180.0, "flip": 0.5, "flip_vertical": 0.5}
BEST_EPOCH = {"collect": "best_on_validation", "patience": 5}
LAST_EPOCH = {"collect": "last", "patience": 0, "epochs": 25}


@dataclass(frozen=True, eq=False)
class SetUp:
    """A base with one change.

    Attributes:
        base: The preset it starts from.
        title: What is changed; empty for the base itself.
        training: Arguments of the method that are changed.
        network: The network, where it is changed, with its arguments.
        random_start: Whether the head starts at random instead of at the logistic regression.
    """

    base: str
    title: str = ""
    training: Mapping[str, Any] = field(default_factory=dict)
    network: tuple[str, Mapping[str, Any]] | None = None
    random_start: bool = False


SMALL, FORMER = "small", "the former small"

SET_UPS = (
    SetUp(SMALL),
    SetUp(SMALL, "a random start of the head", random_start=True),
    SetUp(SMALL, "class weights in the loss", {"class_weights": "batch"}),
    SetUp(SMALL, "the best epoch on validation, patience 5", BEST_EPOCH),
    SetUp(SMALL, "no views", NO_VIEWS),
    SetUp(SMALL, "the paper's views: turned by any angle, zoomed, shifted, flipped", TURNED),
    SetUp(SMALL, "rate 4e-4 instead of 1e-3", {"lr": 4e-4}),
    SetUp(SMALL, "rate 4e-3", {"lr": 4e-3}),
    SetUp(SMALL, "constant rate", {"schedule": "constant"}),
    SetUp(SMALL, "batches of 16 instead of 64", {"batch": 16}),
    SetUp(SMALL, "batches of 256", {"batch": 256}),
    SetUp(SMALL, "dropout 0.5 instead of 0.2", {"p": 0.5}),
    SetUp(SMALL, "L2 of 5e-5 instead of 5e-3", {"l2": 5e-5}),
    SetUp(SMALL, "the published network, b = 8", network=("vgg-retina", {"base": 8})),
    SetUp(FORMER),
    SetUp(FORMER, "no class weights", {"class_weights": "none"}),
    SetUp(FORMER, "the last of 25 epochs", LAST_EPOCH),
    SetUp(FORMER, "no views", NO_VIEWS),
    SetUp(FORMER, "the views of `small`", UPRIGHT),
    SetUp(FORMER, "rate 1.6e-3 instead of 4e-4", {"lr": 1.6e-3}),
    SetUp(FORMER, "batches of 16 instead of 64", {"batch": 16}),
    SetUp(FORMER, "no dropout", {"p": 0.0}),
    SetUp(FORMER, "two groups of convolutions instead of five", network=("vgg-retina", {"base": 8, "groups": 2})),
    SetUp(FORMER, "the network of `small`", network=("cnn-linear", {"channels": (8, 16, 32)})),
)

LINEAR = SetUp("linear")

SETS = {
    "deepdrid": "DeepDRiD, all qualities, 64 pixels",
    "fashion": "Fashion-MNIST, shirts among others, 32 pixels",
}

FILES = {"deepdrid": "deepdrid_64.npz", "fashion": "fashion_mnist_10k.npz"}

FORMER_ON = "fashion"
"""The set on which changes of the former preset are tried: the one where it fails."""


def bases(name: str) -> tuple[str, ...]:
    """Return the presets of which changes are tried on a set."""
    return (SMALL, FORMER) if name == FORMER_ON else (SMALL,)


def tried(name: str) -> tuple[SetUp, ...]:
    """Return the baseline and the set-ups that are trained on a set."""
    return (LINEAR, *(set_up for set_up in SET_UPS if set_up.base in bases(name)))


# --- Data


@lru_cache(maxsize=2)
def task_of(name: str, draw: int, data: Path) -> Task:
    """Return a draw of a set with flipped labels, made once for all set-ups in a row.

    Raises:
        UserError: When the file of the set is missing.
    """
    path = data / FILES[name]
    if not path.is_file():
        raise UserError(
            f"{path}: no such file; --data (or DUBIO_DATA) names the folder with {', '.join(FILES.values())}."
        )
    return deepdrid(path, draw) if name == "deepdrid" else shirts(path, draw)


def flipped(split: Split, rng: np.random.Generator) -> Split:
    """Return a split whose labels are flipped at random, unless it is for testing."""
    labels = np.asarray(split.data.labels)
    wrong = rng.random(len(labels)) < (FLIPPED if split.kind in ("train", "val") else 0.0)
    return Split.of(split.name, split.kind, replace(split.data, labels=np.where(wrong, 1 - labels, labels)))


def deepdrid(path: Path, draw: int) -> Task:
    """Return the retina task without a shift and without a calibration split."""
    task: Task = TASKS.make("retina", data=str(path), shift="none", cal=0.0)
    rng = np.random.default_rng([0, draw])
    return replace(task, splits=tuple(flipped(split, rng) for split in task.splits))


def shirts(path: Path, draw: int) -> Task:
    """Return images of one class of Fashion-MNIST among those of four that resemble it."""
    with np.load(path, allow_pickle=False) as file:
        x, y = file["x"], file["y"]
    rng = np.random.default_rng([1, draw])
    kinds = y == SHIRTS, np.isin(y, OTHERS)
    rows = [rng.permutation(np.flatnonzero(own))[:count] for own, count in zip(kinds, COUNTS, strict=True)]
    order = rng.permutation(np.concatenate(rows))
    images = np.pad(x[order], ((0, 0), (2, 2), (2, 2)))[..., None]
    labels = (y[order] == SHIRTS).astype(np.int64)
    ends = [round(share * len(order)) for share in SHARES]
    kinds_of: dict[str, Kind] = {"train": "train", "val": "val", "test": "id"}
    cuts = zip(kinds_of.items(), np.split(np.arange(len(order)), ends), strict=True)
    splits = [Split.of(*named, Examples(images[own], labels[own])) for named, own in cuts]
    card = SourceCard("Fashion-MNIST", "1", "MIT", "https://github.com/zalandoresearch/fashion-mnist")
    return Task("shirts", "image", "multiclass", ("no", "yes"), tuple(flipped(own, rng) for own in splits), card)


# --- Trainings


def stored(set_up: SetUp, name: str, draw: int, data: Path, folder: Path) -> dict[str, float]:
    """Train a set-up on a draw, unless a file of the folder has its scores.

    Returns:
        The AUC on the test images, the NLL, and the epoch that was kept.
    """
    task = task_of(name, draw, data)
    recipe, spec, path = _planned(set_up, task, draw, folder)
    if not path.is_file():
        write_file(path, json.dumps(_trained(spec, recipe, task, random_start=set_up.random_start)))
    scores: dict[str, float] = json.loads(path.read_text(encoding="utf-8"))
    return scores


def _planned(set_up: SetUp, task: Task, draw: int, folder: Path) -> tuple[Any, dict[str, Any], Path]:
    """Return recipe and specification of a training, and the file of its scores."""
    recipe, network = _recipe(set_up)
    spec = fit_spec(recipe, task, network.encoding(), network, seed=draw, member=0)
    return recipe, spec, folder / f"{identity([spec, set_up.random_start])}.json"


def left_to_train(data: Path, folder: Path) -> int:
    """Return how many trainings the folder lacks."""
    planned = (
        _planned(set_up, task_of(name, draw, data), draw, folder)
        for name in SETS
        for draw in range(DRAWS)
        for set_up in tried(name)
    )
    return sum(not path.is_file() for *_, path in planned)


def _trained(spec: Mapping[str, Any], recipe: Any, task: Task, *, random_start: bool) -> dict[str, float]:
    made = _random_start(spec, recipe, task) if random_start else fit(spec, task, FitContext())
    prediction = pred_spec(recipe, "fit", seed=spec["seed"], member=0)
    predictions = predictor(spec, prediction, made.tensors, made.encoder)(task.split("test"))
    scores = {metric: float(metric_named(metric).compute(predictions)) for metric in ("class_auroc", "nll")}
    return {**scores, "epoch": float(made.record.get("best_epoch") or 0)}


def _random_start(spec: Mapping[str, Any], recipe: Any, task: Task) -> FitResult:
    """Train as :func:`~dubio.methods.fitting.fit` does, from the head's random weights."""
    train, val = task.split("train"), task.split("val")
    encoder = fitted_encoder(encoding_of(spec), train)
    rows = [LabelledRows(encode(encoder, own), own.data.labels, len(task.classes)) for own in (train, val)]
    model = build_model(spec, encoder_of(encoder).shape)
    posterior, record = fit_model(model, recipe, *rows, seed=spec["seed"], member=0, context=FitContext())
    tensors = {name: tensor.cpu().numpy() for name, tensor in posterior.tensors().items()}
    return FitResult(tensors, json.loads(encoder), record)


def _recipe(set_up: SetUp) -> tuple[Any, NetworkSpec]:
    benchmark = load_benchmark(str(ROOT / "results" / "errata-retina.toml") if set_up.base == FORMER else "retina")
    entry = benchmark.tasks[0]
    network = NetworkSpec(*(set_up.network or (entry.network, entry.network_arguments)))
    if set_up.base == LINEAR.base:
        return METHODS.make("linear"), network
    return METHODS.make(METHOD, **{**method_arguments(benchmark, entry)[METHOD], **set_up.training}), network


def scores_of_draw(name: str, draw: int, data: Path, folder: Path) -> list[dict[str, float]]:
    """Return the scores of every set-up on a draw, one after the other."""
    return [stored(set_up, name, draw, data, folder) for set_up in tried(name)]


def make_all(data: Path, folder: Path) -> dict[tuple[SetUp, str], list[dict[str, float]]]:
    """Return the scores of every set-up on every draw, trained in two processes."""
    folder.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        jobs = {name: [pool.submit(scores_of_draw, name, draw, data, folder) for draw in range(DRAWS)] for name in SETS}
        drawn = {name: [job.result() for job in own] for name, own in jobs.items()}
    return {
        (set_up, name): [scores[i] for scores in drawn[name]] for name in SETS for i, set_up in enumerate(tried(name))
    }


# --- The page


def write_weak_labels(page: Page, data: Path, store: Path) -> Path:
    """Make what the store lacks, and write the page."""
    write_file(page.path, "\n".join(_lines(page, make_all(data, store))) + "\n")
    return page.path


def _lines(page: Page, scores: Mapping[tuple[SetUp, str], list[dict[str, float]]]) -> Iterator[str]:
    yield from (f"# {page.title}", "", MARK.format(name=page.name), "", version_sentence())
    yield from ("", digits_sentence(page), "", page.scope)
    for name, title in SETS.items():
        linear = _aucs(scores[LINEAR, name])
        yield from ("", f"## {title}", "", f"`linear` has an AUC of {spread_text(linear.tolist())}.")
        for base in bases(name):
            own = [set_up for set_up in SET_UPS if set_up.base == base]
            start = _aucs(scores[own[0], name])
            rows = [_row(set_up, scores[set_up, name], start, linear) for set_up in own]
            head = [f"from {base}", "AUC", "change", "against `linear`", "nll", "epoch kept"]
            yield from ("", markdown_table(head, rows))
        yield from ("", *(f"- {sentence}" for sentence in findings(name, scores)))


def _aucs(scores: list[dict[str, float]]) -> FloatArray:
    return np.array([own["class_auroc"] for own in scores])


def _row(set_up: SetUp, scores: list[dict[str, float]], start: FloatArray, linear: FloatArray) -> list[str]:
    aucs = _aucs(scores)
    epochs = sorted({int(own["epoch"]) for own in scores})
    kept = f"{epochs[0]} to {epochs[-1]}" if len(epochs) > 1 else str(epochs[0])
    nll = float(np.mean([own["nll"] for own in scores]))
    change = difference_text(aucs - start) if set_up.title else "–"
    return [
        set_up.title or "unchanged",
        spread_text(aucs.tolist()),
        change,
        difference_text(aucs - linear),
        f"{nll:.3f}",
        kept,
    ]


def interval(differences: FloatArray) -> tuple[float, float, float]:
    """Return the mean of paired differences and its interval of 95 %, Student's over draws."""
    count = len(differences)
    half = smallest_difference([(float(differences.var(ddof=1)) / count, count - 1.0)])
    return float(differences.mean()), float(differences.mean()) - half, float(differences.mean()) + half


def difference_text(differences: FloatArray) -> str:
    """Return a mean difference with its interval, bold where that excludes zero."""
    mean, low, high = interval(differences)
    text = interval_text(mean, low, high)
    return f"**{text}**" if low > 0 or high < 0 else text


def findings(name: str, scores: Mapping[tuple[SetUp, str], list[dict[str, float]]]) -> Iterator[str]:
    """Yield which changes are significant, from each base, and how each base stands to `linear`."""
    for base in bases(name):
        first, *changed = [set_up for set_up in SET_UPS if set_up.base == base]
        start = _aucs(scores[first, name])
        _, low, high = interval(start - _aucs(scores[LINEAR, name]))
        place = "ahead of" if low > 0 else "behind" if high < 0 else "not significantly different from"
        moved: dict[str, list[str]] = {"raise": [], "lower": []}
        for set_up in changed:
            mean, low, high = interval(_aucs(scores[set_up, name]) - start)
            if low > 0 or high < 0:
                moved["raise" if mean > 0 else "lower"].append(f"{set_up.title} ({mean:+.3f})")
        beyond = "with an interval that excludes zero"
        sentences = [f"Changes that {verb} its AUC, {beyond}: {'; '.join(own)}." for verb, own in moved.items() if own]
        text = " ".join(sentences) or "The interval of no single change excludes zero."
        yield f"{base[0].upper()}{base[1:]} is {place} `linear`. {text}"
