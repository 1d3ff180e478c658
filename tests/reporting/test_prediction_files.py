"""Reports of systems that are known by their predictions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dubio
from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.types import Target
from dubio.metrics.metric import metric_named
from dubio.reporting import reported
from dubio.reporting.charts import drawn
from dubio.reporting.measures import detection_name
from dubio.reporting.page import render
from dubio.reporting.prediction_files import Systems, name_of_files, open_evaluation, open_systems, unique_names
from dubio.reporting.section import Figure, Text, Widget
from dubio.reporting.style import SPARE
from dubio.reporting.tables import Table
from dubio.statistics.paired import pair_tests
from tests.reporting.helpers import EVIL, blocks, of_kind, sort_values
from tests.reporting.systems import every_block, named_rows, system, systems, words_of, write_npz, write_rows

METHODS = re.compile(r"\b(methods?|runs?|seeds?|--seeds|networks?|cheaper)\b", re.IGNORECASE)
"""Words that say something of a benchmark run; of prediction files they would be wrong."""


@pytest.fixture(scope="module")
def opened() -> Systems:
    """Three systems on a test set with groups and sites, a calibration set, two shifted ones and novel examples."""
    return open_systems(
        systems(300, "abc", **named_rows(300, "t")),
        cal=systems(200, "abc", **named_rows(200, "c")),
        shift={"rain": systems(150, "abc", harder=0.8), "fog": systems(160, "abc", harder=0.5)},
        ood={"novel": systems(120, "abc", harder=1.4, labels=False)},
        title="flowers",
    )


def test_systems_are_the_rows_of_every_section_that_has_data(opened: Systems) -> None:
    report = opened.built
    task = report.tasks[0]
    assert task.key == "flowers"
    assert [method.name for method in report.run.methods_of(task)] == ["a", "b", "c"]
    (table,) = of_kind(blocks(report, "in-domain", task), Table)
    assert [row.title for row in table.rows] == ["a", "b", "c"]
    assert table.first == "System"
    shown = {name for name, own in every_block(report).items() if own}
    assert {"findings", "in-domain", "referral", "policies", "shift", "densities", "subgroups", "setup"} <= shown


def test_sections_on_cost_and_advice_are_empty(opened: Systems) -> None:
    shown = every_block(opened.built)
    for name in ("advice", "cost", "text-training", "failures", "ensembles", "paper", "as-published"):
        assert shown[name] == (), name
    document = opened.built.document()
    assert document["costs"] == []
    assert document["advice"] == []


def test_no_sentence_speaks_of_methods_runs_or_seeds(opened: Systems) -> None:
    texts = words_of(block for own in every_block(opened.built).values() for block in own)
    assert [text for text in texts if METHODS.search(text)] == []
    assert not METHODS.search(str(opened))
    assert any("these trained systems differ" in text for text in texts)
    assert not any("rows of a table" in text for text in texts)  # what they are about is not known
    first = words_of(every_block(opened.built)["overview"])
    assert [text for text in first if re.search(r"\b([Bb]aselines?|[Tt]rain\w*|Mean|the mean)\b", text)] == []


def test_systems_have_the_spare_colours(opened: Systems) -> None:
    styles = opened.built.run.styles
    assert [(styles[name].colour, styles[name].marker) for name in "abc"] == list(SPARE[:3])


@pytest.mark.parametrize("target", ["multiclass", "multilabel", "ordinal"])
@pytest.mark.parametrize("classes", [2, 4])
def test_scores_and_intervals_are_those_of_evaluate(target: Target, classes: int) -> None:
    own = systems(120, classes=classes, target=target)
    far = systems(60, classes=classes, target=target, harder=1.5)
    report = open_systems(own, ood={"far": far}).built
    compared = dubio.compare(own, ood=far)
    task = report.tasks[0]
    common = 0
    for name, evaluation in compared.evaluations.items():
        for metric, score in evaluation.scores.items():
            split = "far" if metric.startswith(("ood_", "id_")) else "test"
            metric = detection_name(metric, "confidence") if split == "far" else metric
            cell = report.run.scores.cell(task, split, name, metric)
            if cell is None:
                continue
            common += 1
            assert cell.mean == pytest.approx(score.value, rel=1e-12), metric
            if split == "test" and cell.interval is not None:
                ends = cell.interval.low, cell.interval.high
                assert ends == pytest.approx((score.low, score.high), rel=1e-12, nan_ok=True), metric
    assert common >= 20


def test_verdicts_are_those_of_the_paired_tests_of_evaluate(opened: Systems) -> None:
    own = systems(300, "abc", **named_rows(300, "t"))
    scores, task = opened.results, opened.built.tasks[0]
    names = ("calibrated_nll", "accuracy", "brier", "aurc", "macro_f1")
    tests = pair_tests(own, [metric_named(name) for name in names], replicates=200)
    for metric in names:
        pairs = scores.pairs(task, "test", metric)
        assert pairs.question == "systems"
        assert [test.adjusted_p for test in pairs.tests] == pytest.approx(
            [t.adjusted_p for t in tests[metric]], rel=1e-9
        )
        assert [test.better for test in pairs.tests] == [test.better for test in tests[metric]]
    assert {row["question"] for row in opened.built.document()["standing"]} == {"systems"}


def test_the_table_shows_the_values_with_their_intervals(opened: Systems) -> None:
    report = opened.built
    (table,) = of_kind(blocks(report, "in-domain", report.tasks[0]), Table)
    accuracy = np.mean(systems(300)["a"].logits[0].argmax(1) == systems(300)["a"].labels)
    assert float(sort_values(table, "Accuracy")["a"]) == pytest.approx(accuracy, rel=1e-8)
    index = next(k for k, column in enumerate(table.columns) if column.title == "Accuracy")
    assert re.fullmatch(r"\[0\.\d{3}, [01]\.\d{3}\]( †)?", table.rows[0].cells[index].spread)
    assert "Runs" not in [column.title for column in table.columns]
    assert "95 % intervals" in table.caption


def test_detection_on_shifted_and_novel_examples_is_judged_by_every_uncertainty(opened: Systems) -> None:
    scores, task = opened.results, opened.built.tasks[0]
    for quantity in ("confidence", "predictive_entropy"):
        verdicts = scores.verdicts(task, "novel", detection_name("ood_auroc", quantity))
        assert set(verdicts) == {"a", "b", "c"}


def test_the_interval_of_detection_is_that_of_delong(opened: Systems) -> None:
    report, metric = opened.built, detection_name("ood_auroc", "confidence")
    plain = open_systems(systems(300, "ab"), ood={"novel": systems(120, "ab", harder=1.4, labels=False)})
    own = plain.results.intervals(plain.built.tasks[0], ("novel",), metric)["a"]
    inside = 1 - systems(300, "ab")["a"].probs.max(axis=1)
    outside = 1 - systems(120, "ab", harder=1.4, labels=False)["a"].probs.max(axis=1)
    wins = (outside[:, None] > inside) + 0.5 * (outside[:, None] == inside)
    error = np.sqrt(wins.mean(axis=1).var(ddof=1) / 120 + wins.mean(axis=0).var(ddof=1) / 300)
    assert own.value == pytest.approx(wins.mean())
    assert (own.high - own.low) / 2 == pytest.approx(1.98 * error, rel=0.02)  # t of the smaller side, 119
    (table,) = [block for block in of_kind(blocks(report, "overview", report.tasks[0]), Table) if block.matrix]
    cells = {c.title: [row.cells[k] for row in table.rows] for k, c in enumerate(table.columns)}
    assert all(cell.spread.startswith("[") for title in ("OOD", "Shift") for cell in cells[title])


def test_policies_are_fitted_on_the_calibration_set(opened: Systems) -> None:
    document = opened.built.document()
    assert {row["method"] for row in document["risk_policies"]} == {"a", "b", "c"}
    assert {result["split"] for result in document["capacity_policies"][0]["results"]} >= {"test", "rain", "fog"}


def test_subgroups_come_from_the_columns_of_the_files(opened: Systems) -> None:
    rows = opened.built.document()["subgroups"]
    assert {(row["fact"], row["value"]) for row in rows} == {("site", "north"), ("site", "south")}


@pytest.mark.parametrize("target", ["multiclass", "multilabel"])
def test_two_files_of_different_formats_make_a_report(tmp_path: Path, target: Target) -> None:
    own = systems(60, target=target, ids=np.array([f"r{k}" for k in range(60)]))
    first = write_npz(tmp_path / "first.npz", own["a"])
    if target == "multilabel":
        second = write_npz(tmp_path / "second.npz", own["b"])
        read = {name: dubio.read_predictions(path, target=target) for name, path in (("a", first), ("b", second))}
        assert open_systems(read).built.tasks[0].target == "multilabel"
        return
    pytest.importorskip("pyarrow")
    others = {ending: write_rows(tmp_path / f"x.{ending}", own["b"]) for ending in ("csv", "jsonl", "parquet")}
    report = open_systems({"npz": first, **others}).built
    cells = [report.run.scores.cell(report.tasks[0], "test", name, "nll") for name in ("csv", "jsonl", "parquet")]
    expected = dubio.evaluate(own["b"], metrics=["nll"], replicates=0)["nll"]
    assert [cell and cell.mean for cell in cells] == pytest.approx([expected] * 3, rel=1e-5)


def test_rows_in_another_order_are_aligned_by_their_ids() -> None:
    own = systems(80, ids=np.array([f"r{k}" for k in range(80)]))
    shuffled = {"a": own["a"], "b": own["b"].take(np.random.default_rng(0).permutation(80))}
    scores = [open_systems(order).results.scores for order in (own, shuffled)]
    assert [score.value for score in scores[0]] == pytest.approx([score.value for score in scores[1]], nan_ok=True)


def test_rows_flagged_as_out_of_distribution_are_a_test_set_of_their_own() -> None:
    flags = np.arange(90) >= 60
    report = open_systems(systems(90, ood=flags)).built
    splits = {split.name: (split.kind, split.examples) for split in report.tasks[0].splits}
    assert splits == {"test": ("id", 60), "ood": ("ood", 30)}
    evaluation = dubio.evaluate(systems(90, ood=flags)["a"], metrics=["ood_auroc", "accuracy"], replicates=0)
    cell = report.run.scores.cell(report.tasks[0], "ood", "a", detection_name("ood_auroc", "confidence"))
    assert cell is not None
    assert cell.mean == pytest.approx(evaluation["ood_auroc"])
    assert report.run.scores.row(report.tasks[0], "test", "accuracy")["a"].mean == evaluation["accuracy"]


MEMBERS: dict[str, Any] = {"samples": 3, "member": np.arange(3)}
MISSING: dict[str, Any] = {
    "no labels, novel examples": lambda: open_systems(
        systems(80, labels=False, samples=3), ood={"far": systems(40, labels=False, samples=3)}
    ),
    "two classes, no labels, a calibration set without labels": lambda: open_systems(
        systems(80, classes=2, labels=False),
        shift={"rain": systems(60, classes=2)},
        cal=systems(70, classes=2, labels=False),
    ),
    "one system": lambda: open_systems(system(80, 1.5)),
    "labels of one class": lambda: open_systems(
        Predictions(np.random.default_rng(0).normal(size=(1, 30, 2)).astype(np.float32), np.zeros(30, dtype=np.int64))
    ),
    "one row": lambda: open_systems(systems(1), ood={"far": systems(1, harder=1.0)}),
    "every row out of distribution": lambda: open_systems(systems(40, ood=np.ones(40, dtype=bool))),
    "members": lambda: open_systems(systems(60, **MEMBERS), ood={"far": systems(40, **MEMBERS)}),
    "unlabelled members": lambda: open_systems(
        systems(60, labels=False, **MEMBERS), ood={"far": systems(40, **MEMBERS)}
    ),
    "no errors at all": lambda: open_systems(systems(60, harder=-30.0), cal=systems(50, harder=-30.0)),
    "the same system twice": lambda: open_systems({"a": system(60, 1.0), "b": system(60, 1.0)}),
    "a zero probability": lambda: open_systems({"a": _impossible(), "b": system(40, 1.0)}),
}  # fmt: skip


def _impossible() -> Predictions:
    own = system(40, 1.0)
    logits = own.logits.copy()
    logits[0, 3, own.labels[3]] = -np.inf
    return Predictions(logits, own.labels)


@pytest.mark.parametrize("case", MISSING)
def test_a_page_without_some_data_lacks_those_sections_alone(case: str) -> None:
    opened = MISSING[case]()
    texts = words_of(block for own in every_block(opened.built).values() for block in own)
    assert texts
    assert [text for text in texts if METHODS.search(text)] == []
    opened.built.document()
    assert str(opened)


def test_predictions_of_which_nothing_can_be_scored_are_refused() -> None:
    with pytest.raises(UserError, match="labels: no row has one"):
        open_systems(systems(30, labels=False))


def test_hostile_and_colliding_names_stay_apart() -> None:
    names = [EVIL, "random-referral", "a\x00", "a\x01", "method", "deep-ensemble", "x" * 300]
    own = {name: system(40, 1.0 + k / 10, seed=k) for k, name in enumerate(names)}
    opened = open_systems(own, ood={"correct": {name: system(20, 0.0, seed=k) for k, name in enumerate(names)}})
    report = opened.built
    titles = [method.title for method in report.run.methods_of(report.tasks[0])]
    assert len(set(titles)) == len(names)
    assert EVIL in titles
    assert "random-referral (2)" in titles
    assert not any(method.baseline or method.facts.get("role") == "reference" for method in report.run.methods)
    for k, title in enumerate(titles):
        expected = dubio.evaluate(own[names[k]], metrics=["nll"], replicates=0)["nll"]
        assert report.run.scores.row(report.tasks[0], "test", "nll")[title].mean == pytest.approx(expected)
    words_of(block for own_blocks in every_block(report).values() for block in own_blocks)


def test_names_are_made_unique_as_they_are_printed() -> None:
    assert unique_names(["a", "a", "b", "a (2)"], ["b"]) == ["a", "a (2)", "b (2)", "a (2) (2)"]
    assert unique_names(["\x00", "\x01"]) == ["\N{REPLACEMENT CHARACTER}", "\N{REPLACEMENT CHARACTER} (2)"]


def test_a_test_set_is_called_by_the_words_that_its_files_share() -> None:
    assert name_of_files(["x/rain.npz"], "shift") == "rain"
    assert name_of_files(["a/rain-2.csv.gz", "b/rain-2.npz"], "shift") == "rain-2"
    assert name_of_files(["resnet_rain.npz", "vit_rain.npz"], "shift") == "rain"
    assert name_of_files(["one.npz", "two.npz"], "shift") == "shift"
    assert name_of_files(["___.npz", "….npz"], "shift") == "shift"


def test_every_input_that_is_not_used_is_named() -> None:
    labels = system(50, 1.0).labels.copy()
    labels[:4] = -1
    first = Predictions(
        system(50, 1.0).logits,
        labels,
        ids=np.array([f"r{k}" for k in range(50)]),
        scores={"confidence": np.arange(50.0)},
        notes=("column 'x' is not used.",),
    )
    opened = open_systems(first, cal=first.take(np.arange(20)), ignored=["--margin: not used."])
    text = " ".join(opened.notes)
    for part_of_note in (
        "column 'x' is not used.",
        "Own uncertainty confidence: not used, because dubio computes a quantity of this name; rename it.",
        "4 unlabelled rows",
        "20 rows of the calibration set",
        "--margin",
    ):
        assert part_of_note in text
    assert opened.built.tasks[0].notes == opened.notes


def _own(rows: int, skill: float, name: str = "stated_doubt", **options: Any) -> Predictions:
    """Return a system with an uncertainty of its own, which knows where it is wrong better than its probabilities."""
    own = system(rows, skill, **options)
    wrong = own.logits[0].argmax(1) != own.labels
    return own.with_checked(scores={name: np.random.default_rng(rows).normal(size=rows) + 1.5 * wrong})


def test_an_own_uncertainty_stands_wherever_quantities_do_with_the_numbers_of_evaluate() -> None:
    own = {"a": _own(200, 1.5, seed=1), "b": _own(200, 1.2, seed=2)}
    far = {"a": _own(90, 0.3, seed=1), "b": _own(90, 0.1, seed=2)}
    cal = {"a": _own(400, 1.5, seed=1), "b": _own(400, 1.2, seed=2)}
    opened = open_systems(own, cal=cal, ood={"far": far})
    assert opened.notes == ()
    scores, task, shown = opened.results, opened.built.tasks[0], every_block(opened.built)
    for name in own:
        scored = dubio.evaluate(own[name], ood=far[name], metrics=['aurc(quantity="stated_doubt")', "ood_auroc"])
        cell, expected = scores.row(task, "test", 'aurc(quantity="stated_doubt")')[name], scored.scores
        (score,) = (expected[metric] for metric in expected if metric.startswith("aurc"))
        assert (cell.mean, cell.interval.low, cell.interval.high) == pytest.approx((score.value, score.low, score.high))
        detected = scores.row(task, "far", detection_name("ood_auroc", "stated_doubt"))[name].mean
        assert detected == pytest.approx(scored.detection["stated_doubt"].auroc)
    for section, sub in (("referral", "by stated doubt"), ("shift", "stated doubt")):
        tables = [block for block in shown[section] if isinstance(block, Table)]
        assert any(column.sub == sub for table in tables for column in table.columns), section
    examples, cockpit = (next(b for b in shown[n] if isinstance(b, Widget)).data for n in ("examples", "cockpit"))
    place = [quantity["name"] for quantity in examples["quantities"]].index("stated_doubt")
    item = next(item for item in examples["items"] if item["split"] == 0)
    assert item["uncertainty"][1][place] == pytest.approx(own["b"].scores["stated_doubt"][item["row"]], rel=1e-3)
    wrong = own["a"].logits[0].argmax(1) != own["a"].labels
    points = cockpit["systems"][0]["points"]
    assert points["quantity"] == "stated_doubt"
    errors = np.cumsum(wrong[np.argsort(own["a"].scores["stated_doubt"])])
    assert points["errors"][1:] == [errors[retained - 1] for retained in points["retained"][1:]]
    assert "--quantity stated_doubt" in cockpit["command"]
    assert "Referred by stated doubt, the systems' own uncertainty." in cockpit["sentence"]


def test_the_cockpit_refers_by_confidence_unless_all_systems_have_the_uncertainty_everywhere() -> None:
    own, without = _own(200, 1.5), system(200, 1.2, seed=2)
    for opened in (
        open_systems({"a": own, "b": without}),
        open_systems(own, cal=system(150, 1.5)),
    ):
        cockpit = next(block for block in every_block(opened.built)["cockpit"] if isinstance(block, Widget)).data
        assert {one["points"]["quantity"] for one in cockpit["systems"]} == {"confidence"}
        assert "--quantity" not in cockpit["command"]
    expected = "Own uncertainty stated_doubt: not used where it needs calibration, which does not have it."
    assert opened.notes == (expected,)


def test_hostile_names_of_own_uncertainties_change_nothing() -> None:
    for name in (EVIL, "method", "x" * 10_000, "a\x00b"):
        opened = open_systems(_own(80, 1.0, name), ood={"far": _own(40, 0.1, name)})
        page = render(opened.built)
        assert EVIL not in page
        assert "x" * 200 not in re.sub(r"(?s)<script.*?</script>|<[^>]*>", "", page)
        assert "\x00" not in page
        assert 'by system' not in words_of(every_block(opened.built)["referral"])


def test_columns_that_are_subgroups_of_the_page_are_not_called_unused(tmp_path: Path) -> None:
    own = system(40, 1.0, columns={"site": np.array(["x", "y"] * 20)})
    path = write_npz(tmp_path / "mine.npz", own)
    assert dubio.evaluate(path, replicates=0).predictions.notes == ("Columns that are not used: site.",)
    opened = open_systems({"a": path, "b": path})
    assert opened.notes == ()
    assert {row["fact"] for row in opened.built.document()["subgroups"]} == {"site"}


def test_a_note_about_every_system_is_said_once_and_one_about_some_names_them() -> None:
    a, b, c = (system(40, 1.0, seed=seed, notes=("The columns are long.",)) for seed in range(3))
    opened = open_systems({"a": a, "b": b.with_checked(notes=("x", *b.notes)), "c": c.with_checked(notes=("x",))})
    assert opened.notes == ("a and b: The columns are long.", "b and c: x")
    assert open_systems({"a": a, "b": b}).notes == ("The columns are long.",)


def test_an_infinite_likelihood_has_no_interval_and_its_row_is_named() -> None:
    logits = system(60, 1.0).logits.copy()
    labels = system(60, 1.0).labels
    logits[0, 7, labels[7]] = -np.inf
    opened = open_systems({"a": system(60, 1.0, seed=1), "b": Predictions(logits, labels)})
    (note,) = opened.notes
    assert note.startswith("b: NLL is infinite, because the truth has probability zero in 1 of 60 rows of test (row 7)")
    matrix = next(b for b in every_block(opened.built)["overview"] if isinstance(b, Table))
    place = [column.title for column in matrix.columns].index("Calibrated NLL")
    finite, infinite = (row.cells[place] for row in matrix.rows)
    assert finite.spread
    assert (infinite.text, infinite.spread) == ("∞", "")


def _one_zero(count: int, seed: int) -> Predictions:
    """Return the predictions of a system that gives the true class of row 7 probability zero."""
    own = system(count, 1.0, seed=seed)
    logits = own.logits.copy()
    logits[0, 7, own.labels[7]] = -np.inf
    return Predictions(logits, own.labels)


def test_a_system_of_infinite_likelihood_is_not_compared_by_it_as_evaluate_says() -> None:
    own = {"a": system(300, 1.0, seed=1), "b": system(300, 1.2, seed=2), "forest": _one_zero(300, 3)}
    tests, opened = dubio.compare(own).tests, open_systems(own)
    scores, task = opened.results, opened.built.tasks[0]
    for metric in ("calibrated_nll", "accuracy", "brier", "aurc"):
        compared = {name for test in tests[metric] for name in (test.first, test.second)}
        assert set(scores.verdicts(task, "test", metric)) == compared, metric
    assert set(scores.verdicts(task, "test", "calibrated_nll")) == {"a", "b"}
    texts = words_of(block for blocks_of in every_block(opened.built).values() for block in blocks_of)
    assert not [text for text in texts if re.search(r"worse: [^.]*forest|forest (is|are) significantly worse", text)]
    first = next(text for text in words_of(every_block(opened.built)["overview"]) if "calibrated NLL" in text)
    assert "Not compared by calibrated NLL (infinite, because a true class has probability zero): forest." in first
    document = opened.built.document()
    assert {row["method"] for row in document["standing"]} == {"a", "b"}
    matrix = next(block for block in every_block(opened.built)["overview"] if isinstance(block, Table))
    place = [column.title for column in matrix.columns].index("Calibrated NLL")
    cell = matrix.rows[2].cells[place]
    assert (cell.text, cell.place, cell.hint) == ("∞", "unranked", "infinite: not compared")


def test_where_likelihood_compares_nothing_the_verdict_is_by_accuracy() -> None:
    own = {"sure": system(300, 0.6, seed=1), "knn": _one_zero(300, 3), "forest": _one_zero(300, 4)}
    opened = open_systems(own)
    text = verdict_of(opened)
    assert "Not compared by calibrated NLL (infinite, because a true class has probability zero): knn and for" in text
    (figure,) = [block for block in every_block(opened.built)["overview"] if isinstance(block, Figure)]
    params = {param["name"]: param["value"] for param in drawn(figure.chart)["params"]}
    assert (params["metric"], params["heading"]) == ("accuracy", "Accuracy, in-domain test set")
    accuracy = {name: float((one.probs.argmax(axis=1) == one.labels).mean()) for name, one in own.items()}
    best = [name for name, value in accuracy.items() if value == max(accuracy.values())]
    assert re.match(f".*{best[0]}.* (has|have) the (highest|same) accuracy on predictions", text)


@pytest.mark.parametrize("names", ["a", "ab"])
def test_systems_that_all_have_an_infinite_likelihood_are_not_ranked_by_it(names: str) -> None:
    opened = open_systems({name: _one_zero(300, seed) for seed, name in enumerate(names)})
    texts = words_of(every_block(opened.built)["overview"])
    expected = "calibrated NLL ∞ on" if names == "a" else "No system can be ranked on predictions by calibrated NLL. N"
    assert any(expected in text for text in texts)
    assert not any("lowest calibrated NLL" in text for text in texts)


def test_a_calibration_set_that_selection_has_used_gives_no_policy_and_the_page_says_why() -> None:
    opened = open_systems(system(60, 1.0), cal=system(50, 1.0, kind="val"))
    assert any("kind is 'val', which training or selection has used" in note for note in opened.notes)
    assert opened.built.document()["risk_policies"] == []


def test_test_sets_that_lack_a_system_or_have_other_classes_are_refused() -> None:
    with pytest.raises(UserError, match="rain: every system is needed once: a, b; given a"):
        open_systems(systems(30), shift={"rain": {"a": system(20, 1.0)}})
    with pytest.raises(UserError, match="rain: the number of classes is 4, and 3 in the in-domain test set"):
        open_systems(systems(30), shift={"rain": systems(30, classes=4)})
    with pytest.raises(UserError, match="labels differ"):
        open_systems({"a": system(30, 1.0), "b": Predictions(system(30, 1.0).logits, np.zeros(30, dtype=np.int64))})


def test_systems_that_decide_empty_rows_differently_need_one_decision() -> None:
    own = systems(40, target="multilabel")
    own["b"] = own["b"].with_checked(empty_decision="argmax")
    with pytest.raises(UserError, match=r"decided in different ways \(a: empty, b: argmax\).*--empty-decision"):
        open_systems(own)
    report = open_systems(own, empty_decision="argmax").built
    expected = dubio.evaluate(own["a"], empty_decision="argmax", metrics=["accuracy"], replicates=0)["accuracy"]
    assert report.run.scores.row(report.tasks[0], "test", "accuracy")["a"].mean == expected


def test_an_evaluation_and_a_comparison_open_with_their_own_predictions() -> None:
    own, far = systems(60), systems(30, harder=1.5)
    compared = open_evaluation(dubio.compare(own, ood=far, replicates=0, floor=1e-6))
    assert [split.name for split in compared.built.tasks[0].splits] == ["test", "ood"]
    assert any("floor" in note for note in compared.notes)
    assert any("95% bootstrap intervals of 200 replicates" in note for note in compared.notes)
    single = open_evaluation(dubio.evaluate(own["a"]), title="mine")
    assert single.notes == ()
    assert repr(single) == "<systems 'predictions'>"
    assert single.results.row(single.built.tasks[0], "test", "brier").keys() == {"predictions"}


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a line in place of the page: these tests are about what is reported, and where."""

    def texts(report: Any, *, raw_csv: bool = False) -> dict[str, str]:
        return {"report.html": f"{report.run.manifest.name}: {', '.join(report.run.titles)}"}

    monkeypatch.setattr(reported, "report_texts", texts)


