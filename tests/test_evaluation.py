"""dubio.evaluate: the same numbers as the metrics, with intervals, from anything that holds predictions."""

import numpy as np
import pandas as pd
import pytest
import torch

import dubio
from dubio.core.errors import UnknownName, UserError
from dubio.core.predictions import Predictions, join
from dubio.core.types import Metric
from dubio.evaluation import compare, evaluate
from dubio.metrics.detection import ood_auroc
from dubio.metrics.scoring import accuracy, brier
from tests.estimators.helpers import softmax


def probs(seed, rows=80, samples=None):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, rows)
    shape = (rows, 3) if samples is None else (samples, rows, 3)
    z = rng.normal(size=shape) + 1.5 * np.eye(3)[labels]
    e = np.exp(z)
    return e / e.sum(-1, keepdims=True), labels


def test_arrays_of_any_framework_give_the_same_numbers():
    p, labels = probs(0)
    found = evaluate(p, labels, values="probs", replicates=0)
    assert found["accuracy"] == pytest.approx((p.argmax(1) == labels).mean())
    assert found["brier"] == pytest.approx(((np.eye(3)[labels] - p) ** 2).sum(1).mean(), abs=1e-6)
    others = [
        evaluate(torch.tensor(p), torch.tensor(labels), values="probs", replicates=0),
        evaluate(p.tolist(), labels.tolist(), values="probs", replicates=0),
        evaluate(pd.DataFrame(p), pd.Series(labels), values="probs", replicates=0),
        evaluate({"probs": p, "labels": labels}, replicates=0),
    ]
    for other in others:
        assert {k: v.value for k, v in other.scores.items()} == {k: v.value for k, v in found.scores.items()}
    with pytest.raises(UserError, match="say what the array"):
        evaluate(p, labels)


def test_label_metrics_are_of_ordinary_rows_and_detection_of_all():
    (p, labels), (q, _) = probs(0, samples=3), probs(1, rows=30, samples=3)
    found = evaluate(p, labels, values="probs", ood=q, replicates=0)
    ordinary = evaluate(p, labels, values="probs", replicates=0)
    assert found["accuracy"] == ordinary["accuracy"]
    assert (found.rows, found.ood_rows, found.samples) == (80, 30, 3)
    both = found.predictions
    assert found["ood_auroc"] == ood_auroc(both)
    assert found.detection["mutual_information"].auroc == ood_auroc(both, quantity="mutual_information")
    assert found.detection["confidence"].prevalence == pytest.approx(30 / 110)
    assert "ood_auroc" not in ordinary.scores
    with pytest.raises(UserError, match="ood_auroc does not apply"):
        _ = ordinary["ood_auroc"]
    with pytest.raises(UserError, match="was not computed"):
        _ = ordinary["rmse"]


def test_intervals_are_seeded_hold_the_value_and_narrow_with_rows():
    p, labels = probs(0, rows=400)
    names = ("accuracy", "nll", "brier", "ece", "ece_adaptive", "aurc", "misclassification_auroc")
    found = evaluate(p, labels, values="probs", metrics=names, seed=3)
    again = evaluate(p, labels, values="probs", metrics=names, seed=3)
    small = evaluate(p[:50], labels[:50], values="probs", metrics=names, seed=3)
    for name in names:
        score = found.scores[name]
        assert score == again.scores[name]
        assert score.low <= score.high
        assert score.low <= score.value <= score.high
        assert score.high - score.low < small.scores[name].high - small.scores[name].low
    error = np.sqrt(found["accuracy"] * (1 - found["accuracy"]) / 400)
    assert found.scores["accuracy"].high - found.scores["accuracy"].low == pytest.approx(2 * 1.96 * error, rel=0.2)


def test_groups_are_resampled_together():
    p, labels = probs(0, rows=40)
    p, labels = np.repeat(p, 10, axis=0), np.repeat(labels, 10)
    single = evaluate(p, labels, values="probs", metrics=("brier",))
    grouped = evaluate(p, labels, values="probs", metrics=("brier",), group=np.repeat(np.arange(40), 10))
    assert grouped.resampled == "groups"
    ratio = (grouped.scores["brier"].high - grouped.scores["brier"].low) / (
        single.scores["brier"].high - single.scores["brier"].low
    )
    assert ratio == pytest.approx(np.sqrt(10), rel=0.25)


def test_groups_of_in_domain_rows_stay_beside_ood_rows_without_groups():
    (p, labels), (q, _) = probs(0, rows=60), probs(1, rows=300)
    p, labels, group = np.repeat(p, 5, axis=0), np.repeat(labels, 5), np.repeat(np.arange(60), 5)
    metrics = ("brier", "accuracy", "calibrated_nll")
    alone = evaluate(p, labels, values="probs", metrics=metrics, group=group)
    joined = evaluate(p, labels, values="probs", metrics=(*metrics, "ood_auroc"), group=group, ood=q)
    assert joined.resampled == "groups"
    assert {name: joined.scores[name] for name in metrics} == alone.scores
    single = evaluate(p, labels, values="probs", metrics=("ood_auroc",), ood=q).scores["ood_auroc"]
    grouped = joined.scores["ood_auroc"]
    # 60 patients instead of 300 rows beside 300 rows: wider by about the root of (1/60 + 1/300) / (2/300) = 3
    assert grouped.high - grouped.low > 1.4 * (single.high - single.low)


