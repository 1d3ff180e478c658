"""Adapters as methods, on a small BERT: what they share, train, store and refuse."""

import numpy as np
import pytest
import torch

pytest.importorskip("transformers", reason="the extra bert is not installed")

from dubio.core.errors import UserError
from dubio.core.registry import METHODS
from dubio.encoders import WordPieceEncoding, encoding_for
from dubio.encoders.pretrained import resolve_encoder
from dubio.methods import FitContext, NetworkSpec, check, fit, fit_spec, pred_spec
from dubio.methods.specification import build_model
from dubio.testing.tasks import SMALL_NETWORKS, small_task
from dubio.training.laplace.collector import Laplace
from tests.methods.helpers import predict
from tests.networks.helpers import VOCABULARY, save_bert

QUICK = {"epochs": 2, "batch": 16, "lr": 0.01, "rank": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_bert(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("DUBIO_CACHE", str(tmp_path_factory.getbasetemp() / "bert-cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def specs_of(name, folder, network=None, **arguments):
    task, recipe = small_task("text"), METHODS.make(name, **{**QUICK, **arguments})
    spec = NetworkSpec("bert", {"encoder": str(folder), "trainable_layers": 1, "pooling": "mean", **(network or {})})
    encoding = WordPieceEncoding(resolve_encoder(str(folder)), max_length=16)
    return task, recipe, [fit_spec(link, task, encoding, spec, seed=0, member=0) for link in recipe.chain()]


def test_query_and_value_of_every_trained_block_have_adapters(folder):
    for layers, blocks in ((None, 2), (2, 2), (1, 1)):
        _, _, (spec,) = specs_of("lora", folder, {"trainable_layers": layers})
        model = build_model(spec, (len(VOCABULARY),))
        assert model.parameter_count() == blocks * 2 * 2 * (32 + 32) + (32 + 1) * 3
        trained = {name.split(".")[2] for name, p in model.network.named_parameters() if p.requires_grad}
        assert trained == {"query", "value"}


def test_the_gaussian_starts_from_the_same_training(folder):
    _, _, (trained,) = specs_of("lora", folder)
    task, recipe, (start, spec) = specs_of("lora-laplace", folder, samples=4)
    assert start == trained
    assert recipe.collect == Laplace("kron", 4)
    check(spec, task)
    first = fit(start, task, FitContext())
    result = fit(spec, task, FitContext(start=first.tensors))
    stored = predict(
        spec, pred_spec(recipe, "f", seed=0, member=0), result.tensors, result.encoder, task.of_kind("id")[0]
    )
    assert stored.logits.shape[0] == 4
    assert not np.array_equal(stored.logits[0], stored.logits[1])
    record = result.record["laplace"]
    assert record["random_parameters"] == 2 * 2 * (32 + 32) + (32 + 1) * 3
    assert record["fixed_parameters"] == 0
    # the frozen weights of the block are those of the encoder
    base = build_model(trained, (len(VOCABULARY),)).state_dict()
    for name, array in first.tensors.items():
        if not name.startswith("0/head") and not any(part in name for part in (".down.", ".up.")):
            assert torch.equal(torch.from_numpy(array.copy()), base[name.removeprefix("0/")]), name


def test_networks_without_such_layers_are_refused_before_training(folder):
    task, _, (spec,) = specs_of("lora", folder, {"trainable_layers": 0})
    with pytest.raises(UserError, match=r"bert offers query and value of each block that is trained"):
        check(spec, task)
    task, recipe = small_task("table"), METHODS.make("lora")
    spec = fit_spec(recipe, task, encoding_for("table", {}), NetworkSpec(*SMALL_NETWORKS["table"]), seed=0, member=0)
    with pytest.raises(UserError, match="this network offers no layer for low-rank adapters"):
        check(spec, task)
    with pytest.raises(UserError, match="prior='decay'"):
        METHODS.make("lora-laplace", prior="decay")
