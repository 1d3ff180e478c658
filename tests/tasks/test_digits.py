from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from dubio.core.errors import MissingExtra, UnknownName
from dubio.core.registry import TASKS
from dubio.tasks import digits
from tests.tasks.helpers import ids


def test_digits_holds_two_digits_out_and_corrupts_the_test_images() -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    task = TASKS.make("digits")
    assert task.classes == tuple("01234567")
    assert [split.kind for split in task.splits[:5]] == ["train", "val", "cal", "id", "ood"]
    assert {split.name for split in task.of_kind("shift")} == {
        f"{sort}-{severity}" for sort in ("noise", "blur", "rotation") for severity in range(1, 6)
    }
    assert (task.split("blur-4").family, task.split("blur-4").severity) == ("blur", 4)
    assert (task.split("test").family, task.split("test").severity) == (None, None)
    everything = ids(task, "train", "val", "cal", "test", "novel")
    assert sorted(map(int, everything)) == list(range(1797))
    truth = datasets.load_digits()
    for name in ("train", "test"):
        data = task.split(name).data
        rows = data.ids.astype(int)
        np.testing.assert_array_equal(truth.target[rows], data.labels)
        np.testing.assert_array_equal(np.rint(truth.images[rows] * 255 / 16), data.inputs[..., 0])
    novel = task.split("novel").data
    assert set(truth.target[novel.ids.astype(int)]) == {8, 9}
    assert (novel.labels == -1).all()
    noisy = task.split("noise-5").data
    np.testing.assert_array_equal(noisy.labels, task.split("test").data.labels)
    assert noisy.ids[0] == f"{task.split('test').data.ids[0]}/noise-5"


def test_tasks_repeat_exactly_and_follow_their_seed() -> None:
    pytest.importorskip("sklearn")
    one, again, other = TASKS.make("digits"), TASKS.make("digits"), TASKS.make("digits", split_seed=1)
    assert [s.fingerprint for s in one.splits] == [s.fingerprint for s in again.splits]
    assert one.split("train").fingerprint != other.split("train").fingerprint


def test_digits_novelty_is_an_argument() -> None:
    pytest.importorskip("sklearn")
    task = TASKS.make("digits", novel=())
    assert len(task.classes) == 10
    assert not task.of_kind("ood")
    with pytest.raises(UnknownName, match="class in novel"):
        TASKS.make("digits", novel=("11",))


def test_digits_are_the_same_from_the_file_and_from_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = digits.read_digits()
    monkeypatch.setattr(digits, "package_folders", lambda name: [])
    loaded = digits.read_digits()
    assert np.array_equal(images, loaded[0])
    assert np.array_equal(labels, loaded[1])
    assert (images.dtype, labels.dtype) == (loaded[0].dtype, loaded[1].dtype)


def test_digits_are_read_without_importing_scikit_learn() -> None:
    program = (
        "import sys; from dubio.tasks.digits import read_digits; read_digits(); assert 'sklearn' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_digits_without_scikit_learn_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(MissingExtra, match="the task digits"):
        digits.read_digits()
