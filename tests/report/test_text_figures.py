from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr
from sklearn import metrics as sk

from dubio.metrics.quantities import uncertainty
from dubio.registry import METRICS
from dubio.report import Results, score_run
from dubio.report.across import FEWEST_SETS, ranking_words, rankings_of
from dubio.report.figures.architectures import architectures_of, architectures_reading
from dubio.report.figures.canvas import inline_svg
from dubio.report.figures.catalogue import plates, plates_across
from dubio.report.figures.clouds import mean_of
from dubio.report.figures.correlations import correlations_across, correlations_of, correlations_reading
from dubio.report.figures.diversity import diversity_of, diversity_reading
from dubio.report.figures.drawn_from import Subject, densities_of
from dubio.report.figures.epochs import epochs_of, epochs_reading
from dubio.report.figures.growing import ACCURACY, NLL, sized_of
from dubio.report.figures.likelihoods import likelihoods_of
from dubio.report.figures.rates import rates_of, rates_reading
from dubio.report.figures.ridges import ridges_of
from dubio.report.figures.spectral import multiplied_of, multiplied_reading
from dubio.report.figures.transfer import transfer_of
from dubio.report.measures import DETECTED_BY, GAP, detection_name
from dubio.report.sizes import grow_at_home, pools_of
from dubio.report.sketches import CORRECT, INCORRECT, shares
from dubio.types import Predictions, join, pool_members

from .text_world import MULTIPLIERS, SITES, make_text_world
from .world import FakeStore

World = tuple[FakeStore, dict[str, Any]]
NEW = ("diversity", "size", "rates", "spectral", "epochs", "ridges-elsewhere", "correlation-elsewhere", "transfer")
EVIL = '<script>alert("x")</script>&$\\frac{$'


@pytest.fixture(scope="module")
def text_world() -> World:
    return make_text_world()


@pytest.fixture(scope="module")
def scored(text_world: World) -> Results:
    return score_run(*text_world)


def subject(results: Results, key: str) -> Subject:
    return Subject(results, next(task for task in results.manifest.tasks if task.key == key))


def stored(world: World, task: str, method: str, split: str, network: str | None = None) -> list[Predictions]:
    store, manifest = world
    return [
        store.predictions[run["id"], split]
        for run in manifest["runs"]
        if (run["task"], run["method"]) == (task, method) and network in (None, run["network"])
    ]


# --- scores ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["ood_auroc", "ood_aupr", "id_aupr", "ood_fpr95", "ood_correlation"])
@pytest.mark.parametrize("quantity", DETECTED_BY)
def test_every_quantity_is_scored_by_every_detection_metric(
    text_world: World, scored: Results, metric: str, quantity: str
) -> None:
    if quantity == "data_uncertainty":
        assert not any(score.metric == detection_name(metric, quantity) for score in scored.scores)
        return
    both = [
        join(list(pair))
        for pair in zip(
            stored(text_world, "digits", "mc-dropout-ensemble", "test"),
            stored(text_world, "digits", "mc-dropout-ensemble", "novel"),
            strict=True,
        )
    ]
    made = METRICS.make(metric, quantity=quantity)
    cell = scored.cells["digits", "novel", "mc-dropout-ensemble", made.name]
    assert cell.values == pytest.approx([made.compute(each) for each in both])
    assert scored.better[made.name] == made.better


def test_the_gap_is_the_accuracy_lost_under_shift_and_does_not_rank(text_world: World, scored: Results) -> None:
    home, away = (stored(text_world, "digits", "deterministic", split) for split in ("test", "blur-3"))
    expected = [
        np.mean(a.probs.argmax(axis=1) == a.labels) - np.mean(b.probs.argmax(axis=1) == b.labels)
        for a, b in zip(home, away, strict=True)
    ]
    assert scored.cells["digits", "blur-3", "deterministic", GAP].values == pytest.approx(expected)
    assert GAP in scored.not_ranked
    assert not any(score.metric == GAP and score.kind == "ood" for score in scored.scores)


# --- densities -------------------------------------------------------------------------------------------------------


