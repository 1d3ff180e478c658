"""Advice on constructed worlds where the answer is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from dubio.core.errors import UserError
from dubio.reporting.build import build_report
from dubio.reporting.leaderboard import in_domain_leaderboard
from dubio.reporting.manifest_view import MethodRun
from dubio.reporting.measures import RANKED_BY, detection_name
from dubio.reporting.sections.advice import Advice, Advising, advice, conclusion
from tests.reporting.helpers import AUROC, ENTROPY, run_with, task_view, texts, with_scores_on_features
from tests.reporting.stored_runs import make_world


def about(found: tuple[Advice, ...], words: str) -> Advice:
    return next(each for each in found if each.circumstance.startswith(words))


def test_a_clear_winner_is_advised_with_its_numbers() -> None:
    values = {("a", "test", RANKED_BY): {"deterministic": (0.50, 0.51, 0.49), "deep-ensemble": (0.30, 0.31, 0.29)}}
    few = about(advice(run_with([task_view("a", 2)], values)), "Few classes")
    price = "50 s of training and 200 s to predict 100,000 examples"
    assert few.conclusion.startswith(f"Take Deep ensemble ({price}): it has the best calibrated NLL")
    assert "no cheaper method is shown to be within 0.01 of it" in few.conclusion
    (sentence,) = few.evidence
    for words in (
        "a (2 classes)",
        "Deep ensemble, 0.300",
        "0.010",
        "Deterministic, 0.500",
        "difference 0.2,",
    ):
        assert words in sentence


def test_a_tie_is_called_a_tie_and_is_no_reason_for_the_cheaper() -> None:
    values = {("a", "test", RANKED_BY): {"deterministic": (0.40, 0.60, 0.50), "deep-ensemble": (0.49, 0.59, 0.39)}}
    few = about(advice(run_with([task_view("a", 2)], values)), "Few classes")
    assert few.conclusion.startswith("Take Deep ensemble")
    assert "A tie with Deterministic: not significantly different, but not shown to be as good." in few.conclusion
    assert "tie for the best calibrated NLL (not significantly different" in few.evidence[0]


def test_a_leader_that_is_not_on_the_other_test_set_is_no_error() -> None:
    """On the second task every method was trained once, and the leader of the first was not run at all."""
    values = {
        ("a", "test", RANKED_BY): {"mc-dropout": (0.30, 0.31, 0.29), "deterministic": (0.50, 0.51, 0.49)},
        ("b", "test", RANKED_BY): {"deterministic": (0.50,), "deep-ensemble": (0.40,)},
    }
    few = about(advice(run_with([task_view("a", 2), task_view("b", 2)], values)), "Few classes")
    assert "these data do not decide" in few.conclusion


def test_a_cheaper_method_is_taken_where_its_limit_is_within_the_margin() -> None:
    cells = {"deterministic": (0.501, 0.503, 0.502), "deep-ensemble": (0.499, 0.500, 0.501)}
    run = run_with([task_view("a", 2)], {("a", "test", RANKED_BY): cells})
    found = about(advice(run), "Few classes").conclusion
    half = stats.t.ppf(0.95, 3) * np.sqrt(2 * 2.5 * 0.001**2 / 3)  # (4 + 2)/2 degrees of freedom: two terms of two each
    assert found.startswith("Take Deterministic (10 s of training and 200 s to predict 100,000 examples)")
    assert (
        f"it is at most {0.002 + half:.2g} worse than the best on this test set (Deep ensemble), and cheaper." in found
    )
    for margin, choice in ((0.0, "Deep ensemble"), (0.003, "Deep ensemble"), (0.006, "Deterministic")):
        changed = replace(run, margin=margin)
        changed.__dict__["costs"] = run.costs
        assert about(advice(changed), "Few classes").conclusion.startswith(f"Take {choice}")


def test_a_noisy_comparison_does_not_make_a_worse_and_dearer_method_as_good() -> None:
    # A head with a calibrated NLL of 0.954 in 101 s was advised over a network of 0.927 in 34 s: its comparison with
    # the best was noisier, and so it was "not significantly different", while the network was significantly worse.
    means = {"deterministic": 0.927, "mc-dropout": 0.954, "deep-ensemble": 0.920}
    cells = {name: (mean - 1e-4, mean, mean + 1e-4) for name, mean in means.items()}
    run = run_with(
        [task_view("a", 40)], {("a", "test", RANKED_BY): cells}, {"deterministic": 34.0, "mc-dropout": 101.0}
    )
    (task,), rng = run.tasks, np.random.default_rng(0)
    for name, spread in {"deterministic": 0.01, "mc-dropout": 0.6, "deep-ensemble": 0.01}.items():
        own = rng.normal(0, spread, 400)
        method_run = MethodRun("r", (), {}, task="a", method=name)
        run.scores.add_rows(task, task.in_domain, method_run, {RANKED_BY: means[name] + own - own.mean()}, None)
    board = in_domain_leaderboard(run, task, RANKED_BY)
    assert board is not None
    assert (board.verdicts["deterministic"].place, board.verdicts["mc-dropout"].place) == ("behind", "tied")
    assert about(advice(run), "Many classes").conclusion.startswith("Take Deep ensemble")
    for margin in (0.0, 0.01, 0.5):
        changed = replace(run, margin=margin)
        changed.__dict__["costs"] = run.costs
        assert not any("Take MC dropout" in item.conclusion for item in advice(changed))


def test_a_method_that_was_not_judged_is_never_as_good() -> None:
    cells = {"deterministic": (0.50, 0.501, 0.499), "mc-dropout": (0.50, 0.501, 0.499), "deep-ensemble": (0.4999,)}
    few = about(advice(run_with([task_view("a", 2)], {("a", "test", RANKED_BY): cells})), "Few classes").conclusion
    assert few.startswith("Take Deterministic")
    assert "Not judged, for want of repeated trainings: Deep ensemble." in few


@pytest.mark.parametrize("margin", [-0.1, np.nan, np.inf])
def test_a_margin_is_a_finite_number_of_at_least_zero(margin: float) -> None:
    run = run_with([task_view("a", 2)], {("a", "test", RANKED_BY): {"deterministic": (0.5,)}})
    with pytest.raises(UserError, match="margin must be a finite number of at least 0; given"):
        replace(run, margin=margin)


def test_the_margin_is_shown_on_the_page_and_in_the_document() -> None:
    cells = {"deterministic": (0.50, 0.51, 0.49), "deep-ensemble": (0.30, 0.31, 0.29)}
    run = run_with([task_view("a", 2)], {("a", "test", RANKED_BY): cells})
    shown = replace(run, margin=0.025)
    shown.__dict__["costs"] = run.costs
    assert any("at most 0.025 worse" in text for text in texts(tuple(Advising().blocks(shown, None))))
    assert Advising().document(shown)["margin"] == 0.025


def test_one_run_a_method_decides_nothing() -> None:
    values = {("a", "test", RANKED_BY): {"deterministic": (0.50,), "deep-ensemble": (0.30,)}}
    few = about(advice(run_with([task_view("a", 2)], values)), "Few classes")
    assert few.conclusion.startswith("Deep ensemble has the best mean, but")
    assert "do not decide" in few.conclusion
    assert "difference 0.2; not judged" in few.evidence[0]


def test_different_winners_give_no_general_advice() -> None:
    low, high = (0.30, 0.31, 0.29), (0.50, 0.51, 0.49)
    values = {
        ("a", "test", RANKED_BY): {"deterministic": high, "deep-ensemble": low},
        ("b", "test", RANKED_BY): {"deterministic": low, "deep-ensemble": high},
    }
    few = about(advice(run_with([task_view("a", 2), task_view("b", 3)], values)), "Few classes")
    assert few.conclusion.startswith("No method is shown to be within 0.01 of the best on both test sets")
    assert "Closest on all: " in few.conclusion
    assert len(few.evidence) == 2


def test_classes_labels_and_places_decide_the_circumstance() -> None:
    cells = {"deterministic": (0.50, 0.51), "deep-ensemble": (0.30, 0.31)}
    tasks = [
        task_view("few", 19),
        task_view("many", 20),
        task_view("labels", 5, "multilabel", (("novel", "ood"), ("there", "shift"))),
    ]
    values = {(t.key, "test", RANKED_BY): cells for t in tasks}
    found = advice(run_with(tasks, values))
    assert [each.circumstance.partition(" (")[0] for each in found] == [
        "Few classes", "Many classes", "Several labels per example", "Little memory or training time: one training",
        "Low latency: one network, one pass"]  # fmt: skip
    assert "labels (5 labels)" in about(found, "Several labels").evidence[0]
    more = {**values, ("labels", "novel", AUROC): cells, ("labels", "there", "accuracy"): cells}
    circumstances = [each.circumstance for each in advice(run_with(tasks, more))]
    assert "Novel classes may occur: detect them" in circumstances
    assert "Inputs may shift: stay accurate" in circumstances
    assert "Inputs may shift: detect it" not in circumstances


@pytest.mark.parametrize(
    ("names", "share"), [(("one",), "the only test set"), (("one", "two"), "two of two test sets")]
)
def test_the_uncertainty_to_look_at_is_counted_over_test_sets(names: tuple[str, ...], share: str) -> None:
    tasks = [task_view(name, 5, away=(("novel", "ood"),)) for name in names]
    values = {
        (name, "novel", metric): {
            "deterministic": tuple(low + 0.002 * k for k in range(5)),
            "deep-ensemble": tuple(low + 0.1 + 0.002 * k for k in range(5)),
        }
        for name in names
        for metric, low in ((AUROC, 0.6), (ENTROPY, 0.7))
    }
    lead = about(advice(run_with(tasks, values)), "Which uncertainty").conclusion
    assert lead == f"Predictive entropy detects novel classes best on {share}."


def test_a_score_of_a_methods_own_may_be_the_uncertainty_to_look_at() -> None:
    task = task_view("one", 5, away=(("novel", "ood"),))
    own = detection_name("ood_auroc", "distance")
    runs = {AUROC: (0.60, 0.70), ENTROPY: (0.62, 0.72), own: (0.9, None)}
    values = {
        ("one", "novel", metric): {
            method: tuple(low + 0.002 * k for k in range(5))
            for method, low in zip(("deterministic", "deep-ensemble"), lows, strict=True)
            if low is not None
        }
        for metric, lows in runs.items()
    }
    run = run_with([task], values)
    run.scores.add_own_quantities(("distance",))
    found = about(advice(run), "Which uncertainty")
    assert "istance detects novel classes best on the only test set." in found.conclusion
    assert "Deterministic" in found.evidence[0]
    assert "0.904" in found.evidence[0]


def test_uncertainties_that_are_not_significantly_different_tie() -> None:
    task = task_view("one", 5, away=(("novel", "ood"),))
    near = {AUROC: (0.80, 0.81, 0.82), ENTROPY: (0.800018, 0.810017, 0.820019)}
    values = {
        ("one", "novel", metric): {"deterministic": runs, "mc-dropout": (0.7, 0.71)} for metric, runs in near.items()
    }
    found = about(advice(run_with([task], values)), "Which uncertainty")
    assert (
        found.conclusion
        == "A tie on the only test set: predictive entropy and confidence are not significantly different."
    )
    assert "best" not in found.conclusion
    assert "difference 1.8e-05" in found.evidence[0]


def test_no_method_is_advised_that_does_not_detect() -> None:
    task = task_view("one", 5, away=(("novel", "ood"),))
    areas = {"deterministic": (0.006, 0.005, 0.007), "mc-dropout": (0.006, 0.008, 0.007)}
    found = about(advice(run_with([task], {("one", "novel", AUROC): areas})), "Novel classes").conclusion
    assert found.startswith("one → novel: No method here detects these: do not rely on it")
    assert "is inverted for Deterministic and MC dropout" in found
    mixed = {**areas, "deep-ensemble": (0.90, 0.91, 0.92)}
    found = about(advice(run_with([task], {("one", "novel", AUROC): mixed})), "Novel classes").conclusion
    assert found.startswith(
        "Take Deep ensemble (50 s of training and 200 s to predict 100,000 examples): it is the only"
    )
    assert "is inverted for Deterministic and MC dropout" in found


def test_a_limit_on_trainings_says_what_it_costs() -> None:
    cells = {
        "deterministic": (0.50, 0.51, 0.49),
        "mc-dropout": (0.40, 0.41, 0.39),
        "deep-ensemble": (0.30, 0.31, 0.29),
    }
    values = {("a", "test", RANKED_BY): cells}
    found = advice(run_with([task_view("a", 2)], values))
    memory = about(found, "Little memory")
    assert memory.conclusion.startswith("Take MC dropout (10 s of training and 200 s to predict 100,000 examples)")
    assert "2 MB of weights, 10 s of training" in memory.evidence[0]
    assert "without that limit Deep ensemble, 0.300" in memory.evidence[0]
    answer = about(found, "Low latency")
    assert answer.conclusion == "Deterministic is the only such method here."
    assert "500 examples per second" in answer.evidence[0]


def test_a_pair_is_judged_alike_under_every_limit() -> None:
    cells = {
        "mc-concrete-dropout": (0.300, 0.420, 0.360),
        "deterministic": (0.400, 0.401, 0.402),
        "mc-dropout": (0.399, 0.452, 0.505),
        "deep-ensemble": (0.290, 0.295, 0.300),
    }
    run = run_with([task_view("a", 2)], {("a", "test", RANKED_BY): cells})
    (only,) = run.tasks
    whole = in_domain_leaderboard(run, only, RANKED_BY)
    assert whole is not None
    for limit in (("deterministic", "mc-dropout"), ("deterministic", "mc-dropout", "mc-concrete-dropout")):
        part = in_domain_leaderboard(run, only, RANKED_BY, among=limit)
        assert part is not None
        assert set(part.cells) == set(part.verdicts) == set(limit)
        for name in limit:
            if name != part.order[0]:
                verdict = whole.verdict(name, part.order[0])
                assert verdict is not None
                assert part.verdicts[name] == verdict


def test_nothing_is_said_without_data_or_with_one_method() -> None:
    assert advice(run_with([task_view("a", 2)], {("a", "test", RANKED_BY): {"deterministic": (0.5, 0.6)}})) == ()
    assert advice(run_with([task_view("a", 2)], {("a", "test", "accuracy"): {"deterministic": (1.0,)}})) == ()


def test_an_infinite_loss_is_never_advised() -> None:
    values = {("a", "test", RANKED_BY): {
        "deterministic": (np.inf, np.inf), "mc-dropout": (0.4, 0.41), "deep-ensemble": (0.40, 0.42)}}  # fmt: skip
    run = run_with([task_view("a", 2)], values)
    found = in_domain_leaderboard(run, run.tasks[0], RANKED_BY)
    assert found is not None
    assert "deterministic" not in found.cells
    assert "Deterministic" not in conclusion(run, [found])


@pytest.mark.parametrize("seeds", [(0,), (0, 1, 2)])
def test_of_the_same_predictions_the_cheaper_is_advised_whatever_the_order(seeds: tuple[int, ...]) -> None:
    """The first that the command named was advised, and the other "not shown to be as good" with a difference of 0."""
    store, manifest = make_world(seeds)
    for order in (("posthoc", "deterministic"), ("deterministic", "posthoc")):
        view = build_report(store, with_scores_on_features(store, manifest, "screening", order)).run
        few = about(advice(view), "Few classes")
        assert few.conclusion.startswith("Take Deterministic")
        assert few.conclusion.endswith("Post-hoc scores makes the same predictions as Deterministic.")
        assert "not shown to be as good" not in few.conclusion
        assert few.evidence[0].startswith("screening (2 classes): Deterministic and Post-hoc scores make the same pred")
    order = ("posthoc", "mc-dropout", "deterministic")
    view = build_report(store, with_scores_on_features(store, manifest, "screening", order)).run
    assert "Deterministic, not significantly" not in " ".join(about(advice(view), "Few classes").evidence)
    assert "Post-hoc" not in about(advice(view), "Few classes").evidence[0]
