"""Mistakes in training: differences of made-up runs, with the interval that the verdicts give."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from results.errata import (
    SWAP,
    GapShare,
    beside_sentence,
    change_text,
    distance_sentence,
    errata_sections,
    gap_sentence,
    interval_sentences,
    write_errata,
)
from results.pages import ROOT
from results.scoring_errata import MISTAKES
from results.stored import Stored
from results.tables import interval_text
from results.training_errata import STUDIES, compared, mean_term, rows_within, sample_of, training_changes
from scipy import stats

from dubio.core.predictions import Predictions
from dubio.metrics.metric import metric_named
from dubio.runner.benchmark_file import load_benchmark
from dubio.statistics.ranks import kendall_tau
from dubio.statistics.verdicts import judge_differences


def stored(accuracy, seed, rows=400):
    """Predictions with this accuracy on one half of shared labels."""
    labels = np.random.default_rng(0).integers(0, 2, rows)
    wrong = np.random.default_rng(seed).permutation(rows) >= round(accuracy * rows)
    logits = np.where(np.eye(2, dtype=bool)[labels ^ wrong], 1.0, 0.0)[None].astype(np.float32)
    own = Predictions(logits, labels)
    run, first = SimpleNamespace(id=f"{accuracy}-{seed}"), (f"fit-{accuracy}-{seed}",)
    tested = (run.id, "the test set")
    return SimpleNamespace(in_domain=lambda: own, with_ood=lambda: None, run=run, tested=tested, first_trainings=first)


def test_one_training_is_judged_over_test_rows_as_a_paired_test_is():
    sides = {"corrected": [stored(0.9, 1)], "mistaken": [stored(0.8, 2)]}
    change = compared("one", "accuracy", sides)
    right = {name: own[0].in_domain().logits[0].argmax(1) == own[0].in_domain().labels for name, own in sides.items()}
    differences = right["mistaken"].astype(float) - right["corrected"]
    test = stats.ttest_1samp(differences, 0.0)
    low, high = test.confidence_interval()
    assert (change.corrected.mean, change.mistaken.mean) == (0.9, 0.8)
    assert (change.test.difference, change.test.low, change.test.high) == pytest.approx((-0.1, low, high), rel=1e-3)


def test_one_training_is_no_verdict():
    """A change over test rows alone was marked as significant."""
    one = compared("one", "accuracy", {"corrected": [stored(0.9, 1)], "mistaken": [stored(0.5, 2)]})
    assert one.test.p < 0.05
    assert "**" not in change_text(one)
    sides = {"corrected": [stored(0.9, 1), stored(0.9, 3)], "mistaken": [stored(0.5, 2), stored(0.5, 4)]}
    assert change_text(compared("two", "accuracy", sides)).startswith("**0.500: -0.400")


def test_a_study_is_read_beside_the_networks_that_its_methods_continue():
    """All nine networks were averaged where Laplace draws around three of them."""
    study = next(study for study in STUDIES if study.beside)
    networks = {(seed, member): stored(0.9 - 0.1 * member, 10 * seed + member) for seed in (0, 1) for member in (0, 1)}
    drawn = {
        (seed, None): SimpleNamespace(first_trainings=networks[seed, 0].first_trainings, run=None) for seed in (0, 1)
    }
    runs = {(study.base, study.beside): networks, (study.base, study.methods[0]): drawn}
    assert "accuracy 0.900" in beside_sentence(study, runs)
    assert "not run" in beside_sentence(study, {(study.base, study.beside): networks})


def test_several_trainings_widen_the_interval():
    one = compared("one", "accuracy", {"corrected": [stored(0.9, 1)], "mistaken": [stored(0.8, 2)]})
    accuracies = ((0.86, 0.94), (0.75, 0.85))
    corrected, mistaken = ([stored(value, i) for i, value in enumerate(own)] for own in accuracies)
    several = compared("one", "accuracy", {"corrected": corrected, "mistaken": mistaken})
    assert several.test.difference == pytest.approx(-0.1)
    assert several.test.high - several.test.low > one.test.high - one.test.low


def test_only_methods_that_were_trained_both_ways_and_differ_are_compared():
    same = stored(0.7, 5)
    runs = {
        ("base", "a"): {(0, 0): stored(0.9, 1), (1, 0): stored(0.9, 3)}, ("wrong", "a"): {(0, 0): stored(0.8, 2)},
        ("base", "b"): {(0, 0): same}, ("wrong", "b"): {(0, 0): same},
        ("base", "c"): {(0, 0): stored(0.6, 4)},
    }  # fmt: skip
    runs["base", "d"], runs["wrong", "d"] = {(0, 0): stored(0.9, 6)}, {(0, 0): stored(0.9, 6)}
    runs["wrong", "d"][0, 0].tested = (runs["base", "d"][0, 0].run.id, "another test set")  # the same training
    changes = training_changes(runs, "base", "wrong", ["accuracy"], ["a", "b", "c", "d"])
    assert [(change.method, change.corrected.n) for change in changes] == [("a", 1), ("d", 1)]


def test_a_mistake_at_prediction_is_judged_on_the_differences_of_the_same_trainings():
    """Both sides' trainings were taken for different ones, whose spread hid a change that every training has."""
    accuracies = (0.90, 0.80, 0.70)
    corrected, mistaken = ([stored(value - loss, i) for i, value in enumerate(accuracies)] for loss in (0.0, 0.05))
    apart = compared("one", "accuracy", {"corrected": corrected, "mistaken": mistaken})
    for first, second in zip(corrected, mistaken, strict=True):
        second.first_trainings = first.first_trainings
    paired = compared("one", "accuracy", {"corrected": corrected, "mistaken": mistaken})
    assert paired.test.difference == apart.test.difference == pytest.approx(-0.05)
    assert paired.test.high - paired.test.low < apart.test.high - apart.test.low


