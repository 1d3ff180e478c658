"""A left side that needs no torch: its fits are a few seeded numbers, and every training leaves a line in a log.

It registers a task, a network and methods of its own, and keeps the built-in ones out, so that processes start fast.
What it does is steered by the arguments of its methods. Processes whose environment names DUBIO_FAKE_LOG, a directory,
register when they import it and write their log there; tests register through the fixture ``fake_world``. A file
``kill/<place>-<id>`` in that directory kills, once, the worker that reaches this place of the job with that id.
"""

from __future__ import annotations

import os
import signal
import stat
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dubio.core.errors import TrainingFailed
from dubio.core.predictions import Predictions
from dubio.core.registry import METHODS, NETWORKS, TASKS, method, network, task
from dubio.core.specs import describe, identity, part, restore
from dubio.core.types import Examples, SourceCard, Split, Task
from dubio.store import Store


def toy(*, rows: int = 24, extra: bool = False, moved: float = 0.0) -> Task:
    """Six numbers a row, three classes; with another test set of the same name where it is moved."""
    generator = np.random.default_rng(rows)

    def split(name: str, kind: Any) -> Split:
        labels = generator.integers(0, 3, rows)
        ids = np.array([f"{name}{i}" for i in range(rows)])
        return Split.of(name, kind, Examples(generator.normal(size=(rows, 6)), labels, ids))

    splits = [split("train", "train"), split("val", "val"), split("test", "id"), split("far/away", "ood")]
    if extra:
        splits.append(split("more", "shift"))
    if moved:
        own = splits[2].data
        splits[2] = Split.of("test", "id", Examples(own.inputs + moved, own.labels, own.ids))
    card = SourceCard("numpy", "1", "none", "none")
    return Task("toy", "table", "multiclass", ("a", "b", "c"), tuple(splits), card, ("two rows are the same",))


def toy_net(shape: tuple[int, ...], *, width: int = 4) -> None:
    """Is never built."""


@part("fake_recipe")
@dataclass(frozen=True)
class FakeRecipe:
    family: str
    start: FakeRecipe | None = None
    seconds: float = 0.0
    lr: float = 0.1
    epochs: int = 4
    fault: str = ""
    members: int = 1
    samples: int = 0
    most: int = 0

    def fit_part(self) -> FakeRecipe:
        return replace(self, members=1, samples=0, most=0)


def _register(name: str, family: str, many: int, sampled: int, child: bool = False) -> None:
    @method(name)
    def make(
        *, seconds: float = 0.0, lr: float = 0.1, epochs: int = 4, fault: str = "", members: int = many,
        samples: int = sampled,
    ) -> FakeRecipe:  # fmt: skip
        """A fake."""
        start = FakeRecipe(family, None, seconds, lr, epochs) if child else None
        return FakeRecipe(family + child * "-child", start, seconds, lr, epochs, fault, members, samples)


@dataclass(frozen=True)
class OpaqueMethod:
    """A third party's method that is not a recipe."""

    name: str

    def fit(self, task: Task, network: Any, *, seed: int, context: Any) -> int:
        _log(f"opaque {seed}")
        return seed


def opaque() -> OpaqueMethod:
    """Not a recipe."""
    return OpaqueMethod("opaque")


@dataclass(frozen=True)
class NetworkSpec:
    name: str
    arguments: Any = field(default_factory=dict)


@dataclass(frozen=True)
class FitContext:
    device: str = "cpu"
    progress: Any = lambda fraction, words: None
    checkpoint: Any = None
    start: Any = None
    encoding: Any = None


@dataclass(frozen=True)
class Fitted:
    tensors: dict[str, Any]
    encoder: dict[str, Any]
    record: dict[str, Any]


def fit_spec(
    recipe: FakeRecipe, task: Task, encoding: Any, network: NetworkSpec, *, seed: int, member: int, start_id: str | None
) -> dict[str, Any]:
    return {
        "schema": 1,
        "kind": "fit",
        "task": {"name": task.name, "train": task.split("train").fingerprint, "val": task.split("val").fingerprint},
        "encoding": describe(encoding),
        "network": {"name": network.name, "arguments": dict(network.arguments)},
        "recipe": describe(recipe.fit_part()),
        "start": start_id,
        "seed": seed,
        "member": member,
    }


def pred_spec(recipe: FakeRecipe, fit_id: str, *, seed: int, member: int) -> dict[str, Any]:
    return {
        "schema": 1, "kind": "prediction", "fit": fit_id, "samples": recipe.samples, "seed": seed, "member": member,
        **({"latest": recipe.most} if recipe.most else {}),
    }  # fmt: skip


