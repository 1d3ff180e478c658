"""Sentences of the findings, where the numbers alone would mislead."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from dubio.core.predictions import Predictions
from dubio.reporting.build import build_report
from dubio.reporting.leaderboard import in_domain_leaderboard
from dubio.reporting.measures import ACCURACY_CHANGE, RANKED_BY, referral_name
from dubio.reporting.prediction_files import open_systems
from dubio.reporting.run_view import RunView
from dubio.reporting.score_table import Score, TemperatureFits
from dubio.reporting.sections.findings import (
    baseline_ahead,
    best_method,
    detection,
    differences,
    how_to_read,
    leader,
    not_worse,
    referral_gain,
    referral_harm,
    task_findings,
)
from dubio.reporting.tables import Table
from dubio.statistics.verdicts import Verdict
from tests.reporting.helpers import (
    AUROC,
    blocks,
    run_with,
    task_view,
    with_scores,
    with_scores_on_features,
    without_shift,
)
from tests.reporting.stored_runs import make_world


def test_no_method_leads_where_no_temperature_has_an_optimum(run: RunView) -> None:
    task = run.tasks[0]
    best = leader(run, task)
    assert best is not None
    for at_bound, ranked in ((9, True), (10, False)):
        changed = with_scores(run, run.scores.scores)
        changed.scores.temperatures[task.key, best] = TemperatureFits([1.0] * 10, at_bound)
        first = task_findings(replace(changed), task)[0]
        assert ("has the lowest calibrated NLL" in first) == ranked
        assert ("cannot rank" in first) != ranked


def test_nothing_spreads_over_one_seed(run: RunView) -> None:
    assert "over two seeds" in how_to_read(run)
    runs = tuple(replace(one, seed=0) for one in run.manifest.runs)
    once = how_to_read(replace(run, manifest=replace(run.manifest, runs=runs)))
    assert "over one seed" not in once
    assert "with one seed an ensemble has no spread" in once


def test_methods_trained_once_are_not_judged_and_never_called_alike() -> None:
    store, manifest = make_world((0,))
    kept = [run for run in manifest["runs"] if run["method"] != "mc-dropout" or run["member"] == 0]
    report = build_report(store, without_shift({**manifest, "runs": kept}))
    (task, *_) = report.run.tasks
    verdicts = report.run.scores.verdicts(task, "test", "calibrated_nll")
    places = {name: verdict.place for name, verdict in verdicts.items()}
    assert "unjudged" not in {places["deep-ensemble"], places["mc-dropout-ensemble"], places["deterministic"]}
    assert places["mc-dropout"] == "unjudged"
    sentence = best_method(report.run, task)
    assert "no significant differences" not in sentence
    assert "Not judged: MC dropout (" in sentence
    assert "--seeds 5" in sentence
    assert {row["question"] for row in report.document()["standing"]} == {"methods"}
    table = next(block for block in blocks(report, "in-domain", task) if isinstance(block, Table))
    row = next(row for row in table.rows if row.title == "MC dropout")
    assert (row.cells[0].spread, row.cells[0].place) == ("(1 run) †", "unjudged")
    assert "†: not judged" in table.caption


def test_a_baseline_that_no_network_beats_is_the_first_sentence(run: RunView) -> None:
    task = run.tasks[0]
    best, verdicts = leader(run, task), run.scores.verdicts(task, task.in_domain.name, RANKED_BY)
    assert "a plain baseline" not in " ".join(task_findings(run, task))
    marked = tuple(replace(m, facts={"role": "baseline"} if m.name == best else m.facts) for m in run.manifest.methods)
    first = task_findings(replace(run, manifest=replace(run.manifest, methods=marked)), task)[0]
    places = [verdict.place for name, verdict in verdicts.items() if name != best]
    assert (f"a plain baseline, beats every network on {task.key}" in first) == (set(places) == {"behind"})
    assert f"{run.title(str(best))}, a plain baseline," in first
    last = max(verdicts, key=lambda name: run.scores.row(task, task.in_domain.name, RANKED_BY)[name].mean)
    marked = tuple(replace(m, facts={"role": "baseline"} if m.name == last else m.facts) for m in run.manifest.methods)
    behind = task_findings(replace(run, manifest=replace(run.manifest, methods=marked)), task)
    assert "a plain baseline" not in " ".join(behind)


def test_a_verdict_against_the_best_is_not_one_of_every_pair(run: RunView) -> None:
    """Two methods may differ significantly from each other though neither does from the best."""
    order = ["deterministic", "mc-dropout", "deep-ensemble"]
    verdicts = {name: Verdict("tied", 0.01, 0.05, 0.5) for name in order[1:]}
    sentence = differences(run, order, {order[0]: Verdict("best", 0.0, None, None), **verdicts}, 1.0)
    assert sentence.startswith("No other method is significantly different from it: the next, MC dropout, is 0.01")


@pytest.mark.parametrize(
    ("value", "spread", "words"),
    [
        (0.99, 0.5, " raises the accuracy on the others from "),
        (0.2, 0.5, " lowers the accuracy on the others from "),
        (0.81, 0.5, " does not significantly change the accuracy on the others, "),
        (0.79, 0.5, " does not significantly change the accuracy on the others, "),
        (0.8, 0.5, " does not change the accuracy on the others, "),
        (0.99, None, "Whether referring its most uncertain 20% of examples changes the accuracy on the others is not "),
    ],
)
def test_referral_is_said_to_change_the_accuracy_where_examples_show_it(
    run: RunView, value: float, spread: float | None, words: str
) -> None:
    """Whatever was not zero was said to raise or to lower the accuracy, of uncertainties that say nothing, too."""
    task = run.tasks[0]
    best = leader(run, task)
    assert best is not None
    changed = {referral_name("referral_accuracy", 0.8): value, referral_name("referral_accuracy", 1.0): 0.8}
    scores = [
        replace(score, value=changed.get(score.metric, score.value))
        for score in run.scores.scores
        if (score.task, score.method) == (task.key, best)
    ]
    view = with_scores(run, scores)
    if spread is not None:
        facts = SimpleNamespace(key=task.key), SimpleNamespace(name=task.in_domain.name), SimpleNamespace(method=best)
        rows = np.random.default_rng(0).normal(size=400)
        own = {ACCURACY_CHANGE: value - 0.8 + spread * (rows - rows.mean())}
        view.scores.add_rows(*facts, own, None)  # type: ignore[arg-type]
    assert words in referral_gain(view, task)


def test_an_uncertainty_that_says_nothing_is_rarely_said_to_change_the_accuracy() -> None:
    """Of a fifth of errors that are anywhere in the order, it was said of all but one in fifty."""
    rng, said = np.random.default_rng(0), []
    for _ in range(8):
        labels = rng.integers(0, 2, 150)
        chosen = np.where(rng.random(150) < 0.2, 1 - labels, labels)
        logits = (1 + rng.random(150))[:, None] * np.eye(2)[chosen]
        system = open_systems({"system": Predictions(logits[None].astype(np.float32), labels)})
        view = build_report(system.source, system.manifest).run
        said.append(referral_gain(view, view.tasks[0]))
    assert sum("does not significantly change" in sentence for sentence in said) >= 7


@pytest.mark.parametrize(
    ("retained", "spread", "said"),
    [((0.5, 0.6), 0.5, True), ((0.5, 0.6), 10.0, False), ((0.5, 0.9), 0.5, False), ((0.75, 0.85), 0.5, False)],
)
def test_referral_that_harms_under_shift_is_among_the_first_findings(
    run: RunView, retained: tuple[float, float], spread: float, said: bool
) -> None:
    """Whoever reads the first sentences alone must hear that the shifted examples it is certain of are wrong.

    It is said where trainings and examples (400, whose changes have this spread) show it.
    """
    task = run.tasks[0]
    best, split = leader(run, task), task.of_kind("shift")[0].name
    assert best is not None
    values = {0.8: retained, 1.0: (0.7, 0.8)}
    scores = [
        Score(task.key, split, "shift", best, seed, None, referral_name("referral_accuracy", fraction), value)
        for fraction, own in values.items()
        for seed, value in enumerate(own)
    ]
    changed = with_scores(run, [*run.scores.scores, *scores])
    assert referral_harm(changed, task) == "", "without values per example nothing is known of their chance"
    generator = np.random.default_rng(0)
    for own, everything in zip(retained, values[1.0], strict=True):
        rows = generator.normal(size=400)
        rows = own - everything + spread * (rows - rows.mean())
        facts = SimpleNamespace(key=task.key), SimpleNamespace(name=split), SimpleNamespace(method=best)
        changed.scores.add_rows(*facts, {ACCURACY_CHANGE: rows}, None)  # type: ignore[arg-type]
    sentence = referral_harm(changed, task)
    assert bool(sentence) == said
    if said:
        words = f"Under shift, referring its most uncertain 20% lowers the accuracy on the others: on “{split}” from"
        assert sentence.startswith(words)
        assert sentence in task_findings(changed, task)[:3]


def test_a_best_method_that_was_trained_once_has_no_lead(run: RunView) -> None:
    """Methods that are not significantly different were called ties, and others trained once were not named at all."""
    board = in_domain_leaderboard(run, run.tasks[0], RANKED_BY)
    assert board is not None
    best, second, *others = board.order

    def beside(**places: str) -> str:
        verdicts = {name: Verdict(places.get(name.replace("-", "_"), "behind"), 0.1, None) for name in board.order[1:]}
        return not_worse(run, replace(board, verdicts={best: Verdict("best", 0.0, None), **verdicts}))

    assert beside() == ""
    assert beside(**{second.replace("-", "_"): "tied"}) == f"; not significantly different: {run.title(second)}"
    third = others[0].replace("-", "_")
    both = beside(**{second.replace("-", "_"): "tied", third: "unjudged"})
    assert both == f"; not significantly different: {run.title(second)}; not judged: {run.title(others[0])}"
    none = beside(**{name.replace("-", "_"): "unjudged" for name in board.order[1:]})
    assert none == "; differences are not judged"


@pytest.mark.parametrize("seeds", [(0,), (0, 1), (0, 1, 2, 3, 4)])
def test_the_same_predictions_are_called_so_whatever_the_order_of_the_command(seeds: tuple[int, ...]) -> None:
    """The method that was named first was the best, and its twin not significantly different, or not judged."""
    store, manifest = make_world(seeds)
    names = ("deterministic", "posthoc")
    for order in (names, names[::-1]):
        view = build_report(store, with_scores_on_features(store, manifest, "screening", order)).run
        sentence = best_method(view, view.tasks[0])
        assert sentence.startswith("Deterministic has the lowest calibrated NLL, ")
        assert sentence.endswith(". Post-hoc scores makes the same predictions.")
    report = build_report(store, with_scores_on_features(store, manifest, "screening", (*names, "mc-dropout")))
    table = next(block for block in blocks(report, "in-domain", report.run.tasks[0]) if isinstance(block, Table))
    assert {row.title: "†" in row.cells[0].spread for row in table.rows}["Post-hoc scores"] is False
    board = in_domain_leaderboard(report.run, report.run.tasks[0], RANKED_BY)
    assert board is not None
    assert board.same_as("deterministic") == ("posthoc",)
    assert "mc-dropout" not in board.same_as("posthoc")


def test_equal_scores_of_other_trainings_are_not_the_same_predictions() -> None:
    task = task_view("a", 2)
    view = run_with([task], {("a", "test", RANKED_BY): dict.fromkeys(("mc-dropout", "deterministic"), (0.5, 0.6))})
    assert "the same predictions" not in best_method(view, task)
    assert "has the same value" in best_method(view, task)


def test_the_only_method_that_was_judged_is_named(run: RunView) -> None:
    """It read "Every other method that was judged", of one."""
    order = ["deep-ensemble", "deterministic", "mc-dropout"]
    verdicts = {"deterministic": Verdict("behind", 0.2, 0.05, 0.01), "mc-dropout": Verdict("unjudged", 0.3, None)}
    sentence = differences(run, order, {order[0]: Verdict("best", 0.0, None), **verdicts}, 0.4)
    assert sentence.startswith(
        "Deterministic is significantly worse: it is 0.2 worse (smallest detectable difference 0.05). Not judged: MC"
    )


@pytest.mark.parametrize(("resolves", "words"), [(0.09, "No other method is significantly different"), (0.11, "few")])
def test_a_comparison_that_detects_only_large_differences_is_no_tie(
    run: RunView, resolves: float, words: str
) -> None:
    order = ["deterministic", "mc-dropout", "deep-ensemble"]
    verdicts = {name: Verdict("tied", 0.0006, resolves, 0.5) for name in order[1:]}
    sentence = differences(run, order, {order[0]: Verdict("best", 0.0, None), **verdicts}, 0.4)
    assert words in sentence
    assert f"the next, MC dropout, is 0.0006 worse (smallest detectable difference {resolves})" in sentence
    verdicts |= {"deep-ensemble": Verdict("behind", 0.3, 0.05, 0.01)}
    mixed = differences(run, order, {order[0]: Verdict("best", 0.0, None), **verdicts}, 0.4)
    assert mixed.endswith("Significantly worse: Deep ensemble.")
    assert ("There are too few trainings or test examples to compare it with MC dropout" in mixed) == (resolves > 0.1)


def test_a_baseline_is_said_to_lead_and_not_to_beat_what_is_not_worse() -> None:
    task = task_view("a", 2)
    view = run_with([task], {("a", "test", RANKED_BY): {"linear": (0.50, 0.55), "deterministic": (0.52, 0.56)}})
    marked = tuple(replace(m, facts={"role": "baseline"} if m.name == "linear" else {}) for m in view.manifest.methods)
    sentence = baseline_ahead(replace(view, manifest=replace(view.manifest, methods=marked)), task)
    start = "linear, a plain baseline, has the lowest calibrated NLL on a"
    assert sentence == f"{start}; no network is significantly better."


def test_an_area_below_chance_is_not_announced_as_the_highest() -> None:
    task = task_view("a", 2, away=(("novel", "ood"),))
    view = run_with([task], {("a", "novel", AUROC): {"deterministic": (0.39, 0.40), "mc-dropout": (0.36, 0.37)}})
    sentence = detection(view, task)
    assert sentence.startswith("No method has an AUROC of detection by confidence above chance (0.5) on “novel” (the ")
    assert "Highest" not in sentence
    better = run_with([task], {("a", "novel", AUROC): {"deterministic": (0.79, 0.80), "mc-dropout": (0.76, 0.77)}})
    assert detection(better, task).startswith("Highest AUROC of detection by confidence (0.5 is chance): “novel” 0.7")
