"""Baselines: equal to scikit-learn, stored as arrays, defined for every kind of data and for classes never seen."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn import linear_model
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer

from dubio.core.errors import UserError
from dubio.core.registry import METHODS
from dubio.core.specs import identity
from dubio.core.types import Examples, SourceCard, Split, Task, class_frequencies
from dubio.encoders import ArrayRows, TextEncoding
from dubio.encoders.text import tokenise
from dubio.methods import FitContext, NetworkSpec, fit, fit_spec, pred_spec, predictor
from dubio.methods.boosted_trees import BoostedTrees
from dubio.methods.estimator import Labelled
from dubio.methods.logistic_regression import features_of, fit_terms, linear_scores, solve, tfidf
from dubio.store import Store
from dubio.testing import check_method
from dubio.testing.tasks import small_task
from dubio.torch_module.fitting import choose_recipe

BASELINES = ("prior", "linear", "boosting")
TEXTS = (
    "The film is good , a good film !", "the film is bad", "Bad , bad acting", "good acting, good plot", "is it good ?",
    "the plot of the film",
)  # fmt: skip


def silent(fraction, text):
    pass


def toy(rows, target="multiclass", classes=3, seed=0):
    """Return table rows whose columns say something about their labels, as float32 as they are encoded."""
    generator = np.random.default_rng(seed)
    values = generator.normal(size=(rows, 5)).astype(np.float32)
    scores = values[:, :classes] + 0.5 * generator.normal(size=(rows, classes))
    return Labelled(
        ArrayRows(values), (scores > 0.3).astype(np.int64) if target == "multilabel" else scores.argmax(1), classes
    )


def table_task(labels, target="multiclass", classes=("a", "b", "c"), test_labels=None, rows=30):
    generator = np.random.default_rng(1)
    splits = []
    for kind, own in (
        ("train", labels),
        ("val", labels[:rows]),
        ("id", labels if test_labels is None else test_labels),
    ):
        own = np.asarray(own)
        shifts = own if own.ndim == 2 else np.eye(len(classes))[own]
        splits.append(Split.of(kind, kind, Examples(generator.normal(size=(len(own), len(classes))) + 2 * shifts, own)))
    return Task("toy", "table", target, classes, tuple(splits), SourceCard("made here", "1", "none", "none"))


def fitted(name, task):
    recipe = METHODS.make(name)
    spec = fit_spec(recipe, task, None, None, seed=0, member=0)
    return recipe, spec, fit(spec, task, FitContext())


def predictions(name, task):
    recipe, spec, result = fitted(name, task)
    predict = predictor(spec, pred_spec(recipe, identity(spec), seed=0, member=0), result.tensors, result.encoder)
    return predict(task.of_kind("id")[0])


def test_term_weights_equal_those_of_scikit_learn():
    vectorizer = TfidfVectorizer(
        tokenizer=tokenise, token_pattern=None, lowercase=False, ngram_range=(1, 2), min_df=2, sublinear_tf=True
    )
    expected = vectorizer.fit_transform(TEXTS)
    encoder = TextEncoding(min_frequency=1).fit(Examples(TEXTS, np.zeros(len(TEXTS), dtype=np.int64)))
    new = ("a good film with an unseen word", "nothing of this", "is good")
    rows = encoder.encode(Examples(TEXTS, np.zeros(len(TEXTS), dtype=np.int64)))
    terms = fit_terms(rows)
    words = ("", "", *encoder.words)
    names = [words[k] if k < 1 << 31 else f"{words[k >> 31]} {words[k & ((1 << 31) - 1)]}" for k in terms["terms"]]
    order = [vectorizer.vocabulary_[name] for name in names]
    assert sorted(order) == list(range(expected.shape[1]))
    np.testing.assert_allclose(tfidf(terms, rows).toarray(), expected.toarray()[:, order], atol=1e-14)
    other = encoder.encode(Examples(new, np.zeros(3, dtype=np.int64)))
    np.testing.assert_allclose(tfidf(terms, other).toarray(), vectorizer.transform(new).toarray()[:, order], atol=1e-14)


@pytest.mark.parametrize(("target", "classes"), [("multiclass", 3), ("binary", 2), ("multilabel", 3)])
def test_a_linear_model_predicts_as_scikit_learn_does(target, classes):
    data, new = toy(200, target, classes), toy(50, target, classes, seed=1).rows.values.astype(np.float64)
    values = data.rows.values.astype(np.float64)
    scores = linear_scores(solve(values, data, 0.7, None), new)
    liblinear = {"C": 0.7, "solver": "liblinear", "tol": 0.01, "intercept_scaling": 10.0}
    if target == "multilabel":
        fits = [linear_model.LogisticRegression(**liblinear).fit(values, column) for column in data.labels.T]
        expected, probs = np.stack([fit.predict_proba(new)[:, 1] for fit in fits], axis=1), expit(scores)
    else:
        options = liblinear if classes == 2 else {"C": 0.7, "max_iter": 200}
        expected = linear_model.LogisticRegression(**options).fit(values, data.labels).predict_proba(new)
        probs = softmax(scores, axis=1)
    np.testing.assert_allclose(probs, expected, atol=1e-12)


@pytest.mark.parametrize(("target", "classes"), [("multiclass", 3), ("binary", 2), ("multilabel", 3)])
def test_boosted_trees_predict_as_scikit_learn_does(target, classes):
    data, new = toy(200, target, classes), toy(50, target, classes, seed=1).rows
    none = Labelled(ArrayRows(data.rows.values[:0]), data.labels[:0], classes)
    arrays, record = BoostedTrees(rounds=12).fit(data, none, silent)
    scores = BoostedTrees().scores({**arrays, "fitted": np.ones(classes, dtype=bool)}, new)
    options = {"max_iter": 12, "early_stopping": False, "random_state": 0}
    columns = data.labels.T if target == "multilabel" else [data.labels]
    models = [HistGradientBoostingClassifier(**options).fit(data.rows.values, column) for column in columns]
    expected = [model.predict_proba(new.values) for model in models]
    if target == "multilabel":
        np.testing.assert_allclose(expit(scores), np.stack([p[:, 1] for p in expected], axis=1), atol=1e-12)
    else:
        np.testing.assert_allclose(softmax(scores, axis=1), expected[0], atol=1e-12)
    assert record == {"rounds": 12}


def test_boosting_stops_where_validation_is_best():
    data, val = toy(60), toy(60, seed=3)
    arrays, record = BoostedTrees(rounds=40).fit(data, val, silent)
    every = {"fitted": np.ones(3, dtype=bool)}
    none = Labelled(ArrayRows(val.rows.values[:0]), val.labels[:0], 3)
    losses = [
        val.losses(BoostedTrees().scores({**BoostedTrees(k).fit(data, none, silent)[0], **every}, val.rows)).mean()
        for k in range(1, 41)
    ]
    assert record["rounds"] == 1 + int(np.argmin(losses)) < 40
    np.testing.assert_allclose(
        val.losses(BoostedTrees().scores({**arrays, **every}, val.rows)).mean(), min(losses), rtol=1e-12
    )


@pytest.mark.parametrize("labels", [[0, 0, 1, 1, 1], [0, 1, 2, 2, 0]])
def test_the_prior_is_the_smoothed_class_frequency(labels):
    task = table_task(np.array(labels), rows=3)
    counts = np.bincount(labels, minlength=3)
    expected = (counts + 0.5) / (len(labels) + 1.5)
    np.testing.assert_allclose(predictions("prior", task).probs, np.tile(expected, (len(labels), 1)), rtol=1e-6)


def test_the_prior_of_labels_is_each_labels_smoothed_frequency():
    labels = np.array([[1, 0, 1], [1, 0, 0], [0, 0, 1]])
    np.testing.assert_allclose(class_frequencies(labels, 3), [2.5 / 4, 0.5 / 4, 2.5 / 4], rtol=1e-12)


@pytest.mark.parametrize("name", BASELINES)
def test_a_class_without_training_examples_keeps_its_smoothed_frequency(name):
    labels = np.arange(40) % 2
    p = predictions(name, table_task(labels, test_labels=np.array([0, 1, 2, 2])))
    np.testing.assert_allclose(p.probs[:, 2], 0.5 / 41.5, rtol=1e-5)
    np.testing.assert_allclose(p.probs.sum(axis=1), 1, rtol=1e-6)
    if name != "prior":
        assert (p.probs[:2].argmax(axis=1) == [0, 1]).all()


@pytest.mark.parametrize("name", BASELINES)
def test_labels_that_never_vary_in_training_keep_their_smoothed_frequency(name):
    labels = np.stack([np.arange(40) % 2, np.zeros(40), np.ones(40)], axis=1).astype(np.int64)
    p = predictions(name, table_task(labels, "multilabel"))
    np.testing.assert_allclose(p.probs[:, 1:], np.tile([0.5 / 41, 40.5 / 41], (40, 1)), rtol=1e-5)
    assert np.isfinite(p.logits).all()
    if name != "prior":
        assert ((p.probs[:, 0] > 0.5) == labels[:, 0]).mean() > 0.8


@pytest.mark.parametrize("name", BASELINES)
def test_a_single_training_class_is_predicted_almost_surely(name):
    p = predictions(name, table_task(np.zeros(20, dtype=np.int64)))
    np.testing.assert_allclose(p.probs[:, 0], 20.5 / 21.5, rtol=1e-5)


@pytest.mark.parametrize("inputs", ["text", "image", "table"])
@pytest.mark.parametrize("name", BASELINES)
def test_each_kind_of_data_is_fitted_stored_and_predicted_without_a_pickle(name, inputs, tmp_path):
    task = small_task(inputs)
    if name == "boosting" and inputs != "table":
        with pytest.raises(UserError, match=rf"boosting is for table inputs; this task has {inputs} inputs"):
            fitted(name, task)
        return
    recipe, spec, result = fitted(name, task)
    with Store.open(tmp_path / "store") as store:
        fit_id = store.write_fit(spec, result.tensors, result.encoder, result.record)
        stored = store.read_fit(fit_id)
        files = {path.name for path in store.layout.directory("fits", fit_id).iterdir()}
    assert files == {"spec.json", "weights.safetensors", "encoder.json", "record.json"}
    asked = pred_spec(recipe, fit_id, seed=0, member=0)
    split = task.of_kind("id")[0]
    direct = predictor(spec, asked, result.tensors, result.encoder)(split)
    again = predictor(stored.spec, asked, stored.tensors, stored.encoder)(split)
    np.testing.assert_array_equal(again.logits, direct.logits)
    assert (direct.probs.argmax(axis=1) == split.data.labels).mean() > (0.3 if name == "prior" else 0.8)


@pytest.mark.parametrize("name", ["prior", "linear"])
def test_a_fit_depends_on_the_data_and_on_neither_seed_nor_network(name):
    task, recipe = small_task("table"), METHODS.make(name)
    specs = [
        fit_spec(recipe, task, None, network, seed=seed, member=member)
        for network, seed, member in (
            (NetworkSpec("mlp"), 0, 0),
            (NetworkSpec("mlp", {"width": 3}), 5, 2),
            (None, 1, 0),
        )
    ]
    assert len({identity(spec) for spec in specs}) == 1
    assert len({identity(pred_spec(recipe, "f", seed=seed, member=0)) for seed in (0, 3)}) == 1
    train = task.of_kind("train")[0]
    other = Split.of("train", "train", train.data.take(np.arange(len(train) - 1)))
    changed = replace(task, splits=tuple(other if split is train else split for split in task.splits))
    assert identity(fit_spec(recipe, changed, None, None, seed=0, member=0)) != identity(specs[0])
    first, second = (fit(spec, task, FitContext()).tensors for spec in specs[:2])
    assert all(np.array_equal(first[key], second[key]) for key in first)


def test_large_images_are_averaged_over_blocks():
    images = np.arange(2 * 1 * 33 * 40, dtype=np.float32).reshape(2, 1, 33, 40)
    features = features_of({}, ArrayRows(images)).reshape(2, 11, 14)
    np.testing.assert_allclose(features[:, 0, 0], images[:, 0, :3, :3].mean(axis=(1, 2)))
    np.testing.assert_allclose(features[:, 10, 13], images[:, 0, 30:, 39:].mean(axis=(1, 2)))


def test_many_rows_are_thinned_and_the_record_says_so(monkeypatch):
    monkeypatch.setattr("dubio.methods.estimator.MOST_ROWS", 30)
    task = small_task("table")
    _, _, result = fitted("linear", task)
    assert result.record["rows"] == 30
    np.testing.assert_allclose(np.exp(result.tensors["log_frequencies"]), 1 / 3, rtol=1e-12)  # of all rows


@pytest.mark.parametrize("name", BASELINES)
def test_baselines_conform_and_are_refused_on_a_users_own_module(name):
    assert check_method(name) == []
    with pytest.raises(UserError, match=rf"'{name}' cannot be used on your own module: it is an estimator"):
        choose_recipe(name, {}, None)
