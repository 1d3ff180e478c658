"""The command ``dubio evaluate``."""

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import typer

from dubio.cli.evaluate import evaluate
from dubio.cli.output import FAILED
from dubio.core.errors import UnknownName, UserError
from tests.cli.helpers import invoke

app = typer.Typer(pretty_exceptions_enable=False)
app.command()(evaluate)


def run(*arguments):
    return invoke(app, *arguments)


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    for name, rows, skill in (("a", 60, 2.0), ("b", 60, 1.0), ("far", 25, 0.0)):
        labels = np.random.default_rng(1).integers(0, 3, rows)
        z = rng.normal(size=(2, rows, 3)) + skill * np.eye(3)[labels]
        p = np.exp(z) / np.exp(z).sum(-1, keepdims=True)
        np.savez(tmp_path / f"{name}.npz", probs=p, labels=labels)
    return tmp_path


def test_one_system_with_strange_examples_as_json(files):
    result = run(files / "a.npz", "--ood", files / "far.npz", "--json", "--replicates", 20)
    document = json.loads(result.stdout)
    system = document["systems"]["a"]
    assert system["rows"] == 60
    assert system["ood_rows"] == 25
    assert 0 < system["scores"]["ood_auroc"]["value"] < 1
    assert system["scores"]["ece"]["comparable"] is False
    assert any(note.startswith("Not ranked: ece") for note in document["notes"])


def test_several_systems_in_a_table_with_a_sentence_for_what_is_not_ranked(files):
    result = run(
        f"good={files / 'a.npz'}", "--ood", f"good={files / 'far.npz'}", f"bad={files / 'b.npz'}",
        "--ood", f"bad={files / 'far.npz'}", "--replicates", 0,
    )  # fmt: skip
    assert result.exit_code == 0
    for word in (
        "good",
        "bad",
        "accuracy",
        "ood_auroc",
        "mutual_information",
        "Not ranked: nll",
        "share of out-of-distribution rows",
    ):
        assert word in result.output, word


def test_only_the_metrics_asked_for_and_why_one_does_not_apply(files):
    result = run(files / "a.npz", "--metric", "ece(bins=5)", "--metric", "rps", "--replicates", 0)
    assert "ece(bins=5)" in result.output
    assert "accuracy" not in result.output
    assert "rps does not apply" in result.output


def test_pairs_on_the_same_examples_are_tested(files):
    found = run(f"good={files / 'a.npz'}", f"bad={files / 'b.npz'}", "--replicates", 30, "--json",
                "--metric", "brier", "--metric", "ece", "--metric", "accuracy")  # fmt: skip
    pairs = json.loads(found.stdout)["pairs"]
    assert list(pairs["metrics"]) == ["brier", "accuracy"]  # ece ranks nothing
    for tests in pairs["metrics"].values():
        (test,) = tests
        assert (test["first"], test["second"]) == ("good", "bad")
        assert test["low"] <= test["difference"] <= test["high"]
        assert test["better"] in ("good", "bad", None)
        assert test["resolves"] > 0
    assert pairs["mcnemar"][0]["first"] == "good"
    printed = run(files / "a.npz", f"twin={files / 'a.npz'}", "--replicates", 30, "--metric", "brier")
    assert "not significant" in " ".join(printed.output.split())


