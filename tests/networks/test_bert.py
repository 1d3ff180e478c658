"""BERT against transformers' own forward pass; frozen blocks, noise sites, identity and the whole way of a fit."""

import shutil

import numpy as np
import pytest
import torch

pytest.importorskip("transformers", reason="the extra bert is not installed")

from transformers import BertModel

from dubio.core.errors import UserError
from dubio.core.registry import METHODS
from dubio.core.specs import name_of
from dubio.encoders import TokenRows, WordPieceEncoding
from dubio.encoders.pretrained import resolve_encoder
from dubio.inference.batches import collate
from dubio.inference.engine import plain_passes, shared_prefix
from dubio.methods import FitContext, NetworkSpec, fit, fit_spec, pred_spec
from dubio.methods.specification import build_model
from dubio.networks import bert as bert_module
from dubio.networks.batch_ensemble import BatchEnsemble
from dubio.networks.bert import FrozenTexts, bert, noised
from dubio.networks.draws import BlockDraws
from dubio.networks.heads.linear import Softmax
from dubio.networks.masksembles import Masksembles
from dubio.networks.members import mixing_layer
from dubio.networks.multi_head import MultiHead
from dubio.networks.network import LOOKUPS, Model
from dubio.networks.noise import DropoutEdit, sites
from dubio.networks.packed import Packed
from dubio.testing import assert_ok, check_network
from dubio.testing.tasks import small_task
from tests.methods.helpers import predict
from tests.networks.helpers import POSITIONS, VOCABULARY, save_bert