def test_densities_are_histograms_of_right_wrong_and_foreign_examples(text_world: World, scored: Results) -> None:
    panels = {panel.look.title: panel for panel in densities_of(subject(scored, "digits"), "novel")}
    panel, edges = panels["MC dropout"], panels["MC dropout"].edges
    home, away = (stored(text_world, "digits", "mc-dropout", split) for split in ("test", "novel"))

    def cumulative(predictions: list[Predictions], kept: list[np.ndarray]) -> np.ndarray:
        each = [
            np.histogram(-(p.probs * np.log(p.probs)).sum(axis=1)[rows] / np.log(4), edges)[0] / rows.sum()
            for p, rows in zip(predictions, kept, strict=True)
        ]
        return np.cumsum(np.mean(each, axis=0))

    right = [p.probs.argmax(axis=1) == p.labels for p in home]
    everything = [np.ones(len(p), dtype=bool) for p in away]
    assert np.cumsum(panel.groups.correct) == pytest.approx(cumulative(home, right), abs=1 / 400 + 1e-9)
    wrong = cumulative(home, [~each for each in right])
    assert np.cumsum(panel.groups.incorrect) == pytest.approx(wrong, abs=1 / 400 + 1e-9)
    assert np.cumsum(panel.groups.outside) == pytest.approx(cumulative(away, everything), abs=1 / 400 + 1e-9)


def test_ridges_hold_each_quantity_of_the_methods_that_have_it(text_world: World, scored: Results) -> None:
    found = {ridge.title: ridge for ridge in ridges_of(subject(scored, "digits"), "novel")}
    assert set(found) == {"1 − confidence", "predictive\nentropy", "mutual\ninformation", "model\nuncertainty"}
    ridge = found["mutual\ninformation"]
    groups = {look.title: groups for look, groups in ridge.methods}
    assert groups["Deterministic"] is None
    each = [uncertainty(p, "mutual_information") for p in stored(text_world, "digits", "mc-dropout", "novel")]
    expected = np.mean([np.histogram(np.clip(v, 0, ridge.edges[-1]), ridge.edges)[0] / len(v) for v in each], axis=0)
    assert groups["MC dropout"] is not None
    assert np.cumsum(groups["MC dropout"].outside) == pytest.approx(np.cumsum(expected), abs=1 / 400 + 1e-9)


def test_shares_add_up_whatever_the_edges() -> None:
    values = np.random.default_rng(0).normal(size=(3, 200))
    assert shares(values, np.linspace(-0.1, 0.1, 5)).sum() == pytest.approx(1.0)


# --- ensembles -------------------------------------------------------------------------------------------------------


def three_members(rows: int = 240, classes: int = 3) -> list[Predictions]:
    rng = np.random.default_rng(1)
    labels = rng.integers(0, classes, rows)
    return [
        Predictions((2 * np.eye(classes)[labels] + rng.normal(0, 2, (4, rows, classes))).astype(np.float32), labels)
        for _ in range(3)
    ]


def test_growing_ensembles_are_those_of_all_orders_of_their_members() -> None:
    members = three_members()
    grown = grow_at_home(pool_members(members))
    assert grown is not None
    for size in (1, 2, 3):
        # A circle of three has every pair: the mean over the circle is the mean over all orders.
        pooled = [pool_members([members[i] for i in order[:size]]) for order in permutations(range(3))]
        right = np.mean([(p.probs.argmax(axis=1) == p.labels).mean() for p in pooled])
        nll = np.mean([METRICS.make("calibrated_nll").compute(p) for p in pooled])
        assert grown.growth.accuracy[:, size - 1].mean() == pytest.approx(right, abs=1e-9)
        assert grown.growth.nll[:, size - 1].mean() == pytest.approx(nll, abs=1e-5)


@pytest.mark.parametrize("members", [2, 3, 5])
def test_every_member_is_in_as_many_ensembles_of_a_size_and_first_once(members: int) -> None:
    pools = pools_of(members)
    assert len(pools) == len({frozenset(pool) for pool in pools}) == members * (members - 1) + 1
    for size in range(1, members):
        sized = [pool for pool in pools if len(pool) == size]
        assert sorted(pool[0] for pool in sized) == list(range(members))
        counts = np.bincount([member for pool in sized for member in pool])
        assert (counts == size).all()