@pytest.mark.usefixtures("pages")
def test_dubio_report_takes_predictions_mappings_files_and_results(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "mine.npz", system(40, 1.0))
    sources: dict[str, Any] = {
        "predictions": system(40, 1.0),
        "mine": path,
        "a, b": {"a": path, "b": system(40, 1.0, seed=3)},
    }
    for names, source in (*sources.items(), ("mine", str(path))):
        written = dubio.report(source, out=tmp_path / "out", title="data")
        assert written.page.read_text() == f"data: {names}"
    compared = dubio.compare(systems(40), replicates=0)
    written = compared.report(tmp_path / "out")
    assert isinstance(written, dubio.WrittenReport)
    assert (str(written), written.page.read_text()) == (str(tmp_path / "out" / "report.html"), "predictions: a, b")
    evaluated = dubio.evaluate(path, replicates=0).report(tmp_path / "out", title="t")
    assert evaluated.page.read_text() == "t: predictions"
    with pytest.raises(UserError, match="cal: for predictions, not for benchmark runs"):
        dubio.report("quick", cal=system(30, 1.0))


def test_results_show_their_tables_in_a_notebook() -> None:
    compared = dubio.compare({"<b>one</b>": system(40, 1.0), "two": system(40, 1.0, seed=3)}, replicates=0)
    for result in (compared, compared.evaluations["two"], open_evaluation(compared)):
        page = result._repr_html_()
        assert page.startswith("<pre ")
        assert "accuracy" in page.lower()
        assert "<b>one" not in page
    assert "&lt;b&gt;one&lt;/b&gt;" in compared._repr_html_()


