"""The same numbers as other packages, to 1e-6, wherever the definitions coincide; docs/definitions.md lists where not.

Adversarial rows: certain and wrong ones, ties, values on the edges of bins, rare classes, tiny and huge logits.
"""

import autorank
import numpy as np
import pandas as pd
import pytest
import scikit_posthocs
import torch
from mapie.metrics.classification import classification_coverage_score, classification_mean_width_score
from mapie.metrics.uncertainty import auarc
from mapie.metrics.uncertainty import auroc as mapie_auroc
from scipy import stats
from sklearn import metrics as sk
from torchmetrics.functional import classification as tm

from dubio.calibration.conformal import fit_conformal, prediction_sets, summarise_sets
from dubio.evaluation import evaluate
from dubio.metrics.decisions import correct
from dubio.metrics.metric import metric_named
from dubio.statistics.ranks import compare
from dubio.statistics.result_table import table_of

CLOSE = 1e-6


def random_rows(seed, rows=400, classes=5):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, rows)
    z = rng.normal(size=(rows, classes)) * 1.5 + np.eye(classes)[labels]
    p = np.exp(z - z.max(1, keepdims=True))
    return p / p.sum(1, keepdims=True), labels


def rare_classes(seed):
    p, labels = random_rows(seed, classes=4)
    labels[labels == 3] = 0
    labels[7] = 3
    return p, labels


def extreme_logits(seed):
    p, labels = random_rows(seed)
    p = p**40
    return p / p.sum(1, keepdims=True), labels


def binary(seed):
    return random_rows(seed, classes=2)


WORLDS = {"random": random_rows, "rare classes": rare_classes, "extreme": extreme_logits, "binary": binary}


def scored(p, labels, *names, **more):
    found = evaluate(p, labels, values="probs", metrics=names, replicates=0, **more)
    return found.predictions, found


def one_against_rest(p, labels):
    """The mean area over classes by their log-odds, every other probability summed."""
    areas = []
    for k in [1] if p.shape[1] == 2 else range(p.shape[1]):
        odds = np.log(p[:, k]) - np.log(np.delete(p, k, axis=1).sum(1))
        areas.append(sk.roc_auc_score(labels == k, odds))
    return np.mean(areas)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("world", WORLDS)
def test_multiclass_against_scikit_learn_and_torchmetrics(world, seed):
    p, labels = WORLDS[world](seed)
    names = ("accuracy", "nll", "brier", "class_auroc", "ece", "ece(bins=10)", "misclassification_auroc",
             "misclassification_aupr", "au_arc")  # fmt: skip
    predictions, found = scored(p, labels, *names)
    classes = list(range(p.shape[1]))
    assert found["accuracy"] == pytest.approx(sk.accuracy_score(labels, p.argmax(1)), abs=CLOSE)
    # scikit-learn raises probabilities to 2.2e-16, which extreme rows fall below
    exact = -np.log(p[np.arange(len(p)), labels]).mean()
    loss = exact if world == "extreme" else sk.log_loss(labels, p, labels=classes)
    assert found["nll"] == pytest.approx(loss, rel=CLOSE)
    assert found["brier"] == pytest.approx(
        sk.brier_score_loss(labels, p, labels=classes, scale_by_half=False), abs=CLOSE
    )
    near = 1e-5 if world == "extreme" else CLOSE  # rows alike in float32 are tied here and not there
    assert found["class_auroc"] == pytest.approx(one_against_rest(p, labels), abs=near)
    if world != "extreme":  # where p itself loses the digits that tell nearly certain rows apart
        scores = p[:, 1] if len(classes) == 2 else p
        assert found["class_auroc"] == pytest.approx(sk.roc_auc_score(labels, scores, multi_class="ovr"), abs=CLOSE)
    for name, bins in (("ece", 15), ("ece(bins=10)", 10)):
        theirs = tm.multiclass_calibration_error(
            torch.tensor(predictions.probs), torch.tensor(labels), num_classes=len(classes), n_bins=bins, norm="l1"
        )
        assert found[name] == pytest.approx(float(theirs), abs=CLOSE)
    wrong, doubt = ~correct(predictions), 1 - predictions.probs.max(1)
    if world != "extreme":
        assert found["misclassification_auroc"] == pytest.approx(sk.roc_auc_score(wrong, doubt), abs=CLOSE)
        assert found["misclassification_auroc"] == pytest.approx(mapie_auroc(~wrong, -doubt), abs=CLOSE)
        assert found["misclassification_aupr"] == pytest.approx(sk.average_precision_score(wrong, doubt), abs=1e-5)
        assert found["au_arc"] == pytest.approx(auarc(~wrong, -doubt), abs=1e-5)