def test_one_member_or_one_example_does_not_grow() -> None:
    assert grow_at_home(three_members()[0]) is None
    assert grow_at_home(pool_members([member.take(np.array([0])) for member in three_members()])) is None


def test_the_whole_ensemble_of_the_figure_is_that_of_the_table(text_world: World, scored: Results) -> None:
    panels = {panel.title: panel for panel in sized_of(subject(scored, "digits"))}
    assert set(panels) == {ACCURACY, NLL, "AUROC, novel", "AUROC, blur-5", "AUROC, noise-5"}
    places = {ACCURACY: ("test", "accuracy"), NLL: ("test", "calibrated_nll"), "AUROC, novel": ("novel", "ood_auroc")}
    for title, (split, metric) in places.items():
        assert [series.look.ensemble for series in panels[title].series] == [True] * 3
        cell = scored.cells["digits", split, "mc-dropout-ensemble", metric]
        series = next(series for series in panels[title].series if series.look.title == "MC dropout ensemble")
        assert series.mean[-1] == pytest.approx(cell.mean, abs=1e-5)
        single = scored.cells["digits", split, "mc-dropout", metric]
        assert series.mean[0] == pytest.approx(single.mean, abs=1e-5)


def test_multilabel_ensembles_grow_by_their_probabilities() -> None:
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 2, (90, 4))
    members = [
        Predictions((3 * labels - 1.5 + rng.normal(0, 1.5, (3, 90, 4))).astype(np.float32), labels, "multilabel")
        for _ in range(2)
    ]
    grown = grow_at_home(pool_members(members))
    assert grown is not None
    pooled = np.mean([1 / (1 + np.exp(-m.logits.astype(float))) for m in members], axis=(0, 1))
    assert grown.growth.accuracy[0, -1] == pytest.approx(((pooled > 0.5) == labels).all(axis=1).mean())


# --- clouds ----------------------------------------------------------------------------------------------------------


def test_diversity_is_drawn_against_accuracy_where_something_is_pooled(scored: Results) -> None:
    cloud = diversity_of(subject(scored, "digits"))
    assert cloud is not None
    titles = {m.title: m.name for m in scored.manifest.methods}
    assert "Deterministic" not in {point.look.title for point in cloud.points}
    for point in cloud.points:
        name = titles[point.look.title]
        assert mean_of(point.x) == pytest.approx(scored.cells["digits", "test", name, "diversity"].mean)
        assert mean_of(point.y) == pytest.approx(scored.cells["digits", "test", name, "accuracy"].mean)
    expected = spearmanr([mean_of(p.x) for p in cloud.points], [mean_of(p.y) for p in cloud.points]).statistic
    assert f"{expected:+.2f}".replace("-", "−") in diversity_reading(cloud)


def test_detection_is_drawn_against_accuracy_only_where_shifted_data_have_labels(
    text_world: World, scored: Results
) -> None:
    assert transfer_of(subject(scored, "screening")) == []
    panels = {panel.title: panel for panel in transfer_of(subject(scored, "digits"))}
    assert set(panels) == {"digits → blur, at its worst", "digits → noise, at its worst"}
    point = next(p for p in panels["digits → blur, at its worst"].points if p.look.title == "Deterministic")
    home, away = (stored(text_world, "digits", "deterministic", split) for split in ("test", "blur-5"))
    areas = [
        sk.roc_auc_score(np.repeat([0, 1], [len(a), len(b)]), -np.concatenate([a.probs.max(1), b.probs.max(1)]))
        for a, b in zip(home, away, strict=True)
    ]
    assert point.y == pytest.approx(areas, abs=1e-4)  # confidences that round to one are tied in 1 − max p
    assert point.x == pytest.approx([(p.probs.argmax(axis=1) == p.labels).mean() for p in away])


def test_likelihoods_are_those_of_the_table(scored: Results) -> None:
    cloud = likelihoods_of(subject(scored, "screening"))
    assert cloud is not None
    names = {m.title: m.name for m in scored.manifest.methods}
    for point in cloud.points:
        cells = [scored.cells["screening", "test", names[point.look.title], m] for m in ("nll", "calibrated_nll")]
        assert (mean_of(point.x), mean_of(point.y)) == pytest.approx([cell.mean for cell in cells])