SIZE = len(VOCABULARY)


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("DUBIO_CACHE", str(tmp_path_factory.getbasetemp() / "bert-cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_bert(tmp_path_factory.mktemp("tiny"))


def rows(lengths, seed=0):
    generator = np.random.default_rng(seed)
    tokens = generator.integers(1, SIZE, sum(lengths)).astype(np.int32)
    return TokenRows(tokens, np.cumsum([0, *lengths]).astype(np.int64))


def by_transformers(folder, texts):
    """transformers' pass over each text alone, so that nothing is padded."""
    model = BertModel.from_pretrained(str(folder)).eval()
    with torch.inference_mode():
        return [model(torch.from_numpy(texts.row(i)).long()[None]) for i in range(len(texts))]


@pytest.mark.parametrize("trainable", [None, 2, 1, 0])
def test_states_are_those_of_transformers(folder, trainable):
    texts = rows([1, 2, 5, 9, POSITIONS])
    wanted = by_transformers(folder, texts)
    batch = collate(texts, np.arange(5))
    for pooling in ("cls", "mean"):
        network = bert((SIZE,), encoder=str(folder), trainable_layers=trainable, pooling=pooling).eval()
        with torch.inference_mode():
            found = network(batch)
        pooled = [w.pooler_output[0] if pooling == "cls" else w.last_hidden_state[0].mean(0) for w in wanted]
        torch.testing.assert_close(found, torch.stack(pooled), atol=2e-6, rtol=1e-5)


def test_gradients_are_those_of_transformers(folder):
    texts = rows([7, 7, 7])
    network = bert((SIZE,), encoder=str(folder)).train()
    network(collate(texts, np.arange(3))).square().sum().backward()
    other = BertModel.from_pretrained(str(folder), hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0).train()
    ids = torch.stack([torch.from_numpy(texts.row(i)).long() for i in range(3)])
    other(ids).pooler_output.square().sum().backward()
    pairs = [
        (network.stages[0].words.weight, other.embeddings.word_embeddings.weight),
        (network.stages[1].query.weight, other.encoder.layer[0].attention.self.query.weight),
        (network.stages[2].narrow.bias, other.encoder.layer[1].output.dense.bias),
        (network.stages[3].dense.weight, other.pooler.dense.weight),
    ]
    for ours, theirs in pairs:
        torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("arguments", [{}, {"trainable_layers": 1, "pooling": "mean"}], ids=["whole", "partly"])
def test_it_conforms(folder, arguments):
    assert_ok(check_network("bert", arguments={"encoder": str(folder), **arguments}))


def test_sites_are_where_asked(folder):
    def named(**arguments):
        return [site.name for site in sites(bert((SIZE,), encoder=str(folder), **arguments)) if site.accepts]

    blocks = ["L1.attention", "L1.output", "L2.attention", "L2.output"]
    assert named() == ["embeddings", *blocks]
    assert named(noisy_layers=2) == blocks
    assert named(noisy_layers=1) == named(trainable_layers=1) == blocks[2:]
    assert named(noisy_layers=0) == []


def test_attention_has_sites_where_asked_and_only_then_another_identity(folder):
    arguments = {"encoder": str(folder), "noisy_layers": 1}
    network = bert((SIZE,), **arguments, noisy_attention=True)
    assert [site.name for site in sites(network) if site.accepts] == ["L2.attention", "L2.output", "L2.probabilities"]
    plain, off, on = (
        NetworkSpec("bert", {**arguments, **more}).describe("text")["arguments"]
        for more in ({}, {"noisy_attention": False}, {"noisy_attention": True})
    )
    assert plain == off == {key: value for key, value in on.items() if key != "noisy_attention"}
    assert on["noisy_attention"] is True


def test_attention_noise_acts_on_the_probabilities_of_each_head_and_key(folder):
    network = bert((SIZE,), encoder=str(folder), noisy_attention=True).eval()
    block, texts = network.stages[1], rows([3, 9, 6])
    hidden = network.stages[0](collate(texts, np.arange(3)))
    block.key_site.noise = DropoutEdit(0.4).noise(block.key_site)
    block.key_site.noise.sampling = True
    uniforms = torch.rand(3, block.key_site.width, generator=torch.Generator().manual_seed(0))
    block.key_site.noise.given = uniforms

    def by_head(layer):
        return layer(hidden.states).view(3, 9, 4, 8).transpose(1, 2)

    scores = by_head(block.query) @ by_head(block.key).transpose(2, 3) / 8**0.5
    scores = scores.masked_fill(~hidden.real()[:, None, None, :], -torch.inf)
    survives = uniforms.view(3, 4, POSITIONS)[:, :, None, :9] >= 0.4
    probabilities = torch.softmax(scores, dim=3) * survives / 0.6
    wanted = (probabilities @ by_head(block.value)).transpose(1, 2).reshape(3, 9, 32)
    with torch.inference_mode():
        found = block._attend(hidden)
    torch.testing.assert_close(found[hidden.real()], wanted.detach()[hidden.real()], atol=1e-5, rtol=1e-4)


def test_samples_of_attention_do_not_depend_on_the_batch(folder):
    model = Model(bert((SIZE,), encoder=str(folder), noisy_attention=True), Softmax().build(32, 3)).eval()
    DropoutEdit(0.3).apply(model)
    texts, places = rows([3, 8, 5]), np.arange(3)
    with torch.inference_mode():
        fast = shared_prefix(model, collate(texts, places), BlockDraws(1), places, 4).logits
        plain = plain_passes(model, collate(texts, places), BlockDraws(1), places, 4).logits
        alone = shared_prefix(model, collate(texts, places[:1]), BlockDraws(1), places[:1], 4).logits
    torch.testing.assert_close(fast.flatten(0, 1), plain.flatten(0, 1), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(fast[:, :1], alone, atol=1e-5, rtol=1e-5)


def test_samples_share_what_comes_before_the_first_site(folder):
    model = Model(bert((SIZE,), encoder=str(folder), noisy_layers=1), Softmax().build(32, 3)).eval()
    DropoutEdit(0.3).apply(model)
    counted = []
    model.network.stages[1].register_forward_hook(lambda *_: counted.append(1))
    batch, places = collate(rows([3, 8, 5]), np.arange(3)), np.arange(3)
    with torch.inference_mode():
        fast = shared_prefix(model, batch, BlockDraws(1), places, 6).logits.flatten(0, 1)
        assert len(counted) == 1
        plain = plain_passes(model, batch, BlockDraws(1), places, 6).logits.flatten(0, 1)
    torch.testing.assert_close(fast, plain, atol=1e-5, rtol=1e-5)
    assert fast.reshape(6, 3, 3).std(0).min() > 0


def test_samples_held_at_once_are_counted_by_their_vectors_not_by_their_ids(folder, monkeypatch):
    model = Model(bert((SIZE,), encoder=str(folder)), Softmax().build(32, 3)).eval()
    DropoutEdit(0.3).apply(model)
    held = []
    model.network.stages[0].register_forward_hook(lambda *given: held.append(given[2].states.numel()))
    batch, places = collate(rows([3, 8, 5]), np.arange(3)), np.arange(3)
    with torch.inference_mode():
        plain = plain_passes(model, batch, BlockDraws(1), places, 6).logits.flatten(0, 1)
        held.clear()
        monkeypatch.setattr("dubio.inference.engine.CHUNK_ELEMENTS", 2 * 3 * 8 * 32)  # two samples of [3, 8, 32]
        fast = shared_prefix(model, batch, BlockDraws(1), places, 6).logits.flatten(0, 1)
    assert held == [2 * 3 * 8 * 32] * 3
    torch.testing.assert_close(fast, plain, atol=1e-5, rtol=1e-5)


def test_dropout_keeps_the_mean_of_a_branch(folder):
    # E[mask]/(1 − p) = 1, and a site drops a whole feature of a text at every position
    network = bert((SIZE,), encoder=str(folder)).train()
    site = network.stages[1].output_site
    site.noise = DropoutEdit(0.4).noise(site)
    site.noise.generator = torch.Generator().manual_seed(0)
    out = noised(site, torch.ones(4000, 3, 32))
    assert out.unique().tolist() == pytest.approx([0.0, 1 / 0.6])
    assert torch.equal(out[:, 0], out[:, 2])
    assert out.mean().item() == pytest.approx(1.0, abs=0.01)


def test_frozen_blocks_are_run_once_a_text_and_never_stored(folder):
    texts = rows([4, 6, 4, 9])
    network = bert((SIZE,), encoder=str(folder), trainable_layers=1)
    kept = network.stages[0]._frozen
    ran = []
    kept._stages[0].register_forward_hook(lambda *_: ran.append(1))
    with torch.inference_mode():  # met first in validation, then in training: no trace of inference mode
        first = network.eval()(collate(texts, np.arange(4)))
    before = len(ran)
    again = network.train()(collate(texts, np.array([3, 1, 0, 2])))
    again.sum().backward()
    assert len(ran) == before
    torch.testing.assert_close(again, first[[3, 1, 0, 2]], atol=1e-6, rtol=1e-5)
    whole = bert((SIZE,), encoder=str(folder))
    names = set(network.state_dict())
    assert not [name for name in names if name.startswith("stages.0")]
    assert sum(p.numel() for p in network.parameters()) < sum(p.numel() for p in whole.parameters())
    # another fit of the process has the same lower part, and its head's first weights do not depend on that
    assert bert((SIZE,), encoder=str(folder), trainable_layers=1).stages[0]._frozen is kept


def test_remembered_states_are_bounded(folder):
    network = bert((SIZE,), encoder=str(folder), trainable_layers=1)
    small = FrozenTexts(network.stages[0]._frozen._stages, limit=5 * 32 * 4)
    one, two = torch.tensor([2, 7, 3]), torch.tensor([2, 8, 9, 3])
    assert torch.equal(small.states(one), small.states(one))
    small.states(two)
    assert [len(entry.states) for entry in small._cache.values()] == [3]


def test_what_a_job_saves_because_of_another_one_is_counted_once_per_text(folder):
    """The first method to predict paid for the frozen blocks of all others, and seemed six times slower."""
    stages = FrozenTexts(bert((SIZE,), encoder=str(folder), trainable_layers=1).stages[0]._frozen._stages)
    texts = torch.tensor([2, 7, 3]), torch.tensor([2, 8, 9, 3])
    LOOKUPS.begin_job()
    for text in (*texts, *texts):
        stages.states(text)
    assert LOOKUPS.seconds_saved() == 0.0  # it computed them itself
    for _ in range(2):
        LOOKUPS.begin_job()
        for text in (*texts, *texts):
            stages.states(text)
        assert LOOKUPS.seconds_saved() == pytest.approx(sum(entry.seconds for entry in stages._cache.values()))
    assert LOOKUPS.seconds_saved() > 0.0


def test_first_weights_of_the_head_do_not_depend_on_what_is_remembered(folder):
    recipe, task = METHODS.make("deterministic", epochs=1), small_task("text")
    network = NetworkSpec("bert", {"encoder": str(folder), "trainable_layers": 1})
    spec = fit_spec(recipe, task, network.encoding(), network, seed=3, member=0)
    bert_module._lower.cache_clear()
    cold, warm = build_model(spec, (SIZE,)), build_model(spec, (SIZE,))
    assert torch.equal(cold.head.linear.weight, warm.head.linear.weight)


@pytest.mark.parametrize("arguments", [{"trainable_layers": 3}, {"trainable_layers": 1, "noisy_layers": 2}])
def test_more_layers_than_there_are(folder, arguments):
    with pytest.raises(UserError, match="must be between 0 and"):
        bert((SIZE,), encoder=str(folder), **arguments)


def test_an_encoder_without_a_pooler_gets_one_from_the_seed(tmp_path):
    folder = save_bert(tmp_path / "bare", pooler=False)
    weights = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        weights.append(bert((SIZE,), encoder=str(folder)).stages[-1].dense.weight)
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("deterministic", {}),
        ("mc-dropout", {"p": 0.1, "shrink": 0.0, "samples": 4}),
        ("mc-heteroscedastic-concrete-dropout", {"samples": 4, "draws": 3}),
    ],
)
def test_it_learns_and_predicts_from_what_is_stored(folder, method, arguments):
    task = small_task("text")
    network = NetworkSpec("bert", {"encoder": str(folder), "trainable_layers": 1, "pooling": "mean"})
    recipe = METHODS.make(method, epochs=6, lr=1e-2, batch=16, schedule="linear", **arguments)
    encoding = WordPieceEncoding(resolve_encoder(str(folder)), 24)
    spec = fit_spec(recipe, task, encoding, network, seed=0, member=0)
    fitted = fit(spec, task, FitContext())
    prediction = pred_spec(recipe, "0" * 64, seed=0, member=0)
    found = [predict(spec, prediction, fitted.tensors, fitted.encoder, task.split("test")) for _ in range(2)]
    assert np.array_equal(found[0].logits, found[1].logits)
    assert (found[0].probs.argmax(1) == found[0].labels).mean() > 0.8
    assert fitted.record["parameters"] == sum(tensor.size for tensor in fitted.tensors.values())


def test_a_fit_is_known_by_the_content_of_its_encoder(folder, tmp_path):
    task, recipe = small_task("text"), METHODS.make("deterministic")
    elsewhere = shutil.copytree(folder, tmp_path / "other-name")
    (elsewhere / "README.md").write_text("a file that says nothing", encoding="utf-8")
    different = save_bert(tmp_path / "different", seed=1)

    def spec(place):
        network = NetworkSpec("bert", {"encoder": str(place)})
        return fit_spec(recipe, task, network.encoding(), network, seed=0, member=0)

    assert spec(folder) == spec(elsewhere) != spec(different)
    assert str(folder) not in str(spec(folder))


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("edit", [Packed(2, 2.0), BatchEnsemble(2), Masksembles(2, 1.5), MultiHead(2)], ids=name_of)
def test_members_share_the_encoder_and_have_a_head_of_their_own(folder, pooling, edit):
    """The encoder runs once; members begin at its pooling, where it has a dense layer, or at the head."""
    model = Model(bert((SIZE,), encoder=str(folder), pooling=pooling), Softmax().build(32, 3))
    seen = []
    model.network.stages[1].register_forward_hook(lambda *given: seen.append(len(given[2].states)))
    edit.apply(model)
    batch = collate(rows([3, 8, 5]), np.arange(3))
    with torch.inference_mode():
        logits = model.eval().by_sample(model(batch), 3)
    assert logits.shape == (2, 3, 3)
    assert seen == [3]
    assert not torch.equal(logits[0], logits[1])
    assert mixing_layer(model, batch) is None