@pytest.mark.parametrize("spread", [1.0, 3.0])
@pytest.mark.parametrize("runs", [2, 3, 9])
def test_intervals_over_trainings_hold_at_their_level(runs, spread):
    """Three runs a side had intervals of 99.5 %: each side's variance was multiplied by 2.5."""
    generator = np.random.default_rng((runs, round(spread)))
    covered, draws = 0, 2000
    for _ in range(draws):
        sides = generator.normal(0, 1, runs), generator.normal(0, spread, runs)
        terms = [mean_term(values) for values in sides]
        test = judge_differences({("one", "two"): (sides[0].mean() - sides[1].mean(), terms)}, "higher")[0]
        covered += test.low <= 0 <= test.high
    error = np.sqrt(0.05 * 0.95 / draws)
    assert covered / draws + 2 * error >= 0.94
    assert covered / draws <= 0.995 if runs == 2 else covered / draws <= 0.985


def test_a_fit_is_traced_to_the_training_that_it_continues():
    """Laplace approximations of the same networks were compared as if their networks were others."""
    specs = {"laplace": {"start": "tail"}, "tail": {"start": "network"}, "network": {"start": None}}
    store = SimpleNamespace(spec=lambda kind, fit: specs[fit])
    run = SimpleNamespace(fits=("laplace", "network"))
    assert Stored(store, None, run).first_trainings == ("network", "network")


def some_rows(p: Predictions, rows) -> Predictions:
    return Predictions(p.logits[:, rows], p.labels[rows], ids=p.ids[rows])


@pytest.mark.parametrize("metric", ["accuracy", "class_auroc"])
def test_a_side_without_some_rows_has_the_variance_of_its_own_mean(metric):
    """Resampling all rows, and simulation of new test sets, agree on the variance of the difference."""
    generator = np.random.default_rng(3)

    def test_set():
        labels = generator.integers(0, 2, 300)
        logits = generator.normal(size=(2, 300, 2)) + 1.5 * np.eye(2)[labels]
        ids = np.array([f"test/{i}" for i in range(300)])
        own = [Predictions(logits[i][None].astype(np.float32), labels, ids=ids) for i in range(2)]
        return own[0], some_rows(own[1], np.flatnonzero(generator.random(300) < 0.7))

    score = metric_named(metric).compute
    simulated = np.var([score(one) - score(other) for one, other in (test_set() for _ in range(400))])
    estimates = []
    for _ in range(10):
        sides = dict(zip(("corrected", "mistaken"), ([own] for own in test_set()), strict=True))
        estimates.append(sample_of(metric, sides).term("corrected", "mistaken")[0])
    assert np.mean(estimates) == pytest.approx(simulated, rel=0.25)


def test_rows_are_matched_by_their_ids():
    everything = Predictions(np.zeros((1, 3, 2), np.float32), np.zeros(3, int), ids=np.array(["a", "b", "c"]))
    assert rows_within(some_rows(everything, np.array([2, 0])), everything).tolist() == [2, 0]
    other = Predictions(np.zeros((1, 1, 2), np.float32), np.zeros(1, int), ids=np.array(["d"]))
    with pytest.raises(ValueError, match="'d' is on one side alone"):
        rows_within(other, everything)


def test_sentences_say_what_was_not_measured():
    assert "The share of the mistakes in reading and batching texts was not measured" in gap_sentence([])
    assert interval_text(0.5, -0.25, 1.25, places=2) == "+0.50 [-0.25, +1.25]"