# --- correlations ----------------------------------------------------------------------------------------------------


def test_correlations_are_pearsons_of_the_quantity_as_defined(text_world: World, scored: Results) -> None:
    heat = correlations_of(subject(scored, "digits"), "novel")
    assert heat is not None
    home, away = (stored(text_world, "digits", "deep-ensemble", split)[0] for split in ("test", "novel"))
    flag = np.repeat([0.0, 1.0], [len(home), len(away)])
    confidence = np.concatenate([home.probs.max(axis=1), away.probs.max(axis=1)])
    information = np.concatenate([uncertainty(p, "mutual_information") for p in (home, away)])
    row = heat.rows.index("Deep ensemble")
    at = {name: heat.values[row, column] for column, name in enumerate(heat.quantities)}
    assert at["confidence"] == pytest.approx(pearsonr(confidence, flag).statistic)
    assert at["confidence"] < 0
    assert at["mutual_information"] == pytest.approx(pearsonr(information, flag).statistic)
    assert np.isnan(heat.values[heat.rows.index("Deterministic"), heat.quantities.index("mutual_information")])
    assert "data_uncertainty" not in heat.quantities


def test_correlations_everywhere_are_means_over_methods(scored: Results) -> None:
    subjects = [Subject(scored, task) for task in scored.manifest.tasks]
    heat, single = correlations_across(subjects), correlations_of(subject(scored, "digits"), "novel")
    assert heat is not None
    assert single is not None
    means = np.nanmean(single.values, axis=0)
    assert heat.values[heat.rows.index("digits → novel")] == pytest.approx(means)
    assert "goes most with being foreign" in correlations_reading(heat)
    assert correlations_of(subject(scored, "screening"), "test") is None


# --- trainings -------------------------------------------------------------------------------------------------------


def test_rates_are_those_of_the_records_where_they_were_learned(text_world: World, scored: Results) -> None:
    store, manifest = text_world
    found = rates_of(subject(scored, "digits"))
    assert found is not None
    assert found.sites == ("K1", "K2", "K3", "μ")
    assert [look.title for look, _ in found.methods] == ["MC concrete dropout"]
    runs = [r for r in manifest["runs"] if (r["task"], r["method"]) == ("digits", "mc-concrete-dropout")]
    expected = np.array([[store.records[run["fits"][0]]["rates"][site] for site in SITES] for run in runs])
    assert found.methods[0][1] == pytest.approx(expected)
    assert f"{expected.mean(axis=0).max():.3f}" in rates_reading([found])


def test_epochs_are_those_of_the_records_every_fit_once(text_world: World, scored: Results) -> None:
    store, manifest = text_world
    found = epochs_of(subject(scored, "digits"))
    assert found is not None
    titles = [look.title for look, _ in found.methods]
    assert titles == ["Deterministic", "MC dropout", "MC concrete dropout"]
    fits = {fit for run in manifest["runs"] if run["task"] == "digits" for fit in run["fits"]}
    assert sum(epochs.size for _, epochs in found.methods) == len(fits)
    runs = [r for r in manifest["runs"] if (r["task"], r["method"]) == ("digits", "deterministic")]
    expected = [store.records[run["fits"][0]]["best_epoch"] for run in runs]
    assert sorted(found.methods[0][1]) == sorted(expected)
    means = {look.title: epochs.mean() for look, epochs in found.methods}
    assert epochs_reading([found]).startswith(min(means, key=lambda title: means[title]))