def test_a_notebook_shows_figures_with_their_captions_and_a_link_to_the_page(tmp_path: Path) -> None:
    opened = open_systems(systems(40))
    figure = opened.figures["predictions-scores"]
    shown = figure._repr_html_()
    assert shown.startswith('<figure><img alt="Scores under the chosen metric" src="data:image/svg+xml;base64,')
    assert "Value under the metric" in shown
    assert len(repr(figure)) < 600
    written = reported.WrittenReport(tmp_path / '"><script>.html', tmp_path / "t.csv", (), lambda: opened.built)
    assert "<script>" not in written._repr_html_()
    assert "&quot;&gt;&lt;script&gt;.html" in written._repr_html_()
    assert len(repr(written)) < 400


def verdict_of(opened: Systems) -> str:
    return next(str(block.text) for block in every_block(opened.built)["overview"] if isinstance(block, Text))


def test_the_verdict_fits_equal_systems_a_single_one_and_those_that_cannot_be_ranked() -> None:
    own = system(200, 2.0)
    equal = open_systems({"a": own, "b": own})
    assert verdict_of(equal) == "a and b have the same calibrated NLL on predictions, the lowest."
    assert "b makes the same predictions." in str(equal)
    worse = open_systems({"a": own, "b": own, "c": system(200, 1.0, seed=3)})
    assert verdict_of(worse) == (
        "a and b have the same calibrated NLL on predictions, the lowest, and c is significantly worse."
    )
    alone = verdict_of(open_systems({"mine": own}))
    accuracy = float((own.probs.argmax(axis=1) == own.labels).mean())
    assert alone.startswith(f"mine: accuracy {accuracy:.3f}, calibrated NLL ")
    assert alone.endswith("there is no other system to compare it with.")
    many = {f"s{index}": system(400, 0.4 + 0.2 * index, seed=index) for index in range(6)}
    text = verdict_of(open_systems(many | {"best": system(400, 3.0), "near": system(400, 3.0, seed=50)}))
    tied, worse = "; (best|near) is not significantly different", "the other six ranked systems are significantly worse"
    assert re.search(f"{tied}, {worse}", text)
    chance = verdict_of(open_systems({"a": system(200, 0.0, seed=1), "b": system(200, 0.0, seed=2)}))
    assert chance.startswith("No system can be ranked on predictions by calibrated NLL. Not ranked, no evidence of")
    perfect = verdict_of(open_systems(system(200, 60.0)))
    assert perfect.endswith("Almost every example is classified correctly: compare accuracy and Brier score.")


def test_copies_of_a_system_change_no_verdict_of_the_page_and_are_named() -> None:
    own = systems(80, "abc")
    alone, beside = open_systems(own), open_systems({**own, "copy": own["a"], "copy 2": own["a"]})
    for metric in ("calibrated_nll", "brier", "accuracy"):
        pairs, more = (
            opened.built.run.scores.pairs(opened.built.run.tasks[0], "test", metric) for opened in (alone, beside)
        )
        assert len(more.tests) == 10
        assert all(more.verdict(test.first, test.second) == pairs.verdict(test.first, test.second)
                   for test in pairs.tests)  # fmt: skip
        assert more.same("a", "copy 2")
        assert not more.same("a", "b")
    assert "copy and copy 2 make the same predictions." in re.sub(r"\s+", " ", str(beside))
    assert "the same predictions" not in str(alone)