def test_certain_and_wrong_rows():
    p, labels = np.eye(3)[[0, 1, 2, 0]], np.array([0, 1, 2, 1])
    _, found = scored(p, labels, "nll", "brier", "ece", "accuracy")
    assert found["nll"] == np.inf  # scikit-learn clips p to the smallest float and says 9
    assert found["brier"] == pytest.approx(sk.brier_score_loss(labels, p, scale_by_half=False), abs=CLOSE)
    theirs = tm.multiclass_calibration_error(torch.tensor(p), torch.tensor(labels), num_classes=3, n_bins=15)
    assert found["ece"] == pytest.approx(float(theirs), abs=CLOSE)


def test_tied_rows_and_rows_on_the_edges_of_bins():
    top = np.tile([0.5, 0.6, 0.8, 1.0], 25)
    p = np.c_[top, 1 - top]
    labels = (np.random.default_rng(0).random(100) > 0.7).astype(int)
    predictions, found = scored(p, labels, "ece(bins=10)", "class_auroc", "misclassification_auroc")
    # right-closed bins: 0.5, 0.6, 0.8 and 1.0 end a bin each (torchmetrics closes bins on the left)
    gaps = [abs((p[:, 0] == t).mean() * (correct(predictions)[p[:, 0] == t].mean() - t)) for t in (0.5, 0.6, 0.8, 1.0)]
    assert found["ece(bins=10)"] == pytest.approx(sum(gaps), abs=CLOSE)
    assert found["class_auroc"] == pytest.approx(sk.roc_auc_score(labels, p[:, 1]), abs=CLOSE)
    assert found["misclassification_auroc"] == pytest.approx(
        sk.roc_auc_score(~correct(predictions), 1 - top), abs=CLOSE
    )


@pytest.mark.parametrize("seed", range(3))
def test_multilabel_against_scikit_learn_and_torchmetrics(seed):
    rng = np.random.default_rng(seed)
    labels = (rng.random((300, 4)) < [0.5, 0.2, 0.05, 0.9]).astype(int)
    p = 1 / (1 + np.exp(-(rng.normal(size=(300, 4)) + 2 * labels - 1)))
    names = ("accuracy", "micro_f1", "macro_f1", "class_auroc", "nll", "nll_per_label", "brier", "ece", "ece_pooled")
    _, found = scored(p, labels, *names, target="multilabel")
    given, truth = torch.tensor(p), torch.tensor(labels)
    assert found["accuracy"] == pytest.approx(float(tm.multilabel_exact_match(given, truth, num_labels=4)), abs=CLOSE)
    for average in ("micro", "macro"):
        theirs = tm.multilabel_f1_score(given, truth, num_labels=4, average=average)
        assert found[f"{average}_f1"] == pytest.approx(float(theirs), abs=CLOSE)
        assert found[f"{average}_f1"] == pytest.approx(sk.f1_score(labels, p > 0.5, average=average), abs=CLOSE)
    theirs = tm.multilabel_auroc(given, truth, num_labels=4, average="macro")
    assert found["class_auroc"] == pytest.approx(float(theirs), abs=CLOSE)
    per_label = np.mean([sk.log_loss(labels[:, k], p[:, k]) for k in range(4)])
    assert found["nll_per_label"] == pytest.approx(per_label, rel=CLOSE)
    assert found["nll"] == pytest.approx(4 * per_label, rel=CLOSE)
    squares = sum(sk.brier_score_loss(labels[:, k], p[:, k]) for k in range(4))
    assert found["brier"] == pytest.approx(squares, abs=CLOSE)
    bins = {"n_bins": 15, "norm": "l1"}
    columns = [float(tm.binary_calibration_error(given[:, k], truth[:, k], **bins)) for k in range(4)]
    assert found["ece"] == pytest.approx(np.mean(columns), abs=CLOSE)
    pooled = tm.binary_calibration_error(given.reshape(-1), truth.reshape(-1), **bins)
    assert found["ece_pooled"] == pytest.approx(float(pooled), abs=CLOSE)