def test_the_multiplier_is_that_of_the_recipe_not_of_the_name(text_world: World, scored: Results) -> None:
    panels = {panel.title: panel for panel in multiplied_of(subject(scored, "reviews (textcnn)"))}
    assert set(panels) == {"AUROC, elsewhere", "Accuracy", "Calibrated NLL"}
    (line,) = panels["Accuracy"].lines
    assert tuple(line.s) == MULTIPLIERS
    assert line.look.title == "bounded"
    for name, values in zip(("bounded-a", "bounded-b", "bounded-c"), line.runs, strict=True):
        right = [(p.probs.argmax(axis=1) == p.labels).mean() for p in stored(text_world, "reviews", name, "test")]
        assert values == pytest.approx(right)
    best = max(range(3), key=lambda place: panels["AUROC, elsewhere"].lines[0].runs[place].mean())
    assert f"best at s = {MULTIPLIERS[best]:g}" in multiplied_reading(list(panels.values()))


# --- networks and ranks ----------------------------------------------------------------------------------------------


def test_networks_that_share_a_task_are_paired_by_method(text_world: World, scored: Results) -> None:
    (found,) = architectures_of(scored)
    assert (found.task, found.networks) == ("reviews", ("textcnn", "bert"))
    assert [look.title for look in found.looks] == ["Deterministic"]
    (values,) = found.columns[0].values
    for network in found.networks:
        right = [
            (p.probs.argmax(axis=1) == p.labels).mean()
            for p in stored(text_world, "reviews", "deterministic", "test", network)
        ]
        assert values[network] == pytest.approx(np.mean(right))
    assert architectures_reading(found).startswith("bert is better than textcnn in accuracy for ")


def test_each_metric_ranks_over_the_test_sets_it_is_meant_for(results: Results) -> None:
    found = {ranking.slug: ranking for ranking in rankings_of(results)}
    assert set(found) == {"ranks", "ranks-brier", "ranks-accuracy", "ranks-shift", "ranks-shift-accuracy"}
    assert len(found["ranks-brier"].comparison.datasets) == 3
    shifted = found["ranks-shift"].comparison
    assert set(shifted.datasets) == {"digits/blur-5", "digits/noise-5", "reviews/elsewhere"}
    places = [("digits", "blur-5"), ("digits", "noise-5"), ("reviews", "elsewhere")]
    table = np.array([
        [-results.cells[task, split, m.name, "ood_auroc"].mean for m in results.manifest.methods]
        for task, split in places
    ])  # fmt: skip
    ranks = table.argsort(axis=1).argsort(axis=1).mean(axis=0) + 1
    assert [shifted.average_ranks[m.title] for m in results.manifest.methods] == pytest.approx(ranks)
    assert "over three shifted test sets" in ranking_words(found["ranks-shift"])


def test_two_test_sets_are_the_fewest_that_rank(results: Results) -> None:
    assert FEWEST_SETS == 2
    manifest = results.manifest
    two = replace(results, manifest=replace(manifest, tasks=manifest.tasks[:2]))
    assert "ranks" in {ranking.slug for ranking in rankings_of(two)}
    one = replace(results, manifest=replace(manifest, tasks=manifest.tasks[1:2]))
    assert rankings_of(one) == ()


def test_a_task_counts_once_and_test_sets_of_few_methods_do_not(scored: Results) -> None:
    ranking = rankings_of(scored)[0]
    assert set(ranking.comparison.datasets) == {"digits/test", "screening/test", "reviews (textcnn)/test"}
    assert ranking.left_out == ("bounded-a", "bounded-b", "bounded-c")
    cells = {key: cell for key, cell in scored.cells.items() if key[0] != "screening" or key[2] == "deterministic"}
    fewer = replace(scored)
    fewer.__dict__["cells"] = cells
    ranking = rankings_of(fewer)[0]
    assert ranking.sparse == ("screening/test",)
    assert "screening/test" in ranking_words(ranking)


def test_a_method_that_lacks_a_test_set_is_left_out_and_said_so(results: Results) -> None:
    cells = {
        key: cell for key, cell in results.cells.items() if (key[0], key[2]) != ("screening", "mc-concrete-dropout")
    }
    fewer = replace(results)
    fewer.__dict__["cells"] = cells
    ranking = rankings_of(fewer)[0]
    assert "MC concrete dropout" not in ranking.comparison.average_ranks
    assert ranking.left_out == ("MC concrete dropout",)
    assert "Left out, for want of a value somewhere: MC concrete dropout." in ranking_words(ranking)


# --- what is shown ---------------------------------------------------------------------------------------------------


