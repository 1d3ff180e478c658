"""The study of weak labels: its draws, its set-ups, its intervals, and the sentences that follow from them."""

from __future__ import annotations

import numpy as np
import pytest
import results.__main__
from results.__main__ import main
from results.weak_labels import FLIPPED, FORMER, LINEAR, SET_UPS, SMALL, _recipe, findings, interval, shirts
from scipy import stats


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Ten classes of 1,000 grey images whose pixels tell their row."""
    path = tmp_path_factory.mktemp("fashion") / "fashion_mnist_10k.npz"
    x = np.zeros((10_000, 28, 28), dtype=np.uint8)
    x[:, 0, 0], x[:, 0, 1] = np.arange(10_000) % 256, np.arange(10_000) // 256
    np.savez(path, x=x, y=np.repeat(np.arange(10), 1000).astype(np.int64))
    return path


def test_labels_of_training_are_flipped_those_of_testing_are_true(images):
    task = shirts(images, 0)
    for split in task.splits:
        rows = split.data.inputs[:, 2, 2, 0] + 256 * split.data.inputs[:, 2, 3, 0].astype(int)
        wrong = np.mean((rows // 1000 == 6) != split.data.labels)
        allowed = 0.0 if split.kind == "id" else 4 * np.sqrt(FLIPPED * (1 - FLIPPED) / len(rows))
        assert abs(wrong - (0.0 if split.kind == "id" else FLIPPED)) <= allowed
        assert {*(rows // 1000)} == {0, 2, 3, 4, 6}
    assert [len(split) for split in task.splits] == [1794, 468, 1638]


def test_a_draw_is_the_same_again_and_another_draw_is_not(images):
    first, again, other = (shirts(images, draw).split("train").data for draw in (0, 0, 1))
    assert np.array_equal(first.inputs, again.inputs)
    assert np.array_equal(first.labels, again.labels)
    assert not np.array_equal(first.inputs, other.inputs)


@pytest.mark.parametrize("set_up", SET_UPS, ids=lambda own: f"{own.base}: {own.title}")
def test_every_set_up_changes_its_base(set_up):
    """The training, the network, or nothing for the base itself; a change that changes nothing would be no factor."""
    base = next(own for own in SET_UPS if own.base == set_up.base)
    same = str(_recipe(set_up)) == str(_recipe(base)) and not set_up.random_start
    assert same == (not set_up.title)


def test_writing_trains_nothing_and_wrong_folders_and_parts_are_named(tmp_path, capsys, monkeypatch):
    assert main(["weak-labels", "--data", str(tmp_path)]) == 2
    assert "deepdrid_64.npz: no such file" in capsys.readouterr().err
    assert main(["weak-labels", "--part", "1", "--data", str(tmp_path)]) == 2
    assert "made at once" in capsys.readouterr().err
    monkeypatch.setattr(results.__main__, "left_to_train", lambda data, store: 7)
    monkeypatch.setattr(results.__main__, "write_weak_labels", lambda *arguments: pytest.fail("trained"))
    assert main(["weak-labels", "--write", "--data", str(tmp_path)]) == 2
    assert "--write trains nothing, and 7 trainings" in capsys.readouterr().err
    assert main(["weak-labels", "--dry-run", "--data", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "7 trainings to be made\n"


def test_the_interval_is_students():
    differences = np.array([0.01, 0.03, -0.02, 0.05, 0.04])
    low, high = stats.t.interval(0.95, 4, differences.mean(), stats.sem(differences))
    assert interval(differences) == pytest.approx((differences.mean(), low, high))
    assert interval(np.full(5, 0.25)) == (0.25, 0.25, 0.25)


def test_sentences_name_what_is_significant():
    noise = np.array([-0.002, 0.001, 0.0, 0.002, -0.001])

    def scored(auc):
        return [{"class_auroc": value, "nll": 0.5, "epoch": 3.0} for value in auc]

    scores = {(set_up, "fashion"): scored(0.7 + noise) for set_up in SET_UPS}
    scores[LINEAR, "fashion"] = scored(0.6 + noise[::-1])
    weighted = next(own for own in SET_UPS if own.title == "class weights in the loss")
    scores[weighted, "fashion"] = scored(0.6 + noise[::-1])
    small, former = findings("fashion", scores)
    changed = "Changes that lower its AUC, with an interval that excludes zero: class weights in the loss (-0.100)."
    assert small == f"Small is ahead of `linear`. {changed}"
    assert former == "The former small is ahead of `linear`. The interval of no single change excludes zero."
    assert {own.base for own in SET_UPS} == {SMALL, FORMER}
