"""Every quantity and metric that dubio promises exists by its name, for each target it is promised for."""

import numpy as np
import pytest

from dubio.core.predictions import Predictions
from dubio.core.registry import METRICS
from dubio.evaluation import STANDARD
from dubio.metrics.metric import metric_named, score_each
from dubio.metrics.quantities import QUANTITIES, uncertainty

ANY = (
    "accuracy", "error", "nll", "brier", "brier_per_class", "ece", "ece_adaptive", "ece_smooth", "sce", "classwise_ece",
    "ace", "tace", "tace(threshold=0.001)", "calibrated_nll", "calibrated_brier", "calibrated_aurc",
    "misclassification_auroc", "misclassification_aupr", "au_arc", "aurc", "e_aurc", "augrc", "referral_gain",
    "referral_accuracy",
    "referral_auc", "referral_accuracy(quantity=random)", "sensitivity_at_specificity", "specificity_at_sensitivity",
    "class_auroc", "ood_auroc", "ood_aupr", "id_aupr", "ood_fpr95", "ood_correlation", "generalisation_gap",
    "diversity", "disagreement", "pairwise_kl", "mean_total_variance", "mean_expected_variance", "mean_sample_variance",
    "mean_between_members", "mean_within_members",
)  # fmt: skip
ONLY = {
    "multiclass": ("conformal_coverage", "conformal_set_size", "conformal_coverage(score=aps)"),
    "multilabel": (
        "micro_f1",
        "macro_f1",
        "nll_per_label",
        "ece_pooled",
        "nll_as_published",
        "accuracy_at_half",
        "micro_f1_at_half",
        "macro_f1_at_half",
    ),
    "ordinal": ("quadratic_kappa", "rps", "auc_from_grade", "conformal_set_size(score=raps)"),
}


def made(target):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, (80, 4)) if target == "multilabel" else rng.integers(0, 4, 80)
    lift = labels if target == "multilabel" else np.eye(4)[labels]
    logits = (2.5 * rng.normal(size=(6, 80, 4)) + 2 * lift - 1).astype(np.float32)
    return Predictions(
        logits, labels, target=target, ood=np.arange(80) >= 60, member=np.repeat([0, 1, 2], 2),
        data_variance=np.ones_like(logits), model_variance=np.ones((6, 80), np.float32),
    )  # fmt: skip


@pytest.mark.parametrize("target", ONLY)
def test_every_metric_has_a_value_for_its_targets(target):
    wanted = (*ANY, *ONLY[target])
    found = score_each(made(target), wanted)
    assert found.reasons == {}
    assert all(np.isfinite(value) for value in found.values.values()), found.values


@pytest.mark.parametrize("target", ONLY)
def test_every_quantity_is_defined_for_every_target(target):
    assert set(QUANTITIES) == {
        "confidence", "predictive_entropy", "expected_entropy", "mutual_information", "model_uncertainty",
        "data_uncertainty", "total_variance", "expected_variance", "random",
    }  # fmt: skip
    for name in QUANTITIES:
        assert np.isfinite(uncertainty(made(target), name)).all()


def test_nothing_registered_is_left_out_here():
    told = {name.partition("(")[0] for names in (ANY, *ONLY.values()) for name in names}
    built_in = {entry.name for entry in METRICS.entries() if entry.origin.startswith("dubio.")}
    assert {name for name in built_in if not name.endswith("_as_published")} == {
        name for name in told if not name.endswith("_as_published")
    }


def test_what_is_shown_without_asking_exists_and_repeats_no_mistake():
    assert not [name for name in STANDARD if "as_published" in name]
    for name in STANDARD:
        assert metric_named(name).name == name


def test_what_may_not_rank_says_so():
    for name in ("ece", "ece_adaptive", "ece_smooth", "sce", "ace", "tace", "nll", "misclassification_auroc",
                 "misclassification_aupr"):  # fmt: skip
        assert not metric_named(name).comparable
        assert metric_named(name).why_not
    for name in ("calibrated_nll", "calibrated_brier", "calibrated_aurc", "brier", "aurc", "accuracy", "ood_auroc"):
        assert metric_named(name).comparable
