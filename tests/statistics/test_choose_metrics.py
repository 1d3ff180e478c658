"""The choice of metrics to rank by: names in any case, directions, and what must not rank."""

import pytest

from dubio.core.errors import UserError
from dubio.statistics.choose_metrics import choose, direction_of, known_metric, parse_direction


def test_guard_knows_names_whatever_their_case():
    assert known_metric("Acc").name == "accuracy"
    assert known_metric("Calibrated-NLL").better == "lower"
    assert known_metric("ECE(bins=10)").name == "ece(bins=10)"
    assert known_metric("nonsense") is None
    assert parse_direction("a=b=lower") == ("a=b", "lower")


def test_guard_refuses_to_rank_by_itself_what_must_not_rank():
    with pytest.raises(UserError, match="name one with --metric"):
        choose(["ECE", "misclassification_auroc"], [], {})
    chosen = choose(["ECE", "brier", "odd"], [], {})
    assert chosen.metrics == {"brier": "lower"}
    assert set(chosen.left_out) == {"ECE", "odd"}
    asked = choose(["ECE", "brier"], ["ECE"], {})
    assert asked.metrics == {"ECE": "lower"}
    assert "biased" in asked.cautions["ECE"] or "bias" in asked.cautions["ECE"]


@pytest.mark.parametrize(
    ("direction", "names"),
    [
        ("higher", "AUROC AUC auc-roc ROC_AUC AUPR AP mAP Accuracy acc F1 macro-F1 test_acc OOD-AUROC Top-1_Acc R2 "
                   "neg_log_loss log-likelihood kappa mine↑"),
        ("lower", "FPR95 fpr@95 FPR-95-TPR ECE NLL Brier RMSE error Error_Rate AURC E-AURC AUGRC test_loss MAE "
                  "negative_log_likelihood cross-entropy perplexity negative_f1 mine↓"),
        (None, "mine accuracy_std accuracy_loss standard_error lower_ci accuracy_lower accuracy_upper"),
    ],
)  # fmt: skip
def test_directions_of_common_names(direction, names):
    assert {name: direction_of(name) for name in names.split()} == dict.fromkeys(names.split(), direction)
    assert direction_of("Accuracy (%) ↑") == "higher"
    assert direction_of("Brier score") == "lower"


def test_what_a_table_refuses_ranks_nothing_unless_it_is_asked_for():
    refused = {"accuracy": "of training rows", "elsewhere": "not in this table"}
    chosen = choose(["accuracy", "brier"], [], {}, refused)
    assert (chosen.metrics, chosen.left_out) == ({"brier": "lower"}, {"accuracy": "of training rows"})
    assert choose(["accuracy", "brier"], ["accuracy"], {}, refused).cautions == {"accuracy": "of training rows"}


@pytest.mark.parametrize("text", ["=lower", "lower", "accuracy", "accuracy=up"])
def test_a_direction_that_is_none_is_refused(text):
    with pytest.raises(UserError, match="--better"):
        parse_direction(text)