def test_the_explained_part_of_a_gap_has_an_interval_and_no_mean_over_methods():
    """A mean of 51 % came from one method whose own interval includes zero."""
    shown = GapShare("one", gap=0.04, own=0.016, low=0.008, high=0.024, significant=True)
    wide = GapShare("two", gap=0.05, own=0.04, low=-0.01, high=0.09, significant=False)
    text = gap_sentence([shown, wide])
    assert "explain +0.016 [+0.008, +0.024] of 0.040 (one); +0.040 [-0.010, +0.090] of 0.050 (two) of the gap" in text
    assert "With one this is roughly 20 to 60 %: the rest is not explained." in text
    assert "With two the change is not significant, and shows no share." in text
    assert "average" not in text
    assert "%" not in gap_sentence([wide]).replace("95 % intervals", "")
    whole = gap_sentence([replace(shown, own=0.03, high=0.052)])
    assert "With one this is roughly 20 to 130 %: it may be all of it." in whole
    assert "explain no gap" in gap_sentence([replace(shown, own=-0.016, low=-0.024, high=-0.008)])
    text = gap_sentence([shown, replace(wide, method="three", gap=-0.01)])
    assert "three: not above the published AUROC here" in text
    assert "of -0.010" not in text


def test_a_share_is_the_change_turned_round():
    """What a mistake takes away of an AUROC is the negative of its change, and so are the ends of its interval."""
    change = compared("one", "accuracy", {"corrected": [stored(0.9, 1)], "mistaken": [stored(0.8, 2)]})
    share = GapShare.of(0.7, change)
    assert (share.method, share.gap, share.own) == ("one", pytest.approx(0.2), pytest.approx(0.1))
    assert share.low < share.own < share.high
    assert share.high - share.own == pytest.approx(share.own - share.low)
    assert (share.low, share.high) == (-change.test.high, -change.test.low)
    assert not share.significant  # one training


@pytest.mark.parametrize("count", [3, 4])
def test_the_page_states_the_correlation_of_orders_that_differ_by_one_swap(count):
    order = list(range(count))
    swapped = [1, 0, *order[2:]]
    tau = kendall_tau(order, swapped)
    assert tau == pytest.approx(1 - 4 / (count * (count - 1)))
    assert f"{tau:.2f}" in SWAP


def test_distances_from_published_values_are_means_over_methods():
    sides = {"corrected": [stored(0.9, 1)], "mistaken": [stored(0.8, 2)]}
    change = compared("one", "accuracy", sides)
    text = distance_sentence({"accuracy": [(0.86, change), (0.80, change)], "ood_auroc": []})
    assert text.endswith("with the mistakes: accuracy 0.070 → 0.030 (closer with 1 of 2 methods).")
    assert distance_sentence({"accuracy": []}) == "No method was trained both ways."


def test_every_score_of_the_page_exists_and_every_task_is_in_its_benchmark():
    names = ("text", "batches", "labels", "retina", "ensembles", "ensembles")
    files = [f"errata-{name}" for name in names]
    shown: dict[str, set[str]] = {}
    for study, name in zip(STUDIES, files, strict=True):
        shown.setdefault(name, set()).update({study.base, *study.mistakes.values()})
        benchmark = load_benchmark(str(ROOT / "results" / f"{name}.toml"))
        assert shown[name] <= {entry.called for entry in benchmark.tasks}
        assert {*study.methods} <= {*benchmark.all_methods}
        assert [metric_named(metric).name for metric in study.metrics] == list(study.metrics)
    for name, tasks in shown.items():
        assert tasks == {entry.called for entry in load_benchmark(str(ROOT / "results" / f"{name}.toml")).tasks}
    assert all(metric_named(name) for mistake in MISTAKES for name in (mistake.published, mistake.correct))


def test_sections_whose_tasks_a_store_lacks_stay_as_the_page_has_them(tmp_path):
    """Writing the page from a store of one study marked the figures of all others as not run."""
    page = SimpleNamespace(title="Errata", name="errata", path=tmp_path / "errata.md")
    write_errata(page, tmp_path / "empty")
    assert page.path.read_text().count("not run") > 30
    headings = [section.heading for section in errata_sections()]
    page.path.write_text("# Errata\n" + "".join(f"\n## {heading}\n\nFigures of {heading}.\n" for heading in headings))
    text = write_errata(page, tmp_path / "empty").read_text()
    assert "not run" not in text
    assert [line for line in text.splitlines() if line.startswith("## ")] == [f"## {heading}" for heading in headings]
    assert all(f"\n## {heading}\n\nFigures of {heading}.\n" in text for heading in headings)


def test_a_table_explains_the_intervals_that_it_has():
    """Two runs were explained under tables that have none, and not under one that has nothing else."""
    assert not list(interval_sentences([]))
    (several,) = interval_sentences({3, 9})
    assert several == "Intervals are over trainings and test rows; bold: significant at 5 %, every cell by itself."
    assert "one degree of freedom" in " ".join(interval_sentences({2}))
    assert list(interval_sentences({1})) == [
        "They are over test rows alone, and nothing is bold: another training may reverse the sign."
    ]
    both = list(interval_sentences({1, 3}))
    assert both[0].startswith("With several runs the interval is over trainings")
    assert both[1].startswith("With one run it is over test rows alone")
