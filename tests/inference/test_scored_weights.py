"""A weight state with post-hoc scores: logits as without them, scores of the features, stored and read back."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dubio.core.errors import UserError
from dubio.inference.augmentation import ShiftFlip, Views
from dubio.inference.feature_scores import ASH, Energy, NearestNeighbours
from dubio.inference.samples import WeightSamples, state_of
from dubio.inference.scored_weights import ScoredWeights, StoredScores, last_layer
from dubio.networks.cnn import cnn
from dubio.networks.heads.heteroscedastic import Heteroscedastic
from dubio.networks.heads.linear import Softmax
from dubio.networks.network import Model

ROWS = np.arange(6)
SOFTMAX = Softmax()
SCORES = (Energy(), NearestNeighbours(2), ASH())


def scored(head=SOFTMAX, scores=SCORES, views=None):
    torch.manual_seed(0)
    body = cnn((1, 8, 8), channels=(3,), dense=5)
    model = Model(body, head.build(body.width, 3)).eval()
    bank = torch.nn.functional.normalize(torch.rand(10, 5), dim=1).half()
    statistics = {score.name: {"bank": bank} if score.name == "knn" else {} for score in scores}
    return ScoredWeights(model, state_of(model), scores, statistics, views)


def images():
    return torch.from_numpy(np.random.default_rng(1).normal(size=(6, 1, 8, 8)).astype(np.float32))


@torch.inference_mode()
def test_logits_stay_as_they_are_and_scores_are_those_of_the_features():
    posterior, batch = scored(), images()
    plain = WeightSamples(posterior.model, (posterior.state,)).draw(7).predict(batch, ROWS)
    scores = posterior.draw(7).predict(batch, ROWS)
    assert torch.equal(scores.logits, plain.logits)
    assert list(scores.own) == ["energy", "knn", "ash"]
    torch.testing.assert_close(scores.own["energy"], -torch.logsumexp(plain.logits, dim=2))
    features = posterior.model.network(batch).double()
    last = last_layer(posterior.model.head)
    for score in SCORES:
        expected = score.score(posterior.statistics[score.name], features, last)
        torch.testing.assert_close(scores.own[score.name][0], expected.float())


def test_views_have_scores_each():
    posterior = scored(views=Views(ShiftFlip(2, 0.5), 4))
    scores = posterior.draw(7).predict(images(), ROWS)
    assert scores.own["energy"].shape == (4, 6)
    torch.testing.assert_close(scores.own["energy"], -torch.logsumexp(scores.logits, dim=2))
    assert not torch.equal(scores.own["knn"][0], scores.own["knn"][1])
    assert posterior.limit(2).draw(7).predict(images(), ROWS).logits.shape[0] == 2
    assert scored().limit(2).views is None


def test_scores_of_features_alone_go_with_a_head_that_integrates():
    posterior = scored(Heteroscedastic(4), (NearestNeighbours(2),))
    scores = posterior.draw(7).predict(images(), ROWS)
    plain = WeightSamples(posterior.model, (posterior.state,)).draw(7).predict(images(), ROWS)
    assert torch.equal(scores.logits, plain.logits)
    assert torch.equal(scores.data_variance, plain.data_variance)
    assert scores.own["knn"].shape == (1, 6)


def test_it_is_stored_and_read_back():
    posterior = scored()
    tensors = posterior.tensors()
    assert tensors["score/knn/bank"].dtype == torch.float16
    restored = StoredScores(SCORES).restore(tensors, scored().model, 0, None)
    assert restored.tensors().keys() == tensors.keys()
    for one, other in zip(
        *(p.draw(7).predict(images(), ROWS).own.values() for p in (posterior, restored)), strict=True
    ):
        assert torch.equal(one, other)
    assert list(restored.weight_states()) == list(restored.states) != []
    restored.check_shapes(state_of(restored.model))


def test_statistics_of_other_features_are_refused():
    tensors = scored().tensors() | {"score/knn/bank": torch.rand(10, 4).half()}
    restored = StoredScores(SCORES).restore(tensors, scored().model, 0, None)
    with pytest.raises(RuntimeError, match=r"shape|dimension|size"):
        restored.check_shapes(state_of(restored.model))
    with pytest.raises(UserError, match="samples must be 0; given 3"):
        StoredScores(SCORES).restore(scored().tensors(), scored().model, 3, None)