def test_in_domain_rows_without_groups_stay_single_beside_grouped_ood_rows():
    (p, labels), (q, classes) = probs(0, rows=120), probs(1, rows=30)
    ood = {"probs": q, "labels": classes, "group": np.repeat(list("abcdef"), 5)}
    alone = evaluate(p, labels, values="probs", metrics=("brier", "calibrated_nll"))
    joined = evaluate(p, labels, values="probs", metrics=("brier", "calibrated_nll"), ood=ood)
    assert joined.scores == alone.scores
    systems = {"one": {"probs": p, "labels": labels}, "two": {"probs": p[:, ::-1], "labels": labels}}
    mcnemar = [compare(systems, metrics=("brier",), ood=rows).mcnemar for rows in (None, dict.fromkeys(systems, ood))]
    assert mcnemar[0] == mcnemar[1] != {}


def test_systems_are_aligned_by_ids_beside_ood_rows_without_ids():
    (p, _), (q, _) = probs(0), probs(1, rows=30)
    labels = np.zeros(80, dtype=int)  # labels alone cannot tell the order
    ids = np.array([f"x{row}" for row in range(80)])
    own = {
        "one": {"probs": p, "labels": labels, "ids": ids},
        "two": {"probs": p[::-1], "labels": labels, "ids": ids[::-1]},
    }
    compared = compare(own, metrics=("brier",), ood={name: {"probs": q} for name in own})
    (test,) = compared.tests["brier"]
    assert (test.low, test.high) == (0.0, 0.0)


def test_metrics_by_name_and_of_ones_own():
    p, labels = probs(0)
    own = Metric("certain", "higher", lambda q: float((q.probs.max(1) > 0.9).mean()))
    found = evaluate(p, labels, values="probs", metrics=("ece(bins=5)", own, "rps"), replicates=20)
    assert list(found.scores) == ["ece(bins=5)", "certain"]
    assert found.reasons == {
        "rps": "rps does not apply: it is defined for ordinal predictions, and these are multiclass."
    }
    assert not found.scores["ece(bins=5)"].comparable
    with pytest.raises(UnknownName, match="Did you mean 'accuracy'"):
        evaluate(p, labels, values="probs", metrics=("acuracy",))


def test_unlabelled_rows_and_predictions_as_they_are():
    p, labels = probs(0)
    labels[:10] = -1
    found = evaluate(p, labels, values="probs", replicates=0)
    assert found.unlabelled == 10
    assert found["accuracy"] == pytest.approx((p[10:].argmax(1) == labels[10:]).mean())
    predictions = found.predictions
    assert evaluate(predictions, replicates=0)["brier"] == brier(predictions)
    with pytest.raises(UserError, match="own labels and target"):
        evaluate(predictions, labels)
    with pytest.raises(UserError, match="group goes with bare arrays"):
        evaluate(predictions, group=np.zeros(80, int))
    with pytest.raises(UserError, match="replicates must be 0"):
        evaluate(predictions, replicates=1)


def test_files_in_and_plain_values_out(tmp_path):
    (p, labels), (q, _) = probs(0), probs(1, rows=30)
    np.savez(tmp_path / "a.npz", probs=p, labels=labels)
    np.savez(tmp_path / "b.npz", probs=q)
    found = evaluate(tmp_path / "a.npz", ood=str(tmp_path / "b.npz"), replicates=10)
    plain = found.as_dict()
    assert (
        plain["scores"]["accuracy"]["value"]
        == found["accuracy"]
        == accuracy(found.predictions.take(~found.predictions.ood))
    )
    assert "predictions" not in plain
    assert plain["detection"]["confidence"]["auroc"] == found["ood_auroc"]


def test_every_row_out_of_distribution_is_scored_as_it_is():
    p, labels = probs(0)
    logits = np.log(p)[None].astype(np.float32)
    strange = Predictions(logits, labels, ood=np.ones(80, dtype=bool))
    found = evaluate(strange, replicates=0)
    assert found.rows == 80
    assert found["accuracy"] == accuracy(strange)
    assert not found.detection
    mixed = evaluate(join([Predictions(logits, labels), strange]), replicates=0, metrics=("generalisation_gap",))
    assert mixed["generalisation_gap"] == 0.0