def test_verdicts_are_whole_in_a_terminal_of_eighty_columns(files, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    metrics = ("--metric", "calibrated_brier", "--metric", "class_auroc")
    printed = run(f"one={files / 'a.npz'}", f"two={files / 'a.npz'}", "--replicates", 30, *metrics)
    table = printed.output.partition("In brackets")[0]
    assert table.count("significant") == 2
    assert "McNemar" in printed.output


def test_pairs_are_tested_without_intervals_too(files):
    """The command tested no pair where ``dubio.compare`` with the same arguments tests all."""
    systems = f"one={files / 'a.npz'}", f"two={files / 'b.npz'}"
    none, some = (run(*systems, "--metric", "brier", "--replicates", n, "--json").stdout for n in (0, 30))
    assert json.loads(none)["pairs"]["metrics"] == json.loads(some)["pairs"]["metrics"]
    assert json.loads(none)["systems"]["one"]["scores"]["brier"].get("low") is None


def test_of_many_systems_only_pairs_with_the_best_are_printed(files):
    systems = [f"{name}={files / file}.npz" for name, file in (("s1", "a"), ("s2", "b"), ("s3", "b"), ("s4", "b"))]
    printed = run(*systems, "--replicates", 30, "--metric", "brier").stdout
    assert printed.count("s1 − ") == 3
    assert "s2 − s3" not in printed


def test_strange_rows_of_several_systems_are_aligned(files):
    rng = np.random.default_rng(5)
    p = rng.dirichlet(np.ones(3), (2, 25))
    ids = np.array([f"x{i}" for i in range(25)])
    np.savez(files / "one.npz", probs=p, ids=ids)
    np.savez(files / "two.npz", probs=p[:, ::-1], ids=ids[::-1])
    np.savez(files / "other.npz", probs=p[:, :20], ids=ids[:20])
    systems = (f"a={files / 'a.npz'}", f"b={files / 'a.npz'}", "--ood", f"a={files / 'one.npz'}", "--ood")
    found = run(*systems, f"b={files / 'two.npz'}", "--metric", "ood_auroc", "--replicates", 30, "--json")
    (test,) = json.loads(found.stdout)["pairs"]["metrics"]["ood_auroc"]
    assert (test["low"], test["high"]) == (0.0, 0.0)
    with pytest.raises(UserError, match="one has 25 rows and the other 20"):
        run(*systems, f"b={files / 'other.npz'}")


def test_metrics_of_which_none_applies_are_refused(files):
    with pytest.raises(UserError, match="rps does not apply"):
        run(files / "a.npz", "--metric", "rps")


def test_mistakes_are_named(files):
    a, b, far = files / "a.npz", files / "b.npz", files / "far.npz"
    with pytest.raises(UserError, match=r"two systems .*'a'"):
        run(a, a)
    with pytest.raises(UserError, match="one has 60 rows and the other 25"):
        run(a, far)
    with pytest.raises(UserError, match="NAME=PATH"):
        run(a, b, "--ood", far)
    with pytest.raises(UserError, match="files given are a: 1, b: 0"):
        run(a, b, "--ood", f"a={far}")
    with pytest.raises(UnknownName, match="unknown system in --ood 'c'"):
        run(a, b, "--ood", f"c={far}")
    with pytest.raises(UserError, match="no such file"):
        run("x=none.npz")
    with pytest.raises(UserError, match="must be PATH or NAME=PATH"):
        run("x=")
    assert run(a, "--values", "prob").exit_code == 2


def test_thresholds_of_other_labels_are_refused(tmp_path):
    probs, labels = np.array([[0.3, 0.2], [0.1, 0.9]]), np.array([[1, 0], [0, 1]])
    for file, classes in (("test", ["cat", "dog"]), ("same", ["cat", "dog"]), ("turned", ["dog", "cat"])):
        np.savez(tmp_path / f"{file}.npz", probs=probs, labels=labels, classes=np.array(classes))
    np.savez(tmp_path / "unnamed.npz", probs=probs, labels=labels)
    told = ("--target", "multilabel", "--replicates", 0, "--json")
    for file in ("same", "unnamed"):
        run(tmp_path / "test.npz", "--thresholds-from", tmp_path / f"{file}.npz", *told)
    with pytest.raises(UserError, match=r"label 1 is 'cat' there and 'dog' in validation"):
        run(tmp_path / "test.npz", "--thresholds-from", tmp_path / "turned.npz", *told)


def test_thresholds_come_from_validation_predictions(tmp_path):
    """Probabilities of one label stop short of one half: cut there it is never asserted."""
    labels = np.tile([[1, 1], [0, 1], [1, 0], [0, 0]], (10, 1))
    probs = np.where(labels == 1, [0.9, 0.4], [0.1, 0.2])
    for name in ("val", "test"):
        np.savez(tmp_path / f"{name}.npz", probs=probs, labels=labels)
    told = "--target", "multilabel", "--replicates", 0, "--json"
    result = run(tmp_path / "test.npz", "--thresholds-from", tmp_path / "val.npz", *told)
    scores = json.loads(result.stdout)["systems"]["test"]["scores"]
    assert scores["accuracy"]["value"] == 0.5
    assert scores["accuracy_at_val_thresholds"]["value"] == 1.0
    assert scores["micro_f1"]["value"] == pytest.approx(2 * 20 / (2 * 20 + 20))
    assert scores["micro_f1_at_val_thresholds"]["value"] == 1.0
    np.savez(tmp_path / "other.npz", probs=probs[:, :1], labels=labels[:, :1])
    with pytest.raises(UserError, match="must have the 2 labels of those that are scored; given 1"):
        run(tmp_path / "test.npz", "--thresholds-from", tmp_path / "other.npz", *told)
    both = f"one={tmp_path / 'test.npz'}", f"two={tmp_path / 'test.npz'}"
    with pytest.raises(UserError, match=r"--thresholds-from: .*two: 0"):
        run(*both, "--thresholds-from", f"one={tmp_path / 'val.npz'}", *told)
    result = run(*both, *(f"--thresholds-from={name}={tmp_path / 'val.npz'}" for name in ("one", "two")),
                 "--target", "multilabel", "--replicates", 5, "--json")  # fmt: skip
    assert "micro_f1" in json.loads(result.stdout)["pairs"]["metrics"]


def test_rows_without_a_label_are_decided_as_the_option_says(tmp_path):
    """One of two rows has no label above one half, and its most probable label is the right one."""
    np.savez(tmp_path / "s.npz", probs=np.array([[0.9, 0.1], [0.2, 0.4]]), labels=np.array([[1, 0], [0, 1]]))
    common = tmp_path / "s.npz", "--target", "multilabel", "--replicates", 0
    documents = {
        rule: json.loads(run(*common, *option, "--json").stdout)["systems"]["s"]
        for rule, option in (("empty", ()), ("argmax", ("--empty-decision", "argmax")))
    }
    assert {rule: document["empty_decision"] for rule, document in documents.items()} == {r: r for r in documents}
    assert [document["scores"]["accuracy"]["value"] for document in documents.values()] == [0.5, 1.0]
    assert documents["empty"]["empty_rows"] == 1
    said = "no label is above one half in 1 of 2 rows, decided as having none (--empty-decision"
    assert said in run(*common).stderr
    np.savez(tmp_path / "one.npz", probs=np.array([[0.9, 0.1], [0.2, 0.8]]), labels=np.array([0, 1]))
    with pytest.raises(UserError, match=r"--empty-decision. is for multilabel predictions; these are multiclass"):
        run(tmp_path / "one.npz", "--empty-decision", "argmax")


def test_groups_and_subgroups_by_the_columns_that_are_named(files):
    arrays = dict(np.load(files / "a.npz"))
    columns = {"patient_id": np.arange(60) // 2, "site": np.array(["big"] * 54 + ["small"] * 6), "device": np.zeros(60)}
    np.savez(files / "c.npz", **arrays, **columns)
    with pytest.raises(UserError, match="'patient_id' looks like groups"):
        run(files / "c.npz")
    arguments = (files / "c.npz", "--group", "patient_id", "--by", "site", "--replicates", 20)
    document = json.loads(run(*arguments, "--json").stdout)
    system = document["systems"]["c"]
    assert system["resampled"] == "groups"
    assert system["units"] == 30
    assert "Columns that are not used: device." in document["notes"]
    answers = arrays["probs"].mean(0).argmax(1) == arrays["labels"]
    parts = system["subgroups"]["site"]
    assert {name: (part["rows"], part["units"]) for name, part in parts.items()} == {"big": (54, 27), "small": (6, 3)}
    for name, part in parts.items():
        score = part["scores"]["accuracy"]
        assert score["value"] == pytest.approx(answers[columns["site"] == name].mean())
        assert score["low"] <= score["value"] <= score["high"]
        assert part["underpowered"]  # fewer than 50 groups
    printed = run(*arguments, "--metric", "brier").output
    assert "results by site" in printed
    assert "small (underpowered)" in printed
    assert "Columns that are not used: device." in printed
    independent = run(files / "c.npz", "--rows-are-independent", "--replicates", 0).output
    assert "declared independent" in independent
    with pytest.raises(UserError, match=r"column for --by 'sites'.*Did you mean 'site'"):
        run(*arguments, "--by", "sites")


@pytest.fixture
def impossible(tmp_path):
    """Three systems on the same rows; the first gives the true class probability zero in rows 3 and 17."""
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 3, 60)
    for name in ("zero", "two", "three"):
        p = rng.dirichlet([1, 1, 1], 60) + np.eye(3)[labels]
        if name == "zero":
            for row in (3, 17):
                p[row] = np.where(np.arange(3) == labels[row], 0.0, 1.0)
        np.savez(tmp_path / f"{name}.npz", probs=p / p.sum(1, keepdims=True), labels=labels)
    return [tmp_path / f"{name}.npz" for name in ("zero", "two", "three")]


def test_an_infinite_likelihood_names_its_rows_and_leaves_the_other_systems_compared(impossible):
    result = run(*impossible, "--replicates", 50, "--json")
    document = json.loads(result.stdout, parse_constant=pytest.fail)
    zero = document["systems"]["zero"]
    assert zero["scores"]["nll"]["value"] == zero["scores"]["calibrated_nll"]["value"] == "Infinity"
    assert zero["impossible"] == ["3", "17"]
    assert document["systems"]["two"]["impossible"] == []
    tests = document["pairs"]["metrics"]
    assert [(test["first"], test["second"]) for test in tests["calibrated_nll"]] == [("two", "three")]
    assert len(tests["brier"]) == 3
    printed = run(*impossible, "--replicates", 50)
    assert "∞" in printed.stdout
    assert "zero: nll, calibrated_nll infinite: the true class has probability zero in 2 of 60 rows (rows 3, 17)" in (
        printed.stderr
    )


def test_a_floor_makes_the_likelihood_finite_and_is_recorded(impossible):
    document = json.loads(run(*impossible, "--floor", 1e-6, "--replicates", 50, "--json").stdout)
    zero = document["systems"]["zero"]
    arrays = np.load(impossible[0])
    clipped = np.maximum(arrays["probs"], 1e-6)
    clipped /= clipped.sum(axis=1, keepdims=True)
    wanted = -np.log(clipped[np.arange(60), arrays["labels"]]).mean()
    assert zero["scores"]["nll"]["value"] == pytest.approx(wanted, rel=1e-6)
    assert zero["floor"] == 1e-6
    assert len(document["pairs"]["metrics"]["calibrated_nll"]) == 3
    assert any("raised to 1e-06 and renormalised" in note for note in document["notes"])
    with pytest.raises(UserError, match=r"--floor. must lie between 0 and 0.333"):
        run(impossible[0], "--floor", 0.5)


def test_a_floor_changes_likelihoods_alone(tmp_path):
    rng = np.random.default_rng(0)
    doubt = 10.0 ** rng.uniform(-9, -3, 300)  # most rows are surer than 1 - floor, and would be tied by it
    probs = np.stack([1 - doubt, doubt], axis=1)
    arrays = {"probs": probs, "labels": (rng.random(300) < 0.1).astype(int), "ood": doubt > 1e-5}
    arrays["site"] = np.where(rng.random(300) < 0.5, "north", "south")
    np.savez(tmp_path / "sure.npz", **arrays)
    np.savez(tmp_path / "swapped.npz", **arrays | {"probs": probs[:, ::-1]})
    options = (tmp_path / "sure.npz", tmp_path / "swapped.npz", "--by", "site", "--replicates", 50, "--json")
    plain, floored = json.loads(run(*options).stdout), json.loads(run(*options, "--floor", 1e-4).stdout)
    before, after = plain["systems"]["sure"], floored["systems"]["sure"]
    assert before["scores"]["ood_auroc"]["value"] == 1.0
    differing = {name for name, score in before["scores"].items() if after["scores"][name] != score}
    assert differing == {"nll", "calibrated_nll"}
    assert before["detection"] == after["detection"]
    assert {name for name, test in plain["pairs"]["metrics"].items() if floored["pairs"]["metrics"][name] != test} == {
        "calibrated_nll"
    }
    assert list(plain["pairs"]["metrics"]) == list(floored["pairs"]["metrics"])
    assert {part["floor"] for part in after["subgroups"]["site"].values()} == {1e-4}


def test_an_evaluation_without_labels_says_what_is_missing(tmp_path):
    np.savez(tmp_path / "bare.npz", probs=np.full((20, 2), 0.5))
    with pytest.raises(UserError, match=r"labels: no row has one.*--labels FILE"):
        run(tmp_path / "bare.npz")


@pytest.fixture
def nine_of_ten(tmp_path):
    """Nine of ten rows are right, each with a confidence of 0.75: the calibration error is 0.15."""
    np.savez(tmp_path / "mine.npz", probs=np.full((10, 2), [0.75, 0.25]), labels=[0] * 9 + [1])
    return tmp_path / "mine.npz"


def test_requirements_that_are_met_leave_the_exit_code_zero(nine_of_ten):
    result = run(nine_of_ten, "--require", "accuracy>=0.9", "--require", "ece < 0.2")
    assert result.exit_code == 0
    assert result.stderr.splitlines()[-1] == "2 of 2 requirements met."
    assert "not met" not in result.output


def test_requirements_that_are_not_met_are_printed_and_set_the_exit_code(nine_of_ten):
    options = ("--require", "accuracy>0.9", "--require", "accuracy>=0.9", "--require", "ece<0.1", "--replicates", 0)
    result = run(nine_of_ten, *options)
    assert result.exit_code == FAILED == 3
    assert result.stderr.splitlines()[-3:] == [
        "not met: accuracy > 0.9 for mine: the estimate is 0.9000",
        "not met: ece < 0.1 for mine: the estimate is 0.1500",
        "1 of 3 requirements met.",
    ]
    as_json = run(nine_of_ten, *options, "--json")
    assert as_json.exit_code == FAILED
    requirements = json.loads(as_json.stdout)["requirements"]
    assert requirements[0] == {
        "requirement": "accuracy > 0.9", "system": "mine", "split": "id", "value": 0.9, "low": None, "high": None,
        "met": False, "reason": "the estimate is 0.9000",
    }  # fmt: skip
    assert [item["met"] for item in requirements] == [False, True, False]
    assert json.loads(run(nine_of_ten, "--replicates", 0, "--json").stdout)["requirements"] == []


def test_a_required_metric_joins_those_that_are_computed(nine_of_ten):
    options = ("--require", "ece(bins=4)<0.2", "--require", "ece<0.2", "--replicates", 0, "--json")
    assert "ece(bins=4)" in json.loads(run(nine_of_ten, *options).stdout)["systems"]["mine"]["scores"]
    scores = json.loads(run(nine_of_ten, "--metric", "nll", *options).stdout)["systems"]["mine"]["scores"]
    assert list(scores) == ["nll", "ece(bins=4)", "ece"]


def test_requirements_on_bounds_use_the_interval_that_is_printed(files):
    options = ("--metric", "accuracy", "--replicates", 50, "--json")
    score = json.loads(run(files / "a.npz", *options).stdout)["systems"]["a"]["scores"]["accuracy"]
    between = (score["low"] + score["value"]) / 2
    for bound, met in (("", True), ("@upper", True), ("@lower", False)):
        result = run(files / "a.npz", *options, "--require", f"accuracy>={between!r}{bound}")
        (requirement,) = json.loads(result.stdout)["requirements"]
        assert {key: requirement[key] for key in ("value", "low", "high")} == {
            key: score[key] for key in ("value", "low", "high")
        }
        assert (requirement["met"], result.exit_code) == (met, 0 if met else FAILED)


def test_requirements_on_metrics_of_detection_count_the_ood_rows_too(files):
    ood = (files / "a.npz", "--ood", files / "far.npz", "--replicates", 0, "--json")
    result = run(*ood, "--require", "ood_auroc>0.01", "--require", "accuracy>0.01")
    assert [item["split"] for item in json.loads(result.stdout)["requirements"]] == ["id+ood", "id"]
    missing = run(files / "a.npz", "--replicates", 0, "--require", "ood_auroc>0")
    assert missing.exit_code == FAILED
    assert "not met: ood_auroc > 0 for a: ood_auroc does not apply: it needs both in- and out" in missing.stderr


def test_requirements_at_fitted_thresholds(tmp_path):
    labels = np.tile([[1, 1], [0, 1], [1, 0], [0, 0]], (10, 1))
    np.savez(tmp_path / "m.npz", probs=np.where(labels == 1, [0.9, 0.4], [0.1, 0.2]), labels=labels)
    options = ("--target", "multilabel", "--replicates", 0, "--require", "accuracy_at_val_thresholds>=1")
    assert run(tmp_path / "m.npz", "--thresholds-from", tmp_path / "m.npz", *options).exit_code == 0
    assert run(tmp_path / "m.npz", *options).exit_code == FAILED


def test_junit_has_a_case_for_each_requirement_and_system(files):
    (files / "out").mkdir()
    path = files / "out" / "gates.xml"
    result = run(f"<one>={files / 'a.npz'}", f"two\x1b={files / 'b.npz'}", "--replicates", 0, "--junit", path,
                 "--require", "accuracy>0.01", "--require", "<one>:aurc<0")  # fmt: skip
    assert result.exit_code == FAILED
    cases = list(ElementTree.parse(path).getroot().iter("testcase"))
    assert [(case.get("classname"), case.get("name"), len(case)) for case in cases] == [
        ("<one>", "accuracy > 0.01", 0), ("two\\x1b", "accuracy > 0.01", 0), ("<one>", "aurc < 0", 1),
    ]  # fmt: skip
    assert list(path.parent.iterdir()) == [path]  # nothing that was written aside


def test_wrong_requirements_are_refused_before_any_file_is_read(tmp_path):
    system = ("none.npz", "--junit", tmp_path / "gates.xml")
    for options, message in (
        (("--require", "acuracy>=0.9"), "unknown metric 'acuracy'. Did you mean 'accuracy'"),
        (("--require", "accuracy"), "requirement 'accuracy' must be a metric"),
        (("--require", "other:accuracy>0.5"), "unknown system in a requirement 'other'"),
        (("--require", "accuracy>0.5@lower", "--replicates", 0), r"on a bound .*--replicates"),
        ((), "give at least one --require"),
    ):
        with pytest.raises(UserError, match=message) as refusal:
            run(*system, *options)
        assert refusal.value.exit_code == 2
    assert not list(tmp_path.iterdir())


def test_outcomes_do_not_replace_a_file_that_is_read(nine_of_ten):
    before = Path(nine_of_ten).read_bytes()
    with pytest.raises(UserError, match=r"--junit '.*mine.npz' is the input"):
        run(nine_of_ten, "--require", "accuracy>0.5", "--junit", nine_of_ten)
    assert Path(nine_of_ten).read_bytes() == before
