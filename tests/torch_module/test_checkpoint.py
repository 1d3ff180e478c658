"""A fit that is interrupted and called again is the fit that was never interrupted, bit for bit."""

import json

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

import dubio
from dubio.store.locks import ScratchDirectory, try_lock
from dubio.torch_module import checkpoint
from tests.torch_module.helpers import CONTINUED, Convnet, dropping, perceptron, pictures, table

METHODS = {
    "deterministic": {"epochs": 3, "batch": 16},  # nn.Dropout draws from torch's own generator
    "mc-dropout": {"epochs": 3, "batch": 16, "samples": 2},
    "snapshot-ensemble": {"epochs": 4, "cycles": 2, "batch": 16},
    "fge": {**CONTINUED, "epochs": 1, "cycles": 2, "store": "float16"},
    "swag-ensemble": {**CONTINUED, "epochs": 1, "tail_epochs": 3, "rank": 2, "samples": 2, "members": 2},
    "csghmc": {"epochs": 4, "cycles": 2, "samples_per_cycle": 1, "sampling_epochs": 1},
    "laplace": {"epochs": 3, "samples": 2, "scale": 1.0},
    "mean-field-vi": {"epochs": 2, "start_epochs": 1, "samples": 2},
    "deep-ensemble": {"epochs": 2, "members": 2},
}


@pytest.fixture(autouse=True)
def saved_after_every_epoch(monkeypatch):
    monkeypatch.setattr(checkpoint, "EVERY_SECONDS", 0.0)


def interrupted(after, **told):
    """Interrupt a fit when it speaks for the so manyth time; the words it said."""
    words = []

    def progress(done, said):
        words.append(said)
        if len(words) == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dubio.fit(progress=progress, **told)
    return words


def same(first, second):
    ours, theirs = dict(first.tensors()), dict(second.tensors())
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], tensor) for name, tensor in theirs.items())
    for one, other in zip(first.records, second.records, strict=True):
        assert one.keys() == other.keys()
        assert one["history"] == other["history"]
        assert one["epochs"] == other["epochs"]


@pytest.mark.parametrize("method", METHODS)
def test_an_interrupted_fit_goes_on_and_ends_the_same(tmp_path, method):
    told = {"method": method, "network": dropping, "train": table(32), "seed": 2, **METHODS[method]}
    whole = dubio.fit(**told)
    kept = {**told, "checkpoint": tmp_path / "kept"}
    first, said = interrupted(3, **kept), []
    assert (tmp_path / "kept" / "call.json").is_file()
    generator = torch.random.get_rng_state()
    ended = dubio.fit(progress=lambda done, words: said.append(words), **kept)
    assert torch.equal(torch.random.get_rng_state(), generator)
    assert said[0] != first[0]  # it went on
    same(ended, whole)
    np.testing.assert_array_equal(ended.predict(table()).logits, whole.predict(table()).logits)
    assert not (tmp_path / "kept").exists()


def test_a_fit_may_be_interrupted_twice_or_never(tmp_path):
    method = "swag-ensemble"
    told = {"method": method, "network": dropping, "train": table(32), "seed": 2, **METHODS[method]}
    whole, kept = dubio.fit(**told), {**told, "checkpoint": tmp_path / "kept"}
    assert interrupted(2, **kept) != interrupted(2, **kept)
    same(dubio.fit(**kept), whole)
    same(dubio.fit(**kept), whole)
    assert not (tmp_path / "kept").exists()


def test_batch_norm_and_images_go_on_too(tmp_path):
    told = {"method": "swag", "network": Convnet, "train": pictures(24), **CONTINUED, "tail_epochs": 3, "samples": 2}
    interrupted(4, checkpoint=str(tmp_path / "a" / "b"), **told)
    same(dubio.fit(checkpoint=str(tmp_path / "a" / "b"), **told), dubio.fit(**told))


def test_what_is_finished_is_not_trained_again(tmp_path):
    told = {"method": "deep-ensemble", "network": perceptron, "train": table(), "epochs": 3, "members": 3}
    words = interrupted(5, checkpoint=tmp_path / "kept", **told)  # in the second epoch of the second member
    assert words[-1].startswith("fit 2 of 3, epoch 2")
    said = []
    dubio.fit(checkpoint=tmp_path / "kept", progress=lambda done, words: said.append((done, words)), **told)
    assert said[0] == (pytest.approx(1 / 3), "fit 1 of 3, done before")
    assert said[1][1].startswith("fit 2 of 3, epoch 2")
    assert len(said) == 1 + 2 + 3 + 1


def test_a_checkpoint_that_is_damaged_costs_time_and_nothing_else(tmp_path):
    told = {"method": "deep-ensemble", "network": perceptron, "train": table(32), "epochs": 2, "members": 2}
    whole = dubio.fit(**told)
    interrupted(4, checkpoint=tmp_path / "kept", **told)
    for path in (tmp_path / "kept").rglob("*.safetensors"):
        path.write_bytes(path.read_bytes()[:-1])
    same(dubio.fit(checkpoint=tmp_path / "kept", **told), whole)