def test_systems_must_be_two_and_have_the_same_ood_names():
    predictions = dubio.evaluate(softmax(np.eye(3)[[0, 1, 2] * 5]), np.array([0, 1, 2] * 5), values="probs").predictions
    with pytest.raises(dubio.UserError, match="at least two systems"):
        dubio.compare({"a": predictions})
    with pytest.raises(dubio.UserError, match="ood must name the same systems"):
        dubio.compare({"a": predictions, "b": predictions}, ood={"a": predictions})
    arrays = {"a": softmax(np.eye(3)[[0, 1, 2] * 5]), "b": softmax(2 * np.eye(3)[[0, 1, 2] * 5])}
    found = dubio.compare(arrays, np.array([0, 1, 2] * 5), values="probs", metrics=["brier"], replicates=0)
    assert found.tests["brier"][0].better == "b"


def test_a_column_of_groups_is_named_in_python_too():
    rng = np.random.default_rng(0)
    arrays = {"probs": rng.dirichlet([1, 1], 80), "labels": rng.integers(0, 2, 80), "patient": np.arange(80) // 4}
    with pytest.raises(UserError, match=r"group='patient'.*rows_are_independent=True"):
        dubio.evaluate(arrays)
    named = dubio.evaluate(arrays, group="patient", metrics=["brier"], replicates=50)
    bare = dubio.evaluate(arrays["probs"], arrays["labels"], values="probs", group=arrays["patient"], metrics=["brier"],
                          replicates=50)  # fmt: skip
    assert named.scores == bare.scores
    assert named.resampled == "groups"
    rows = dubio.evaluate(arrays, rows_are_independent=True, metrics=["brier"], replicates=0)
    assert "declared independent" in repr(rows)
    other = {**arrays, "site": np.array(["a", "b"] * 40)}
    by_site = dubio.evaluate(other, group="patient", by=["site"], metrics=["brier"], replicates=0)
    assert [part.rows for part in by_site.subgroups["site"].values()] == [40, 40]
    one_name = dubio.evaluate(other, group="patient", by="site", metrics=["brier"], replicates=0)
    assert one_name.subgroups["site"].keys() == by_site.subgroups["site"].keys()
    with_columns = by_site.predictions.with_checked(group=None)
    assert dubio.evaluate(with_columns, group="site", replicates=0).resampled == "groups"
    with pytest.raises(UserError, match=r"column for --group 'sites'.*Did you mean 'site'"):
        dubio.evaluate(with_columns, group="sites")
    both = dubio.compare({"a": other, "b": other}, group="patient", by=["site"], metrics=["brier"], replicates=0)
    assert "a: results by site" in repr(both)
    assert dubio.calibrate(arrays, group="patient") == dubio.calibrate(arrays, rows_are_independent=True)


def test_ids_name_the_rows_of_probability_zero_and_a_floor_clips_labels_too():
    p, labels = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]), np.array([1, 1, 0])
    found = evaluate(p, labels, values="probs", ids=["a", "b", "c"], replicates=0)
    assert found.impossible == ("a",)
    assert found["nll"] == np.inf
    several = evaluate(p, 1 - p.round().astype(int), values="probs", target="multilabel", floor=0.01, replicates=0)
    clipped = np.clip(p, 0.01, 0.99)
    truth = 1 - p.round()
    assert several["nll"] == pytest.approx(-(truth * np.log(clipped) + (1 - truth) * np.log1p(-clipped)).sum(1).mean())
    logits = np.array([[[0, -np.inf], [0, -np.inf], [0, 0]]], dtype=np.float32)
    flagged = Predictions(logits, np.array([1, 1, 0]), ood=np.array([True, False, False]))
    assert evaluate(flagged, replicates=0).impossible == ("1",)


@pytest.mark.parametrize("arguments", [{"replicates": "a"}, {"replicates": 2.5}, {"level": "high"}, {"floor": "low"}])
def test_arguments_of_another_type_are_refused_by_name(arguments):
    with pytest.raises(UserError, match=next(iter(arguments))):
        evaluate(*probs(0), values="probs", **arguments)


def test_one_unit_gives_no_interval_and_names_the_metrics_that_need_two():
    own, labels = probs(1)
    result = evaluate(own, labels, values="probs", group=np.full(80, "only"), metrics=["accuracy", "calibrated_nll"])
    assert np.isnan(result.scores["accuracy"].low)
    assert "No intervals: they need at least two groups." in str(result)
    assert "In brackets" not in str(result)
    assert result.reasons["calibrated_nll"].startswith("calibrated_nll does not apply: ")


def test_labels_may_be_a_file_beside_arrays(tmp_path):
    p, labels = probs(0)
    ids = np.array([f"r{row}" for row in range(len(labels))])
    order = np.random.default_rng(1).permutation(len(labels))
    rows = [f"{ids[row]},{labels[row]}" for row in order]
    (tmp_path / "labels.csv").write_text("\n".join(["id,label", *rows]), encoding="utf-8")
    for file in (tmp_path / "labels.csv", str(tmp_path / "labels.csv")):
        scored = evaluate({"probs": p, "ids": ids}, file, metrics=["accuracy"], replicates=0)
        assert scored["accuracy"] == pytest.approx((p.argmax(1) == labels).mean())
