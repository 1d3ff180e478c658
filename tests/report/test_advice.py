"""Advice and claims on constructed worlds where the answer is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dubio.report import Results
from dubio.report.advice import Advice, advice, conclusion, home_standing
from dubio.report.aggregate import Cell, Score
from dubio.report.claims import Claim, Evidence, claims
from dubio.report.comparison import Losses, against_best, told_apart
from dubio.report.cost import Cost
from dubio.report.manifest import Manifest, MethodView, RunView, SplitView, TaskView
from dubio.report.measures import RANKED_BY, detection_name
from dubio.report.sections import paper_part

TITLES = {
    "deterministic": ("Deterministic", 1, 0),
    "mc-dropout": ("MC dropout", 1, 10),
    "mc-concrete-dropout": ("MC concrete dropout", 1, 10),
    "deep-ensemble": ("Deep ensemble", 5, 0),
}
AUROC = detection_name("ood_auroc", "confidence")


def task(name: str, classes: int, target: str = "multiclass", away: tuple[tuple[str, str], ...] = ()) -> TaskView:
    splits = [("test", "id"), *away]
    return TaskView(
        key=name,
        name=name,
        inputs="text",
        target=target,  # type: ignore[arg-type]
        classes=tuple(map(str, range(classes))),
        network="textcnn",
        splits=tuple(SplitView(split, kind, split, 100) for split, kind in splits),  # type: ignore[arg-type]
        corpus=name,
    )


def made(tasks: list[TaskView], values: dict[tuple[str, str, str], dict[str, tuple[float, ...]]]) -> Results:
    """Results with these values: (task, split, metric) → method → one value a run."""
    names = list(dict.fromkeys(name for cells in values.values() for name in cells))
    methods = tuple(
        MethodView(
            name,
            TITLES[name][0],
            TITLES[name][1],
            TITLES[name][2],
            name if name != "deep-ensemble" else "deterministic",
        )
        for name in names
    )
    scores = [
        Score(key, split, "id", name, seed, None, metric, value)
        for (key, split, metric), cells in values.items()
        for name, found in cells.items()
        for seed, value in enumerate(found)
    ]
    one: Any = lambda value: type("C", (), {"n": 1, "mean": value, "std": None})()  # noqa: E731
    costs: Any = {
        (t.key, name): Cost(
            one(TITLES[name][1]), one(10.0 * TITLES[name][1]), one(1.0), one(3), one(500.0), one(1e3), one(2e6)
        )
        for t in tasks
        for name in names
    }
    curves: Any = {(t.key, name): (object(),) for t in tasks for name in names}
    view = Manifest("made", {}, tuple(tasks), methods, (RunView("r", tasks[0].key, names[0], 0, None, ()),), ())
    better: Any = {RANKED_BY: "lower", AUROC: "higher", "accuracy": "higher"}
    return Results(
        manifest=view, scores=tuple(scores), curves=curves, losses={}, costs=costs, better=better, not_ranked={},
        environment={}, unsettled={}, temperatures={}, entropies={}, promises={}, growth={}, missing=(),
    )  # fmt: skip


def about(found: tuple[Advice, ...], words: str) -> Advice:
    return next(each for each in found if each.circumstance.startswith(words))


def test_a_clear_winner_is_advised_with_its_numbers() -> None:
    values = {("a", "test", RANKED_BY): {"deterministic": (0.50, 0.51, 0.49), "deep-ensemble": (0.30, 0.31, 0.29)}}
    few = about(advice(made([task("a", 2)], values)), "Few classes")
    assert few.conclusion == "Take Deep ensemble (five trainings): never told from the best here."
    (sentence,) = few.evidence
    for words in (
        "a (two classes)",
        "Deep ensemble, 0.300",
        "0.010",
        "Deterministic, 0.500",
        "distinguishable: 0.2 apart",
    ):
        assert words in sentence


def test_what_cannot_be_told_apart_is_said_and_the_cheaper_named() -> None:
    values = {("a", "test", RANKED_BY): {"deterministic": (0.40, 0.60, 0.50), "deep-ensemble": (0.49, 0.59, 0.39)}}
    few = about(advice(made([task("a", 2)], values)), "Few classes")
    assert "do not decide" in few.conclusion
    assert "Deterministic (one training), is as good a choice as any" in few.conclusion
    assert "not distinguishable" in few.evidence[0]


def test_one_run_a_method_decides_nothing() -> None:
    values = {("a", "test", RANKED_BY): {"deterministic": (0.50,), "deep-ensemble": (0.30,)}}
    few = about(advice(made([task("a", 2)], values)), "Few classes")
    assert "differences are not judged" in few.conclusion
    assert "not judged: 0.2 apart" in few.evidence[0]


def test_different_winners_give_no_general_advice() -> None:
    low, high = (0.30, 0.31, 0.29), (0.50, 0.51, 0.49)
    values = {
        ("a", "test", RANKED_BY): {"deterministic": high, "deep-ensemble": low},
        ("b", "test", RANKED_BY): {"deterministic": low, "deep-ensemble": high},
    }
    few = about(advice(made([task("a", 2), task("b", 3)], values)), "Few classes")
    assert few.conclusion.startswith("No method is among the best on all two test sets")
    assert len(few.evidence) == 2


def test_classes_labels_and_places_decide_the_circumstance() -> None:
    cells = {"deterministic": (0.50, 0.51), "deep-ensemble": (0.30, 0.31)}
    tasks = [task("few", 19), task("many", 20), task("labels", 5, "multilabel", (("novel", "ood"), ("there", "shift")))]
    values = {(t.key, "test", RANKED_BY): cells for t in tasks}
    found = advice(made(tasks, values))
    assert [each.circumstance.partition(" (")[0] for each in found] == [
        "Few classes", "Many classes", "Several labels at once", "Little memory or time to train: one training",
        "Little time to answer: one network, one pass"]  # fmt: skip
    assert "labels (five labels)" in about(found, "Several labels").evidence[0]
    more = {**values, ("labels", "novel", AUROC): cells, ("labels", "there", "accuracy"): cells}
    circumstances = [each.circumstance for each in advice(made(tasks, more))]
    assert "Novel classes may turn up" in circumstances
    assert "Inputs will come from elsewhere: stay right" in circumstances
    assert "Inputs will come from elsewhere: notice it" not in circumstances


@pytest.mark.parametrize(
    ("names", "share"), [(("one",), "the one test set there is"), (("one", "two"), "2 of 2 test sets")]
)
def test_the_uncertainty_to_look_at_is_counted_over_test_sets(names: tuple[str, ...], share: str) -> None:
    entropy = detection_name("ood_auroc", "predictive_entropy")
    tasks = [task(name, 5, away=(("novel", "ood"),)) for name in names]
    values = {
        (name, "novel", metric): {"deterministic": (low, low + 0.01), "deep-ensemble": (low + 0.1, low + 0.11)}
        for name in names
        for metric, low in ((AUROC, 0.6), (entropy, 0.7))
    }
    found = made(tasks, values)
    said = advice(replace(found, better={**found.better, entropy: "higher"}))
    lead = about(said, "Which uncertainty").conclusion
    assert lead == f"Predictive entropy tells novel classes best on {share}."


def test_a_limit_on_trainings_says_what_it_costs() -> None:
    cells = {
        "deterministic": (0.50, 0.51, 0.49),
        "mc-dropout": (0.40, 0.41, 0.39),
        "deep-ensemble": (0.30, 0.31, 0.29),
    }
    values = {("a", "test", RANKED_BY): cells}
    found = advice(made([task("a", 2)], values))
    memory = about(found, "Little memory")
    assert memory.conclusion.startswith("Take MC dropout (one training)")
    assert "2 MB of weights, 10 s of training" in memory.evidence[0]
    assert "without that limit Deep ensemble, 0.300" in memory.evidence[0]
    answer = about(found, "Little time to answer")
    assert answer.conclusion == "Deterministic is the only such method here."
    assert "500 examples a second" in answer.evidence[0]


def test_nothing_is_said_without_data_or_with_one_method() -> None:
    assert advice(made([task("a", 2)], {("a", "test", RANKED_BY): {"deterministic": (0.5, 0.6)}})) == ()
    assert advice(made([task("a", 2)], {("a", "test", "accuracy"): {"deterministic": (1.0,)}})) == ()


def test_an_infinite_loss_is_never_advised() -> None:
    values = {("a", "test", RANKED_BY): {
        "deterministic": (np.inf, np.inf), "mc-dropout": (0.4, 0.41), "deep-ensemble": (0.40, 0.42)}}  # fmt: skip
    results = made([task("a", 2)], values)
    found = home_standing(results, results.manifest.tasks[0])
    assert found is not None
    assert "deterministic" not in found.cells
    assert "Deterministic" not in conclusion(results, [found])


def test_two_methods_are_compared_as_strictly_as_with_the_best() -> None:
    rng = np.random.default_rng(0)
    losses = {name: Losses(rng.normal(shift, 1, 80)) for name, shift in (("a", 0.0), ("b", 0.3), ("c", 0.9))}
    cells = {name: Cell((float(loss.values.mean()),)) for name, loss in losses.items()}
    verdicts = against_best(cells, "lower", losses)
    for name in "bc":
        single = told_apart(cells, "lower", (name, "a"), losses)
        assert (single.difference, single.resolves, single.place) == pytest.approx(
            (verdicts[name].difference, verdicts[name].resolves, verdicts[name].place)
        )
        turned = told_apart(cells, "lower", ("a", name), losses)
        assert turned.difference == -single.difference


def test_a_known_spread_counts_even_where_the_other_is_not_known() -> None:
    rng = np.random.default_rng(1)
    a = rng.normal(0, 0.05, 200)
    losses = {"a": Losses(a), "b": Losses(a + 0.02 + rng.normal(0, 0.01, 200))}
    once = {"a": Cell((float(a.mean()),)), "b": Cell((float(losses["b"].values.mean()),))}
    varied = {**once, "b": Cell((once["b"].mean - 0.3, once["b"].mean + 0.3))}
    kin = {"a": 1, "b": 2}
    assert against_best(once, "lower", losses, kin)["b"].place == "behind"
    assert against_best(varied, "lower", losses, kin)["b"].place == "tied"


def claim(results: Results, words: str) -> Claim:
    return next(each for each in claims(results) if words in each.statement)


@pytest.mark.parametrize(
    ("single", "pooled", "outcome"),
    [
        ((0.50, 0.51, 0.49), (0.30, 0.31, 0.29), "supported"),
        ((0.30, 0.31, 0.29), (0.50, 0.51, 0.49), "contradicted"),
        ((0.30, 0.51, 0.39), (0.40, 0.31, 0.49), "cannot be decided"),
    ],
)
def test_claims_follow_the_numbers(single: tuple[float, ...], pooled: tuple[float, ...], outcome: str) -> None:
    values = {("a", "test", RANKED_BY): {"deterministic": single, "deep-ensemble": pooled}}
    found = claim(made([task("a", 2)], values), "a deep ensemble scores better")
    assert found.outcome == outcome
    assert "Deep ensemble" in found.evidence[0].text


def test_claims_may_be_mixed_and_need_data() -> None:
    low, high = (0.30, 0.31, 0.29), (0.50, 0.51, 0.49)
    values = {
        ("a", "test", RANKED_BY): {"deterministic": high, "deep-ensemble": low},
        ("b", "test", RANKED_BY): {"deterministic": low, "deep-ensemble": high},
    }
    results = made([task("a", 2), task("b", 3)], values)
    found = claim(results, "a deep ensemble scores better")
    assert found.outcome == "mixed"
    assert found.tally == "two test sets: 1 for, 1 against, 0 undecided"
    assert claim(results, "BERT").outcome == "no data"
    part = paper_part(results)
    assert len(part["claims"]) == 1
    assert any("BERT" in statement for statement in part["silent"])


def test_a_claim_that_most_test_sets_leave_open_is_supported_in_part() -> None:
    one, open_ = Evidence("supports", ""), Evidence("undecided", "")
    assert Claim("", "", (one, open_)).outcome == "supported"
    assert Claim("", "", (one, open_, open_)).outcome == "supported in part"
    assert Claim("", "", (Evidence("contradicts", ""), open_, open_)).outcome == "contradicted in part"


def test_textcnn_against_bert_on_the_same_novel_classes() -> None:
    one = task("a", 2, away=(("novel", "ood"),))
    two = replace(one, key="a (bert)", network="bert")
    values = {
        ("a", "novel", AUROC): {"deterministic": (0.80, 0.81, 0.79)},
        ("a (bert)", "novel", AUROC): {"deterministic": (0.70, 0.71, 0.69)},
    }
    found = claim(made([one, two], values), "BERT")
    assert found.outcome == "supported"
    assert "(TextCNN) against" in found.evidence[0].text


def test_domains_near_a_coin() -> None:
    away = task("a", 2, away=(("there", "shift"),))
    near = made([away], {("a", "there", AUROC): {"deterministic": (0.51, 0.52, 0.51), "mc-dropout": (0.5, 0.51, 0.5)}})
    far = made([away], {("a", "there", AUROC): {"deterministic": (0.61, 0.62, 0.61), "mc-dropout": (0.5, 0.51, 0.5)}})
    assert claim(near, "coin").outcome == "supported"
    assert claim(far, "coin").outcome == "contradicted"


def test_other_inputs_are_not_measured_by_a_study_of_text() -> None:
    results = made([replace(task("a", 2), inputs="image")], {("a", "test", RANKED_BY): {"deterministic": (0.5, 0.6)}})
    assert paper_part(results) == {}