ONCE = {"method": "deterministic", "network": perceptron, "train": table(), "epochs": 3}


@pytest.fixture(scope="module")
def kept_once(tmp_path_factory):
    """The folder of a call that was interrupted."""
    folder = tmp_path_factory.mktemp("interrupted") / "kept"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "EVERY_SECONDS", 0.0)
        interrupted(2, checkpoint=folder, **ONCE)
    return folder


class Wider(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 9), torch.nn.ReLU(), torch.nn.Linear(9, 3))

    def forward(self, x):
        return self.layers(x)


@pytest.mark.parametrize(
    ("other", "what"),
    [
        ({"lr": 0.5}, "method"),
        ({"method": "swa", "tail_epochs": 2, "patience": 0, "collect": "last"}, "method"),
        ({"network": Wider}, "network"),
        ({"network": lambda: dropping(0.25)}, "network"),
        ({"network": perceptron()}, "network"),  # the same layers with other first weights
        ({"train": table(seed=1)}, "train, val"),
        ({"val": table(20, seed=1)}, "train, val"),
        ({"seed": 1}, "network, seed"),
        ({"classes": ["a", "b", "c"]}, "classes"),
        ({"target": "ordinal"}, "target"),
    ],
)
def test_the_folder_of_another_call_is_refused(kept_once, other, what):
    before = {path.name: path.stat().st_mtime_ns for path in kept_once.rglob("*") if path.suffix}
    with pytest.raises(dubio.UserError, match=rf"holds a fit of another call: different {what}\. Give the same"):
        dubio.fit(checkpoint=kept_once, **{**ONCE, **other})
    assert {path.name: path.stat().st_mtime_ns for path in kept_once.rglob("*") if path.suffix} == before


def test_after_a_refusal_the_same_call_goes_on(tmp_path):
    interrupted(2, checkpoint=tmp_path / "kept", **ONCE)
    with pytest.raises(dubio.UserError, match="another call"):
        dubio.fit(checkpoint=tmp_path / "kept", **{**ONCE, "seed": 1})
    same(dubio.fit(checkpoint=tmp_path / "kept", **ONCE), dubio.fit(**ONCE))


def test_folders_that_cannot_be_used(tmp_path):
    told = {"method": "deterministic", "network": perceptron, "train": table(), "epochs": 1}
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(dubio.UserError, match="holds other files; give a new or empty folder"):
        dubio.fit(checkpoint=tmp_path / "mine", **told)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.tex"]
    with pytest.raises(dubio.UserError, match="a file is where a directory should be"):
        dubio.fit(checkpoint=tmp_path / "mine" / "thesis.tex", **told)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "call.json").write_text("{")
    with pytest.raises(dubio.UserError, match=r"call\.json is damaged"):
        dubio.fit(checkpoint=tmp_path / "broken", **told)
    (tmp_path / "empty" / "tmp").mkdir(parents=True)  # stopped before anything was kept
    lock = try_lock(tmp_path / "empty" / "lock")
    with pytest.raises(dubio.UserError, match="another process is using"):
        dubio.fit(checkpoint=tmp_path / "empty", **told)
    lock.release()
    dubio.fit(checkpoint=tmp_path / "empty", **told)
    assert not (tmp_path / "empty").exists()


def test_nothing_is_removed_that_others_put_there(tmp_path):
    told = {"method": "deterministic", "network": perceptron, "train": table(), "epochs": 2}
    interrupted(2, checkpoint=tmp_path / "kept", **told)
    (tmp_path / "kept" / "notes.txt").touch()
    dubio.fit(checkpoint=tmp_path / "kept", **told)
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["notes.txt"]


class Noisy(Dataset):
    """Other views each time, from torch's generator."""

    def __init__(self):
        self.inputs, self.targets = map(torch.from_numpy, table())

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, row):
        return self.inputs[row] + 0.1 * torch.randn(4), self.targets[row]


def test_a_dataset_with_random_views_is_the_same_data_and_draws_on(tmp_path):
    told = {"method": "deterministic", "network": perceptron, "train": Noisy(), "epochs": 4}  # a tenth of it validates
    interrupted(3, checkpoint=tmp_path / "kept", **told)
    said = json.loads((tmp_path / "kept" / "call.json").read_bytes())
    assert said["train"].keys() == {"rows", "shape", "labels"}
    same(dubio.fit(checkpoint=tmp_path / "kept", **told), dubio.fit(**told))


def test_a_scratch_of_a_dead_process_is_swept(tmp_path):
    told = {"method": "deterministic", "network": perceptron, "train": table(), "epochs": 2}
    interrupted(2, checkpoint=tmp_path / "kept", **told)
    dead = ScratchDirectory(tmp_path / "kept" / "tmp")
    (dead.path / "half").write_text("written")
    dead._lock.release()
    dubio.fit(checkpoint=tmp_path / "kept", **told)
    assert not (tmp_path / "kept").exists()