def test_figures_appear_only_where_their_data_are(results: Results, scored: Results) -> None:
    drawn = {task.key: {plate.slug for plate in plates(scored, task)} for task in scored.manifest.tasks}
    bare = {task.key: {plate.slug for plate in plates(results, task)} for task in results.manifest.tasks}
    assert {"rates", "epochs"} <= drawn["digits"]
    assert not {"rates", "epochs", "spectral"} & bare["digits"]
    assert "spectral" in drawn["reviews (textcnn)"]
    assert "spectral" not in drawn["digits"]
    assert not {"transfer", "correlation-novel", "ridges-novel"} & drawn["screening"]
    assert {"correlation-novel", "ridges-novel", "transfer"} <= drawn["digits"]
    assert not {"size", "diversity"} & drawn["reviews (bert)"]
    across = {plate.slug for plate in plates_across(scored)}
    assert {"networks-reviews", "likelihood", "transfer", "correlation", "rates", "epochs"} <= across
    assert not {"networks-reviews", "rates", "epochs"} & {plate.slug for plate in plates_across(results)}


def test_every_new_figure_is_drawn_and_says_what_is_seen(scored: Results) -> None:
    new = ("diversity", "size", "rates", "spectral", "epochs", "ridges", "correlation", "transfer", "density")
    shown = [plate for task in scored.manifest.tasks for plate in plates(scored, task) if plate.slug.startswith(new)]
    shown += list(plates_across(scored))
    assert {plate.slug.partition("-")[0] for plate in shown} >= {*new, "networks", "likelihood", "ranks"}
    for plate in shown:
        assert plate.reading.endswith(".")
        assert "nan" not in plate.reading
    one_each = {plate.slug.partition("-")[0]: plate for plate in shown}
    for plate in one_each.values():
        assert len(list(ElementTree.fromstring(inline_svg(plate.draw())).iter())) > 50


def test_names_stay_text_in_every_new_figure() -> None:
    store, manifest = make_text_world()
    kept = ("deterministic", "mc-concrete-dropout", "deep-ensemble", "bounded-a", "bounded-b")
    manifest["methods"] = [method for method in manifest["methods"] if method["name"] in kept]
    manifest["tasks"] = [task for task in manifest["tasks"] if task["name"] == "reviews"]
    manifest["runs"] = [run for run in manifest["runs"] if run["task"] == "reviews" and run["method"] in kept]
    for place, method in enumerate(manifest["methods"]):
        method["title"] = f"{EVIL}{place}"
    for run in manifest["runs"]:
        run["task"], run["network"] = EVIL, f"{run['network']}{EVIL}"
    for task in manifest["tasks"]:
        task["name"], task["network"] = EVIL, f"{task['network']}{EVIL}"
    for record in store.records.values():
        if "rates" in record:
            record["rates"] = {EVIL: 0.3}
    found = score_run(store, manifest)
    first = [plate for plate in plates(found, found.manifest.tasks[0]) if plate.slug in NEW]
    across = list(plates_across(found))
    assert {plate.slug for plate in first} == set(NEW)
    assert {"likelihood", "correlation"} <= {plate.slug for plate in across}
    for plate in (*first, *across):
        drawn = ElementTree.fromstring(inline_svg(plate.draw()))
        assert "script" not in {element.tag.rpartition("}")[2] for element in drawn.iter()}
        assert any("<script>" in text for text in drawn.itertext())


def test_sketches_keep_right_and_wrong_apart(text_world: World, scored: Results) -> None:
    (home,) = stored(text_world, "screening", "deep-ensemble", "test")
    right = home.probs.argmax(axis=1) == home.labels
    doubt = 1 - home.probs.max(axis=1)
    for group, rows in ((CORRECT, right), (INCORRECT, ~right)):
        (sketch,) = scored.sketches["screening", group, "deep-ensemble", "confidence"]
        assert np.median(sketch) == pytest.approx(np.quantile(doubt[rows], 0.5), abs=0.02)
        assert sketch.min() >= doubt[rows].min() - 1e-9
        assert sketch.max() <= doubt[rows].max() + 1e-9
