"""Requirements on scores: how they are written, when they are met, and what CI reads."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import dubio
from dubio.core.errors import UnknownName, UserError
from dubio.core.types import Metric
from dubio.evaluation.gates import Requirement, RequirementResult, RequirementResults, parse_requirements
from dubio.evaluation.results import Score

METRICS = st.sampled_from(["accuracy", "ece", "ece(bins=10)", 'aurc(quantity="entropy")', "micro_f1_at_val_thresholds"])
OPERATORS = st.sampled_from(["<", "<=", ">", ">="])
BOUNDS = st.sampled_from(["estimate", "lower", "upper"])
LIMITS = st.floats(allow_nan=False, allow_infinity=False)
NAMES = st.text(min_size=1, max_size=8) | st.text("a:<>=@ ().", min_size=1, max_size=8)


def right_in(count: int, rows: int = 10) -> dict[str, list[object]]:
    """Return predictions of which ``count`` are right: each gives its class the probability 0.75."""
    return {"probs": [[0.75, 0.25]] * rows, "labels": [0] * count + [1] * (rows - count)}


def score(value: float, low: float = math.nan, high: float = math.nan) -> Score:
    return Score(value, low, high, "higher", True, "")


def parse(text: str, *systems: str) -> Requirement:
    (requirement,) = parse_requirements([text], systems)
    return requirement


@given(st.builds(Requirement, METRICS, OPERATORS, LIMITS, BOUNDS, st.none() | NAMES))
@example(Requirement("accuracy", ">=", 0.9, "lower", "a:b"))
@example(Requirement("ece(bins=10)", "<", 5e-324, "upper", "f(x)<1@lower:"))
def test_a_written_requirement_is_parsed_as_itself(requirement):
    systems = [] if requirement.system is None else [requirement.system]
    assert parse(str(requirement), *systems) == requirement


@given(METRICS, OPERATORS, LIMITS, BOUNDS, st.lists(st.sampled_from(["", " ", "\t"]), min_size=6, max_size=6))
def test_spaces_between_the_words_do_not_matter(metric, operator, limit, bound, spaces):
    words = [metric, operator, repr(limit), "@", bound]
    text = "".join(space + word for space, word in zip(spaces, words, strict=False)) + spaces[-1]
    assert parse(text) == Requirement(metric, operator, limit, bound)


def test_a_metric_is_named_as_in_results_and_repeated_requirements_count_once():
    assert parse("ece( bins = 15 )<.03").metric == "ece"
    assert parse("ood_auroc(quantity=entropy)>0.8").metric == 'ood_auroc(quantity="entropy")'
    assert len(parse_requirements(["ece<0.03", "ece(bins=15) < 3e-2", "ece<=0.03"])) == 2


def test_the_longest_name_that_fits_is_the_system():
    systems = ("a", "a:b", "c")
    assert parse("a:accuracy>0.5", *systems).system == "a"
    assert parse("a:b:accuracy>0.5", *systems).system == "a:b"
    assert parse('aurc(quantity="x:y")<0.5', *systems).system is None
    with pytest.raises(UnknownName, match=r"unknown system in a requirement 'bb'.*Known: a, a:b, c"):
        parse("bb:accuracy>0.5", *systems)
    with pytest.raises(UnknownName, match=r"unknown system in a requirement 'mine'.*\(none\)"):
        parse("mine:accuracy>0.5")


@pytest.mark.parametrize(
    "text",
    ["accuracy", "", ">0.9", "accuracy>", "accuracy=0.9", "accuracy==0.9", "accuracy=>0.9", "accuracy>=90%", "ece<nan",
     "ece<inf", "ece<1e400", "ece<NA", "ece<1_0", "accuracy>=0.9@", "accuracy>=0.9 0.8", "0.9<=accuracy",
     "0.5<accuracy<0.9"],
)  # fmt: skip
def test_a_requirement_of_another_form_is_refused_with_examples(text):
    with pytest.raises(UserError, match=r"must be a metric, one of <, <=, >, >=.*'accuracy>=0.9'.*shell"):
        parse(text)


def test_unknown_metrics_arguments_and_bounds_are_refused_with_the_nearest_name():
    for text, nearest in (("acuracy>0.5", "accuracy"), ("ece(bin=10)<1", "bins"), ("ece<1@uper", "upper"),
                          ("micro_f1_at_val_threshold>0", "micro_f1_at_half")):  # fmt: skip
        with pytest.raises(UnknownName, match=f"Did you mean '{nearest}'"):
            parse(text)
    with pytest.raises(UserError, match="argument=value"):
        parse("ece(10)<1")
    with pytest.raises(UserError, match="at least one is needed"):
        parse_requirements([])


@given(OPERATORS, LIMITS, st.floats(allow_nan=False))
def test_a_value_compares_as_the_operator_says_unless_rounding_decides(operator, limit, value):
    holds = Requirement("accuracy", operator, limit).holds(value)
    if abs(value - limit) > 1e-9 * max(1, abs(value), abs(limit)):
        assert holds == eval(f"value {operator} limit", {"value": value, "limit": limit})
    if value == limit:
        assert holds == ("=" in operator)


def test_what_differs_by_rounding_alone_is_equal():
    """0.1 + 0.2 exceeds 0.3, and 1 − 0.9 falls short of 0.1, in the last digit of a double."""
    assert 0.1 + 0.2 > 0.3
    assert 1 - 0.9 < 0.1
    for value, limit in ((0.1 + 0.2, 0.3), (1 - 0.9, 0.1), (1e-17, 0.0)):
        for operator, met in (("<", False), ("<=", True), (">", False), (">=", True)):
            assert Requirement("error", operator, limit).holds(value) is met
    assert Requirement("error", "<", 0.1).holds(0.1 - 1e-9)
    assert not Requirement("error", "<=", 0.1).holds(0.1 + 1e-9)


@pytest.mark.parametrize("right", range(11))
def test_an_accuracy_at_the_limit_meets_at_least_and_not_above(right):
    evaluation = dubio.evaluate(right_in(right), metrics=["accuracy", "error"], replicates=0)
    limit = right / 10
    assert evaluation.require([f"accuracy>={limit}", f"accuracy<={limit}", f"error<={1 - limit}"])
    strict = evaluation.require([f"accuracy>{limit}", f"accuracy<{limit}", f"error<{1 - limit:.1f}"])
    assert [result.met for result in strict] == [False, False, False]


def test_a_bound_is_the_end_of_the_interval_that_is_named():
    own = score(0.87, 0.85, 0.89)
    for text, met in (("accuracy>=0.87", True), ("accuracy>=0.86@lower", False), ("accuracy>=0.85@lower", True),
                      ("accuracy<0.88", True), ("accuracy<0.88@upper", False), ("accuracy<0.9@upper", True),
                      ("accuracy>=0.88@upper", True), ("accuracy<0.86@lower", True)):  # fmt: skip
        assert (parse(text).failure(own) == "") is met, text
    assert parse("accuracy>=0.9").failure(own) == "the estimate is 0.8700 (0.8500, 0.8900)"
    assert parse("accuracy>=0.9@lower").failure(own) == "the lower bound is 0.8500, the estimate 0.8700"


def test_a_reason_never_contradicts_the_verdict_by_rounding():
    assert parse("accuracy>=0.9").failure(score(0.89999)) == "the estimate is 0.89999"
    assert parse("ece<=0.03@upper").failure(score(0.02, 0.01, 0.03001)).startswith("the upper bound is 0.03001,")
    assert parse("nll<1").failure(score(math.inf)) == "the estimate is ∞"
    assert parse("nll>1").failure(score(math.inf)) == ""


def test_what_is_undefined_is_never_met():
    for operator in ("<", "<=", ">", ">="):
        assert "undefined" in parse(f"class_auroc{operator}0.5").failure(score(math.nan, 0.2, 0.3))
        assert "undefined" in parse(f"class_auroc{operator}0.5@lower").failure(score(math.nan, 0.2, 0.3))
        assert "no interval" in parse(f"accuracy{operator}0.5@upper").failure(score(0.5))


def test_the_interval_of_an_infinite_estimate_meets_nothing():
    """One row of probability zero makes the mean infinite; a third of the replicates lack that row by chance."""
    for text in ("nll<1e9@lower", "nll>0@lower", "nll>0@upper"):
        assert parse(text).failure(score(math.inf, 0.1, math.inf)).startswith("the estimate is ∞, and the bounds")


def test_a_bound_that_few_replicates_define_is_none():
    """A class of one row is in 63 % of replicates: of four such classes, all are in 16 % of them."""
    labels = [0] * 36 + [1, 2, 3, 4]
    probs = np.full((40, 5), 0.1) + 0.5 * np.eye(5)[labels]
    evaluation = dubio.evaluate({"probs": probs, "labels": labels}, metrics=["class_auroc"], replicates=200)
    (result,) = evaluation.require("class_auroc>=0@lower")
    assert (result.value, result.met) == (1.0, False)
    assert "no interval" in result.reason


def test_undefined_scores_of_evaluations_fail_with_the_reason():
    bare = dubio.evaluate({"probs": [[0.9, 0.1]] * 4}, ood={"probs": [[0.5, 0.5]] * 4}, replicates=10)
    unlabelled, rows, detection = bare.require(["accuracy>=0", "rps<9", "ood_auroc>0.5"])
    assert not unlabelled.met
    assert unlabelled.reason == "accuracy does not apply: it needs labels, and every row is unlabelled."
    assert math.isnan(unlabelled.value)
    assert "defined for ordinal" in rows.reason
    assert (detection.met, detection.split, detection.value) == (True, "id+ood", 1.0)
    one = dubio.evaluate(right_in(1, rows=1), metrics=["accuracy"], replicates=10).require("accuracy>=0@lower")
    assert "no interval, which takes at least two examples" in one.results[0].reason
    area = dubio.evaluate(right_in(10), metrics=["accuracy"], replicates=10)
    assert not area.require("class_auroc>=0")  # one class alone
    assert "thresholds-from" in area.require("accuracy_at_val_thresholds>=0").results[0].reason


def test_a_bound_without_intervals_is_refused():
    evaluation = dubio.evaluate(right_in(5), metrics=["accuracy"], replicates=0)
    with pytest.raises(UserError, match=r"'accuracy >= 0.5 @lower' is on a bound .*--replicates.*given 0"):
        evaluation.require("accuracy>=0.5@lower")


def test_metrics_that_were_not_computed_are_computed_under_the_same_options():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 80)
    arrays = {"probs": rng.dirichlet([1, 1, 1], 80), "labels": labels}
    options = {"replicates": 30, "seed": 4, "level": 0.8, "floor": 1e-3}
    reference = dubio.evaluate(arrays, metrics=["ece(bins=5)", "nll"], **options).scores
    results = dubio.evaluate(arrays, metrics=["accuracy"], **options).require(["ece(bins=5)<1@upper", "nll<9"])
    for result, name in zip(results, ("ece(bins=5)", "nll"), strict=True):
        assert (result.value, result.low, result.high) == (
            reference[name].value, reference[name].low, reference[name].high)  # fmt: skip
        assert (result.split, result.system, result.met, result.reason) == ("id", "", True, "")


def test_a_metric_of_ones_own_is_required_by_its_name():
    rows = Metric("row_count", "higher", lambda predictions: float(len(predictions)))
    evaluation = dubio.evaluate(right_in(5), metrics=[rows], replicates=0)
    assert evaluation.require("row_count>=10")
    assert not evaluation.require("row_count>10")


def test_a_requirement_is_on_every_system_or_on_the_one_that_is_named():
    compared = dubio.compare({"good": right_in(9), "b:ad": right_in(9)}, metrics=["accuracy", "brier"], replicates=10)
    results = compared.require(["accuracy>=0.95", "b:ad:brier<2"])
    assert isinstance(results, dubio.RequirementResults)
    assert [(result.requirement, result.system, result.met) for result in results] == [
        ("accuracy >= 0.95", "good", False), ("accuracy >= 0.95", "b:ad", False), ("brier < 2", "b:ad", True),
    ]  # fmt: skip
    assert not results
    assert len(results) == 3
    assert [result.system for result in results.failures] == ["good", "b:ad"]
    first, _, last = str(results).splitlines()
    assert first.startswith("not met: accuracy >= 0.95 for good: the estimate is 0.9000 (")
    assert last == "1 of 3 requirements met."
    assert str(results.results[2]) == "met: brier < 2 for b:ad"


def test_results_give_a_data_frame():
    pytest.importorskip("pandas")
    frame = dubio.evaluate(right_in(5), metrics=["accuracy"], replicates=0).require(["accuracy>=0.9"]).to_frame()
    assert list(frame) == ["requirement", "system", "split", "value", "low", "high", "met", "reason"]
    assert frame["value"].tolist() == [0.5]


def test_rows_that_are_all_out_of_distribution_are_the_split():
    arrays = {**right_in(5), "ood": [True] * 10}
    assert dubio.evaluate(arrays, metrics=["accuracy"], replicates=0).require("accuracy>0").results[0].split == "ood"


HOSTILE = {
    "<script>]]>&amp;\"'": "<script>]]>&amp;\"'",
    "\x00\x1b[31m": "\\x00\\x1b[31m",
    "\ud800": "\\xd800",
    "\ufffe\uffff": "\\xfffe\\xffff",
    "line\n\r\ttab": "line\n\r\ttab",
    "\u202eא\U0001f600": "\u202eא\U0001f600",
    "x" * 9999: "x" * 9999,
}
"""Names, and how XML shows them: characters that it cannot contain are written as their numbers."""


@pytest.mark.parametrize(("name", "shown"), HOSTILE.items(), ids=range(len(HOSTILE)))
def test_junit_is_well_formed_whatever_names_contain(name, shown):
    results = RequirementResults((
        RequirementResult("accuracy >= 0.9", name, "id", 0.5, 0.4, 0.6, False, f"the estimate of {name}"),
        RequirementResult(f"aurc(quantity={name}) < 1", name, "id", 0.5, 0.4, 0.6, True, ""),
    ))  # fmt: skip
    (suite,) = ElementTree.fromstring(results.to_junit().encode("utf-8"))
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "0")
    failed, passed = suite
    assert failed.get("classname") == shown
    (failure,) = failed
    assert failure.get("message") == f"the estimate of {shown}"
    assert failure.text.startswith("not met: accuracy >= 0.9 for ")
    assert passed.get("name") == f"aurc(quantity={shown}) < 1"
    assert not list(passed)


JUNIT = {
    "testsuites": ({"testsuite"}, set(), {"name", "time", "tests", "failures", "errors", "disabled"}),
    "testsuite": ({"testcase"}, {"name", "tests"}, {"failures", "errors", "skipped", "time", "timestamp", "hostname"}),
    "testcase": ({"failure", "error", "skipped"}, {"name", "classname"}, {"time", "assertions", "status"}),
    "failure": (set(), set(), {"type", "message"}),
}
"""Element → children, required and further attributes: those in common use; JUnit XML has no one schema."""


def test_junit_has_elements_and_attributes_in_common_use_alone():
    evaluation = dubio.evaluate(right_in(9), metrics=["accuracy"], replicates=10)
    root = ElementTree.fromstring(evaluation.require(["accuracy>0.5", "accuracy>0.95", "rps<1"]).to_junit().encode())
    assert root.tag == "testsuites"
    for element in root.iter():
        children, required, optional = JUNIT[element.tag]
        assert {child.tag for child in element} <= children
        assert required <= element.attrib.keys() <= required | optional
        for count in ("tests", "failures", "errors", "skipped"):
            assert int(element.get(count, "0")) >= 0
    (suite,) = root
    assert int(suite.get("tests")) == len(suite) == 3
    assert int(suite.get("failures")) == len(suite.findall("testcase/failure")) == 2


@given(st.text())
def test_junit_of_any_text_is_parsed(text):
    result = RequirementResult(text, text, "id", 0.5, 0.4, 0.6, False, text)
    failure = ElementTree.fromstring(RequirementResults((result,)).to_junit().encode("utf-8")).find(".//failure")
    if text.isprintable():
        assert failure.get("message") == text


def test_a_few_rows_that_are_all_right_do_not_meet_a_lower_bound():
    """Their bootstrap interval was (1, 1): five rows met accuracy>=0.9@lower and aurc<0.05@upper."""
    own = dubio.evaluate({"probs": [[0.9, 0.1]] * 5, "labels": [0] * 5})
    texts = [str(result) for result in own.require(["accuracy>=0.9@lower", "accuracy>=0.4@lower", "aurc<0.05@upper"])]
    assert texts[0].endswith("the lower bound is 0.4782, the estimate 1.0000")  # 0.025^(1/5)
    assert texts[1] == "met: accuracy >= 0.4 @lower"
    assert texts[2].endswith("groups on which the metric is defined, and replicates that differ")
    assert "Underpowered: 5 examples, fewer than 50, are too few for a conclusion" in repr(own)
