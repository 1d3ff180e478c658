"""Fits of image networks: an epoch moves weights and batch-norm, and samples come out."""

from dataclasses import replace

import numpy as np
import pytest

from dubio.core.errors import UserError
from dubio.core.registry import METHODS
from dubio.core.types import Examples, SourceCard, Split, Task
from dubio.encoders import encoding_for
from dubio.methods import FitContext, NetworkSpec, estimate, fit, fit_spec, pred_spec
from tests.methods.helpers import equal, predict
from tests.networks.helpers import SMALL


def tiny_task():
    """Images whose class is the colour that stands out."""
    generator = np.random.default_rng(0)
    labels = np.arange(40) % 3
    pixels = generator.integers(0, 120, (40, 16, 16, 3)) + 120 * np.eye(3, dtype=np.int64)[labels][:, None, None, :]
    inputs = pixels.astype(np.uint8)
    cuts = {"train": slice(0, 16), "val": slice(16, 28), "id": slice(28, 40)}
    splits = tuple(Split.of(kind, kind, Examples(inputs[cut], labels[cut])) for kind, cut in cuts.items())
    return Task("colours", "image", "multiclass", ("r", "g", "b"), splits, SourceCard("made here", "1", "none", "none"))


def fitted(name, arguments, task, method="mc-dropout", **options):
    recipe = METHODS.make(method, **options)
    network = NetworkSpec(name, arguments)
    spec = fit_spec(recipe, task, encoding_for("image", {}), network, seed=0, member=0, start_id=None)
    done = fit(spec, task, FitContext())
    asked = pred_spec(recipe, "f", seed=0, member=0)
    return done, predict(spec, asked, done.tensors, done.encoder, task.of_kind("id")[0])


@pytest.mark.parametrize("name", SMALL)
def test_an_epoch_moves_weights_and_batch_norm_and_samples_come_out(name):
    options = {"epochs": 1, "batch": 8, "samples": 3, "shift": 2, "flip": 0.5}
    done, found = fitted(name, SMALL[name], tiny_task(), **options)
    assert found.logits.shape == (3, 12, 3)
    assert np.isfinite(found.logits).all()
    assert np.ptp(found.logits, axis=0).max() > 0
    counts = {int(t) for key, t in done.tensors.items() if key.endswith("num_batches_tracked")}
    assert counts == {2}


def cifar(data_dir, train=64, val=32, test=32):
    """A few real images, the classes mixed."""
    file = data_dir / "cifar10_10k_5k.npz"
    if not file.is_file():
        pytest.skip(f"{file.name} is not among the real data")
    with np.load(file, allow_pickle=False) as held:
        order = np.random.default_rng(0).permutation(len(held["y_train"]))[: train + val + test]
        inputs, labels = held["x_train"][order], held["y_train"][order].astype(np.int64)
        names = tuple(str(name) for name in held["classes"])
    cuts = {"train": slice(0, train), "val": slice(train, train + val), "id": slice(train + val, None)}
    splits = tuple(Split.of(kind, kind, Examples(inputs[cut], labels[cut])) for kind, cut in cuts.items())
    return Task("few", "image", "multiclass", names, splits, SourceCard("CIFAR-10", "1", "none", "none"))


BIG = {
    "vgg16-bn": {},
    "preresnet": {"depth": 20},
    "wrn": {"depth": 16, "widen": 2},
    "resnet50": {"base": 16},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BIG)
def test_two_epochs_on_real_images(name, data_dir):
    options = {"epochs": 2, "batch": 32, "lr": 0.01, "shift": 4, "flip": 0.5, "samples": 2}
    done, found = fitted(name, BIG[name], cifar(data_dir), **options)
    assert done.record["epochs"] == 2
    assert found.logits.shape == (2, 32, 10)
    assert np.isfinite(found.logits).all()


def without_validation(task):
    return replace(task, splits=tuple(split for split in task.splits if split.kind != "val"))


NETWORK = NetworkSpec("cnn", {})
FEW = {"epochs": 3, "batch": 8}


def image_spec(method, task, **options):
    recipe = METHODS.make(method, **options)
    return fit_spec(recipe, task, encoding_for("image", {}), NETWORK, seed=0, member=0)


def test_without_validation_the_last_weights_are_kept():
    """Selection by validation draws no noise of the training: the last weights with validation are the same ones."""
    task = tiny_task()
    alone = without_validation(task)
    selected = fit(image_spec("deterministic", alone, **FEW, patience=1), alone, FitContext())
    last = fit(image_spec("deterministic", task, **FEW, patience=0, collect="last"), task, FitContext())
    assert equal(selected.tensors, last.tensors)
    record = selected.record
    assert (record["epochs"], record["best_epoch"], record["val_nll"]) == (3, 3, None)
    assert [entry["val_nll"] for entry in record["history"]] == [None] * 3
    assert estimate(image_spec("deterministic", alone, **FEW), alone)["seconds"] > 0


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("snapshot-ensemble", {"epochs": 4, "batch": 8, "cycles": 2}),
        ("csgld", {"epochs": 4, "batch": 8, "cycles": 2, "sampling_epochs": 1, "samples_per_cycle": 1, "lr": 0.01}),
        ("mc-concrete-dropout", FEW),
    ],
)
def test_other_methods_train_without_validation_too(method, options):
    alone = without_validation(tiny_task())
    done = fit(image_spec(method, alone, **options), alone, FitContext())
    assert done.record["val_nll"] is None
    assert all(np.isfinite(tensor).all() for tensor in done.tensors.values())


def test_what_is_chosen_on_validation_is_refused_without_it():
    alone = without_validation(tiny_task())
    with pytest.raises(UserError, match=r"laplace: .* scale .* task colours has no validation split"):
        image_spec("laplace", alone, **FEW)
    with pytest.raises(UserError, match="prior='validation'"):
        image_spec("laplace", alone, **FEW, scale=1.0, prior="validation")
    assert image_spec("laplace", alone, **FEW, scale=1.0)["task"]["val"] is None


def text_task(of_test="only here"):
    splits = {"train": ("red blue", "blue red", "green"), "val": ("red",), "id": (of_test, "blue"), "ood": ("far",)}
    made = [Split.of(kind, kind, Examples(texts, np.arange(len(texts)) % 2)) for kind, texts in splits.items()]
    return Task("few", "text", "multiclass", ("a", "b"), tuple(made), SourceCard("made here", "1", "none", "none"))


def test_a_vocabulary_from_all_text_reads_the_test_set_and_says_so_in_its_identity():
    recipe, network = METHODS.make("deterministic", epochs=1), NetworkSpec("textcnn", {"embedding": 3, "maps": 2})

    def spec_of(task, **erratum):
        return fit_spec(recipe, task, encoding_for("text", {"min_frequency": 1, **erratum}), network, seed=0, member=0)

    words = {}
    for erratum in ({}, {"vocabulary_from_all_text": True}):
        done = fit(spec_of(text_task(), **erratum), text_task(), FitContext())
        words[bool(erratum)] = set(done.encoder["words"])
    assert words == {False: {"red", "blue", "green"}, True: {"red", "blue", "green", "only", "here"}}
    assert spec_of(text_task()) == spec_of(text_task("another"))
    one, other = (spec_of(text_task(text), vocabulary_from_all_text=True) for text in ("only here", "another"))
    assert one["task"] != other["task"]
    with pytest.raises(UserError, match="data"):
        fit(one, text_task("another"), FitContext())
