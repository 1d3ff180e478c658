from itertools import permutations

import numpy as np
import pytest
from scipy.stats import entropy

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions, pool_members
from dubio.metrics.diversity import disagreement, diversity, pairwise_kl
from dubio.metrics.quantities import uncertainty
from tests.metrics.helpers import drawn, drawn_multilabel, of_probs


def softmax(z):
    e = np.exp(z.astype(np.float64) - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_over_samples_it_is_the_mutual_information():
    for predictions in (drawn(0), drawn_multilabel(0)):
        assert diversity.per_example(predictions) == pytest.approx(uncertainty(predictions, "mutual_information"))


def test_over_members_it_is_that_of_their_means():
    predictions = drawn(0, samples=6, member=np.array([0, 1, 2, 0, 1, 2]))
    p = softmax(predictions.logits)
    means = np.stack([p[[0, 3]].mean(0), p[[1, 4]].mean(0), p[[2, 5]].mean(0)])
    wanted = np.mean([entropy(m, means.mean(0), axis=-1) for m in means], axis=0)
    assert diversity.per_example(predictions) == pytest.approx(wanted)
    pairs = list(permutations(range(3), 2))
    kl = np.mean([entropy(means[a], means[b], axis=-1) for a, b in pairs], axis=0)
    assert pairwise_kl.per_example(predictions) == pytest.approx(kl)
    choice = means.argmax(-1)
    assert disagreement.per_example(predictions) == pytest.approx(
        np.mean([choice[a] != choice[b] for a, b in pairs], axis=0)
    )


def test_pairs_of_samples_by_brute_force():
    predictions = drawn(3, samples=5, rows=20)
    p = softmax(predictions.logits)
    pairs = list(permutations(range(5), 2))
    kl = np.mean([entropy(p[a], p[b], axis=-1) for a, b in pairs], axis=0)
    assert pairwise_kl.per_example(predictions) == pytest.approx(kl)
    choice = p.argmax(-1)
    assert disagreement.per_example(predictions) == pytest.approx(
        np.mean([choice[a] != choice[b] for a, b in pairs], axis=0)
    )
    several = drawn_multilabel(3, samples=5, rows=20)
    yes = several.logits > 0
    assert disagreement.per_example(several) == pytest.approx(
        np.mean([(yes[a] != yes[b]).mean(-1) for a, b in pairs], axis=0)
    )


def test_zero_probabilities_are_infinite_apart_or_nothing_at_all():
    opposed = of_probs([[[1.0, 0.0]], [[0.0, 1.0]]])
    assert pairwise_kl.per_example(opposed) == pytest.approx([np.inf])
    assert diversity.per_example(opposed) == pytest.approx([np.log(2)])
    assert disagreement.per_example(opposed) == pytest.approx([1.0])
    same = of_probs([[[1.0, 0.0]], [[1.0, 0.0]]])
    assert pairwise_kl.per_example(same) == pytest.approx([0.0])
    assert diversity.per_example(same) == pytest.approx([0.0])


def test_one_sample_is_refused():
    with pytest.raises(UserError, match="needs at least two samples"):
        diversity.per_example(drawn(0, samples=1))


def test_members_of_one_sample_each_are_the_samples():
    parts = [drawn(0, samples=1)]
    rng = np.random.default_rng(1)
    parts.append(Predictions(rng.normal(size=parts[0].logits.shape).astype(np.float32), parts[0].labels))
    ensemble = pool_members(parts)
    flat = Predictions(ensemble.logits, ensemble.labels)
    assert diversity.per_example(ensemble) == pytest.approx(diversity.per_example(flat))


def test_a_class_that_every_member_excludes_adds_nothing():
    probs = np.random.default_rng(0).dirichlet(np.ones(3), (4, 10))
    wide = np.concatenate([probs, np.zeros((4, 10, 1))], axis=-1)
    narrow, padded = (of_probs(each, member=np.arange(4)) for each in (probs, wide))
    for metric in (diversity, pairwise_kl, disagreement):
        assert metric(padded) == pytest.approx(metric(narrow), rel=1e-5), metric.name


def test_a_label_at_one_half_is_not_asserted():
    logits = np.array([[[0.0]], [[-0.5]]], dtype=np.float32)  # one member at one half, one below
    several = Predictions(logits, np.zeros((1, 1), dtype=np.int64), target="multilabel", member=np.arange(2))
    assert disagreement(several) == 0.0