@pytest.mark.parametrize("seed", range(3))
def test_ordinal_against_scikit_learn(seed):
    p, labels = random_rows(seed)
    _, found = scored(p, labels, "quadratic_kappa", "auc_from_grade", "rps", target="ordinal")
    kappa = sk.cohen_kappa_score(labels, p.argmax(1), weights="quadratic")
    assert found["quadratic_kappa"] == pytest.approx(kappa, abs=CLOSE)
    assert found["auc_from_grade"] == pytest.approx(sk.roc_auc_score(labels >= 2, p[:, 2:].sum(1)), abs=CLOSE)
    steps = [sk.brier_score_loss(labels <= k, p[:, : k + 1].sum(1)) for k in range(4)]
    assert found["rps"] == pytest.approx(np.mean(steps), abs=CLOSE)


@pytest.mark.parametrize("score", ["lac", "aps", "raps"])
def test_coverage_and_width_of_sets_against_mapie(score):
    p, labels = random_rows(0)
    predictions, _ = scored(p, labels, "accuracy")
    fitted = fit_conformal(predictions.take(np.arange(200)), alpha=0.1, score=score)
    rest = predictions.take(np.arange(200, 400))
    sets = prediction_sets(fitted, rest)
    found = summarise_sets(sets, rest.labels)
    assert found.coverage == pytest.approx(classification_coverage_score(rest.labels, sets)[0], abs=CLOSE)
    assert found.size == pytest.approx(float(classification_mean_width_score(sets)), abs=CLOSE)


@pytest.mark.parametrize("tied", [False, True])
def test_ranks_and_critical_differences_against_autorank_and_posthocs(tied):
    rng = np.random.default_rng(3)
    values = rng.random((9, 6)) + np.linspace(0, 0.6, 6)
    values = np.round(values, 1 if tied else 6)
    names = [f"m{k}" for k in range(6)]
    table = table_of(
        [
            {"dataset": f"d{row}", "method": name, "metric": "accuracy", "value": float(values[row, place])}
            for row in range(9)
            for place, name in enumerate(names)
        ]
    )
    found = compare(table, {"accuracy": "higher"})
    frame = pd.DataFrame(values, columns=names)
    theirs = autorank.autorank(frame, force_mode="nonparametric", order="descending")
    for name in names:
        assert found.average_ranks[name] == pytest.approx(theirs.rankdf.meanrank[name], abs=CLOSE)
    assert stats.chi2.sf(found.friedman.chi2, 5) == pytest.approx(theirs.pvalue, abs=CLOSE)
    assert found.critical_difference == pytest.approx(theirs.cd, abs=1e-3)  # its quantile is an approximation
    p = scikit_posthocs.posthoc_nemenyi_friedman(frame)
    for one in names:
        for two in names:
            if one < two:
                apart = abs(found.average_ranks[one] - found.average_ranks[two]) > found.critical_difference
                assert apart == (p.loc[one, two] < 0.05)


def test_adaptive_bins_of_a_metric_by_name_are_the_equal_mass_ones():
    """numpy.array_split of the ordered rows, where no two state the same."""
    p, labels = random_rows(2)
    predictions, _ = scored(p, labels, "accuracy")
    top, right = predictions.probs.max(1), correct(predictions)
    order = np.argsort(top)
    parts = np.array_split(order, 15)
    sizes = {len(part) for part in parts}
    assert max(sizes) - min(sizes) <= 1
    wanted = sum(abs((right[part] - top[part]).sum()) for part in parts) / len(top)
    # both cut into 15 parts that differ by at most one row, not always the same ones
    assert metric_named("ece_adaptive").compute(predictions) == pytest.approx(wanted, abs=5e-3)
