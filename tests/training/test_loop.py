"""The loop: what it learns, when it stops, what it keeps, and that a resumed training is the uninterrupted one."""

import numpy as np
import pytest
import torch
from torch.nn.utils import clip_grad_norm_

from dubio.core.errors import TrainingFailed, UserError
from dubio.core.registry import METHODS
from dubio.core.types import Examples, SourceCard, Split, Task
from dubio.encoders import encoding_for
from dubio.inference.batches import collate
from dubio.methods import FitContext, NetworkSpec, fit, fit_spec, pred_spec
from dubio.training.loop import _clip
from tests.methods.helpers import Kept, equal, predict

CARD = SourceCard("made here", "1", "none", "none")


def separable(rows=240, classes=3, seed=0, target="multiclass", wrong=0.0):
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, classes, size=rows)
    inputs = (np.eye(classes)[labels] * 3 + generator.normal(size=(rows, classes))).astype(np.float32)
    labels = np.where(generator.random(rows) < wrong, generator.integers(0, classes, size=rows), labels)
    if target == "multilabel":
        labels = np.stack([(labels == k) | (inputs[:, k] > 2) for k in range(classes)], axis=1).astype(np.int64)
    cuts = {"train": slice(0, rows // 2), "val": slice(rows // 2, 3 * rows // 4), "id": slice(3 * rows // 4, rows)}
    splits = tuple(Split.of(kind, kind, Examples(inputs[cut], labels[cut])) for kind, cut in cuts.items())
    return Task("separable", "table", target, tuple("abc"[:classes]), splits, CARD)


def spec_of(method="deterministic", task=None, seed=0, member=0, **arguments):
    task = task or separable()
    recipe = METHODS.make(method, **{"epochs": 8, "batch": 16, "lr": 0.01, **arguments})
    network = NetworkSpec("mlp", {"hidden": [8, 8]})
    return recipe, fit_spec(recipe, task, encoding_for("table", {}), network, seed=seed, member=member)


@pytest.mark.parametrize("method", ["deterministic", "mc-dropout", "concrete-dropout", "mc-heteroscedastic"])
def test_a_separable_task_is_learned(method):
    task = separable()
    recipe, spec = spec_of(
        method, task, epochs=30, **({"p": 0.2} if "concrete" not in method and method != "deterministic" else {})
    )
    fitted = fit(spec, task, FitContext())
    predictions = predict(
        spec, pred_spec(recipe, "x", seed=0, member=0), fitted.tensors, fitted.encoder, task.split("id")
    )
    assert (predictions.probs.argmax(1) == predictions.labels).mean() > 0.9
    assert predictions.kind == "id"
    assert not predictions.ood.any()
    assert (predictions.data_variance is not None) == ("heteroscedastic" in method)


def test_the_same_seed_gives_the_same_bits_and_another_seed_or_member_does_not():
    task = separable()
    runs = [
        fit(spec_of("mc-dropout", task, seed=s, member=m)[1], task, FitContext())
        for s, m in ((0, 0), (0, 0), (1, 0), (0, 1))
    ]
    assert equal(runs[0].tensors, runs[1].tensors)
    assert not equal(runs[0].tensors, runs[2].tensors)
    assert not equal(runs[0].tensors, runs[3].tensors)


@pytest.mark.parametrize("method", ["regularised", "concrete-dropout", "heteroscedastic"])
@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
def test_a_resumed_training_equals_the_uninterrupted_one(method, optimiser):
    task = separable()
    arguments = {"optimiser": optimiser} | ({"shrink": 0.0} if optimiser == "sgd" and "concrete" not in method else {})
    _, spec = spec_of(method, task, **arguments)
    whole = fit(spec, task, FitContext())
    checkpoint = Kept(stop_after=3)
    with pytest.raises(KeyboardInterrupt):
        fit(spec, task, FitContext(checkpoint=checkpoint))
    resumed = fit(spec, task, FitContext(checkpoint=checkpoint))
    assert equal(whole.tensors, resumed.tensors)
    assert whole.record["history"] == resumed.record["history"]


def test_the_best_weights_on_validation_are_kept():
    task = separable(120, wrong=0.5)
    _, spec = spec_of("deterministic", task, epochs=60, lr=0.05, patience=0)
    fitted = fit(spec, task, FitContext())
    losses = [epoch["val_nll"] for epoch in fitted.record["history"]]
    assert fitted.record["best_epoch"] == int(np.argmin(losses)) + 1
    assert fitted.record["val_nll"] == min(losses)


def test_patience_stops_a_training_that_no_longer_improves():
    task = separable(120, wrong=0.5)
    _, spec = spec_of("deterministic", task, epochs=200, lr=0.05, patience=3)
    record = fit(spec, task, FitContext()).record
    assert record["epochs"] < 200
    assert record["epochs"] - record["best_epoch"] == 3


def test_collect_last_keeps_the_last_weights():
    task = separable(120, wrong=0.5)
    best = fit(spec_of("deterministic", task, epochs=40, lr=0.05, patience=0)[1], task, FitContext())
    last = fit(spec_of("deterministic", task, epochs=40, lr=0.05, patience=0, collect="last")[1], task, FitContext())
    assert last.record["best_epoch"] == 40
    assert best.record["best_epoch"] < 40
    assert not equal(best.tensors, last.tensors)


def test_a_loss_that_is_not_a_number_fails_with_a_sentence():
    task = separable()
    _, spec = spec_of("deterministic", task, lr=1e30, clip=0.0)
    with pytest.raises(TrainingFailed, match="learning rate"):
        fit(spec, task, FitContext())


def test_a_task_whose_data_has_changed_is_refused():
    _, spec = spec_of("deterministic", separable())
    with pytest.raises(UserError, match="has a file changed"):
        fit(spec, separable(seed=1), FitContext())


def test_multilabel_keeps_its_sigmoid():
    task = separable(target="multilabel")
    for method in ("deterministic", "concrete-dropout", "heteroscedastic"):
        recipe, spec = spec_of(method, task, epochs=30)
        fitted = fit(spec, task, FitContext())
        predictions = predict(
            spec, pred_spec(recipe, "x", seed=0, member=0), fitted.tensors, fitted.encoder, task.split("id")
        )
        assert ((predictions.probs > 0.5) == predictions.labels).mean() > 0.8
        assert not np.allclose(predictions.probs.sum(1), 1.0)


def test_class_weights_move_a_rare_class():
    generator = np.random.default_rng(0)
    labels = (generator.random(600) < 0.05).astype(np.int64)
    inputs = (labels[:, None] + generator.normal(size=(600, 1))).astype(np.float32)
    cuts = {"train": slice(0, 300), "val": slice(300, 400), "id": slice(400, 600)}
    splits = tuple(Split.of(k, k, Examples(inputs[c], labels[c])) for k, c in cuts.items())
    task = Task("rare", "table", "multiclass", ("common", "rare"), splits, CARD)
    said = {}
    for weights in ("none", "train", "batch"):
        recipe, spec = spec_of("deterministic", task, epochs=30, patience=0, collect="last", class_weights=weights)
        fitted = fit(spec, task, FitContext())
        predictions = predict(
            spec, pred_spec(recipe, "x", seed=0, member=0), fitted.tensors, fitted.encoder, task.split("id")
        )
        said[weights] = predictions.probs[:, 1].mean()
    assert said["none"] < 0.15
    assert min(said["train"], said["batch"]) > 0.25


def test_fixed_batches_hold_the_same_examples_in_every_epoch_for_every_network_and_shuffled_ones_do_not(monkeypatch):
    task, seen = separable(), []
    monkeypatch.setattr("dubio.training.loop.collate", lambda data, rows: seen.append(rows) or collate(data, rows))
    runs = {}
    for options in ({}, {"fixed_batches": True}):
        for seed, member in ((0, 0), (0, 1), (1, 0)):
            seen.clear()
            spec = spec_of("deterministic", task, seed=seed, member=member, epochs=2, patience=0, **options)[1]
            fit(spec, task, FitContext())
            trained = [tuple(rows.tolist()) for rows in seen]
            runs[bool(options), seed, member] = trained[: len(trained) // 2], trained[len(trained) // 2 :]
    for (fixed, *network), (first, second) in runs.items():
        assert sorted(sum(first, ())) == list(range(120)), "every example once"
        assert (set(first) == set(second)) == fixed, (fixed, network)
        assert first != second, "the order changes"
    for network in ((0, 1), (1, 0)):
        assert set(runs[True, 0, 0][0]) == set(runs[True, *network][0])
        assert runs[True, 0, 0][0] != runs[True, *network][0]


def test_progress_is_told_once_an_epoch():
    told = []
    task = separable()
    fit(spec_of("deterministic", task, patience=0)[1], task, FitContext(progress=lambda f, w: told.append((f, w))))
    assert [fraction for fraction, _ in told] == pytest.approx([i / 8 for i in range(1, 9)])


def test_global_randomness_is_neither_used_nor_disturbed():
    task = separable()
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = fit(spec_of("mc-dropout", task)[1], task, FitContext())
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert equal(first.tensors, fit(spec_of("mc-dropout", task)[1], task, FitContext()).tensors)


@pytest.mark.parametrize("most", [0.5, 3.0, 100.0])
def test_clipping_gives_the_bits_of_torch(most):
    torch.manual_seed(0)
    models = [torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3)) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    inputs = 3.0 * torch.randn(20, 5, generator=torch.Generator().manual_seed(1))
    for model, clip in zip(models, (_clip, clip_grad_norm_), strict=True):
        model(inputs).square().sum().backward()
        clip(list(model.parameters()), most)
    norms = [torch.cat([p.grad.flatten() for p in model.parameters()]).norm() for model in models]
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(*(m.parameters() for m in models), strict=True))
    assert float(norms[0]) <= most * (1 + 1e-5)