def fit(spec: dict[str, Any], task: Task, context: FitContext) -> Fitted:
    """Adds one seeded draw an epoch, and checkpoints."""
    recipe, fit_id = restore(spec["recipe"]), identity(spec)
    name = f"{recipe.family} {recipe.lr} {spec['seed']} {spec['member']}"
    _log(f"begin {name}")
    _perhaps_fail(recipe, spec["seed"])
    _perhaps_die("begin", fit_id)
    weights, first = np.zeros((6, 3)), 0
    if context.start is not None:
        weights = weights + context.start["weights"].T
    if (kept := context.checkpoint.load()) is not None:
        weights, first = kept["tensors"]["weights"], kept["state"]["epoch"]
        _log(f"resume {name} {first}")
    for epoch in range(first, recipe.epochs):
        draw = np.random.default_rng([spec["seed"], spec["member"], epoch, len(recipe.family)])
        weights = weights + recipe.lr * draw.normal(size=(6, 3))
        time.sleep(recipe.seconds / recipe.epochs)
        context.progress((epoch + 1) / recipe.epochs, f"epoch {epoch}")
        if context.checkpoint.every_seconds == 0:
            context.checkpoint.save({"weights": weights}, {"epoch": epoch + 1})
            _log(f"saved {name} {epoch + 1}")
        _perhaps_die(f"epoch {epoch}", fit_id)
    _log(f"end {name}")
    _perhaps_die("end", fit_id)
    record = {"val_nll": abs(recipe.lr - 0.3), "seconds": recipe.seconds, "parameters": 18, "curve": np.float32(0.5)}
    return Fitted({"weights": weights.T}, {"encoder": "fake"}, record)


def _perhaps_fail(recipe: FakeRecipe, seed: int) -> None:
    if recipe.fault == "nan" and seed == 1:
        raise TrainingFailed("the loss is not a number.")
    if recipe.fault == "bug" and seed == 1:
        raise ZeroDivisionError("division by zero")
    if recipe.fault == "crash" and seed == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    if recipe.fault == "killed" and seed == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if recipe.fault == "exit" and seed == 1:
        print("no more", file=sys.stderr, flush=True)
        os._exit(7)
    if recipe.fault == "garbage" and seed == 1:
        for handle in filter(_is_pipe, range(3, 64)):  # among them the one for answers
            os.write(handle, b"[[[ not an answer\n")
        time.sleep(30)


def _is_pipe(handle: int) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(handle).st_mode)
    except OSError:
        return False


def _perhaps_die(place: str, identifier: str) -> None:
    mark = Path(os.environ["DUBIO_FAKE_LOG"]) / "kill" / f"{place}-{identifier}"
    if mark.exists():
        mark.unlink()
        _log(f"killed {place} {identifier}")
        os.kill(os.getpid(), signal.SIGKILL)


def _die_once_stored(store: Store, identifier: str) -> None:
    """Forget the failure of what has just been stored, then perhaps die before anybody hears of it."""
    FORGET_FAILURE(store, identifier)
    _perhaps_die("stored", identifier)


FORGET_FAILURE = Store.forget_failure


def predictor(spec: Any, prediction: Any, tensors: Any, encoder: Any, *, device: str) -> Callable[[Split], Predictions]:
    print("a stray word on standard output must not harm the protocol")
    assert encoder == {"encoder": "fake"}
    _perhaps_die("predict", identity(prediction))
    samples = max(1, prediction["samples"])
    noise = np.random.default_rng([prediction["seed"], prediction["member"]]).normal(size=(samples, 1, 3))
    scale = 0.1 if prediction["samples"] else 0.0
    return lambda split: _predictions((split.data.inputs @ tensors["weights"].T)[None] + scale * noise, split)


def encoder_split(encoding: Any, task: Task) -> Split:
    return task.of_kind("train")[0]


def encode_split(encoding: Any, train_split: Split, split: Split) -> Any:
    return split.data.inputs


def predict_with(posterior: int, encoded: Any, split: Split, task: Any, *, seed: int, device: str) -> Predictions:
    assert task["target"] == "multiclass"
    return _predictions((encoded[:, :3] * (posterior + 1))[None], split)


def _predictions(logits: Any, split: Split) -> Predictions:
    return Predictions(
        logits.astype(np.float32), split.data.labels, ood=np.full(len(split), split.kind in ("shift", "ood")),
        ids=split.data.ids, classes=("a", "b", "c"), kind=split.kind,
    )  # fmt: skip


def begin_job() -> None:
    pass


def seconds_saved() -> float:
    return 0.0


def check(spec: Any, task: Task) -> None:
    """Whatever it is, it can be made, or fails when it is."""


def estimate(spec: Any, task: Task, *, device: str, pace: float | None = None) -> dict[str, float]:
    return {"seconds": restore(spec["recipe"]).seconds, "bytes": 1000, "pace": 0.01, "pass": 0.0}


def _log(line: str) -> None:
    with (Path(os.environ["DUBIO_FAKE_LOG"]) / "log").open("a") as log:
        log.write(line + "\n")


def register() -> None:
    """Fill the registries with this world alone."""
    for registry in (METHODS, NETWORKS, TASKS):
        registry._filled = True
    task("toy")(toy)
    network("toy-net", inputs="table")(toy_net)
    method("opaque")(opaque)
    _register("plain", "plain", 1, 0)
    _register("plain-ensemble", "plain", 3, 0)
    _register("drop", "drop", 1, 0)
    _register("mc-drop", "drop", 1, 5)
    _register("mc-drop-ensemble", "drop", 3, 5)
    _register("child", "plain", 1, 0, child=True)


if "DUBIO_FAKE_LOG" in os.environ:
    register()
    Store.forget_failure = _die_once_stored  # type: ignore[method-assign]
    for _number in range(9):
        _perhaps_die("start", str(_number))
